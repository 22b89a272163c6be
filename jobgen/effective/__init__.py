"""What will really run: versions, sharding, loading, quantisation, adapters, optimizer, offload and batch.

Silent rewrites that libraries make (effects) are decided here, once; no byte totals are computed here.
"""
