"""Pure functions of what will run, the architecture and the hardware: bytes, seconds and the ledger that adds them."""
