"""Simulates torch's caching allocator through training steps: how much it reserves beyond what lives.

    python tests/physics/oracles/caching_allocator.py > tests/physics/oracles/reserved.jsonl

The allocator's rules are those of c10/cuda/CUDACachingAllocator.cpp: sizes rounded to 512 B, a small and a large pool,
segments of 2 MiB, 20 MiB or the size in 2 MiB steps, best fit, splitting, merging with free neighbours, nothing given back.
The step is that of a decoder with adapters and full recomputation under transformers' loss: layer inputs kept, each
layer run, logits in 16 bit and fp32, log-softmax, their gradients, each layer recomputed and gone through backwards.
Lengths: all equal, or log-normal (sigma 0.9) with a median of a share of the longest, cut at it; or without those above.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator

MIB = 2**20
SHAPES = {"152k vocabulary": (2048, 5504, 24, 151936), "64k": (4096, 11008, 32, 64000), "32k": (4096, 14336, 32, 32000)}
"""hidden, MLP width, layers, vocabulary."""
LONGEST, STEPS, SEEDS = 2048, 50, 6


class Block:
    """A piece of a segment."""

    __slots__ = ("after", "before", "free", "size", "small")

    def __init__(self, size: int, small: bool, before: Block | None = None, after: Block | None = None) -> None:
        self.size, self.small, self.before, self.after, self.free = size, small, before, after, True


class Allocator:
    """Counts what lives and what is reserved."""

    def __init__(self) -> None:
        self.cached: set[Block] = set()
        self.live = self.peak = self.reserved = 0

    def take(self, size: float) -> Block:
        """A block of at least that size."""
        wanted = max(512, -(-int(size) // 512) * 512)
        small = wanted <= MIB
        fitting = [block for block in self.cached if block.small == small and block.size >= wanted]
        if fitting:
            block = min(fitting, key=lambda one: one.size)
            self.cached.remove(block)
        else:
            segment = 2 * MIB if small else 20 * MIB if wanted < 10 * MIB else -(-wanted // (2 * MIB)) * 2 * MIB
            self.reserved += segment
            block = Block(segment, small)
        rest = block.size - wanted
        if rest >= 512 if small else rest > MIB:
            piece = Block(rest, small, block, block.after)
            if block.after is not None:
                block.after.before = piece
            block.after, block.size = piece, wanted
            self.cached.add(piece)
        block.free = False
        self.live += block.size
        self.peak = max(self.peak, self.live)
        return block

    def give(self, *blocks: Block) -> None:
        """Frees blocks."""
        for given in blocks:
            block = given
            self.live -= block.size
            block.free = True
            if block.before is not None and block.before.free:
                block = self._merged(block.before, block)
            if block.after is not None and block.after.free:
                block = self._merged(block, block.after)
            self.cached.add(block)

    def _merged(self, left: Block, right: Block) -> Block:
        self.cached -= {left, right}
        left.size, left.after = left.size + right.size, right.after
        if right.after is not None:
            right.after.before = left
        return left


def forward(pool: Allocator, tokens: int, hidden: int, width: int) -> Block:
    """A layer without gradients; returns its output."""
    wide, narrow = 4 * tokens * hidden, 2 * tokens * hidden
    norm = [pool.take(wide), pool.take(wide), pool.take(narrow)]
    pool.give(*norm[:2])
    heads = [pool.take(narrow) for _ in range(5)]
    pool.give(*heads[:2])
    mixed = pool.take(narrow)
    pool.give(*heads[2:], norm[2])
    projected = pool.take(narrow)
    pool.give(mixed)
    stream = pool.take(narrow)
    pool.give(projected)
    norm = [pool.take(wide), pool.take(wide), pool.take(narrow)]
    pool.give(*norm[:2])
    gate = pool.take(2 * tokens * width)
    silu = pool.take(2 * tokens * width)
    pool.give(gate)
    up, product = pool.take(2 * tokens * width), pool.take(2 * tokens * width)
    pool.give(silu, up, norm[2])
    down = pool.take(narrow)
    pool.give(product)
    output = pool.take(narrow)
    pool.give(down, stream)
    return output


def backward(pool: Allocator, tokens: int, hidden: int, width: int) -> Block:
    """A layer with everything saved, then its gradients; returns the input's gradient."""
    narrow = 2 * tokens * hidden
    saved = [pool.take(size) for size in (2 * narrow, narrow, narrow, narrow, narrow, narrow, narrow, narrow, 2 * narrow, narrow, narrow)]
    saved += [pool.take(2 * tokens * width) for _ in range(4)]
    gradient = pool.take(narrow)
    for block in reversed(saved):
        following = pool.take(block.size)
        pool.give(gradient, block)
        gradient = following
    result = pool.take(narrow)
    pool.give(gradient)
    return result


def step(pool: Allocator, tokens: int, shape: tuple[int, int, int, int]) -> None:
    """One training step."""
    hidden, width, layers, vocabulary = shape
    kept = [pool.take(2 * tokens * hidden)]
    kept += [forward(pool, tokens, hidden, width) for _ in range(layers)]
    norm = [pool.take(4 * tokens * hidden), pool.take(2 * tokens * hidden)]
    half, single = 2 * tokens * vocabulary, 4 * tokens * vocabulary
    logits, copy = pool.take(half), pool.take(single)
    log_softmax = pool.take(single)
    pool.give(copy)
    pool.give(logits)
    likelihood, slope = pool.take(single), pool.take(single)
    pool.give(likelihood, log_softmax)
    narrow = pool.take(half)
    pool.give(slope)
    gradient = pool.take(2 * tokens * hidden)
    pool.give(narrow, *norm, kept.pop())
    for _ in range(layers):
        following = backward(pool, tokens, hidden, width)
        pool.give(gradient, kept.pop())
        gradient = following
    pool.give(gradient)


def lengths(share: float | None, seed: int, dropped: bool = False) -> Iterator[int]:
    """Lengths of the steps; the longest occurs once. ``dropped``: samples that are longer are left out, not cut."""
    source = random.Random(seed)
    index = 0
    while index < STEPS:
        wanted = LONGEST
        if share is not None and index != STEPS * 3 // 4:
            wanted = 16 + int(source.lognormvariate(0, 0.9) * share * LONGEST)
            if dropped and wanted > LONGEST:
                continue
        index += 1
        yield min(LONGEST, wanted)


def main() -> int:
    """One line per shape and distribution: reserved beyond the peak, over the loss's twelve bytes a logit."""
    for name, shape in SHAPES.items():
        for share, dropped in ((None, False), *itertools.product((1 / 2, 1 / 4, 1 / 8, 1 / 16), (False, True))):
            beyond = peak = 0.0
            for seed in range(SEEDS):
                pool = Allocator()
                for tokens in lengths(share, seed, dropped):
                    step(pool, tokens, shape)
                beyond += (pool.reserved - pool.peak) / SEEDS
                peak = pool.peak
            loss = 12 * LONGEST * shape[3]
            sys.stdout.write(json.dumps({"shape": name, "median": share, "dropped": dropped, "peak": peak, "loss": loss, "beyond": round(beyond)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
