"""The same calls on onnxruntime and on ours, and what is compared of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper

import kn_runtime.ort
from tests.small_models import info, model, node

__all__ = ["F32", "MODELS", "Outcome", "assert_same", "both", "outcome", "session"]

F32 = np.float32

onnxruntime.set_default_logger_severity(4)


@dataclass(frozen=True)
class Outcome:
    """What a call did.

    Attributes:
        value: what it returned.
        error: name of the class of what it raised.
        text: of the error.
    """

    value: Any = None
    error: str = ""
    text: str = ""


def outcome(call: Callable[[], Any]) -> Outcome:
    """Return what a call does."""
    try:
        return Outcome(call())
    except Exception as error:
        return Outcome(error=type(error).__name__, text=str(error).strip())


def both(call: Callable[[ModuleType], Any]) -> tuple[Outcome, Outcome]:
    """Return what a call does with onnxruntime, and with ours."""
    return outcome(lambda: call(onnxruntime)), outcome(lambda: call(kn_runtime.ort))


def assert_same(theirs: Outcome, ours: Outcome, *, words: bool = True) -> None:
    """Check that two calls did the same.

    Args:
        theirs: of onnxruntime.
        ours: of this library.
        words: whether the text of our error has to begin with all of theirs.
    """
    assert ours.error == theirs.error, f"theirs: {theirs}\nours: {ours}"
    if theirs.error:
        assert len(ours.text) > 20, "an error says what to do"
        if words:
            assert ours.text.startswith(theirs.text.rstrip(".")), f"{theirs.text}\n{ours.text}"
        return
    assert_equal(ours.value, theirs.value)


def assert_equal(ours: Any, theirs: Any) -> None:
    """Check values: kinds, element types and shapes exactly, floats to their last digits."""
    if isinstance(theirs, np.ndarray):
        assert type(ours) is np.ndarray
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        else:
            np.testing.assert_array_equal(ours, theirs)
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, type(theirs))
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_equal(a, b)
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        assert_equal([ours[k] for k in theirs], list(theirs.values()))
    elif isinstance(theirs, float):
        assert type(ours) is float
        assert ours == np.float64(theirs) or abs(ours - theirs) <= 1e-6 * abs(theirs)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs


def session(module: ModuleType, name: str, **options: Any) -> Any:
    """Return a session of one of `MODELS`."""
    return module.InferenceSession(MODELS[name].SerializeToString(), **options)


def _typed(dtype: int, shape: Any = (None, "n", 3)) -> ModelProto:
    return model([node("Identity", "x", "y")], [info("x", shape, dtype)], [info("y", shape, dtype)])


def _zipmap(**keys: Any) -> ModelProto:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    key = TensorProto.STRING if "classlabels_strings" in keys else TensorProto.INT64
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    return model(
        [node("ZipMap", "x", "y", domain="ai.onnx.ml", **keys)],
        [info("x", ["n", 2])],
        [helper.make_value_info("y", maps)],
        opsets={"": 21, "ai.onnx.ml": 1},
    )


def _vectorizer(key: int, **keys: Any) -> ModelProto:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    x = helper.make_value_info("x", helper.make_map_type_proto(key, value))
    return model(
        [node("DictVectorizer", "x", "y", domain="ai.onnx.ml", **keys)],
        [x],
        opsets={"": 21, "ai.onnx.ml": 1},
    )


def _sequence(dtype: int = TensorProto.FLOAT) -> ModelProto:
    ends = [helper.make_tensor_sequence_value_info(n, dtype, None) for n in "xy"]
    return model([node("Identity", "x", "y")], ends[:1], ends[1:])


def _optional(operator: str, result: Any) -> ModelProto:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    x = helper.make_value_info("x", helper.make_optional_type_proto(tensor))
    return model([node(operator, "x", "y")], [x], [helper.make_value_info("y", result)])


def _with_facts() -> ModelProto:
    proto = model([node("Neg", "x", "y")], [info("x", [2])], [info("y", ["rows"])])
    proto.producer_name, proto.domain, proto.model_version = "maker", "some.domain", 7
    proto.doc_string, proto.graph.doc_string = "what it is", "about the graph"
    helper.set_model_props(proto, {"classes": "a,b", "empty": ""})
    return proto


_OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))

MODELS: dict[str, ModelProto] = {
    "sub": model(
        [node("Sub", "a b", "y"), node("Add", "a b", "z")],
        [info("a", ["n", 3]), info("b", ["n", 3])],
        ["y", info("z", ["n", 3])],
    ),
    "alike": model(
        [node("Identity", "x", "y"), node("Sub", "x x", "z")], [info("x", ["n", "n"])], ["y", "z"]
    ),
    "scalar": _typed(TensorProto.FLOAT, []),
    "count": _typed(TensorProto.INT64, []),
    "unranked": model([node("Identity", "x", "y")], [info("x", None)]),
    "unranked sum": model([node("ReduceSum", "x", "y", keepdims=0)], [info("x", None)]),
    "fixed": _typed(TensorProto.FLOAT, [2, 3]),
    "empty": _typed(TensorProto.FLOAT, [0, 3]),
    "default": model(
        [node("Add", "x w", "y")],
        [info("x", ["n"]), info("w", [1])],
        weights={"w": np.ones(1, F32)},
    ),
    "old default": model(
        [node("Add", "x w", "y")],
        [info("x", ["n"]), info("w", [1])],
        weights={"w": np.ones(1, F32)},
        opset=8,
        ir_version=3,
    ),
    "constant": model([node("Add", "x w", "y")], weights={"w": np.ones(1, F32)}),
    "sequence": _sequence(),
    "texts": _sequence(TensorProto.STRING),
    "has": _optional("OptionalHasElement", helper.make_tensor_type_proto(TensorProto.BOOL, [])),
    "optional": _optional("Identity", _OPTIONAL),
    "maps": _zipmap(classlabels_int64s=[4, 7]),
    "named maps": _zipmap(classlabels_strings=["cat", "dog"]),
    "words": _vectorizer(TensorProto.STRING, string_vocabulary=["a", "b"]),
    "numbers": _vectorizer(TensorProto.INT64, int64_vocabulary=[1, 2]),
    "facts": _with_facts(),
    "gather": model(
        [node("Gather", "x i", "y")], [info("x"), info("i", ["m"], TensorProto.INT64)]
    ),
    "reshape": model(
        [node("Reshape", "x s", "y")], [info("x"), info("s", ["m"], TensorProto.INT64)]
    ),
    "product": model([node("MatMul", "a b", "y")], [info("a", ["n", "k"]), info("b", ["l", "m"])]),
    "sum": model([node("Add", "a b", "y")], [info("a"), info("b", ["m"])]),
    "nothing fed": model(
        [node("Identity", "w", "y")],
        [],
        [info("y", [3], TensorProto.INT32)],
        weights={"w": np.arange(3, dtype=np.int32)},
    ),
    "found": model(
        [node("NonZero", "x", "y")], [info("x", ["n"])], [info("y", None, TensorProto.INT64)]
    ),
    **{
        f"typed {code}": _typed(code)
        for code in (
            TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64,
            TensorProto.INT8, TensorProto.BOOL, TensorProto.STRING, TensorProto.UINT8,
            TensorProto.INT32, TensorProto.UINT16,
        )
    },
}  # fmt: skip
"""Models by name."""
