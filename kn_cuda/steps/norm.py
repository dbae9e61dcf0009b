"""Normalizations: a launch each, of rows that are held in registers where they fit."""

from __future__ import annotations

from collections.abc import Callable

from kn_cuda.builder import KernelBuilder
from kn_cuda.elements import Front
from kn_cuda.expression import literal
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.rows import Split, StepRows, at_most
from kn_cuda.types import wide
from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.ops.norm import Norm, Softmax
from kn_plan.plan import Step

__all__ = ["norm", "softmax"]


def norm(low: Lowering, step: Step, op: Norm, front: Front | None = None) -> Calls:
    """Normalize, what lies in memory or what a program in front makes."""
    rows, dtype = StepRows(low, step, op.axes, front), low.dtype(step.reads[0])
    root = "1 / sqrt" if wide(dtype) is DType.FLOAT64 else "rsqrtf"
    inverse = f"{root}(square + {literal(op.epsilon, wide(dtype))})"

    def launch(split: Split) -> KernelBuilder:
        b = KernelBuilder("norm", "norm_rows", low.threads)
        b.constant("CENTER", op.center)
        rows.add(b, split)
        b.code(f"KN_DEVICE static Acc inverse_deviation(Acc square) {{ return {inverse}; }}")
        return b

    return _guarded(rows, launch)


def softmax(low: Lowering, step: Step, op: Softmax, front: Front | None = None) -> Calls:
    """Normalize exponentials of what lies in memory or what a program in front makes."""
    rows, dtype = StepRows(low, step, (op.axis,), front), low.dtype(step.reads[0])
    suffix = "" if wide(dtype) is DType.FLOAT64 else "f"

    def launch(split: Split) -> KernelBuilder:
        b = KernelBuilder(
            "softmax", "softmax_held" if split.keep else "softmax_online", low.threads
        )
        b.constant("LOG", op.log)
        rows.add(b, split)
        lowest = literal(float("-inf"), wide(dtype))
        b.code(f"KN_DEVICE static Acc lowest() {{ return {lowest}; }}")
        for name, function in (("power", "exp"), ("logarithm", "log")):
            b.code(f"KN_DEVICE static Acc {name}(Acc x) {{ return {function}{suffix}(x); }}")
        return b

    return _guarded(rows, launch)


def _guarded(rows: StepRows, written: Callable[[Split], KernelBuilder]) -> Calls:
    """Return a launch for each way to share rows; the length of rows chooses one."""
    calls: Calls = []
    taken: Size = 0
    for split in rows.splits():
        fits: Size = 1 if split.limit is None else at_most(rows.elements.length, split.limit)
        launch = written(split).launch(
            rows.blocks(split), guard=fits - taken, extent=rows.elements.rows * rows.elements.length
        )
        calls.append(launch)
        taken = fits
    return calls
