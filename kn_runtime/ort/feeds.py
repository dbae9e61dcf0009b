"""What a program feeds, checked as onnxruntime checks it: same classes, same first words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.interop import as_array
from kn_runtime.ort.errors import Fail, InvalidArgument, status
from kn_runtime.ort.metadata import Declared, tensor_text
from kn_runtime.ort.values import OrtValue, value_dtype

__all__ = ["check_feeds", "check_names"]

Array = np.ndarray[Any, Any]

FIX = "Please fix either the inputs/outputs or the model."


def check_names(inputs: Sequence[Declared], fed: Collection[str]) -> None:
    """Check that nothing required is missing.

    Raises:
        ValueError: something is; all of it is named.
    """
    missing = [d.name for d in inputs if d.is_required and d.name not in fed]
    if missing:
        raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(fed)}).")


def check_feeds(declared: Mapping[str, Declared], feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is fed as values for `PreparedGraph.eval`.

    Args:
        declared: the inputs, and initializers that may be fed, by name.
        feed: values by name.

    Raises:
        InvalidArgument: a name is unknown, or an element type, rank or size is wrong.
        RuntimeError: a value is of a kind that no input takes.
        Fail: None for an input that is not optional.
    """
    checked = {}
    for name, x in feed.items():
        if name not in declared:
            known = ", ".join(map(repr, declared)) or "none"
            raise status(
                InvalidArgument, f"Invalid input name: {name}; the model's inputs are {known}"
            )
        d = declared[name]
        checked[name] = CHECKS[d.kind](d, x._value if isinstance(x, OrtValue) else x)
    return checked


def _tensor(d: Declared, given: Any) -> Array:
    assert d.dtype is not None, "a tensor has an element type"
    x = _array(d, d.dtype, given)
    dtype = value_dtype(x)
    if dtype is not d.dtype:
        actual = x.dtype if dtype is None else tensor_text(dtype)
        advice = f"; np.asarray(x, {d.dtype.numpy.name!r}) converts it"
        raise status(
            InvalidArgument,
            f"Unexpected input data type. Actual: ({actual}) , expected: ({d.arg.type}) for input "
            f"{d.name!r}{advice}",
        )
    if not d.is_free and d.kind == "tensor":
        _check_shape(d, x)
    if dtype is DType.STRING:
        return _texts(x)
    return x if x.dtype.isnative else x.astype(dtype.numpy)


def _array(d: Declared, dtype: DType, x: Any) -> Array:
    if isinstance(x, np.ndarray):
        return x
    return _from_list(d, dtype, x) if isinstance(x, list) else _from_other(d, x)


def _from_list(d: Declared, dtype: DType, x: list[Any]) -> Array:
    try:
        if dtype is DType.STRING:
            return np.array(x, object)
        converted: Array = np.array(x).astype(dtype.numpy)
        return converted
    except (ValueError, TypeError, OverflowError) as error:
        raise RuntimeError(
            f"Could not create tensor from given input list for input {d.name!r} ({d.arg.type}): "
            f"{error}"
        ) from None


def _from_other(d: Declared, x: Any) -> Array:
    """Return an array of what is neither list nor NumPy array, if it is one of another library."""
    if x is None:
        raise status(Fail, f"Missing Input: {d.name} is None, and is not optional")
    if hasattr(x, "__dlpack__") and not isinstance(x, np.generic):
        return as_array(x)
    if isinstance(x, dict) and not x:
        raise RuntimeError("Size of dictionary is empty, unable to run the prediction.")
    if isinstance(x, (str, bytes, tuple, set, dict)):
        raise RuntimeError(
            "Input must be a list of dictionaries or a single numpy array for input "
            f"'{d.name}'. Got {type(x).__name__}; np.asarray makes an array."
        )
    raise RuntimeError(
        f"Unable to handle object of type {type(x)} for input {d.name!r}; "
        f"give an array: np.asarray(x, {d.dtype and d.dtype.numpy.name!r})"
    )


def _check_shape(d: Declared, x: Array) -> None:
    shape = d.arg.shape
    if x.ndim != len(shape):
        raise status(
            InvalidArgument,
            f"Invalid rank for input: {d.name} Got: {x.ndim} Expected: {len(shape)} {FIX}",
        )
    wrong = [
        f" index: {axis} Got: {got} Expected: {want}\n"
        for axis, (got, want) in enumerate(zip(x.shape, shape, strict=True))
        if isinstance(want, int) and got != want
    ]
    if wrong:
        raise status(
            InvalidArgument,
            f"Got invalid dimensions for input: {d.name} for the following indices\n"
            f"{''.join(wrong)} {FIX}",
        )


def _texts(x: Array) -> Array:
    """Return an array of `str`, of whatever was in it."""
    if x.dtype.kind == "S":
        return np.char.decode(x, "utf-8").astype(object)
    texts = x.astype(object)
    for place, element in np.ndenumerate(texts):
        if type(element) is not str:
            texts[place] = str(element)
    return texts


def _refuse_tensor(d: Declared, x: Any, what: str) -> None:
    """Refuse what onnxruntime refuses for all inputs that are no tensors."""
    if isinstance(x, np.ndarray):
        raise status(
            InvalidArgument,
            f"input with name: '{d.name}' expected to be of type: {d.arg.type} but received a "
            f"tensor; give a {what}",
        )
    if x is None:
        raise status(Fail, f"Missing Input: {d.name} is None, and is not optional")


def _sequence(d: Declared, x: Any) -> list[Any]:
    _refuse_tensor(d, x, "list of arrays")
    if not isinstance(x, list):
        raise RuntimeError(
            f"Iterable of {type(x)} should be given as array for input '{d.name}': "
            f"it takes a list, as {d.arg.type}"
        )
    if d.dtype is None:  # a sequence of maps
        return x
    for element in x:
        if not isinstance(element, np.ndarray):
            raise RuntimeError(
                f"CreateSequenceOfTensors: Input is not a tensor: {d.name!r} has an element of "
                f"type {type(element).__name__}"
            )
        if value_dtype(element) is not d.dtype:
            raise RuntimeError(
                f"TensorSeq: tensor to be added has a different data type: {d.name!r} has an "
                f"element of {element.dtype}, expected {d.arg.type}"
            )
    return [_texts(e) for e in x] if d.dtype is DType.STRING else x


KEYS: dict[DType, type] = {DType.STRING: str, DType.INT64: int}
"""What keys of maps are in Python."""


def _map(d: Declared, x: Any) -> dict[Any, Any]:
    _refuse_tensor(d, x, "dict")
    if not isinstance(x, dict):
        raise RuntimeError(
            f"Unable to handle object of type {type(x)} for input {d.name!r}; it takes a dict, as "
            f"{d.arg.type}"
        )
    if not x:
        raise RuntimeError(
            f"Size of dictionary is empty, unable to run the prediction. Input {d.name!r} is {{}}"
        )
    assert d.key is not None
    assert d.dtype is not None
    actual = DType.STRING if isinstance(next(iter(x)), str) else DType.INT64
    if not all(isinstance(key, KEYS.get(d.key, object)) for key in x):
        raise status(
            InvalidArgument,
            f"Unexpected input data type. Actual: ((map({actual},{tensor_text(d.dtype)}))) , "
            f"expected: (({d.arg.type})) for input {d.name!r}",
        )
    for value in x.values():
        if isinstance(value, str) != (d.dtype is DType.STRING):
            raise RuntimeError(
                f"Unexpected value type  {type(value)}, it cannot be linked to C type "
                f"{d.dtype} for input '{d.name}'"
            )
    return x


def _optional(d: Declared, x: Any) -> Any:
    if x is None:
        return None
    return _sequence(d, x) if "seq(" in d.arg.type else _tensor(d, x)


CHECKS: dict[str, Callable[[Declared, Any], Any]] = {
    "tensor": _tensor,
    "sequence": _sequence,
    "map": _map,
    "optional": _optional,
}
"""How each kind of input is checked."""
