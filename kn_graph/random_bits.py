"""The random stream: counter-based, so that every device makes the same numbers in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["DRAW_BLOCKS", "RandomStreams", "random_bits"]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = np.uint64(0xFFFFFFFF)

DRAW_BLOCKS = 1 << 32
"""Blocks that a draw may have: 64 GiB of numbers."""


def random_bits(
    seed: int, stream: int, count: int, draw: int = 0
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return `count` uniform uint32 of one stream: Philox4x32-10.

    Element i is word i % 4 of the block with counter (i // 4 + draw * 2**32, stream) and key
    `seed`.
    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    Args:
        seed: 64 bits used.
        stream: 64 bits used; one a node.
        count: how many.
        draw: how many times the node has drawn before, in earlier iterations of a loop.
    """
    blocks = np.arange((count + 3) // 4, dtype=np.uint64) + np.uint64(draw * DRAW_BLOCKS)
    words = [blocks & MASK, blocks >> np.uint64(32)]
    words += [np.full_like(blocks, (stream >> shift) & 0xFFFFFFFF) for shift in (0, 32)]
    keys = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(ROUNDS):
        products = [words[2 * i] * np.uint64(MULTIPLIERS[i]) for i in (0, 1)]
        high = [p >> np.uint64(32) for p in products]
        low = [p & MASK for p in products]
        words = [
            high[1] ^ words[1] ^ np.uint64(keys[0]),
            low[1],
            high[0] ^ words[3] ^ np.uint64(keys[1]),
            low[0],
        ]
        keys = [(k + w) & 0xFFFFFFFF for k, w in zip(keys, WEYL, strict=True)]
    return np.stack(words, axis=1).astype(np.uint32).ravel()[:count]


class RandomStreams:
    """The random numbers of one run, or of several: a node that runs again goes on in its stream.

    Attributes:
        seed: of the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._draws: dict[int, int] = {}

    @classmethod
    def of(cls, seed: int | RandomStreams) -> RandomStreams:
        """Return the streams of a seed; those of earlier runs are taken as they are."""
        return seed if isinstance(seed, RandomStreams) else cls(seed)

    def draw(self, stream: int, key: int | None) -> tuple[int, int]:
        """Return the seed of the next words of a stream, and how often it has drawn before.

        Args:
            stream: whose words they are.
            key: takes the place of the run's seed.
        """
        before = self._draws.get(stream, 0)
        self._draws[stream] = before + 1
        return self.seed if key is None else key, before

    def bits(
        self, stream: int, count: int, key: int | None
    ) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Return the next `count` words of a stream; `key` takes the place of the run's seed."""
        seed, draw = self.draw(stream, key)
        return random_bits(seed, stream, count, draw)
