"""Ensembles of decision trees."""

from __future__ import annotations

from kn_cpu.calls import NativeCall
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.tree import pack_trees, tree_calls
from kn_graph.dtype import DType
from kn_graph.ops.tree import TreeEnsemble
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step

__all__ = ["tree_ensemble"]


def tree_ensemble(low: Lowering, step: Step, op: TreeEnsemble) -> Calls:
    """Collect the votes of blocks of trees, then add them up."""
    x, *operands = step.reads
    (out,) = step.writes
    if {low.dtype(o) for o in (x, operands[-1])} != {DType.FLOAT32}:
        raise UnsupportedError("its kernel is for float32")
    tables = [t for t in map(low.constant, operands) if t is not None]
    if len(tables) != len(operands):
        raise UnsupportedError("its trees are computed")
    name = ("trees", *((o.buffer, o.layout) for o in operands))
    packed = low.keep(name, len(operands) - 1, lambda: pack_trees(*tables))
    walk, total, shape = tree_calls(op, len(tables[2]), out.layout, x.layout)
    votes = low.temporary(DType.FLOAT64, tuple(shape))
    calls = [NativeCall("tree", walk, (x, *packed, votes))]
    return [*calls, NativeCall("tree", total, (votes, out))]
