"""Control flow: operations that run other graphs, their bodies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dim import Dim, Size, Symbol, UnboundSymbolError, of_atom, substitute, symbols_of
from kn_graph.dim_facts import bounds
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op, Result
from kn_graph.type_join import TypeJoin, is_tensor
from kn_graph.types import NoType, OptionalType, SequenceType, TensorType, UnrankedType, ValueType

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Value

__all__ = ["If", "Loop", "Scan"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ControlOp(Op):
    """An operation with bodies: attributes that are sealed graphs."""

    internal = True

    def describe(self) -> str:
        """Return the title with the attributes, bodies by name."""
        from kn_graph.graph import Graph

        given = ((f.name, getattr(self, f.name)) for f in fields(self))
        shown = ", ".join(
            f"{name}={x.name if isinstance(x, Graph) else x}" for name, x in given if x is not None
        )
        return f"{self.title}({shown})"


@dataclass(frozen=True)
class If(ControlOp):
    """The outputs of one of two bodies.

    Both bodies have the same inputs, one for each operand after the condition, and as many outputs.

    Shapes: bool with one element, then the captured values -> for each output the type that holds
    for both bodies: sizes that differ become data symbols, and different ranks an unknown one.
    """

    then_body: Graph
    else_body: Graph

    internal = False

    def infer(
        self, ctx: InferContext, condition: ValueType, *captured: ValueType
    ) -> tuple[ValueType, ...]:
        """Join the types of both bodies' outputs."""
        check_scalar(condition, "the condition", lambda d: d is DType.BOOL)
        sides = (self.then_body, self.else_body)
        table: dict[Symbol, Size] = {}
        for body in sides:
            table |= match_inputs(ctx, body.inputs, captured)
        then, otherwise = (output_types(body) for body in sides)
        if len(then) != len(otherwise):
            raise ShapeError(f"one body has {len(then)} outputs, the other {len(otherwise)}")
        hidden = symbols_bound_in(self.then_body) | symbols_bound_in(self.else_body)
        join = TypeJoin(ctx, "if", hidden, table)
        return tuple(join.join(a, b) for a, b in zip(then, otherwise, strict=True))

    def eval(self, ctx: EvalContext, condition: Array, *captured: Result) -> tuple[Result, ...]:
        """Run one body."""
        return tuple(ctx.run(self.then_body if condition.item() else self.else_body, captured))


@dataclass(frozen=True)
class Loop(ControlOp):
    """Run a body again and again, its results of one iteration being operands of the next.

    Body: (iteration int64, condition bool, carried.., captured..) ->
    (condition, carried.., rows..). It ends after `trip` iterations, or when the condition is false,
    whichever is first; without the operand `condition` the body's condition does not matter.

    Shapes: trip int64 [] (if has_trip), condition bool [] (if has_condition), initial values of
    what is carried, captured values -> the last values of what is carried, then the rows of all
    iterations stacked along a new axis 0. A carried size that the body's input has as a symbol of
    its own may change from iteration to iteration. After zero iterations the results are the
    initial values and no rows.

    Attributes:
        body: a sealed graph.
        carried: how many values go from iteration to iteration.
        scans: how many rows there are.
        has_trip: whether there is an operand `trip`.
        has_condition: whether there is an operand `condition`.
        count: the number of iterations where it is known and nothing ends the loop earlier; then
            there is neither of the two operands.
    """

    body: Graph
    carried: int
    scans: int
    has_trip: bool
    has_condition: bool
    count: Size | None = None

    internal = False

    def infer(self, ctx: InferContext, *types: ValueType) -> tuple[ValueType, ...]:
        """Follow the types through one iteration."""
        limits = self.has_trip + self.has_condition
        if self.has_trip:
            check_scalar(types[0], "the trip count", lambda d: d.is_int)
        if self.has_condition:
            check_scalar(types[limits - 1], "the condition", lambda d: d is DType.BOOL)
        initial, captured = types[limits:][: self.carried], types[limits + self.carried :]
        check_counter(self.body.inputs[:2])
        outputs = output_types(self.body)
        if len(outputs) != 1 + self.carried + self.scans:
            raise ShapeError(f"the body has {len(outputs)} outputs")
        check_scalar(outputs[0], "the condition of the body", lambda d: d is DType.BOOL)
        step = Iteration(ctx, self.body, self.body.inputs[2:], initial, captured, self.count)
        rows: Size = ctx.data_symbol("rows") if self.count is None and self.scans else 0
        rows = rows if self.count is None else self.count
        return (
            *step.carried_types(outputs[1 : 1 + self.carried]),
            *step.stacked_types(outputs[1 + self.carried :], rows),
        )

    def eval(self, ctx: EvalContext, *operands: Result) -> tuple[Result, ...]:
        """Iterate."""
        limits = self.has_trip + self.has_condition
        trips = None if self.count is None else ctx.size(self.count)
        if self.has_trip:
            trips = int(operands[0].item())
        going = bool(operands[limits - 1].item()) if self.has_condition else True
        state = list(operands[limits:][: self.carried])
        captured = operands[limits + self.carried :]
        rows: list[list[Array]] = [[] for _ in range(self.scans)]
        shapes = [ctx.sizes(v.shape) for v in self.body.inputs[:2]]
        iteration = 0
        while going and (trips is None or iteration < trips):
            counter = [np.full(shapes[0], iteration, np.int64), np.full(shapes[1], going)]
            condition, *out = ctx.run(self.body, [*counter, *state, *captured])
            going = bool(condition.item()) if self.has_condition else True
            state = out[: self.carried]
            for row, x in zip(rows, out[self.carried :], strict=True):
                row.append(x)
            iteration += 1
        kinds = output_types(self.body)[1 + self.carried :]
        return (*state, *(stack(ctx, r, t) for r, t in zip(rows, kinds, strict=True)))


@dataclass(frozen=True)
class Scan(ControlOp):
    """Run a body for each slice of some tensors along their axis 0, carrying values along.

    Body: (carried.., slices.., captured..) -> (carried.., rows..).

    Shapes: length int64 [] (if has_length), initial values of what is carried, tensors [n, ..],
    captured values -> the last values of what is carried, then rows [n, ..]. With `length`, only as
    many slices are used, 0 <= length <= n, and the rows after them are 0.

    Attributes:
        body: a sealed graph.
        carried: how many values go from iteration to iteration.
        sliced: how many tensors are cut into slices, at least one.
        has_length: whether there is an operand `length`.
    """

    body: Graph
    carried: int
    sliced: int
    has_length: bool = False

    internal = False

    def infer(self, ctx: InferContext, *types: Any) -> tuple[ValueType, ...]:
        """Follow the types through one iteration."""
        if self.has_length:
            check_scalar(types[0], "the length", lambda d: d.is_int)
        types = types[self.has_length :]
        initial, tensors = types[: self.carried], types[self.carried :][: self.sliced]
        captured = types[self.carried + self.sliced :]
        if not tensors or any(t.rank < 1 for t in tensors):
            raise ShapeError(f"there is no axis to scan in {', '.join(map(str, tensors))}")
        n = tensors[0].shape[0]
        for i, t in enumerate(tensors[1:], 1):
            ctx.require_eq(t.shape[0], n, f"scanned tensors 0 and {i} have equal lengths")
        slices = [TensorType(t.dtype, t.shape[1:]) for t in tensors]
        outputs = output_types(self.body)
        if len(outputs) < self.carried:
            raise ShapeError(f"the body has {len(outputs)} outputs, {self.carried} are carried on")
        step = Iteration(
            ctx, self.body, self.body.inputs, initial, (*slices, *captured),
            None if self.has_length else n,
        )  # fmt: skip
        return (
            *step.carried_types(outputs[: self.carried]),
            *step.stacked_types(outputs[self.carried :], n),
        )

    def eval(self, ctx: EvalContext, *operands: Result) -> tuple[Result, ...]:
        """Iterate over slices."""
        values = operands[self.has_length :]
        state, tensors = list(values[: self.carried]), values[self.carried :][: self.sliced]
        captured = values[self.carried + self.sliced :]
        n = len(tensors[0])
        length = int(operands[0].item()) if self.has_length else n
        if not 0 <= length <= n:
            raise ExecutionError(f"the length is {length}, expected 0 to {n}")
        kinds = output_types(self.body)[self.carried :]
        rows: list[list[Array]] = [[] for _ in kinds]
        for i in range(length):
            out = ctx.run(self.body, [*state, *(t[i, ...] for t in tensors), *captured])
            state = out[: self.carried]
            for row, x in zip(rows, out[self.carried :], strict=True):
                row.append(x)
        stacked = [stack(ctx, r, t) for r, t in zip(rows, kinds, strict=True)]
        return (*state, *(fill_rows(x, n) for x in stacked))


def stack(ctx: EvalContext, rows: Sequence[Array], t: TensorType | UnrankedType) -> Array:
    """Join rows along a new axis 0; without any, sizes that are not known are 0."""
    if not rows:
        shape = t.shape if isinstance(t, TensorType) else ()
        return np.zeros((0, *(_size_or_zero(ctx, s) for s in shape)), t.dtype.numpy)
    for i, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise ExecutionError(
                f"the rows of iterations 0 and {i} differ: {list(rows[0].shape)} and "
                f"{list(row.shape)}"
            )
    return np.stack(rows)


def _size_or_zero(ctx: EvalContext, size: Size) -> int:
    try:
        return ctx.size(size)
    except UnboundSymbolError:
        return 0


def fill_rows(x: Array, n: int) -> Array:
    """Append rows of zeros until there are n."""
    if len(x) == n:
        return x
    return np.concatenate([x, np.zeros((n - len(x), *x.shape[1:]), x.dtype)])


# ---- types --------------------------------------------------------------------------------------


class Iteration:
    """Types around one run of a body that is run again and again.

    Args:
        ctx: of the operation.
        body: its body.
        inputs: the inputs of the body from the first carried one on.
        initial: types of the initial values of what is carried.
        captured: types of all other operands, in the order of the inputs.
        count: the number of iterations where it is known.
    """

    def __init__(
        self,
        ctx: InferContext,
        body: Graph,
        inputs: Sequence[Value],
        initial: Sequence[ValueType],
        captured: Sequence[ValueType],
        count: Size | None,
    ) -> None:
        carried = len(initial)
        self.ctx, self.initial, self.count = ctx, initial, count
        self.declared = [v.type for v in inputs[:carried]]
        self.table = match_inputs(ctx, inputs[carried:], captured)
        self.starts = match_inputs(ctx, inputs[:carried], initial)
        self.hidden = symbols_bound_in(body) | self.starts.keys()

    def carried_types(self, outputs: Sequence[ValueType]) -> list[ValueType]:
        """Return the types of what is carried after the last iteration."""
        ends: dict[Symbol, Size] = {}
        return [
            self._carried_type(i, *types, ends)
            for i, types in enumerate(zip(self.declared, outputs, strict=True))
        ]

    def _carried_type(
        self, index: int, declared: ValueType, out: ValueType, ends: dict[Symbol, Size]
    ) -> ValueType:
        if not isinstance(declared, TensorType):
            check_fits(declared, out, f"carried value {index}")
            return declared
        if not isinstance(out, TensorType) or out.rank != declared.rank:
            raise ShapeError(f"carried value {index} is {declared} and becomes {out}")
        if out.dtype is not declared.dtype:
            raise DTypeError(f"carried value {index} is {declared} and becomes {out}")
        sizes: list[Size] = []
        for size, after in zip(declared.shape, out.shape, strict=True):
            symbol = None if isinstance(size, int) else size.as_symbol
            if symbol is None or symbol not in self.starts:
                if substitute(size, self.table) != substitute(after, self.table):
                    raise ShapeError(
                        f"carried value {index} is {declared} and becomes {out}: the body must "
                        "have a symbol of its own for a size that changes"
                    )
                sizes.append(substitute(size, self.table))
                continue
            if symbol not in ends:
                ends[symbol] = self._last_size(symbol, substitute(after, self.table))
            sizes.append(ends[symbol])
        return TensorType(declared.dtype, tuple(sizes))

    def _last_size(self, symbol: Symbol, after: Size) -> Size:
        """Return what a size that changes is in the end: start + count*step where that is known."""
        start = self.starts[symbol]
        step = after - of_atom(symbol)
        if self.count is not None and not symbols_of(step) & self.hidden:
            last: Size = start + self.count * step
            return last
        lo = max(0, min(bounds(start)[0], bounds(after)[0]))
        return self.ctx.data_symbol(symbol.name, lo=int(lo))

    def stacked_types(self, outputs: Sequence[ValueType], rows: Size) -> list[ValueType]:
        """Return the types of rows stacked along a new axis 0."""
        join = TypeJoin(_FromZero(self.ctx), "row", self.hidden, self.table)
        stacked: list[ValueType] = []
        for out in outputs:
            if not isinstance(out, (TensorType, UnrankedType)):
                raise DTypeError(f"only tensors can be stacked, got {out}")
            t = join.visible(out)
            stacked.append(
                TensorType(t.dtype, (rows, *t.shape)) if isinstance(t, TensorType) else t
            )
        return stacked


class _FromZero:
    """Makes data symbols that may be 0: there may be no row that shows a size."""

    def __init__(self, ctx: InferContext) -> None:
        self.require_eq, self.require_ge, self._symbol = (
            ctx.require_eq, ctx.require_ge, ctx.data_symbol,
        )  # fmt: skip

    def data_symbol(self, name: str, *, lo: int = 0, hi: int | None = None) -> Dim:
        return self._symbol(name, lo=0, hi=hi)


def output_types(body: Graph) -> list[Any]:
    """Return the types of a body's outputs, in order."""
    return [v.type for v in body.outputs.values()]


def symbols_bound_in(body: Graph) -> frozenset[Symbol]:
    """Return the data symbols that only get a number while the body runs."""
    found = set(body.size_sources)
    around = body.parent
    while found and around is not None:
        found -= around.size_sources.keys()
        around = around.parent
    return frozenset(found)


def check_scalar(t: ValueType, what: str, allowed: Any) -> None:
    """Raise where a type is not one of a single element of an allowed type."""
    if not isinstance(t, (TensorType, UnrankedType)) or not allowed(t.dtype):
        raise DTypeError(f"{what} has the type {t}")
    if isinstance(t, TensorType) and isinstance(t.numel, int) and t.numel != 1:
        raise ShapeError(f"{what} must have one element, got {t}")


def check_counter(inputs: Sequence[Value]) -> None:
    """Raise where the body of a loop does not take iteration number and condition first."""
    if len(inputs) != 2:
        raise ShapeError("the body of a loop takes an iteration number and a condition first")
    check_scalar(inputs[0].type, "the iteration number", lambda d: d is DType.INT64)
    check_scalar(inputs[1].type, "the condition in the body", lambda d: d is DType.BOOL)


def match_inputs(
    ctx: InferContext, inputs: Sequence[Value], types: Iterable[ValueType]
) -> dict[Symbol, Size]:
    """Check operands against the inputs of a body; return what its own symbols stand for."""
    given = list(types)
    if len(inputs) != len(given):
        raise ShapeError(f"the body has {len(inputs)} inputs for {len(given)} values")
    table: dict[Symbol, Size] = {}
    for v, t in zip(inputs, given, strict=True):
        check_fits(v.type, t, f"input {v.name!r} of the body")
        if not (isinstance(v.type, TensorType) and isinstance(t, TensorType)):
            continue
        for axis, (declared, actual) in enumerate(zip(v.type.shape, t.shape, strict=True)):
            if declared == actual:
                continue
            symbol = None if isinstance(declared, int) else declared.as_symbol
            expected = declared if symbol is None else table.setdefault(symbol, actual)
            ctx.require_eq(expected, actual, f"input {v.name!r} of the body at axis {axis}")
    return table


def check_fits(declared: ValueType, given: ValueType, what: str) -> None:
    """Raise where a value of one type may not be used as another."""
    if isinstance(declared, OptionalType):
        inner = given.elem if isinstance(given, OptionalType) else given
        check_fits(declared.elem, inner, what)
    elif isinstance(declared, SequenceType) and isinstance(given, SequenceType):
        check_fits(declared.elem, given.elem, what)
    elif is_tensor(declared) and is_tensor(given):
        if declared.dtype is not given.dtype:  # type: ignore[union-attr]
            raise DTypeError(f"{what} is {declared}, got {given}")
        if not isinstance(declared, TensorType) or isinstance(given, NoType):
            return
        if not isinstance(given, TensorType) or declared.rank != given.rank:
            raise ShapeError(f"{what} is {declared}, got {given}")
    elif type(declared) is not type(given):
        raise DTypeError(f"{what} is {declared}, got {given}")
