"""How fast estimates are: one at a time in a warm process, and as arrays. ``python -m jobgen.physics.benchmark``."""

from __future__ import annotations

import sys
import time
from typing import Any

from jobgen.physics import allocator
from jobgen.physics.estimate import estimate, stage_terms
from jobgen.physics.ledger import PHASES, alive
from jobgen.physics.sizes import Sizes
from jobgen.physics.stages import sizes, stages

SPEC = """
name: benchmark
model: {name: Qwen/Qwen2.5-7B-Instruct}
training: {method: full, framework: transformers, sequence_length: 4096, micro_batch_size: 1, activation_checkpointing: full}
parallelism: {sharding: zero3}
resources: {nodes: 2, gpus_per_node: 8, gpu: h100-80gb}
"""


def one(runs: int) -> float:
    """Seconds of one estimate: every step decided anew, as a planner or a lever asks for."""
    from jobgen.effective.resolve import assume
    from jobgen.effective.setup import Effective
    from jobgen.effective.versions import Versions
    from jobgen.spec import document

    first = assume(document.load_text(SPEC)).effective
    estimate(first)
    start = time.process_time()
    for _ in range(runs):
        estimate(Effective(first.facts, Versions({}, prefer={})))
    return (time.process_time() - start) / runs


def candidates(count: int) -> Sizes:
    """Sizes that vary over micro batch, sequence, data-parallel ranks and tensor parallel size, as arrays."""
    import numpy as np

    from jobgen.effective.resolve import assume
    from jobgen.spec import document

    base = sizes(assume(document.load_text(SPEC)).effective)
    index = np.arange(count)
    micro, sequence = 1 + index % 8, 1024.0 * (1 + index // 8 % 16)
    shards, tensor = 2.0 ** (index // 128 % 8), 2.0 ** (index // 1024 % 4)
    return base._replace(
        micro=micro, sequence=sequence, full_sequence=sequence, tensor=tensor, data=shards, weights_shards=shards,
        gradients_shards=shards, optimizer_shards=shards, accumulation=1 + index % 4, world=shards * tensor,
    )  # fmt: skip


def peaks(numbers: Sizes) -> Any:
    """Peak bytes of every candidate: the maximum over phases of what is allocated, and the allocator's part."""
    import numpy as np

    from jobgen.effective.resolve import assume
    from jobgen.spec import document

    effective = assume(document.load_text(SPEC)).effective
    stage = stages(effective, numbers)[0]
    terms = stage_terms(effective, numbers, stage)
    everything = (*terms, *allocator.reserve(effective, terms, stage), *allocator.outside(effective, numbers))
    best: Any = 0.0
    for bit, _ in PHASES:
        best = np.maximum(best, alive(everything, bit, ("allocated", "reserved", "device")))
    return best


def many(count: int) -> float:
    """Candidates a second."""
    numbers = candidates(count)
    peaks(numbers)
    start = time.process_time()
    peaks(numbers)
    return count / (time.process_time() - start)


def main() -> int:
    """Prints both."""
    sys.stdout.write(f"one estimate: {1e3 * one(200):.3f} ms\n")
    sys.stdout.write(f"arrays: {many(300_000):,.0f} candidates/s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
