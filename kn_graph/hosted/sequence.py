"""Sequences (lists at run time) and optionals (a value or None)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.hosted.function import Attributes, HostFunction
from kn_graph.op import InferContext
from kn_graph.type_join import element_type, is_free, is_tensor, renewed
from kn_graph.types import (
    NoType,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
)

__all__ = ["FUNCTIONS"]

Array = np.ndarray[Any, Any]
List = list[Array]

WHY = "a sequence is a list of arrays: only the host has those"
COUNT = TensorType(DType.INT64, ())
TRUTH = TensorType(DType.BOOL, ())


def _elem(sequence: ValueType) -> ValueType:
    if not isinstance(sequence, SequenceType):
        raise DTypeError(f"expected a sequence, got {sequence}")
    return sequence.elem


def _check_position(position: TensorType | None) -> None:
    if position is not None and not (position.dtype.is_int and position.numel == 1):
        raise DTypeError(f"a position is one integer, got {position}")


def _index(position: Array, count: int, *, end: bool = False) -> int:
    """Return a position counted from 0; `end` allows the place after the last element."""
    i = int(position.item())
    if not -count <= i < count + end:
        raise ExecutionError(f"position {i} is outside a sequence of {count} elements")
    return i + count if i < 0 else i


# ---- making -------------------------------------------------------------------------------------


def _infer_construct(ctx: InferContext, a: Attributes, *xs: ValueType) -> ValueType:
    for i, x in enumerate(xs):
        if not is_tensor(x) or x.dtype is not a["dtype"]:  # type: ignore[union-attr]
            raise DTypeError(f"element {i} is {x}, expected a tensor of {a['dtype']}")
    return SequenceType(element_type(ctx, "element", *xs) if xs else NoType(a["dtype"]))


def _infer_insert(
    ctx: InferContext,
    a: Attributes,
    sequence: ValueType,
    x: ValueType,
    position: TensorType | None = None,
) -> ValueType:
    _check_position(position)
    return SequenceType(element_type(ctx, "element", _elem(sequence), x))


def _insert(a: Attributes, sequence: List, x: Array, position: Array | None = None) -> List:
    n = len(sequence)
    at = n if position is None else _index(position, n, end=True)
    return [*sequence[:at], x, *sequence[at:]]


def _infer_erase(
    ctx: InferContext, a: Attributes, sequence: ValueType, position: TensorType | None = None
) -> ValueType:
    _elem(sequence)
    _check_position(position)
    return sequence


def _erase(a: Attributes, sequence: List, position: Array | None = None) -> List:
    last = np.array(-1)
    at = _index(last if position is None else position, len(sequence))
    return [*sequence[:at], *sequence[at + 1 :]]


def _infer_split(
    ctx: InferContext, a: Attributes, x: TensorType, lengths: TensorType | None = None
) -> ValueType:
    axis = a["axis"]
    if not 0 <= axis < x.rank:
        raise ShapeError(f"split axis {axis} does not exist in a tensor of rank {x.rank}")
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if lengths is not None:
        if not lengths.dtype.is_int or lengths.rank > 1:
            raise DTypeError(f"lengths of parts are integers, one or a list, got {lengths}")
        piece: tuple[Size, ...] = (ctx.data_symbol("part"),)
    else:
        piece = (1,) if a["keep"] else ()
    return SequenceType(TensorType(x.dtype, (*before, *piece, *after)))


def _split(a: Attributes, x: Array, lengths: Array | None = None) -> List:
    axis = a["axis"]
    n = x.shape[axis]
    if lengths is None:
        parts = np.split(x, n, axis) if n else []
        return parts if a["keep"] else [np.squeeze(p, axis) for p in parts]
    if lengths.ndim == 0:
        step = int(lengths)
        if step < 1:
            raise ExecutionError(f"parts must have a length of at least 1, got {step}")
        return np.split(x, range(step, n, step), axis) if n else []
    if (lengths < 0).any() or int(lengths.sum()) != n:
        raise ExecutionError(f"parts of lengths {lengths.tolist()} do not add up to {n}")
    return np.split(x, np.cumsum(lengths)[:-1], axis) if len(lengths) else []


# ---- reading ------------------------------------------------------------------------------------


def _infer_at(
    ctx: InferContext, a: Attributes, sequence: ValueType, position: TensorType
) -> ValueType:
    _check_position(position)
    return renewed(ctx, "element", _elem(sequence))


def _infer_concat(ctx: InferContext, a: Attributes, sequence: ValueType) -> ValueType:
    elem = _elem(sequence)
    if not isinstance(elem, TensorType):
        if not isinstance(elem, UnrankedType):
            raise DTypeError(f"expected a sequence of tensors, got {sequence}")
        return UnrankedType(elem.dtype)
    rank = elem.rank + a["stack"]
    if not -rank <= a["axis"] < rank:
        raise ShapeError(f"axis {a['axis']} does not exist in a tensor of rank {rank}")
    axis = a["axis"] % rank
    shape = list(elem.shape)
    if a["stack"]:
        shape.insert(axis, 0)
    shape = [ctx.data_symbol("n") if i == axis or is_free(s) else s for i, s in enumerate(shape)]
    return TensorType(elem.dtype, tuple(shape))


def _concat(a: Attributes, sequence: List) -> Array:
    if not sequence:
        raise ExecutionError("there is nothing to concatenate: the sequence is empty")
    try:
        return np.stack(sequence, a["axis"]) if a["stack"] else np.concatenate(sequence, a["axis"])
    except ValueError:
        shapes = ", ".join(str(list(x.shape)) for x in sequence)
        raise ExecutionError(f"the elements cannot be joined: {shapes}") from None


def _infer_length(ctx: InferContext, a: Attributes, sequence: ValueType) -> ValueType:
    _elem(sequence)
    return COUNT


# ---- optionals ----------------------------------------------------------------------------------


def _empty_of(t: ValueType) -> ValueType:
    """Return the type of a value that does not exist: it has no shape."""
    if isinstance(t, (TensorType, UnrankedType)):
        return NoType(t.dtype)
    if isinstance(t, SequenceType):
        return SequenceType(_empty_of(t.elem))
    return t


def _infer_optional(ctx: InferContext, a: Attributes, *xs: ValueType) -> ValueType:
    return OptionalType(xs[0] if xs else _empty_of(a["type"]))


def _infer_get(ctx: InferContext, a: Attributes, optional: ValueType) -> ValueType:
    if not isinstance(optional, OptionalType):
        raise DTypeError(f"expected an optional, got {optional}")
    return renewed(ctx, "element", optional.elem)


def _get(a: Attributes, x: Any) -> Any:
    if x is None:
        raise ExecutionError("the optional is empty: it has no element to get")
    return x


def _function(infer: Any, run: Any) -> HostFunction:
    return HostFunction(infer, run, WHY)


def _list(xs: Sequence[Array]) -> List:
    return list(xs)


FUNCTIONS = {
    "sequence_construct": _function(_infer_construct, lambda a, *xs: _list(xs)),
    "sequence_insert": _function(_infer_insert, _insert),
    "sequence_erase": _function(_infer_erase, _erase),
    "sequence_at": _function(_infer_at, lambda a, s, i: s[_index(i, len(s))]),
    "sequence_length": _function(_infer_length, lambda a, s: np.array(len(s), np.int64)),
    "split_to_sequence": _function(_infer_split, _split),
    "concat_from_sequence": _function(_infer_concat, _concat),
    "optional": _function(_infer_optional, lambda a, *xs: xs[0] if xs else None),
    "optional_has_element": _function(
        lambda ctx, a, x: TRUTH, lambda a, x: np.array(x is not None)
    ),
    "optional_get_element": _function(_infer_get, _get),
}
