"""Statistics along axes that are repeated over the tensor they were taken from.

`x - mean(x)` is, in a graph, sub(x, Broadcast(View(Reduce(x)))), with the view anywhere between the
reduction and the broadcast, and with arithmetic on the small tensor between them, too.
"""

from __future__ import annotations

from kn_graph.dim import Dim, Size, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Cast
from kn_graph.ops.layout import Broadcast, View
from kn_graph.ops.reduce import Reduce, ReduceFn
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import function
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = ["Walk", "before_broadcast", "kept_shape"]


def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return a shape with axes reduced to size 1."""
    return tuple(1 if a in axes else s for a, s in enumerate(shape))


def before_broadcast(edit: Editor, v: Value) -> tuple[Value, tuple[Node, ...]]:
    """Return what a value repeats along axes of size 1, and the node that does."""
    if not isinstance(v.node.op, Broadcast):
        return v, ()
    return edit.operands(v.node)[0], (v.node,)


class Walk:
    """A way down from a value through nodes that keep the order of its elements.

    Attributes:
        at: the value it has come to.
        nodes: the nodes passed.
    """

    def __init__(self, edit: Editor, at: Value, dtype: DType) -> None:
        """Start at a value; `dtype` is what casts may not be narrower than."""
        self._edit, self._dtype = edit, dtype
        self.at = at
        self.nodes: list[Node] = []

    def skip(self) -> None:
        """Go through views, and through casts of floats that lose nothing that counts."""
        while True:
            op = self.at.node.op
            if isinstance(op, Cast):
                (x,) = self._edit.operands(self.at.node)
                if not (self._precise(op.dtype) and self._precise(x.dtype)):
                    return
            elif not isinstance(op, View):
                return
            self.down()

    def _precise(self, dtype: DType) -> bool:
        return dtype is self._dtype or (dtype.is_float and dtype.bits > self._dtype.bits)

    def down(self, operand: int = 0) -> None:
        """Go through the node to one of its operands."""
        self.nodes.append(self.at.node)
        self.at = self._edit.operands(self.at.node)[operand]

    def function(self) -> str:
        """Return the scalar function of the node, after skipping."""
        self.skip()
        return function(self.at.node.op)

    def through(self, *fns: str) -> bool:
        """Go through a scalar function of one operand."""
        if self.function() not in fns:
            return False
        self.down()
        return True

    def through_constant(self, fn: str, *, first: bool | None = None) -> float | None:
        """Go through a scalar function of a value and a uniform constant, and return that.

        Args:
            fn: the function.
            first: whether the constant is the first operand; None for either.
        """
        if self.function() != fn:
            return None
        operands = self._edit.operands(self.at.node)
        for i in (0, 1) if first is None else (int(first),):
            # operand i is where the walk goes on
            number = uniform_number(self._edit, operands[1 - i])
            if number is not None:
                self.down(i)
                return number
        return None

    def reaches(self, x: Value) -> bool:
        """Go to x through casts to wider types; return whether x is there."""
        while self.at is not x:
            op = self.at.node.op
            if not isinstance(op, Cast):
                return False
            (narrow,) = self._edit.operands(self.at.node)
            if not narrow.dtype.is_float or narrow.dtype.bits > op.dtype.bits:
                return False
            self.down()
        return True

    def through_root(self) -> bool:
        """Go through a square root."""
        if self.function() == "pow":
            return self.through_constant("pow", first=False) == 0.5
        return self.through("sqrt")

    def through_inverse_root(self) -> bool:
        """Go through 1 / sqrt(..)."""
        if self.function() == "pow":
            return self.through_constant("pow", first=False) == -0.5
        return self.through("rsqrt") or (self.through_inverse() and self.through_root())

    def through_inverse(self) -> bool:
        """Go through 1 / .."""
        return self.through("reciprocal") or self.through_constant("div", first=True) == 1

    def reduction(self, fn: ReduceFn) -> tuple[int, ...] | None:
        """Go through a reduction, and return its axes."""
        self.skip()
        op = self.at.node.op
        if not isinstance(op, Reduce) or op.fn != fn:
            return None
        self.down()
        return op.axes

    def mean(self) -> tuple[int, ...] | None:
        """Go through a mean, and return its axes; a sum over n, divided by n, is one, too."""
        count = self.through_constant("div", first=False)
        if count is None:
            factor = self.through_constant("mul")
            count = None if not factor else 1 / factor
        if count is None:
            return self.reduction("mean")
        axes = self.reduction("sum")
        if axes is None or not _is(size_prod([self.at.shape[a] for a in axes]), count):
            return None
        return axes


def _is(size: Size, number: float) -> bool:
    return not isinstance(size, Dim) and size > 0 and abs(number / size - 1) < 1e-6
