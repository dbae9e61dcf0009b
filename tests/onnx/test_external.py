"""Weights in files beside the model: what is read, what is refused, what is invented."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from kn_graph.dtype import DType
from kn_graph.errors import ExternalDataError, MalformedModelError, OutOfMemoryError
from kn_graph.onnx.file import read_model
from kn_graph.onnx.tensor import LoadedTensor, TensorReader


def make_model(*initializers: TensorProto) -> ModelProto:
    graph = helper.make_graph([], "g", [], [], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def external(name: str = "w", *, dims: Any = (4,), dtype: int = 1, **entries: Any) -> TensorProto:
    message = TensorProto(name=name, dims=dims, data_type=dtype)
    message.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        message.external_data.add(key=key, value=str(value))
    return message


def save(folder: Path, model: ModelProto, name: str = "m.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def load_all(source: Any) -> list[LoadedTensor]:
    model = read_model(source)
    reader = TensorReader(model)
    return [reader.array(message) for message in model.proto.graph.initializer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a model, with a file of ten float32 in it and one outside."""
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    for place in (inside / "w.bin", inside / "sub" / "w.bin", tmp_path / "secret.bin"):
        place.write_bytes(np.arange(10, dtype=np.float32).tobytes())
    (inside / "empty").touch()
    (inside / "link.bin").symlink_to("w.bin")
    (inside / "out.bin").symlink_to("../secret.bin")
    (inside / "out").symlink_to("..")
    (inside / "loop").symlink_to("loop")
    os.mkfifo(inside / "fifo")
    return inside


def load_external(folder: Path, message: TensorProto, **options: Any) -> LoadedTensor:
    model = read_model(save(folder, make_model(message)))
    return TensorReader(model, **options).array(model.proto.graph.initializer[0])


EXTERNAL = {
    "plain": (external(location="w.bin"), [0, 1, 2, 3]),
    "offset": (external(location="w.bin", offset=24), [6, 7, 8, 9]),
    "length": (external(location="w.bin", offset=4, length=16), [1, 2, 3, 4]),
    "checksum": (external(location="w.bin", checksum="wrong"), [0, 1, 2, 3]),
    "subfolder": (external(location="sub/w.bin"), [0, 1, 2, 3]),
    "dot": (external(location="./sub/./w.bin"), [0, 1, 2, 3]),
    "link_inside": (external(location="link.bin"), [0, 1, 2, 3]),
    "zero_size": (external(location="empty", dims=[0], length=0), []),
    "misaligned": (external(location="w.bin", dtype=2, offset=6, dims=[2]), [128, 63]),
    "int4": (external(location="w.bin", dtype=21, offset=6, dims=[3]), [0, 8, 15]),
}


@pytest.mark.parametrize(("message", "expected"), EXTERNAL.values(), ids=EXTERNAL)
def test_external_data_is_read(message: TensorProto, expected: list[int], folder: Path):
    loaded = load_external(folder, message)
    assert loaded.array.astype(np.float32).tolist() == expected
    if message.data_type == TensorProto.FLOAT and expected:
        assert loaded.origin is not None
        assert loaded.origin[0].startswith(str(folder))
        assert not loaded.array.flags.writeable


REFUSED = {
    "no_location": (external(), "no location"),
    "empty_location": (external(location=""), "is empty"),
    "absolute": (external(location="/etc/passwd"), "is an absolute path"),
    "parent": (external(location="../secret.bin"), "leaves the model's folder"),
    "hidden_parent": (external(location="sub/../../secret.bin"), "leaves the model's folder"),
    "inner_parent": (external(location="sub/../w.bin"), "leaves the model's folder"),
    "drive": (external(location="C:w.bin"), "names a drive"),
    "backslash": (external(location="..\\secret.bin"), "contains a backslash"),
    "nul": (external(location="w.bin\0x"), "contains a NUL"),
    "link_outside": (external(location="out.bin"), "symbolic link to .*outside the model's folder"),
    "folder_link": (external(location="out/secret.bin"), "outside the model's folder"),
    "loop": (external(location="loop"), "cannot be read|no file"),
    "fifo": (external(location="fifo"), "a pipe, a device or a socket"),
    "folder": (external(location="sub"), "it is a folder"),
    "itself": (external(location="."), "it is a folder"),
    "missing": (external(location="no.bin"), "there is no file 'no.bin' of external data in the"),
    "truncated": (external(location="w.bin", offset=28), "expected bytes 28 to 44 .* of 40 bytes"),
    "terabytes": (external(location="w.bin", dims=[2**40]), "got a file of 40 bytes"),
    "empty_file": (external(location="empty"), "got a file of 0 bytes"),
    "short_length": (external(location="w.bin", length=15), "expected 16 bytes .* length of 15"),
    "negative_offset": (external(location="w.bin", offset=-4), "offset .*as a number, got '-4'"),
    "text_length": (external(location="w.bin", length="16b"), "length .*as a number"),
    "huge_offset": (external(location="w.bin", offset="9" * 5000), "offset .*as a number"),
    "odd_digits": (external(location="w.bin", offset="\u0664"), "offset .*as a number"),
    "unknown_key": (external(location="w.bin", basepath="/"), "unknown key 'basepath'"),
    "strings": (external(location="w.bin", dtype=8), "strings cannot be stored"),
}


@pytest.mark.parametrize(("message", "text"), REFUSED.values(), ids=REFUSED)
def test_external_data_that_is_not_allowed_is_refused(
    message: TensorProto, text: str, folder: Path
):
    with pytest.raises(ExternalDataError, match=text) as caught:
        load_external(folder, message)
    assert str(caught.value).startswith("tensor 'w': ")


def test_key_given_twice_is_refused(folder: Path):
    message = external(location="w.bin")
    message.external_data.add(key="location", value="sub/w.bin")
    with pytest.raises(ExternalDataError, match="'location' of external data is given twice"):
        load_external(folder, message)


def test_inline_and_external_data_together_are_refused(folder: Path):
    message = external(location="w.bin")
    message.raw_data = bytes(16)
    with pytest.raises(MalformedModelError, match="in raw_data and external data"):
        load_external(folder, message)


def test_external_data_of_a_model_in_memory_asks_for_the_path():
    model = make_model(external(location="w.bin"))
    for source in (model, model.SerializeToString()):
        with pytest.raises(ExternalDataError, match="load the model by its path"):
            load_all(source)


def test_two_tensors_of_one_file_share_one_mapping(folder: Path):
    messages = [external("a", location="w.bin"), external("b", location="link.bin", offset=16)]
    model = read_model(save(folder, make_model(*messages)))
    assert model.external("w.bin") is model.external("link.bin")
    first, second = load_all(model.path)
    assert first.origin is not None
    assert second.origin == (first.origin[0], 16, 16)


def test_model_and_data_linked_from_a_cache_folder_are_read(tmp_path: Path):
    # the layout of huggingface_hub: names in one folder link to contents in another
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save(blobs, make_model(external(location="m.onnx_data")), "aa11")
    (blobs / "bb22").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (snapshot / "m.onnx").symlink_to("../../blobs/aa11")
    (snapshot / "m.onnx_data").symlink_to("../../blobs/bb22")
    assert load_all(snapshot / "m.onnx")[0].array.tolist() == [0, 1, 2, 3]
    (snapshot / "m.onnx_data").unlink()
    (snapshot / "m.onnx_data").symlink_to(save(tmp_path, make_model(), "elsewhere"))
    with pytest.raises(ExternalDataError, match="outside the model's folder"):
        load_all(snapshot / "m.onnx")


def test_external_data_false_refuses_and_dummy_invents(folder: Path):
    message = external(location="no.bin", dims=[128, 1024])
    with pytest.raises(ExternalDataError, match="external_data=False refuses"):
        load_external(folder, message, external_data=False)
    first = load_external(folder, message, external_data="dummy")
    again = load_external(folder, message, external_data="dummy")
    other = load_external(
        folder, external("v", location="no.bin", dims=[128, 1024]), external_data="dummy"
    )
    assert first.array.shape == (128, 1024)
    np.testing.assert_array_equal(first.array, again.array)
    assert (first.array != other.array).any()
    assert abs(first.array.std() - 0.02) < 0.001
    assert len({row.tobytes() for row in first.array}) == 128


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.STRING], ids=str)
def test_dummy_data_is_finite_for_every_dtype(dtype: DType, folder: Path):
    for dims in ([7, 3], [], [0]):
        message = external(location="no.bin", dims=dims, dtype=dtype.onnx_code)
        loaded = load_external(folder, message, external_data="dummy")
        assert loaded.array.shape == tuple(dims)
        assert loaded.array.dtype == dtype.numpy
        assert np.isfinite(loaded.array.astype(np.complex128)).all()


def test_dummy_data_larger_than_memory_is_refused(folder: Path):
    with pytest.raises(OutOfMemoryError, match="takes 4503599627370496 bytes"):
        load_external(folder, external(location="x", dims=[2**50]), external_data="dummy")
