"""Tensors of every element type and encoding, dense and sparse, right and wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from kn_graph.dtype import DType
from kn_graph.errors import KnError, MalformedModelError, UnsupportedModelError
from kn_graph.onnx.file import ModelFile
from kn_graph.onnx.tensor import LoadedTensor, TensorReader


def reader() -> TensorReader:
    model = helper.make_model(helper.make_graph([], "g", [], []))
    return TensorReader(ModelFile(model, "m.onnx"))


def tensor(array: Any, name: str = "w") -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def proto(**fields: Any) -> TensorProto:
    return TensorProto(name="w", **fields)


def load(message: TensorProto) -> LoadedTensor:
    return reader().array(message)


# --- every type -----------------------------------------------------------------------------------


def values_of(dtype: DType) -> np.ndarray:
    if dtype is DType.STRING:
        return np.array(["a", "\u00e9", "", "x\0y", "long" * 9, "z"], object)
    if dtype.bits <= 8 and dtype is not DType.BOOL:
        patterns = np.arange(2**dtype.bits, dtype=np.uint8)
        return patterns.view(dtype.numpy)
    if dtype is DType.BOOL:
        return np.array([True, False, False, True, True])
    if not (dtype.is_float or dtype.name.startswith("COMPLEX")):
        info = np.iinfo(dtype.numpy)
        return np.array([info.min, info.max, 0, 1, info.max // 3], dtype.numpy)
    values = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan])
    return values.astype(dtype.numpy)


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    return (
        got.tolist() == expected.tolist()
        if got.dtype == object
        else (got.tobytes() == expected.tobytes())
    )


@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
@pytest.mark.parametrize("dtype", DType, ids=str)
def test_every_dtype_is_read_bit_exactly(dtype: DType, typed: bool):
    values = values_of(dtype)
    for count in (len(values), len(values) - 1, 1, 0):
        array = values[:count]
        if typed and dtype is not DType.STRING:
            message = typed_tensor(array, dtype)
        else:
            message = tensor(array)
        loaded = load(message)
        assert same(loaded.array, array), (count, message)
        assert not loaded.array.flags.writeable
        assert loaded.array.flags.c_contiguous


def typed_tensor(array: np.ndarray, dtype: DType) -> TensorProto:
    """Return the tensor with its elements in the typed field, following onnx.proto."""
    message = proto(dims=array.shape, data_type=dtype.onnx_code)
    bits = dtype.bits
    if dtype in (DType.COMPLEX64, DType.COMPLEX128, DType.FLOAT32, DType.FLOAT64):
        half = np.float32 if dtype in (DType.COMPLEX64, DType.FLOAT32) else np.float64
        field = message.float_data if half is np.float32 else message.double_data
        field.extend(array.view(half).tolist())
    elif dtype in (DType.UINT32, DType.UINT64):
        message.uint64_data.extend(array.tolist())
    elif dtype in (DType.INT32, DType.INT64):
        (message.int32_data if bits == 32 else message.int64_data).extend(array.tolist())
    elif bits in (2, 4):
        message.int32_data.extend(numpy_helper.from_array(array).raw_data)
    else:
        pattern = array.view(f"u{max(bits // 8, 1)}")
        message.int32_data.extend(pattern.tolist())
    return message


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.STRING], ids=str)
def test_our_reading_agrees_with_onnx_numpy_helper(dtype: DType):
    message = tensor(np.resize(values_of(dtype), (3, 5)))
    expected = numpy_helper.to_array(message)
    assert same(load(message).array, expected)


def test_six_bit_elements_are_a_low_bit_first_stream():
    message = proto(dims=[5], data_type=27, raw_data=bytes([0b01_000001, 0b1111_0010, 0, 63]))
    got = load(message).array.view(np.uint8)
    assert got.tolist() == [1, 0b001001, 0b001111, 0, 63]


def test_negative_patterns_are_accepted_where_writers_sign_extend():
    cases = [(TensorProto.UINT8, -1, 255), (TensorProto.INT8, 255, -1)]
    for code, entry, expected in cases:
        assert load(proto(dims=[1], data_type=code, int32_data=[entry])).array[0] == expected
    half = load(proto(dims=[1], data_type=TensorProto.FLOAT16, int32_data=[-32768]))
    assert half.array.view(np.uint16)[0] == 0x8000


def test_bool_bytes_other_than_one_become_true():
    array = load(proto(dims=[3], data_type=TensorProto.BOOL, raw_data=b"\x02\x00\x01")).array
    assert array.view(np.uint8).tolist() == [1, 0, 1]


def test_rank_zero_stays_rank_zero():
    for message in (tensor(np.float32(3)), proto(data_type=1, float_data=[3.0])):
        assert load(message).array.shape == ()
    assert load(proto(data_type=8, string_data=[b"s"])).array.item() == "s"


def test_string_that_is_not_utf8_round_trips_by_surrogates():
    array = load(proto(dims=[1], data_type=8, string_data=[b"a\xffb"])).array
    assert array[0].encode("utf-8", "surrogateescape") == b"a\xffb"


@pytest.mark.parametrize("dims", [(0,), (3, 0, 2)])
def test_zero_size_needs_no_data(dims: tuple[int, ...]):
    for dtype in DType:
        assert load(proto(dims=dims, data_type=dtype.onnx_code)).array.shape == dims
    assert load(proto(dims=dims, data_type=1, raw_data=b"")).array.shape == dims


F32 = {"data_type": TensorProto.FLOAT}
MALFORMED = {
    "undefined": (proto(dims=[1]), "element type code 0"),
    "unknown_type": (proto(dims=[1], data_type=99), "element type code 99"),
    "negative_size": (proto(dims=[-1], **F32), r"sizes of at least 0, got \[-1\]"),
    "terabytes": (proto(dims=[2**40], **F32), f"expected {2**42} bytes .* got 0 bytes"),
    "overflow": (proto(dims=[2**40, 2**40], **F32), f"ask for {2**82} bytes"),
    "overflow_beside_zero": (proto(dims=[2**62, 4, 0], **F32), "ask for"),
    "rank": (proto(dims=[1] * 65, **F32, float_data=[1.0]), "at most 64 axes, got 65"),
    "no_data": (proto(dims=[2], **F32), r"expected 8 bytes for float32\[2\], got 0 bytes"),
    "short_raw": (proto(dims=[2], **F32, raw_data=b"1234567"), "expected 8 bytes .* got 7"),
    "long_raw": (proto(dims=[2], **F32, raw_data=b"123456789"), "expected 8 bytes .* got 9"),
    "raw_of_nothing": (proto(dims=[0], **F32, raw_data=b"1"), "expected 0 bytes .* got 1"),
    "short_field": (proto(dims=[2], **F32, float_data=[1.0]), "expected 2 entries .* got 1"),
    "long_field": (proto(dims=[], **F32, float_data=[1.0] * 2), "expected 1 entries .* got 2"),
    "short_complex": (proto(dims=[2], data_type=14, float_data=[1.0] * 2), "expected 4 entries"),
    "long_int4": (proto(dims=[3], data_type=22, int32_data=[1] * 3), "expected 2 entries"),
    "short_int2": (proto(dims=[5], data_type=26, int32_data=[1]), "expected 2 entries"),
    "wrong_field": (proto(dims=[1], **F32, int32_data=[1]), "in float_data or raw_data, got int32"),
    "twice": (
        proto(dims=[1], **F32, float_data=[1.0], raw_data=b"1234"),
        "given more than once: in float_data and raw_data",
    ),
    "two_fields": (proto(dims=[1], **F32, float_data=[1.0], int32_data=[1]), "more than once"),
    "int8_range": (proto(dims=[1], data_type=3, int32_data=[256]), "from -128 to 255"),
    "int8_below": (proto(dims=[1], data_type=3, int32_data=[-129]), "got -129 to -129"),
    "uint32_range": (proto(dims=[1], data_type=12, uint64_data=[2**32]), "from 0 to 4294967295"),
    "float6_range": (proto(dims=[1], data_type=27, int32_data=[64]), "from 0 to 63 for float6e2m3"),
    "raw_string": (proto(dims=[1], data_type=8, raw_data=b"s"), "expected 1 strings"),
    "no_string": (proto(dims=[1], data_type=8), "expected 1 strings in string_data, got 0"),
    "segment": (proto(dims=[1], **F32, segment=TensorProto.Segment(begin=0)), "segment"),
}


@pytest.mark.parametrize(("message", "text"), MALFORMED.values(), ids=MALFORMED)
def test_contradiction_in_a_tensor_names_it(message: TensorProto, text: str):
    with pytest.raises(MalformedModelError, match=text) as caught:
        load(message)
    assert str(caught.value).startswith("tensor 'w': ")


# --- sparse tensors -------------------------------------------------------------------------------


def sparse(values: Any, indices: Any, dims: list[int]) -> SparseTensorProto:
    positions = np.asarray(indices)
    return SparseTensorProto(
        values=tensor(np.asarray(values), "s"),
        indices=tensor(positions if positions.size else positions.astype(np.int64), "s_indices"),
        dims=dims,
    )


def densify(message: SparseTensorProto) -> LoadedTensor:
    return reader().sparse(message)


F: Any = np.float32
SPARSE = {
    "linear": (sparse(F([5, 6]), [1, 5], [2, 3]), [[0, 5, 0], [0, 0, 6]]),
    "coordinates": (sparse(F([5, 6]), [[0, 1], [1, 2]], [2, 3]), [[0, 5, 0], [0, 0, 6]]),
    "rank_1": (sparse(F([5]), [[2]], [4]), [0, 0, 5, 0]),
    "none": (sparse(F([]), [], [2, 2]), [[0, 0], [0, 0]]),
    "no_size": (sparse(F([]), [], [2, 0]), [[], []]),
    "strings": (sparse(np.array(["a"], object), [1], [2]), ["", "a"]),
    "bfloat16": (sparse(np.array([2], ml_dtypes.bfloat16), [0], [2]), [2, 0]),
}


@pytest.mark.parametrize(("message", "expected"), SPARSE.values(), ids=SPARSE)
def test_sparse_tensor_becomes_dense(message: SparseTensorProto, expected: Any):
    loaded = densify(message)
    assert loaded.array.tolist() == expected
    assert loaded.array.shape == tuple(message.dims)
    assert not loaded.array.flags.writeable


BAD_SPARSE = {
    "too_large": (sparse(F([1]), [0], [2**30]), UnsupportedModelError, "4294967296 bytes"),
    "overflow": (sparse(F([1]), [0], [2**40, 2**40]), MalformedModelError, "ask for"),
    "negative_dim": (sparse(F([1]), [0], [-1]), MalformedModelError, "at least 0"),
    "beyond": (sparse(F([1]), [6], [2, 3]), MalformedModelError, "outside the bounds"),
    "negative": (sparse(F([1]), [-1], [2, 3]), MalformedModelError, "outside the bounds"),
    "axis_beyond": (sparse(F([1]), [[0, 3]], [2, 3]), MalformedModelError, "outside the bounds"),
    "into_nothing": (sparse(F([1]), [0], [0]), MalformedModelError, "outside the bounds"),
    "repeated": (sparse(F([1, 2]), [3, 3], [5]), MalformedModelError, "ascending order"),
    "unordered": (sparse(F([1, 2]), [3, 1], [5]), MalformedModelError, "ascending order"),
    "count": (sparse(F([1, 2]), [3], [5]), MalformedModelError, "expected values .NNZ."),
    "rank": (
        sparse(F([1]), [[3]], [5, 5]),
        MalformedModelError,
        r"or \[NNZ, 2\], got .* indices \[1, 1\]",
    ),
    "matrix": (sparse(F([[1]]), [3], [5]), MalformedModelError, r"got values \[1, 1\]"),
    "int32": (sparse(F([1]), np.array([3], np.int32), [5]), MalformedModelError, "int32 indices"),
}


@pytest.mark.parametrize(("message", "error", "text"), BAD_SPARSE.values(), ids=BAD_SPARSE)
def test_bad_sparse_tensor_is_refused(message: SparseTensorProto, error: type[KnError], text: str):
    with pytest.raises(error, match=text) as caught:
        densify(message)
    assert str(caught.value).startswith("sparse tensor 's': ")
