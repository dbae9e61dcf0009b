"""Ensembles of decision trees: see `native/kn_tree.h`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kn_cpu.axes import KernelCall
from kn_graph.dim import Size
from kn_graph.ops.tree import NODE_MODES, TreeEnsemble
from kn_plan.layout import StridedLayout

__all__ = ["pack_trees", "tree_calls"]

Array = np.ndarray[Any, Any]

FEATURE_BITS = 5
LESS, EQUAL, GREATER, UNORDERED, NAN = (1 << i for i in range(FEATURE_BITS))

HOLDS = {
    "LEQ": LESS | EQUAL,
    "LT": LESS,
    "GTE": GREATER | EQUAL,
    "GT": GREATER,
    "EQ": EQUAL,
    "NEQ": LESS | GREATER | UNORDERED,
}
"""The outcomes for which a node's comparison holds."""

FUNCTIONS = ("sum", "average", "min", "max")

BLOCK = 256
"""Trees whose votes are added up first: sums are split in the same places for all threads."""

UNIT = 4096
"""Nodes on paths that are worth a turn of a thread."""

MOST = 1 << 31
"""Entries that a table may have."""


def pack_trees(
    nodes: Array, thresholds: Array, roots: Array, starts: Array, targets: Array, weights: Array
) -> list[Array]:
    """Return the tables of a `TreeEnsemble` of float32 as the kernel reads them.

    Raises:
        ValueError: there are too many nodes or features.
    """
    features = int(nodes[:, 0].max(initial=0))
    if max(map(len, (nodes, starts, weights))) >= MOST or features >= MOST >> (FEATURE_BITS + 1):
        raise ValueError("its kernel is for up to 2^31 nodes, leaves and weights")
    holds = np.array([HOLDS[name] for name in NODE_MODES])[nodes[:, 1]]
    packed = np.empty((len(nodes), 4), np.int32)
    packed[:, 0] = nodes[:, 0] << FEATURE_BITS | holds | np.where(nodes[:, 4] != 0, NAN, 0)
    packed[:, 1] = thresholds.astype(np.float32).view(np.int32)
    packed[:, 2:] = nodes[:, 2:4]
    tables = [packed, *(a.astype(np.int32) for a in (roots, starts, targets))]
    return [*tables, weights.astype(np.float32)]


def tree_calls(
    op: TreeEnsemble, trees: int, out: StridedLayout, x: StridedLayout
) -> tuple[KernelCall, KernelCall, Sequence[Size]]:
    """Return the calls that collect votes and add them up, and the shape of the votes.

    The first has p = {x, *tables, votes}, the second p = {votes, out}.
    """
    rows, blocks = x.sizes[0], max(1, -(-trees // BLOCK))
    block = max(1, -(-trees // blocks))
    head: list[Size] = [rows, *x.strides, trees, block, blocks]
    numbers = (*head, op.targets, FUNCTIONS.index(op.aggregate), *out.strides)
    grain = max(1, UNIT // max(1, block * op.depth))
    walk = KernelCall("tree_f32", numbers, rows * blocks, grain)
    total = KernelCall("tree_sum_f32", numbers, rows, max(1, UNIT // (blocks * op.targets + 1)))
    return walk, total, (rows, blocks, 2, op.targets)
