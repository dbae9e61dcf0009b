"""From given arrays to numbers: check inputs against their types and bind the symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph.dim import Dim, Size, Symbol, evaluate, substitute, symbols_of
from kn_graph.dtype import DType
from kn_graph.errors import (
    InputDTypeError,
    InputShapeError,
    MissingInputError,
    SymbolError,
    UnexpectedInputError,
)
from kn_graph.graph import Graph
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
    names = [v.name for v in graph.inputs]
    extra = [n for n in given if n not in names]
    if extra:
        raise UnexpectedInputError(
            f"the model has no input {extra[0]!r}; its inputs are {', '.join(map(repr, names))}",
            name=extra[0],
        )
    checked = {}
    for v in graph.inputs:
        if v.name in given:
            checked[v.name] = _check_value(v.name, v.type, given[v.name])
        elif v.name in graph.defaults:
            checked[v.name] = graph.defaults[v.name]
        elif isinstance(v.type, OptionalType):
            checked[v.name] = None
        else:
            raise MissingInputError(
                f"input {v.name!r} is missing: expected {v.type}; given: "
                f"{', '.join(map(repr, given)) or 'nothing'}",
                name=v.name,
                expected=str(v.type),
            )
    return checked


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
    array = _as_array(x)
    try:
        dtype: DType | None = DType.from_numpy(array.dtype)
    except TypeError:
        dtype = None
    got = f"{dtype or array.dtype}{list(array.shape)}"
    if dtype is not type.dtype:
        advice = "" if dtype is None else f" (convert it: x.astype({type.dtype.numpy.name!r}))"
        raise InputDTypeError(
            f"input {name!r}: expected {type}, got {got}{advice}",
            name=name,
            expected=str(type),
            got=got,
        )
    if dtype is DType.STRING and array.dtype != object:
        array = array.astype(object)
    if isinstance(type, TensorType) and array.ndim != type.rank:
        raise InputShapeError(
            f"input {name!r}: expected {type} of rank {type.rank}, got {got} of rank {array.ndim}",
            name=name,
            expected=str(type),
            got=got,
        )
    return array


def _as_array(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__") and not isinstance(x, np.generic):
        return np.from_dlpack(x)
    return np.asarray(x)


class _Binder:
    """Collects the numbers of symbols, remembering which input said so."""

    def __init__(self, dims: Mapping[Symbol, int]) -> None:
        self.env: dict[Symbol, int] = dict(dims)
        self.source: dict[Symbol, str] = dict.fromkeys(dims, "dims")
        self.deferred: list[tuple[Dim, int, str]] = []

    def meet(self, declared: Size, actual: int, where: str, type: ValueType) -> None:
        """Match one declared size with the actual one."""
        if isinstance(declared, int):
            if declared != actual:
                raise InputShapeError(
                    f"{where} has size {actual}, expected {declared} (declared as {type})",
                    expected=str(declared),
                    got=str(actual),
                )
            return
        symbol = declared.as_symbol
        if symbol is None:
            self.deferred.append((declared, actual, where))
        elif symbol not in self.env:
            self.env[symbol], self.source[symbol] = actual, where
        elif self.env[symbol] != actual:
            raise SymbolError(
                f"size {symbol.name!r} is {self.env[symbol]} by {self.source[symbol]}, "
                f"but {actual} by {where}",
                name=symbol.name,
                expected=str(self.env[symbol]),
                got=str(actual),
            )

    def finish(self) -> None:
        """Match compound sizes such as past+seq, solving for one unknown symbol where needed."""
        for declared, actual, where in self.deferred:
            unknown = [s for s in symbols_of(declared) if s not in self.env]
            if len(unknown) == 1:
                self._solve(declared, actual, unknown[0], where)
            elif unknown:
                continue
            if (number := evaluate(declared, self.env)) != actual:
                raise SymbolError(
                    f"{where} has size {actual}, expected {declared} = {number}",
                    expected=str(number),
                    got=str(actual),
                )

    def _solve(self, declared: Dim, actual: int, unknown: Symbol, where: str) -> None:
        known = {s: n for s, n in self.env.items() if s in symbols_of(declared)}
        at = [evaluate(substitute(declared, {**known, unknown: n}), {}) for n in (0, 1)]
        step = at[1] - at[0]
        number, rest = divmod(actual - at[0], step) if step else (0, 1)
        if rest or number < 0:
            raise SymbolError(f"{where} has size {actual}, which no {unknown.name!r} gives")
        self.env[unknown], self.source[unknown] = number, where


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
            for axis, (declared, actual) in enumerate(zip(t.shape, x.shape, strict=True)):
                binder.meet(declared, actual, f"input {v.name!r} axis {axis}", t)
    binder.finish()
    return binder.env
