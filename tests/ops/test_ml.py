"""ai.onnx.ml: scaling, features, look-ups and maps, against onnxruntime and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kn_graph.errors import ExecutionError, MalformedModelError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.ml_nodes import assert_like_onnxruntime, ml_model, run_here

ROWS = np.array([[1, -2, 4], [0, 0, 0], [-1, -3, -2], [-1, 0, -5]], np.float32)
NAN = float("nan")

PREPARING: list[tuple[str, dict[str, Any], Any]] = [
    ("Scaler", {"scale": [2.0, 3.0, 4.0], "offset": [1.0, 0.5, -1.0]}, ROWS),
    ("Scaler", {"scale": [2.0], "offset": [1.0]}, ROWS.astype(np.int64)),
    ("Scaler", {"scale": [2.0], "offset": [1.0]}, ROWS[0]),
    *(("Normalizer", {"norm": n}, ROWS) for n in ("MAX", "L1", "L2")),
    *(("Normalizer", {"norm": n}, ROWS[0].astype(np.int64)) for n in ("MAX", "L1", "L2")),
    ("Imputer", {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": -2.0}, ROWS),
    ("Imputer", {"imputed_value_floats": [7.0]}, ROWS),
    ("Imputer", {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": NAN},
     np.array([[NAN, 1], [2, NAN]], np.float32)),
    ("Imputer", {"imputed_value_int64s": [9, 8, 7]}, ROWS.astype(np.int64)),
    ("Binarizer", {"threshold": 0.5}, ROWS),
    ("FeatureVectorizer", {"inputdimensions": [3]}, ROWS),
    ("FeatureVectorizer", {"inputdimensions": [2]}, ROWS),
    ("FeatureVectorizer", {"inputdimensions": [5]}, ROWS.astype(np.int64)),
    ("FeatureVectorizer", {"inputdimensions": [3]}, ROWS[0]),
    ("FeatureVectorizer", {"inputdimensions": [6]}, ROWS.reshape(2, 2, 3)),
    ("OneHotEncoder", {"cats_int64s": [0, -2, 4]}, ROWS.astype(np.int64)),
    ("OneHotEncoder", {"cats_int64s": [0, 4, 1]}, ROWS + np.float32(0.7)),
    ("OneHotEncoder", {"cats_int64s": [0, 10**12]}, ROWS.astype(np.int64)),
    ("OneHotEncoder", {"cats_strings": ["a", "b"]}, np.array([["b"], ["z"]], object)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attributes", "x"), PREPARING, ids=str)
def test_preparing_features(op: str, attributes: dict[str, Any], x: Any) -> None:
    assert_like_onnxruntime(op, {"x": x}, rtol=1e-6, atol=1e-6, **attributes)


@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize("op", ["Scaler", "Normalizer", "Binarizer"])
def test_any_number_of_rows(op: str, rows: int) -> None:
    attributes: dict[str, Any] = {"scale": [1.0], "offset": [1.0]} if op == "Scaler" else {}
    (y,) = run_here(ml_model(op, {"x": ROWS[:rows]}, **attributes), {"x": ROWS[:rows]})
    assert y.shape == (rows, 3)


def test_binarizer_puts_nan_below_and_reads_integers_exactly() -> None:
    x = np.array([NAN, 0.25, 0.75], np.float32)
    (y,) = run_here(ml_model("Binarizer", {"x": x}, threshold=0.5), {"x": x})
    assert y.tolist() == [0, 0, 1]
    x = np.array([0, 1, 2**40], np.int64)
    (y,) = run_here(ml_model("Binarizer", {"x": x}, threshold=0.5), {"x": x})
    assert y.tolist() == [0, 1, 1]


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("indices", [[2], [0, 3, 3], [[1, 2]]])
def test_array_feature_extractor(shape: tuple[int, ...], indices: Any) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert_like_onnxruntime("ArrayFeatureExtractor", {"x": x, "i": np.array(indices, np.int64)})


def test_feature_vectorizer_joins_columns() -> None:
    parts = {"a": ROWS, "b": np.arange(8, dtype=np.float32).reshape(4, 2)}
    assert_like_onnxruntime("FeatureVectorizer", parts, inputdimensions=[3, 2])


def test_one_hot_encoder_without_zeros_refuses_unknown_categories() -> None:
    x = np.array([1, 7], np.int64)
    model = ml_model("OneHotEncoder", {"x": x}, cats_int64s=[1, 2], zeros=0)
    assert run_here(model, {"x": x[:1].repeat(2)})[0].tolist() == [[1, 0], [1, 0]]
    with pytest.raises(ExecutionError, match="out of range"):
        run_here(model, {"x": x})


# ---- looking up ---------------------------------------------------------------------------------

TEXTS = np.array([["a", "b"], ["b", "?"]], object)
NUMBERS = np.array([[5, -7], [2**40, 6]], np.int64)

ENCODERS: list[tuple[int, dict[str, Any], Any]] = [
    (1, {"classes_strings": ["a", "b"]}, TEXTS),
    (1, {"classes_strings": ["a", "b", "c"], "default_string": "none"}, NUMBERS - 4),
    (2, {"keys_strings": ["a", "b"], "values_int64s": [3, 4]}, TEXTS),
    (2, {"keys_strings": ["a", "b"], "values_floats": [0.5, 4], "default_float": 2.5}, TEXTS),
    (2, {"keys_int64s": [5, 6], "values_strings": ["x", "y"]}, NUMBERS),
    (2, {"keys_int64s": [5, 6], "values_floats": [1.5, 2.5]}, NUMBERS),
    (2, {"keys_int64s": [2**40, -7], "values_int64s": [1, 2], "default_int64": 9}, NUMBERS),
    (2, {"keys_floats": [5.0, 0.5], "values_int64s": [1, 2]}, NUMBERS.astype(np.float32)),
    (2, {"keys_strings": ["a", "b"], "values_strings": ["A", "B"], "default_string": "C"}, TEXTS),
    (4, {"keys_floats": [5.0, NAN], "values_int64s": [1, 2]}, np.array([NAN, 5], np.float32)),
]


@pytest.mark.parametrize(("version", "attributes", "x"), ENCODERS, ids=str)
def test_label_encoder(version: int, attributes: dict[str, Any], x: Any) -> None:
    assert_like_onnxruntime("LabelEncoder", {"x": x}, version=version, **attributes)


@pytest.mark.parametrize("key", [np.int64, np.int32, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.int64, np.float32, np.float64, np.int16])
def test_label_encoder_with_tensors(key: Any, value: Any) -> None:
    x = np.array([[3, 4], [5, 90]], key)
    model = ml_model(
        "LabelEncoder", {"x": x}, version=4,
        keys_tensor=numpy_helper.from_array(np.array([4, 3, 90], key)),
        values_tensor=numpy_helper.from_array(np.array([40, 30, 9], value)),
        default_tensor=numpy_helper.from_array(np.array([7], value)),
    )  # fmt: skip
    (y,) = run_here(model, {"x": x})
    assert y.dtype == value
    assert y.tolist() == [[30, 40], [7, 9]]


@pytest.mark.parametrize(
    ("x", "keys"),
    [
        (np.array([NAN, 1, 2], np.float32), {"keys_floats": [1.0, NAN, 1.0]}),
        (np.array([3, 1, 2]), {"keys_int64s": [1, 3, 1]}),
        (np.array([3, 10**9, 2]), {"keys_int64s": [10**9, 3, 10**9]}),
        (np.array(["b", "a", "c"], object), {"keys_strings": ["a", "b", "a"]}),
    ],
    ids=str,
)
def test_the_last_of_equal_keys_counts_as_the_text_says(x: Any, keys: dict[str, Any]) -> None:
    model = ml_model("LabelEncoder", {"x": x}, version=4, values_int64s=[10, 20, 30], **keys)
    assert run_here(model, {"x": x})[0].tolist() == [20, 30, -1]


@pytest.mark.parametrize("x", [TEXTS, NUMBERS])
def test_category_mapper(x: Any) -> None:
    assert_like_onnxruntime(
        "CategoryMapper", {"x": x}, cats_strings=["a", "b", "c"], cats_int64s=[5, -7, 0]
    )


def test_a_look_up_of_integers_is_a_gather_and_one_of_strings_a_host_call() -> None:
    def operations(x: Any, **attributes: Any) -> set[str]:
        graph = load_graph_from_onnx_bytes(
            ml_model("LabelEncoder", {"x": x}, version=4, **attributes)
        )
        return {n.op.title for n in graph.nodes}

    assert "find_strings" in operations(TEXTS, keys_strings=["a"], values_int64s=[1])
    assert "find_strings" not in operations(NUMBERS, keys_int64s=[1], values_strings=["a"])


WRONG: list[tuple[str, Any, dict[str, Any], str]] = [
    ("LabelEncoder", NUMBERS, {"keys_int64s": [1, 2], "values_int64s": [1]}, "2 keys and 1 values"),
    ("LabelEncoder", TEXTS, {"keys_int64s": [1], "values_int64s": [1]}, "the keys are int64"),
    ("LabelEncoder", NUMBERS, {"keys_int64s": [1]}, "needs one of values_strings"),
    ("OneHotEncoder", NUMBERS, {}, "needs one of cats_strings and cats_int64s"),
    ("Imputer", ROWS, {"imputed_value_int64s": [1]}, "has no values"),
    ("Normalizer", ROWS, {"norm": "L3"}, "must be one of MAX, L1, L2"),
    ("Normalizer", ROWS.reshape(2, 2, 3), {}, r"expected \[N, C\]"),
    ("FeatureVectorizer", ROWS, {"inputdimensions": [1, 2]}, "1 inputs and 2 inputdimensions"),
    ("ZipMap", ROWS, {}, "needs one of classlabels_strings"),
    ("DictVectorizer", ROWS, {"string_vocabulary": ["a"]}, "expected a map"),
    ("LinearRegressor", ROWS, {"coefficients": [1.0, 2.0], "targets": 3}, "for 3 rows"),
    ("SVMClassifier", ROWS, {"coefficients": [1.0], "vectors_per_class": [1]}, "classlabels_ints"),
]


@pytest.mark.parametrize(("op", "x", "attributes", "text"), WRONG, ids=str)
def test_contradictions_are_named(op: str, x: Any, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(MalformedModelError, match=text):
        load_graph_from_onnx_bytes(ml_model(op, {"x": x}, version=4, **attributes))


# ---- maps ---------------------------------------------------------------------------------------


def map_model(op: str, key: int, value: int, **attributes: Any) -> bytes:
    scalar = helper.make_tensor_type_proto(value, [])
    given = helper.make_value_info("x", helper.make_map_type_proto(key, scalar))
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], op, [given], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def run_map(op: str, key: int, value: int, x: dict[Any, Any], **attributes: Any) -> Any:
    graph = load_graph_from_onnx_bytes(map_model(op, key, value, **attributes))
    return cpu_eval_graph(graph, {"x": x})["y"]


def test_dict_vectorizer() -> None:
    words = {"string_vocabulary": ["a", "c", "b", "z"]}
    y = run_map(
        "DictVectorizer",
        TensorProto.STRING,
        TensorProto.FLOAT,
        {"a": 4.0, "c": 8.0, "q": 1.0},
        **words,
    )
    assert y.dtype == np.float32
    assert y.tolist() == [[4, 8, 0, 0]]
    y = run_map(
        "DictVectorizer", TensorProto.INT64, TensorProto.STRING, {7: "x"}, int64_vocabulary=[5, 7]
    )
    assert y.tolist() == [["", "x"]]


CASTS: list[tuple[dict[str, Any], list[Any]]] = [
    ({}, [2.5, 1.5]),
    ({"map_form": "SPARSE", "max_map": 5}, [0, 2.5, 0, 1.5, 0]),
    ({"map_form": "SPARSE", "max_map": 2}, [0, 2.5]),
    ({"cast_to": "TO_INT64"}, [2, 1]),
    ({"cast_to": "TO_STRING"}, ["2.500000", "1.500000"]),
]


@pytest.mark.parametrize(("attributes", "expected"), CASTS, ids=str)
def test_cast_map_as_onnxruntime_does(attributes: dict[str, Any], expected: list[Any]) -> None:
    y = run_map("CastMap", TensorProto.INT64, TensorProto.FLOAT, {3: 1.5, 1: 2.5}, **attributes)
    assert y.tolist() == [expected]


def test_cast_map_reads_strings() -> None:
    y = run_map("CastMap", TensorProto.INT64, TensorProto.STRING, {1: "7", 0: "1.5"})
    assert y.tolist() == [[1.5, 7]]
    with pytest.raises(ExecutionError, match="cannot convert"):
        run_map("CastMap", TensorProto.INT64, TensorProto.STRING, {1: "seven"})


@pytest.mark.parametrize("x", [ROWS[:, :2], ROWS[0, :2]])
@pytest.mark.parametrize(
    "keys", [{"classlabels_int64s": [5, 6]}, {"classlabels_strings": ["a", "b"]}]
)
def test_zip_map(x: Any, keys: dict[str, Any]) -> None:
    names = next(iter(keys.values()))
    (y,) = run_here(ml_model("ZipMap", {"x": x}, **keys), {"x": x})
    assert y == [dict(zip(names, row, strict=True)) for row in x.reshape(-1, 2).tolist()]


def test_host_functions_are_named_in_a_fixed_table() -> None:
    graph = Graph()
    x = graph.input("x", "string", ["n"])
    with pytest.raises(ValueError, match="no host function 'nothing'; there are cast_map"):
        graph.host_call("nothing", x)
