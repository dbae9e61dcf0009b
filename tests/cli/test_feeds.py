"""Inputs of `kn run`: files of every kind, random numbers, assumed sizes."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from kn_graph import Graph, load_graph_from_onnx_bytes, load_graph_from_onnx_path
from kn_graph.errors import SymbolError
from kn_runtime.assume import assumed_sizes
from tests.cli.conftest import Kn, Result
from tests.small_models import info, model, node

TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])


def _bytes(save: Any, *arrays: Any) -> bytes:
    buffer = BytesIO()
    save(buffer, *arrays)
    return buffer.getvalue()


NPY, NPZ = _bytes(np.save, np.ones(3)), _bytes(np.savez, np.ones(3))


def write(folder: Path, inputs: Sequence[Any], **weights: Any) -> Path:
    """Write a model that returns its inputs and weights."""
    names = [i.name for i in inputs] + [n for n in weights if n not in [i.name for i in inputs]]
    nodes = [node("Identity", n, f"{n}_out") for n in names]
    proto = model(nodes, inputs, [info(f"{n}_out", None) for n in names], weights)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def values(result: Result) -> dict[str, Any]:
    assert (result.code, result.err) == (0, ""), result.err
    return {n.removesuffix("_out"): f["first"] for n, f in result.json()["outputs"].items()}


def run(kn: Kn, path: Path, *inputs: str) -> Result:
    return kn("run", path, *(a for i in inputs for a in ("--input", i)), "--json")


# ---- arrays --------------------------------------------------------------------------------


def test_npy_npz_and_pb(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("a", [2]), info("b", [2]), info("c", [2]), info("d", [2])])
    x = np.array([1, 2], np.float32)
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "one.npz", anything=x + 1)
    np.savez(tmp_path / "several.npz", c=x + 2, z=x)
    (tmp_path / "d.pb").write_bytes(numpy_helper.from_array(x + 3).SerializeToString())
    files = {"a": "a.npy", "b": "one.npz", "c": "several.npz", "d": "d.pb"}
    result = run(kn, path, *(f"{n}={tmp_path / f}" for n, f in files.items()))
    assert values(result) == {"a": [1, 2], "b": [2, 3], "c": [3, 4], "d": [4, 5]}


def test_an_npz_alone_fills_inputs_by_name(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("a", [1]), info("b", [1])])
    np.savez(tmp_path / "all.npz", a=np.ones(1, np.float32), b=np.zeros(1, np.float32))
    assert values(run(kn, path, str(tmp_path / "all.npz"))) == {"a": [1], "b": [0]}
    np.savez(tmp_path / "odd.npz", a=np.ones(1, np.float32), c=np.zeros(1, np.float32))
    text = run(kn, path, str(tmp_path / "odd.npz"), "random").error(2, "unexpected_input")
    assert "'c'" in text


def test_sequences_and_optionals_from_pb(tmp_path: Path, kn: Kn) -> None:
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(TENSOR))
    optional = helper.make_value_info("o", helper.make_optional_type_proto(TENSOR))
    path = write(tmp_path, [sequence, optional])
    x = np.array([1, 2], np.float32)
    (tmp_path / "s.pb").write_bytes(numpy_helper.from_list([x, x[:1]], "s").SerializeToString())
    (tmp_path / "o.pb").write_bytes(
        numpy_helper.from_optional(x, "o", onnx.OptionalProto.TENSOR).SerializeToString()
    )
    result = run(kn, path, f"s={tmp_path / 's.pb'}", f"o={tmp_path / 'o.pb'}")
    assert values(result) == {"s": [[1, 2], [1]], "o": [1, 2]}
    assert values(run(kn, path, f"s={tmp_path / 's.pb'}"))["o"] is None


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("x.npy", None, "there is no file"),
        ("x.npy", b"", "is damaged"),
        ("x.npy", b"\x93NUMPY\x01\x00", "is damaged"),
        ("x.npy", b"some text", "is damaged"),
        ("x.npz", b"PK\x03\x04 broken", "is damaged"),
        ("x.npz", NPY, "is damaged, or not what its suffix says"),
        ("x.npy", NPZ, "is damaged, or not what its suffix says"),
        ("x.pb", b"\xff\xff\xff", "is no ONNX TensorProto"),
        ("x.png", b"no picture", "is no picture"),
        ("x.png", None, "there is no file"),
        ("x.csv", b"1 2 3", "has none of the suffixes .npy, .npz, .pb, .wav"),
        ("x", b"1 2 3", "has none of the suffixes"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, data: bytes | None, says: str, tmp_path: Path, kn: Kn
) -> None:
    path = write(tmp_path, [info("x", [1, 3, 4, 4])])
    if data is not None:
        (tmp_path / name).write_bytes(data)
    assert says in run(kn, path, f"x={tmp_path / name}").error(2, "usage")


def test_an_empty_folder_is_no_input(tmp_path: Path, kn: Kn) -> None:
    (tmp_path / "x.npy").mkdir()
    path = write(tmp_path, [info("x", [1])])
    assert "holds no file" in run(kn, path, f"x={tmp_path / 'x.npy'}").error(2, "usage")


def test_pickled_objects_are_refused(tmp_path: Path, kn: Kn) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    path = write(tmp_path, [info("x", [1])])
    assert "pickle" in run(kn, path, f"x={tmp_path / 'x.npy'}").error(2, "usage")


def test_a_header_that_asks_for_terabytes(tmp_path: Path, kn: Kn) -> None:
    with open(tmp_path / "x.npy", "wb") as file:
        shape = (10**12, 100)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
    path = write(tmp_path, [info("x", ["n", "m"])])
    result = run(kn, path, f"x={tmp_path / 'x.npy'}")
    assert result.code == 2
    assert result.err.startswith(("error[out_of_memory]", "error[usage]"))


def test_an_input_given_twice(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("x", [1])])
    assert "twice" in run(kn, path, "x=random", "x=a.npy").error(2, "usage")


def test_an_initializer_can_be_fed(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("x", [1]), info("w", [1])], w=np.ones(1, np.float32))
    np.save(tmp_path / "w.npy", np.full(1, 7, np.float32))
    assert values(run(kn, path, "random"))["w"] == [1]
    assert values(run(kn, path, "random", f"w={tmp_path / 'w.npy'}"))["w"] == [7]
    assert "value in the model" in run(kn, path, "w=random").error(2, "usage")


# ---- random numbers and assumed sizes ------------------------------------------------------


def test_kinds_of_random_numbers(tmp_path: Path, kn: Kn) -> None:
    kinds = {"f": 1, "i": 7, "b": 9, "h": 10, "g": 16, "u": 2}
    path = write(tmp_path, [info(n, [400], t) for n, t in kinds.items()])
    kn("run", path, "--input", "random", "--output", tmp_path)
    arrays = {n: np.load(tmp_path / f"{n}_out.npy") for n in "fibhu"}
    assert abs(arrays["f"].mean()) < 0.2
    assert 0.8 < arrays["f"].std() < 1.2
    assert 0.8 < arrays["h"].std() < 1.2
    for name in "iub":
        assert set(arrays[name].tolist()) == {0, 1}


def test_what_cannot_be_made_up(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("x", [1], TensorProto.STRING)])
    assert "string[1] cannot be made up" in run(kn, path, "random").error(2, "usage")
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(TENSOR))
    path = write(tmp_path, [sequence])
    assert "cannot be made up" in run(kn, path, "s=random").error(2, "usage")


def test_random_for_one_input_only(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("a", [1]), info("b", [1])])
    assert "'b' (float32[1])" in run(kn, path, "a=random").error(2, "missing_input")


def test_sizes_that_other_inputs_show_are_not_assumed(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("a", ["n", "m"]), info("b", ["m", "k", "n+m"])])
    np.save(tmp_path / "a.npy", np.zeros((2, 5), np.float32))
    report = run(kn, path, f"a={tmp_path / 'a.npy'}", "random").json()
    assert report["outputs"]["b_out"]["shape"] == [5, 64, 7]
    assert (report["assumed"], report["random"]) == ({"k": 64}, ["b"])


def test_assumed_sizes_satisfy_the_model(tmp_path: Path, kn: Kn) -> None:
    # a reshape into rows of 512 rules 64 out
    proto = model(
        [node("Reshape", "x s", "y")],
        [info("x", [1, "n"])],
        weights={"s": np.array([-1, 512])},
    )
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    assert run(kn, tmp_path / "model.onnx", "random").json()["assumed"] == {"n": 512}


def test_sizes_that_weights_decide_are_assumed(tmp_path: Path, kn: Kn) -> None:
    proto = model(
        [node("MatMul", "x w", "y")],
        [info("x", ["n", "m"])],
        weights={"w": np.ones((17, 3), np.float32)},
    )
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    report = run(kn, tmp_path / "model.onnx", "random").json()
    assert report["assumed"] == {"n": 1, "m": 17}


def test_first_axes_that_must_be_longer_than_1(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("a", ["n-5", "m"])])
    assert run(kn, path, "random").json()["assumed"] == {"n": 64, "m": 64}


def branches(folder: Path, windows: Sequence[int]) -> Path:
    """Write a model that cuts x into windows, of one length or another."""
    bodies = []
    for at, window in enumerate(windows):
        weights = {f"s{at}": np.array([1, window])}
        cut = model([node("Reshape", f"x s{at}", f"y{at}")], [], [f"y{at}"], weights).graph
        bodies.append(cut)
    branch = node("If", "c", "y", then_branch=bodies[0], else_branch=bodies[1])
    proto = model([branch], [info("x", ["batch", "n"]), info("c", [], TensorProto.BOOL)])
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize(
    ("windows", "sizes"),
    [
        ((512, 512), {"batch": 1, "n": 512}),
        ((256, 256), {"batch": 1, "n": 256}),
        ((512, 256), {"batch": 1, "n": 64}),  # nothing fits both, so bodies have no say
    ],
)
def test_assumed_sizes_suit_every_branch_where_one_does(
    tmp_path: Path, windows: Sequence[int], sizes: dict[str, int]
) -> None:
    graph = load_graph_from_onnx_path(branches(tmp_path, windows))
    assert assumed_sizes(graph, {}) == sizes


def test_a_size_that_has_to_equal_another_is_assumed_to(tmp_path: Path) -> None:
    g = Graph("equal")
    x, y = g.input("x", "float32", ["a", "b"]), g.input("y", "float32", [2, "c"])
    g.require_eq(x.shape[0], y.shape[1], "they belong together")
    g.output("z", g.matmul(y, x))
    assert assumed_sizes(g, {}) == {"a": 1, "b": 64, "c": 1}


def rows(shape: Sequence[int | str], length: int) -> Graph:
    """Return a model that cuts x into rows."""
    weights = {"s": np.array([-1, length])}
    proto = model([node("Reshape", "x s", "y")], [info("x", shape)], weights=weights)
    return load_graph_from_onnx_bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        (rows(["n"], 105), {"n": 105}),
        (rows([1, "n"], 21), {"n": 84}),  # none below 64 where one above it will do
        (rows([1, "n-100"], 214), {"n": 314}),  # 100 leaves no rows at all
        (rows(["a", 24, "b"], 2520), {"a": 1, "b": 105}),
        (rows(["a-10", 10, "b"], 2000), {"a": 64, "b": 200}),  # at a = 64 alone 100 is legal too
        (rows(["a-10", "b", "c"], 35), {"a": 64, "b": 64, "c": 70}),
    ],
)
def test_sizes_grow_until_a_model_allows_them(graph: Graph, sizes: dict[str, int]) -> None:
    assert assumed_sizes(graph, {}) == sizes


def test_sizes_grow_beside_those_given() -> None:
    graph = rows(["a", 10, "b"], 1060)
    assert assumed_sizes(graph, {"a": 53}) == {"b": 64}
    assert assumed_sizes(graph, {"a": 7}) == {"b": 106}
    assert assumed_sizes(graph, {"b": 3}) == {"a": 106}


def test_sizes_that_cannot_be_guessed_say_what_they_have_to_satisfy() -> None:
    with pytest.raises(SymbolError, match=r"They have to satisfy 4099\*\(n//4099\)-n == 0"):
        assumed_sizes(rows(["n"], 4099), {})


# ---- pictures ------------------------------------------------------------------------------


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Return a picture of 2 x 4 pixels: red, green, blue and white over black."""
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[0] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def shown(kn: Kn, path: Path, picture: Path, *arguments: str) -> np.ndarray[Any, Any]:
    result = kn("run", path, "--input", f"x={picture}", "--output", path.parent, *arguments)
    assert result.code == 0, result.err
    return np.load(path.parent / "x_out.npy")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([1, 3, 2, 4], (1, 3, 2, 4)),
        (["n", 3, "h", "w"], (1, 3, 2, 4)),
        ([3, "h", "w"], (3, 2, 4)),
        ([1, 2, 4, 3], (1, 2, 4, 3)),
        (["h", "w", 3], (2, 4, 3)),
        ([1, 1, 2, 4], (1, 1, 2, 4)),
        ([1, 2, 4, 1], (1, 2, 4, 1)),
        ([1, 3, 4, 8], (1, 3, 4, 8)),
    ],
)
def test_axes_of_pictures(
    shape: list[Any], expected: tuple[int, ...], tmp_path: Path, picture: Path, kn: Kn
) -> None:
    x = shown(kn, write(tmp_path, [info("x", shape)]), picture)
    assert x.shape == expected
    assert (x.min(), x.max()) == (0, 1)


def test_channels_are_red_green_blue(tmp_path: Path, picture: Path, kn: Kn) -> None:
    x = shown(kn, write(tmp_path, [info("x", [1, 3, 2, 4])]), picture)
    np.testing.assert_array_equal(x[0, :, 0, :3], np.eye(3))


def test_grey_is_luma(tmp_path: Path, picture: Path, kn: Kn) -> None:
    x = shown(kn, write(tmp_path, [info("x", [1, 1, 2, 4], TensorProto.UINT8)]), picture)
    np.testing.assert_allclose(x[0, 0, 0].astype(int), [76, 150, 29, 255], atol=1)


def test_uint8_is_not_scaled(tmp_path: Path, picture: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("x", [1, 3, 2, 4], TensorProto.UINT8)])
    assert shown(kn, path, picture).max() == 255
    scaled = shown(kn, path, picture, "--scale", "0.1")
    assert scaled.max() == 26  # rounded, not cut


def test_scale_mean_and_std(tmp_path: Path, picture: Path, kn: Kn) -> None:
    path = write(tmp_path, [info("x", [1, 3, 2, 4])])
    x = shown(kn, path, picture, "--mean", "0.5,0,1", "--std", "0.5")
    np.testing.assert_allclose(x[0, :, 0, 3], [1, 2, 0], atol=1e-6)
    x = shown(kn, path, picture, "--scale", "1", "--mean", "100")
    np.testing.assert_allclose(x[0, :, 0, 3], [155, 155, 155])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--mean", "1,2"], "--mean has 2 numbers"), (["--std", "0"], "--std 0")],
)
def test_numbers_that_do_not_fit(
    arguments: list[str], says: str, tmp_path: Path, picture: Path, kn: Kn
) -> None:
    path = write(tmp_path, [info("x", [1, 3, 2, 4])])
    result = kn("run", path, "--input", f"x={picture}", *arguments)
    assert says in result.error(2, "usage")


@pytest.mark.parametrize("shape", [[5], [1, 2, 4, 4], ["n", "c", "h", "w"]])
def test_inputs_that_are_no_pictures(
    shape: list[Any], tmp_path: Path, picture: Path, kn: Kn
) -> None:
    path = write(tmp_path, [info("x", shape)])
    text = run(kn, path, f"x={picture}").error(2, "shape_mismatch")
    assert "not shaped like a picture" in text


def test_a_photo_is_turned_as_the_camera_was(tmp_path: Path, kn: Kn) -> None:
    image = Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8))
    exif = image.getexif()
    exif[0x0112] = 3  # upside down
    image.save(tmp_path / "photo.png", exif=exif)
    x = shown(kn, write(tmp_path, [info("x", [3, 1, 2])]), tmp_path / "photo.png")
    np.testing.assert_array_equal(x[:, 0], [[0, 1], [0, 0], [1, 0]])


def test_pictures_of_more_than_8_bits_are_refused(tmp_path: Path, kn: Kn) -> None:
    Image.fromarray(np.full((4, 4), 60_000, np.uint16)).save(tmp_path / "deep.png")
    path = write(tmp_path, [info("x", [1, 1, 4, 4])])
    assert "more than 8 bits" in run(kn, path, f"x={tmp_path / 'deep.png'}").error(2, "usage")
