"""From given arrays to numbers: check inputs against their types and bind the symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import Size, Symbol, evaluate, substitute, symbols_of
from kn_graph.dtype import DType
from kn_graph.errors import (
    DTypeError,
    InputDTypeError,
    InputError,
    InputShapeError,
    MissingInputError,
    SymbolError,
    UnexpectedInputError,
)
from kn_graph.graph import Graph
from kn_graph.interop import as_array
from kn_graph.types import MapType, OptionalType, SequenceType, TensorType, UnrankedType, ValueType
from kn_graph.value import Value

__all__ = ["bind_symbols", "check_inputs"]


def check_inputs(graph: Graph, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return the inputs of a graph by name, checked for presence, element type and rank.

    Args:
        graph: whose inputs are meant.
        inputs: by name, or a list or tuple in the graph's order.

    Returns:
        One value an input: tensors as NumPy arrays (rank 0 stays an array), else as given.

    Raises:
        MissingInputError, UnexpectedInputError, InputDTypeError, InputShapeError: naming the input,
            what was expected and what was given.
    """
    given = _by_name(graph, inputs)
    _check_names(graph, given)
    checked = {}
    for v in graph.inputs:
        if v.name in given:
            checked[v.name] = _check_value(v.name, v.type, given[v.name])
        else:
            checked[v.name] = graph.defaults.get(v.name)  # None: an empty optional
    return checked


def _check_names(graph: Graph, given: Mapping[str, Any]) -> None:
    names = [v.name for v in graph.inputs]
    extra = [n for n in given if n not in names]
    if extra:
        raise UnexpectedInputError(
            f"the model has no input {', '.join(map(repr, extra))}; "
            f"its inputs are {', '.join(map(repr, names)) or 'none'}",
            name=str(extra[0]),
        )
    missing = [
        v
        for v in graph.inputs
        if v.name not in given
        and v.name not in graph.defaults
        and not isinstance(v.type, OptionalType)
    ]
    if missing:
        wanted = ", ".join(f"{v.name!r} ({v.type})" for v in missing)
        raise MissingInputError(
            f"input {wanted} is missing; given: {', '.join(map(repr, given)) or 'nothing'}",
            name=missing[0].name,
            expected=str(missing[0].type),
            got="nothing",
        )


def _by_name(graph: Graph, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, (list, tuple)):
        raise InputDTypeError(
            "inputs are given as {name: array} or as a list in the model's order, "
            f"got {type(inputs).__name__}"
        )
    if len(inputs) > len(graph.inputs):
        raise UnexpectedInputError(
            f"{len(inputs)} inputs given by position, the model has {len(graph.inputs)}"
        )
    return {v.name: x for v, x in zip(graph.inputs, inputs, strict=False)}


def _check_value(name: str, type: ValueType, x: Any) -> Any:
    if isinstance(type, OptionalType):
        return None if x is None else _check_value(name, type.elem, x)
    if isinstance(type, (SequenceType, MapType)):
        want: Any = list if isinstance(type, SequenceType) else dict
        if not isinstance(x, want):
            raise InputDTypeError(
                f"input {name!r}: expected {type} as a {want.__name__}, got {x.__class__.__name__}",
                name=name,
                expected=str(type),
                got=x.__class__.__name__,
            )
        if isinstance(type, SequenceType):
            return [_check_value(f"{name}[{i}]", type.elem, e) for i, e in enumerate(x)]
        return x
    return _check_tensor(name, type, x)


def _check_tensor(name: str, type: TensorType | UnrankedType, x: Any) -> np.ndarray[Any, Any]:
    def wrong(error: Any, got: str, advice: str = "") -> InputError:
        text = f"input {name!r}: expected {type}, got {got}{advice}"
        return error(text, name=name, expected=str(type), got=got)  # type: ignore[no-any-return]

    try:
        array = as_array(x)
        dtype = DType.from_numpy(array.dtype)
    except (DTypeError, ValueError, RuntimeError, BufferError) as error:
        kind = x.dtype if isinstance(x, np.ndarray) else x.__class__.__name__
        raise wrong(InputDTypeError, str(kind), f" ({str(error).partition(chr(10))[0]})") from None
    if dtype is DType.STRING:
        array = array.astype(object)
        odd = next((e for e in array.flat if not isinstance(e, str)), None)
        if odd is not None or x is None:
            raise wrong(InputDTypeError, f"an object of type {(odd or x).__class__.__name__}")
    got = f"{dtype}{list(array.shape)}"
    if dtype is not type.dtype:
        same = f"np.asarray(x, {type.dtype.numpy.name!r})"
        raise wrong(InputDTypeError, got, f" (nothing is converted silently; {same} converts it)")
    if isinstance(type, TensorType) and array.ndim != type.rank:
        raise wrong(InputShapeError, got, f" of rank {array.ndim}, not {type.rank}")
    return array.astype(dtype.numpy, copy=False)  # other byte orders become this machine's


@dataclass(frozen=True)
class _Axis:
    """One axis of a given input."""

    name: str
    expected: TensorType
    shape: tuple[int, ...]
    axis: int

    @property
    def declared(self) -> Size:
        return self.expected.shape[self.axis]

    @property
    def actual(self) -> int:
        return self.shape[self.axis]

    def __str__(self) -> str:
        return f"axis {self.axis} of input {self.name!r}"

    def wrong(self, error: type[InputError], why: str) -> InputError:
        """Return an error about the input."""
        got = f"{self.expected.dtype}{list(self.shape)}"
        text = f"input {self.name!r}: expected {self.expected}, got {got}: {why}"
        return error(text, name=self.name, expected=str(self.expected), got=got)


class _Binder:
    """Collects the numbers of symbols, remembering who said so."""

    def __init__(self, dims: Mapping[Symbol, int]) -> None:
        self.env: dict[Symbol, int] = dict(dims)
        self.source: dict[Symbol, str] = dict.fromkeys(dims, "dims")
        self.compound: list[_Axis] = []

    def meet(self, axis: _Axis) -> None:
        """Match one declared size with the actual one."""
        declared, actual = axis.declared, axis.actual
        if isinstance(declared, int):
            if declared != actual:
                raise axis.wrong(
                    InputShapeError, f"axis {axis.axis} has size {actual}, not {declared}"
                )
            return
        symbol = declared.as_symbol
        if symbol is None:
            self.compound.append(axis)
        elif self.env.setdefault(symbol, actual) == actual:
            self.source.setdefault(symbol, str(axis))
        else:
            raise SymbolError(
                f"size {symbol.name!r} is {self.env[symbol]} by {self.source[symbol]}, "
                f"but {actual} by {axis}",
                name=symbol.name,
                expected=str(self.env[symbol]),
                got=str(actual),
            )

    def finish(self) -> None:
        """Match compound sizes such as past+seq, solving for unknown symbols where possible."""
        rest = self.compound
        while rest:
            later = [axis for axis in rest if not self._settle(axis)]
            if len(later) == len(rest):
                return
            rest = later

    def _settle(self, axis: _Axis) -> bool:
        """Check a compound size, solving for a symbol; False where several are unknown."""
        unknown = [s for s in symbols_of(axis.declared) if s not in self.env]
        if len(unknown) > 1:
            return False
        if unknown:
            self._solve(axis, unknown[0])
        number = evaluate(axis.declared, self.env)
        if number != axis.actual:
            used = sorted(symbols_of(axis.declared), key=lambda s: s.name)
            facts = ", ".join(f"{s.name} = {self.env[s]} by {self.source[s]}" for s in used)
            why = f"axis {axis.axis} has size {axis.actual}, not {number} ({facts})"
            raise axis.wrong(SymbolError, why)
        return True

    def _solve(self, axis: _Axis, unknown: Symbol) -> None:
        """Find a symbol's number as if the size were linear in it; `_settle` checks it."""
        known = {s: n for s, n in self.env.items() if s in symbols_of(axis.declared)}
        try:
            at = [evaluate(substitute(axis.declared, {**known, unknown: n}), {}) for n in (1, 2)]
        except ZeroDivisionError:
            at = [0, 0]
        step = at[1] - at[0]
        number, rest = divmod(axis.actual - at[0] + step, step) if step else (0, 1)
        if rest or number < 0:
            why = f"no {unknown.name!r} gives axis {axis.axis} the size {axis.actual}"
            raise axis.wrong(SymbolError, why)
        self.env[unknown], self.source[unknown] = number, str(axis)


def bind_symbols(
    inputs: Sequence[Value],
    arrays: Sequence[Any],
    dims: Mapping[Symbol, int] | None = None,
) -> dict[Symbol, int]:
    """Return the number of every symbol that the types of inputs mention.

    Args:
        inputs: the declared inputs.
        arrays: their values, in order, checked by `check_inputs`.
        dims: numbers known before.

    Raises:
        InputShapeError, SymbolError: a size is not what it must be; names both sources.
    """
    binder = _Binder(dims or {})
    for v, x in zip(inputs, arrays, strict=True):
        t = v.type
        while isinstance(t, OptionalType) and x is not None:
            t = t.elem
        if isinstance(t, TensorType) and x is not None:
            for axis in range(t.rank):
                binder.meet(_Axis(v.name, t, x.shape, axis))
    binder.finish()
    return binder.env
