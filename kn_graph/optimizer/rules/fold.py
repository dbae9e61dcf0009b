"""What follows from constants alone is computed before running.

An operation on constants becomes its result, computed by the reference, if that takes at most as
many bytes as the constants, or 4 MiB, or if it ends up as weights of a recurrent layer, which are
floats in every run, or as integer weights less their zero point, which take twice the bytes. That
is checked before anything is allocated. Views, permutations, slices and flips of a constant stay
views of its memory; a broadcast is never made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar

import numpy as np

import kn_graph.ops
from kn_graph.dim import Size, Symbol, UnboundSymbolError, evaluate
from kn_graph.dtype import DType
from kn_graph.errors import ExecutionError, KnError
from kn_graph.graph import Graph
from kn_graph.op import EvalContext, Op
from kn_graph.ops.control import ControlOp
from kn_graph.ops.elementwise import Binary, Cast, Unary
from kn_graph.ops.host import HostCall
from kn_graph.ops.layout import Broadcast, Flip, Permute, Slice, View
from kn_graph.ops.recurrent import Recurrent
from kn_graph.ops.reduce import Reduce
from kn_graph.ops.source import Constant, Sizes
from kn_graph.optimizer.constants import FREE_BYTES, known_array, known_bytes, known_shape
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.types import TensorType
from kn_graph.value import Node, Value

__all__ = ["RULES", "FoldConstants", "FoldLayout"]

Array = np.ndarray[Any, Any]

SMALL_BYTES = 64 << 10
"""Up to this size a constant may exist in several layouts."""

LAYOUT = (View, Permute, Slice, Flip)
REPEATED = (*LAYOUT, Broadcast)
SCALAR = (Unary, Binary, Cast)
NEVER = (*LAYOUT, Broadcast, Constant, Sizes, HostCall, ControlOp)


def _foldable() -> tuple[type[Op], ...]:
    for module in iter_modules(kn_graph.ops.__path__):
        import_module(f"{kn_graph.ops.__name__}.{module.name}")
    found, stack = [], [Op]
    while stack:
        kinds = stack.pop().__subclasses__()
        stack += kinds
        found += [k for k in kinds if k.__module__.startswith(kn_graph.ops.__name__)]
    return tuple(k for k in found if k.pure and not issubclass(k, NEVER))


class _NoSizes(EvalContext):
    """What an operation may ask that is computed before running: numbers only."""

    def size(self, size: Size) -> int:
        """Return a number."""
        return size if isinstance(size, int) else evaluate(size, {})

    def sizes(self, shape: Sequence[Size]) -> tuple[int, ...]:
        """Return numbers."""
        return tuple(map(self.size, shape))

    def bind(self, symbol: Symbol, number: int) -> None:
        """Refuse."""
        raise ExecutionError("a size is only known when it has run")

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Refuse."""
        raise ExecutionError("it runs a body")

    def random_bits(self, stream: int, count: int, key: int | None) -> Any:
        """Refuse."""
        raise ExecutionError("it is random")


@dataclass(frozen=True)
class Computed:
    """The results of a node."""

    arrays: tuple[Array, ...]


class FoldConstants(Rule[Computed]):
    """See the module."""

    name = "fold_constants"
    roots: ClassVar[tuple[type[Op], ...]] = _foldable()
    setting = "fold"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Computed | Refused | None:
        """Compute a node whose operands are constants, maybe repeated and under other layouts."""
        operands = edit.operands(node)
        sources: list[Array] = []
        for v in operands:
            a = _source(edit, v)
            if a is None:
                return _summed_weights(edit, node) if isinstance(node.op, Reduce) else None
            sources.append(a)
        sizes = [known_bytes(v.type) for v in node.results]
        if any(n is None for n in sizes):
            return None
        total = sum(n for n in sizes if n is not None)
        budget = max(FREE_BYTES, sum(a.nbytes for a in sources))
        if total > budget and (_becomes_recurrent_weights(edit, node) or _is_centered(node)):
            budget = total
        if total > budget:
            return Refused("the result is larger than the constants and than 4 MiB")
        arrays = [_seen(edit, v, budget) for v in operands]
        if any(a is None for a in arrays):
            return Refused("a broadcast constant is too large to compute with")
        inputs = [a for a in arrays if a is not None]
        if isinstance(node.op, Cast):  # narrow elements are put in order sooner than wide ones
            inputs = [_in_order(a) for a in inputs]
        return _computed(node, inputs)

    def rewrite(self, edit: Editor, found: Computed) -> tuple[Value, ...]:
        """Add the results as constants."""
        return tuple(_constant(edit, a) for a in found.arrays)


def _becomes_recurrent_weights(edit: Editor, node: Node) -> bool:
    """Return whether constants and scalar operations lead from here to a recurrent layer alone."""
    while not isinstance(node.op, Recurrent):
        (v,) = node.results
        users = edit.users(v)
        if edit.is_output(v) or len(users) != 1:
            return False
        (node,) = users
        others = [o for o in edit.operands(node) if o is not v]
        if isinstance(node.op, SCALAR) and all(
            isinstance(o.node.op, (Constant, Broadcast)) for o in others
        ):
            continue
        return isinstance(node.op, Recurrent)
    return False


def _is_centered(node: Node) -> bool:
    """Return whether 8-bit integers are converted so that their zero point can be subtracted."""
    if not isinstance(node.op, Cast) or node.op.dtype is not DType.INT16:
        return False
    return node.operands[0].dtype in (DType.INT8, DType.UINT8)


def _summed_weights(edit: Editor, node: Node) -> Computed | None:
    """Return the sums of constant integers that are converted only to be added up."""
    assert isinstance(node.op, Reduce)
    cast = edit.operands(node)[0].node
    converted = isinstance(cast.op, Cast) and cast.op.dtype is DType.INT32
    if node.op.fn != "sum" or not converted:
        return None
    array = known_array(edit, edit.operands(cast)[0])
    if array is None or array.dtype.kind not in "iu" or array.dtype.itemsize > 2:
        return None
    return Computed((np.asarray(array.sum(node.op.axes, dtype=np.int32)),))


def _in_order(a: Array) -> Array:
    """Return the elements as they follow one another, unless some are repeated."""
    return a if 0 in a.strides or a.flags.c_contiguous else a.copy(order="C")


def _source(edit: Editor, v: Value) -> Array | None:
    """Return the constant that a value of known shape repeats and lays out."""
    while isinstance(v.node.op, REPEATED):
        if known_shape(v.shape) is None:
            return None
        (v,) = edit.operands(v.node)
    return v.constant


def _seen(edit: Editor, v: Value, budget: int) -> Array | None:
    """Return the elements of such a value; None where a step to them takes more bytes."""
    chain: list[Node] = []
    while isinstance(v.node.op, REPEATED):
        chain.append(v.node)
        (v,) = edit.operands(v.node)
    array = v.constant
    for node in reversed(chain):
        if array is None or (known_bytes(node.results[0].type) or 0) > budget:
            return None
        array = np.asarray(node.op.eval(_NoSizes(), array))
    return array


def _computed(node: Node, arrays: Sequence[Array]) -> Computed | Refused:
    try:
        out = node.op.eval(_NoSizes(), *arrays)
    except (KnError, UnboundSymbolError) as error:
        return Refused(f"computing fails: {error}")
    results = [np.asarray(a) for a in (out if isinstance(out, tuple) else (out,))]
    for v, a in zip(node.results, results, strict=True):
        assert isinstance(v.type, TensorType)
        if a.dtype != v.dtype.numpy or a.shape != v.shape:
            return Refused(f"{node.op.title} gave {a.dtype}{list(a.shape)}, expected {v.type}")
    return Computed(tuple(results))


def _constant(edit: Editor, a: Array) -> Value:
    """Add a constant; a large one with equal elements as one element, broadcast."""
    if a.nbytes > SMALL_BYTES and a.dtype != object:
        one = a[(slice(0, 1),) * a.ndim]
        last = a[(-1,) * a.ndim]
        if last == one.item() and (a == one).all():
            return edit.graph.push(Broadcast(a.shape), edit.graph.constant(one.copy()))
    return edit.graph.constant(np.ascontiguousarray(a).reshape(a.shape))


@dataclass(frozen=True)
class Relaid:
    """A constant under another layout.

    Attributes:
        array: the elements.
        origin: where they lie in the file, if they still lie there in order.
    """

    array: Array
    origin: tuple[str, int, int] | None


class FoldLayout(Rule[Relaid]):
    """See the module. A large constant is only relaid where no second copy of it would stay."""

    name = "fold_layout"
    roots: ClassVar[tuple[type[Op], ...]] = LAYOUT
    setting = "fold"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Relaid | Refused | None:
        """Find a layout operation on a constant."""
        (v,) = edit.operands(node)
        op = v.node.op
        if not isinstance(op, Constant):
            return None
        if known_shape(node.results[0].shape) is None:
            return None
        if op.array.nbytes > SMALL_BYTES and not _moves_whole(edit, v):
            return Refused("the constant is used in other layouts, too")
        found = _computed(node, [op.array])
        if isinstance(found, Refused):
            return found
        (array,) = found.arrays
        if array.nbytes <= SMALL_BYTES:
            array = np.ascontiguousarray(array).reshape(array.shape)
        return Relaid(array, op.origin if isinstance(node.op, View) else None)

    def rewrite(self, edit: Editor, found: Relaid) -> Value:
        """Add the constant."""
        return edit.graph.constant(found.array, origin=found.origin)


def _moves_whole(edit: Editor, v: Value) -> bool:
    """Whether all readers of a constant are layout operations that do not repeat it."""
    users = edit.users(v)
    if edit.is_output(v) or not all(isinstance(u.op, LAYOUT) for u in users):
        return False
    sizes = [known_bytes(u.results[0].type) for u in users]
    have = known_bytes(v.type)
    return (
        have is not None
        and all(n is not None for n in sizes)
        and (sum(n for n in sizes if n is not None) <= have)
    )


RULES = (FoldLayout(), FoldConstants())
