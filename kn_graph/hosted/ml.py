"""Maps (dictionaries at run time), and look-ups by string."""

from __future__ import annotations

from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.hosted.function import Attributes, HostFunction
from kn_graph.op import InferContext
from kn_graph.types import MapType, SequenceType, TensorType, ValueType

__all__ = ["FUNCTIONS"]

Array = np.ndarray[Any, Any]

STRINGS = "strings are Python objects: only the host has those"
MAPS = "a map is a dictionary: only the host has those"

CASTS: dict[DType, Any] = {
    DType.STRING: lambda v: v if isinstance(v, str) else f"{v:f}",
    DType.INT64: lambda v: int(float(v)),
    DType.FLOAT32: float,
}


def _key_type(keys: tuple[Any, ...]) -> DType:
    return DType.STRING if isinstance(next(iter(keys), None), str) else DType.INT64


def _infer_find(ctx: InferContext, a: Attributes, x: TensorType) -> TensorType:
    if x.dtype is not DType.STRING:
        raise DTypeError(f"expected strings, got {x.dtype}")
    return TensorType(DType.INT64, x.shape)


def _find(a: Attributes, x: Array) -> Array:
    """Return the place of each string among the keys (of equal keys the last), else their count."""
    keys = a["keys"]
    places = {key: i for i, key in enumerate(keys)}
    found = [places.get(s, len(keys)) for s in x.ravel().tolist()]
    return np.array(found, np.int64).reshape(x.shape)


def _infer_zip(ctx: InferContext, a: Attributes, x: TensorType) -> ValueType:
    if x.rank not in (1, 2):
        raise ShapeError(f"expected [C] or [N, C], got {x}")
    ctx.require_eq(x.shape[-1], len(a["keys"]), "one column for each key")
    return SequenceType(MapType(_key_type(a["keys"]), TensorType(x.dtype, ())))


def _zip(a: Attributes, x: Array) -> list[dict[Any, Any]]:
    keys = a["keys"]
    return [dict(zip(keys, row, strict=True)) for row in x.reshape(-1, len(keys)).tolist()]


def _map_value(t: ValueType) -> DType:
    if not isinstance(t, MapType) or not isinstance(t.value, TensorType):
        raise DTypeError(f"expected a map to numbers or strings, got {t}")
    return t.value.dtype


def _infer_vectorize(ctx: InferContext, a: Attributes, x: ValueType) -> TensorType:
    if _map_value(x) is not a["dtype"]:
        raise DTypeError(f"expected a map to {a['dtype']}, got {x}")
    if isinstance(x, MapType) and x.key is not _key_type(a["keys"]):
        raise DTypeError(f"the vocabulary holds {_key_type(a['keys'])} keys, got {x}")
    return TensorType(a["dtype"], (1, len(a["keys"])))


def _vectorize(a: Attributes, x: dict[Any, Any]) -> Array:
    """Put the value of each key into its place of the vocabulary; 0 or '' where there is none.

    A key that is not in the vocabulary is dropped, as onnxruntime and scikit-learn do.
    """
    empty: Any = "" if a["dtype"] is DType.STRING else 0
    return np.array([[_plain(x.get(key, empty)) for key in a["keys"]]], a["dtype"].numpy)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, (np.ndarray, np.generic)) else value


def _infer_cast_map(ctx: InferContext, a: Attributes, x: ValueType) -> TensorType:
    _map_value(x)
    if isinstance(x, MapType) and x.key is not DType.INT64:
        raise DTypeError(f"the keys must be int64, got {x}")
    width = ctx.data_symbol("keys") if a["length"] is None else a["length"]
    return TensorType(a["dtype"], (1, width))


def _cast_map(a: Attributes, x: dict[int, Any]) -> Array:
    """Order the values by key, or put each at the place that is its key.

    A key that is no place is dropped. Numbers print with six decimals. Both as onnxruntime does.
    """
    length, dtype = a["length"], a["dtype"]
    keys = sorted(x) if length is None else range(length)
    convert = CASTS[dtype]
    try:
        row = [convert(_plain(x[k])) if k in x else type(convert(0))() for k in keys]
    except ValueError as error:
        raise ExecutionError(f"cannot convert a value of the map: {error}") from None
    return np.array(row, dtype.numpy).reshape(1, -1)


FUNCTIONS = {
    "find_strings": HostFunction(_infer_find, _find, STRINGS),
    "zip_map": HostFunction(_infer_zip, _zip, MAPS),
    "vectorize_map": HostFunction(_infer_vectorize, _vectorize, MAPS),
    "cast_map": HostFunction(_infer_cast_map, _cast_map, MAPS),
}
