"""From a seed to a program."""

from __future__ import annotations

import numpy as np

from tests.fuzz.basics import BASICS, DTYPES, INTS
from tests.fuzz.layers import LAYERS
from tests.fuzz.maker import SYMBOLS, Maker
from tests.fuzz.patterns import PATTERNS
from tests.fuzz.program import Program
from tests.fuzz.rewrites import REWRITES

__all__ = ["FAMILIES", "crash_of", "generate"]

FAMILIES = {**BASICS, **LAYERS, **PATTERNS, **REWRITES}
MOST_TRIES = 22


def generate(seed: int) -> Program:
    """Return the program of a seed: always the same."""
    return _made(seed).program()


def crash_of(seed: int) -> Program | None:
    """Return the program of a seed up to the first line that crashed, which others leave out."""
    return _made(seed).crash


def _made(seed: int) -> Maker:
    m = Maker(seed)
    for _ in range(m.number(1, 3)):
        rank = m.one_of([0, 1, 2, 2, 3, 3, 4])
        shape = [m.one_of([*SYMBOLS, 1, 1, 2, 3, 4, 5]) for _ in range(rank)]
        m.new_input(m.one_of(DTYPES), shape)
    if m.chance(0.3):
        m.new_input(m.one_of(INTS), [m.one_of([*SYMBOLS, 2, 3]) for _ in range(m.number(0, 3))])
    families = list(FAMILIES)
    weights = np.array([FAMILIES[f] for f in families], float)
    for _ in range(m.number(3, MOST_TRIES)):
        family = families[int(m.rng.choice(len(families), p=weights / weights.sum()))]
        family(m)
    return m
