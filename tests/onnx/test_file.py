"""Opening models of every kind, the wire-format reader under them, and damaged files."""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from kn_graph.errors import KnError, MalformedModelError
from kn_graph.onnx.file import read_model
from kn_graph.onnx.tensor import LoadedTensor, TensorReader
from kn_graph.onnx.wire import MIN_CUT_BYTES, cut_weights

RNG = np.random.default_rng(7)
BIG = RNG.normal(size=(64, 32)).astype(np.float32)
ALSO_BIG = RNG.integers(-9, 9, 2048)
SMALL = np.array([1.5, -2], np.float32)


def make_model(*initializers: TensorProto, nodes: Any = ()) -> ModelProto:
    graph = helper.make_graph(list(nodes), "g", [], [], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def tensor(array: Any, name: str = "w") -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def save(folder: Path, model: ModelProto, name: str = "m.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def load_all(source: Any) -> list[LoadedTensor]:
    model = read_model(source)
    reader = TensorReader(model)
    return [reader.array(message) for message in model.proto.graph.initializer]


# --- the wire-format reader -----------------------------------------------------------------------


def test_small_model_passes_through_unchanged():
    data = make_model(tensor(SMALL)).SerializeToString()
    skeleton = cut_weights(memoryview(data))
    assert skeleton.data == data
    assert skeleton.spans == {}


@pytest.mark.parametrize(("count", "cut"), [(MIN_CUT_BYTES - 1, 0), (MIN_CUT_BYTES, 1)])
def test_weight_is_cut_from_4_kib_on(count: int, cut: int):
    data = make_model(tensor(np.arange(count, dtype=np.uint8) % 5)).SerializeToString()
    skeleton = cut_weights(memoryview(data))
    assert len(skeleton.spans) == cut
    assert (len(skeleton.data) < 300) == bool(cut)


def test_skeleton_differs_from_the_model_in_raw_data_only():
    node = helper.make_node("Constant", [], ["c"], value=tensor(BIG, "constant"))
    model = make_model(tensor(BIG), tensor(SMALL, "s"), tensor(ALSO_BIG, "v"), nodes=[node])
    data = model.SerializeToString()
    skeleton = cut_weights(memoryview(data))
    parsed = ModelProto.FromString(skeleton.data)
    for message in parsed.graph.initializer:
        span = skeleton.spans.get(message.raw_data)
        if span is not None:
            message.raw_data = data[span.offset : span.offset + span.length]
    assert parsed == model


def test_duplicate_and_unnamed_initializers_keep_their_own_values():
    arrays = [BIG, BIG + 1, BIG + 2, ALSO_BIG, BIG + 3]
    names = ["w", "w", "", "", "w"]
    loaded = load_all(make_model(*map(tensor, arrays, names)).SerializeToString())
    for got, expected in zip(loaded, arrays, strict=True):
        np.testing.assert_array_equal(got.array, expected)


def test_copied_tensor_still_finds_its_bytes(tmp_path: Path):
    model = read_model(save(tmp_path, make_model(tensor(BIG))))
    copy = TensorProto()
    copy.CopyFrom(model.proto.graph.initializer[0])
    np.testing.assert_array_equal(TensorReader(model).array(copy).array, BIG)


def test_graph_in_two_parts_merges_as_protobuf_merges_it():
    first, second = make_model(tensor(BIG, "a")), make_model(tensor(BIG * 2, "b"))
    second.ClearField("opset_import")
    data = first.SerializeToString() + second.SerializeToString()
    loaded = load_all(data)
    np.testing.assert_array_equal(loaded[0].array, BIG)
    np.testing.assert_array_equal(loaded[1].array, BIG * 2)


@pytest.mark.parametrize("last", [SMALL, BIG * 3], ids=["small", "big"])
def test_last_of_repeated_raw_data_wins(last: np.ndarray):
    def field(number: int, payload: bytes) -> bytes:
        length, size = b"", len(payload)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + payload

    head = TensorProto(dims=last.shape, data_type=1).SerializeToString()
    message = head + field(9, BIG.tobytes()) + field(9, last.tobytes()) + field(12, b"text")
    rest = ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    data = field(7, field(5, message)) + rest.SerializeToString()
    np.testing.assert_array_equal(load_all(data)[0].array, last)


BROKEN_WIRE = {
    "varint_breaks_off": (b"\x08\xff", "byte 1"),
    "varint_too_long": (b"\x08" + b"\xff" * 10 + b"\x01", "byte 1"),
    "field_number_zero": (b"\x08\x01\x00\x01", "byte 2: 0 is not a protobuf field"),
    "field_number_too_large": (b"\xf8\xff\xff\xff\xff\x7f\x01", "byte 0"),
    "group": (b"\x08\x01\x0b", "byte 2: field 1 has wire type 3"),
    "wire_type_7": (b"\x0f", "wire type 7"),
    "length_beyond_the_end": (b"\x08\x01\x3a\x20abc", "byte 2: field 7 claims 32 bytes, 3 are"),
    "fixed_beyond_the_end": (b"\x08\x01\x09abc", "claims 8 bytes, 3 are left"),
    "length_in_the_graph": (b"\x3a\x03\x2a\x7fa", "byte 2: field 5 claims 127 bytes, 1 are left"),
    "length_beyond_the_graph": (b"\x3a\x03\x2a\x05a" + bytes(9), "field 5 claims 5 bytes, 1 are"),
    "no_length": (b"\x08\x01\x3a", "byte 3"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN_WIRE.values(), ids=BROKEN_WIRE)
def test_broken_wire_data_names_the_byte(data: bytes, message: str):
    with pytest.raises(MalformedModelError, match=message):
        cut_weights(memoryview(data))
    with pytest.raises(MalformedModelError, match=message):
        read_model(data)


# --- opening models -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["str", "Path", "bytes", "bytearray", "memoryview", "file", "io"])
def test_every_kind_of_source_gives_the_same_tensors(kind: str, tmp_path: Path):
    path = save(tmp_path, make_model(tensor(BIG), tensor(SMALL, "s")))
    data = path.read_bytes()
    with path.open("rb") as file:
        source: Any = {
            "str": str(path),
            "Path": path,
            "bytes": data,
            "bytearray": bytearray(data),
            "memoryview": memoryview(data),
            "file": file,
            "io": io.BytesIO(data),
        }[kind]
        model = read_model(source)
    by_path = kind in ("str", "Path")
    assert model.path == (path if by_path else None)
    assert model.base_dir == (tmp_path if by_path else None)
    assert model.label == {"io": "<file>"}.get(
        kind, str(path) if by_path or kind == "file" else "<bytes>"
    )
    big, small = (TensorReader(model).array(t) for t in model.proto.graph.initializer)
    np.testing.assert_array_equal(big.array, BIG)
    np.testing.assert_array_equal(small.array, SMALL)
    assert (big.origin is not None) == by_path
    assert small.origin is None


def test_changing_a_bytearray_later_does_not_change_the_model():
    source = bytearray(make_model(tensor(BIG)).SerializeToString())
    loaded = load_all(source)[0]
    source[:] = bytes(len(source))
    np.testing.assert_array_equal(loaded.array, BIG)


def test_model_proto_is_used_as_it_is():
    message = make_model(tensor(BIG))
    model = read_model(message)
    assert model.proto is message
    np.testing.assert_array_equal(load_all(message)[0].array, BIG)


def test_weight_of_a_file_is_a_view_with_an_origin_that_locates_it(tmp_path: Path):
    path = save(tmp_path, make_model(tensor(BIG)))
    loaded = load_all(path)[0]
    assert loaded.origin is not None
    file, offset, length = loaded.origin
    assert file == os.path.realpath(path)
    assert path.read_bytes()[offset : offset + length] == BIG.tobytes()
    assert not loaded.array.flags.owndata
    assert not loaded.array.flags.writeable


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, ml_dtypes.bfloat16])
def test_misaligned_view_computes_right(dtype: Any, tmp_path: Path):
    weight, right = BIG.astype(dtype), RNG.normal(size=(32, 8)).astype(dtype)
    seen = set()
    for pad in range(4):
        loaded = load_all(save(tmp_path, make_model(tensor(weight, "w" * (pad + 1))), f"{pad}"))[0]
        np.testing.assert_array_equal(loaded.array @ right, weight @ right)
        seen.add(loaded.array.flags.aligned)
    assert False in seen


def test_opening_two_versions_of_a_file_renamed_over_keeps_the_first(tmp_path: Path):
    path = save(tmp_path, make_model(tensor(BIG)))
    before = load_all(path)[0]
    save(tmp_path, make_model(tensor(BIG * 2)), "new").rename(path)
    np.testing.assert_array_equal(load_all(path)[0].array, BIG * 2)
    np.testing.assert_array_equal(before.array, BIG)


NOT_ONNX = {
    "empty": (b"", "the file is empty"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(50), "a PNG image"),
    "zip": (b"PK\x03\x04abc", "a zip archive"),
    "safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"w":{}}', "safetensors"),
    "zeros": (bytes(5000), "filled with zero bytes; the download is incomplete"),
    "git_lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
    "html": (b"\n<!DOCTYPE html><html><body>404</body></html>", "a web page"),
    "xml": (b'<?xml version="1.0"?><Error/>', "a web page"),
    "onnx_json": (b'{\n "irVersion": "8",\n "graph": {}}', "as JSON; .*format='json'"),
    "other_json": (b'{"error": "not found"}', "a JSON text"),
    "textproto": (b"ir_version: 8\ngraph {\n}", "format='textproto'"),
    "onnx_text": (b'<ir_version: 8, opset_import: ["" : 17]>\ng (x) => (y)', "'onnxtxt'"),
    "text": ("Gr\u00fc\u00dfe, dies ist Text.".encode(), "a text file beginning with 'Gr\u00fc"),
    "noise": (bytes(range(200, 250)), "not an ONNX model, or a truncated or damaged one"),
    "tensor": (tensor(SMALL).SerializeToString(), "not an ONNX model"),
}


@pytest.mark.parametrize(("data", "message"), NOT_ONNX.values(), ids=NOT_ONNX)
def test_file_that_is_not_onnx_says_what_it_is(data: bytes, message: str, tmp_path: Path):
    path = tmp_path / "x.onnx"
    path.write_bytes(data)
    with pytest.raises(MalformedModelError, match=message) as caught:
        read_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(MalformedModelError, match=message):
        read_model(io.BytesIO(data))


@pytest.mark.filterwarnings("ignore:The onnxtxt format is experimental")
def test_conversions_that_the_errors_advise_work(tmp_path: Path):
    import onnx

    model = make_model(tensor(SMALL))
    for kind, suffix in (("json", "json"), ("textproto", "txt"), ("onnxtxt", "onnxtxt")):
        path = tmp_path / f"m.{suffix}"
        onnx.save(model, path, format=kind)
        with pytest.raises(MalformedModelError, match=f"format='{kind}'"):
            read_model(path)
        onnx.save(onnx.load(path, format=kind), tmp_path / "m.onnx")
        assert read_model(tmp_path / "m.onnx").proto.graph.name == "g"


BAD_PATHS = {
    "missing": ("nothing.onnx", "there is no such file"),
    "folder": ("", r"this is a folder; .*\(there are a.onnx, b.onnx\)"),
    "fifo": ("fifo", "a pipe, a device or a socket"),
    "loop": ("loop", "cannot be read|no such file"),
    "nul": ("a\0b", "cannot be read: embedded null"),
    "long": ("x" * 300, "cannot be read: File name too long"),
}


@pytest.mark.parametrize(("name", "message"), BAD_PATHS.values(), ids=BAD_PATHS)
def test_path_that_is_no_file_is_refused(name: str, message: str, tmp_path: Path):
    (tmp_path / "a.onnx").touch()
    (tmp_path / "b.onnx").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(MalformedModelError, match=message):
        read_model(tmp_path / name)


BAD_SOURCES = {
    "number": (3, "an object of type int; expected a path"),
    "none": (None, "type NoneType"),
    "text_mode": (io.StringIO("x"), "gave str, expected bytes; open it with mode 'rb'"),
}


@pytest.mark.parametrize(("source", "message"), BAD_SOURCES.values(), ids=BAD_SOURCES)
def test_source_of_the_wrong_kind_is_refused(source: Any, message: str):
    with pytest.raises(MalformedModelError, match=message):
        read_model(source)


def test_closed_file_is_refused(tmp_path: Path):
    with save(tmp_path, make_model()).open("rb") as file:
        pass
    with pytest.raises(MalformedModelError, match=r"m\.onnx: cannot be read: .*closed"):
        read_model(file)


OPSETS = {
    "plain": (8, [("", 17)], {"": 17}),
    "alias": (8, [("ai.onnx", 17), ("x", 1)], {"": 17, "x": 1}),
    "repeated": (8, [("ai.onnx", 17), ("", 17)], {"": 17}),
    "old": (2, [], {"": 1}),
    "old_with_opset": (2, [("", 3)], {"": 3}),
    "absent": (3, [], "no opset_import, which IR version 3 requires"),
    "nothing": (0, [], "no opset_import"),
    "contradiction": (8, [("", 17), ("ai.onnx", 18)], "'ai.onnx' has version 18, expected 17"),
    "zero": (8, [("x", 0)], "'x' has version 0, expected one version at least 1"),
}


@pytest.mark.parametrize(("ir_version", "imports", "expected"), OPSETS.values(), ids=OPSETS)
def test_opsets_are_read_or_refused(ir_version: int, imports: Any, expected: Any):
    model = make_model(tensor(SMALL))
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*entry) for entry in imports)
    model.ir_version = ir_version
    for source in (model, model.SerializeToString()):
        if isinstance(expected, dict):
            assert read_model(source).opsets == expected
        else:
            with pytest.raises(MalformedModelError, match=expected):
                read_model(source)


def test_message_without_graph_is_refused():
    message = ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    for source in (message, message.SerializeToString()):
        with pytest.raises(MalformedModelError, match="has no graph"):
            read_model(source)


def test_name_that_is_not_utf8_is_refused():
    node = helper.make_node("Relu", ["x"], ["y"], name="NODE")
    data = make_model(nodes=[node]).SerializeToString().replace(b"NODE", b"N\xffDE")
    with pytest.raises(MalformedModelError, match=r"<bytes>: NodeProto\.name is not UTF-8"):
        read_model(data)


def test_importing_the_modules_does_not_import_onnx():
    code = "import kn_graph.onnx.tensor, sys; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- damaged files --------------------------------------------------------------------------------


def fuzz_model() -> bytes:
    node = helper.make_node("Constant", [], ["c"], value=tensor(SMALL, "c"))
    outside = TensorProto(name="outside", dims=[4], data_type=1)
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "16")):
        outside.external_data.add(key=key, value=value)
    model = make_model(
        tensor(np.zeros(MIN_CUT_BYTES, np.uint8), "zeros"),
        tensor(np.array(["a", "b"], object), "text"),
        helper.make_tensor("typed", TensorProto.FLOAT16, [2], [1, 2]),
        tensor(np.array([1, -1, 3], ml_dtypes.int4), "packed"),
        outside,
        nodes=[node],
    )
    sparse = model.graph.sparse_initializer.add(dims=[2, 3])
    sparse.values.CopyFrom(tensor(SMALL, "sparse"))
    sparse.indices.CopyFrom(tensor(np.array([1, 5])))
    return model.SerializeToString()


def read_everything(source: Any) -> None:
    """Read all tensors of a damaged model; whatever is wrong must be a KnError."""
    try:
        model = read_model(source)
    except KnError:
        return
    reader = TensorReader(model)
    calls = [(reader.array, message) for message in model.proto.graph.initializer]
    calls += [(reader.sparse, message) for message in model.proto.graph.sparse_initializer]
    for node in model.proto.graph.node:
        calls += [(reader.array, a.t) for a in node.attribute if a.type == AttributeProto.TENSOR]
    for call, message in calls:
        with contextlib.suppress(KnError):
            call(message)


def test_truncation_at_every_byte_raises_only_our_errors(tmp_path: Path):
    data = fuzz_model()
    path = tmp_path / "m.onnx"
    for length in range(len(data)):
        if length % 97 == 0:
            path.write_bytes(data[:length])
            read_everything(path)
        read_everything(data[:length])


def test_flipped_bytes_raise_only_our_errors():
    data = fuzz_model()
    random_source = random.Random(5)
    # the zeros are dull: flip in the structure around them
    places = [i for i in range(len(data)) if any(data[max(0, i - 8) : i + 8])]
    for _ in range(20_000):
        damaged = bytearray(data)
        for _ in range(random_source.choice((1, 1, 1, 2, 5))):
            damaged[random_source.choice(places)] = random_source.randrange(256)
        read_everything(damaged)


def test_deep_nesting_raises_our_error():
    def delimited(tag: bytes, payload: bytes) -> bytes:
        size = len(payload)
        return tag + bytes([size & 127 | 128, size >> 7]) + payload

    graph = b""
    for _ in range(60):  # GraphProto.node, NodeProto.attribute, AttributeProto.g
        graph = delimited(b"\x0a", delimited(b"\x2a", delimited(b"\x32", graph)))
    with pytest.raises(MalformedModelError, match="protobuf cannot parse it"):
        read_model(b"\x08\x08" + delimited(b"\x3a", graph))
