"""`kn run`: outputs, labels, files, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kn_runtime import Device
from tests.cli.conftest import MODELS, Kn
from tests.small_models import info, model, node


def write(folder: Path, proto: onnx.ModelProto) -> Path:
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def identity(folder: Path, shape: Sequence[Any] = ("n",), dtype: int = TensorProto.FLOAT) -> Path:
    return write(folder, model([node("Identity", "x", "y")], [info("x", shape, dtype)]))


# ---- text ----------------------------------------------------------------------------------


def test_what_make_run_prints(digits: Sequence[str], kn: Kn) -> None:
    result = kn("run", *digits, columns=80)
    assert (result.code, result.err) == (0, "")
    lines = result.lines
    assert lines[0] == "probabilities: three"
    assert re.fullmatch(r"  three  9\d\.\d\d%  █{19,20}", lines[1])
    assert len([line for line in lines if "%" in line]) == 5
    assert result.out.count("\n") <= 11
    assert any(line.startswith("device  cpu: ") for line in lines)
    assert re.fullmatch(r"time    [\d.]+ ms to load, [\d.]+ ms to run", lines[-1])
    assert max(map(len, lines)) <= 80


def test_where_nan_begins(kn: Kn, tmp_path: Path) -> None:
    nodes = [
        node("Mul", "x x", "square", "energy"),
        node("Sub", "square square", "zero", "difference"),
        node("Relu", "zero", "y"),
    ]
    types = [info(n, ("n",), TensorProto.FLOAT16) for n in "xy"]
    path = write(tmp_path, model(nodes, types[:1], types[1:]))
    np.save(tmp_path / "x.npy", np.array([1, 300], np.float16))
    given = ("run", path, "--input", f"x={tmp_path / 'x.npy'}")
    hint = "y: not finite; --find-nan names the nodes where that begins"
    assert hint in kn(*given).lines
    lines = kn(*given, "--find-nan").lines
    place = lines.index("NaN and infinities begin at")
    assert [line.split(":")[0].strip() for line in lines[place + 1 :]] == ["energy", "difference"]
    found = json.loads(kn(*given, "--find-nan", "--json").out)["not_finite"]
    assert [(f["op"], f["nan"], f["inf"]) for f in found] == [("mul", 0, 1), ("sub", 1, 0)]
    np.save(tmp_path / "x.npy", np.array([1, 2], np.float16))
    assert "all results of nodes are finite" in kn(*given, "--find-nan").lines


def test_the_device_and_why(digits: Sequence[str], kn: Kn) -> None:
    device = Device.best()
    assert f"device  {device}: {device.reason}" in kn("run", *digits).lines
    shown = kn("run", *digits, "--device", "reference").lines
    assert f"device  reference: {Device.reference().reason}" in shown


def test_random_inputs_and_assumed_sizes_are_named(kn: Kn) -> None:
    lines = kn("run", MODELS / "digits.onnx", "--input", "random").lines
    assert lines[0] == "probabilities  float32[1, 10]"
    assert "random   image" in lines
    assert "assumed  batch = 1" in lines


def test_a_small_output_is_printed_whole(tmp_path: Path, kn: Kn) -> None:
    np.save(tmp_path / "x.npy", np.array([1.5, np.nan, -np.inf], np.float32))
    lines = kn("run", identity(tmp_path), "--input", f"x={tmp_path / 'x.npy'}").lines
    assert lines[:2] == ["y  float32[3]", "  1.5, nan, -inf"]
    assert lines[2].startswith("device")


def test_a_large_output_has_statistics_of_what_is_finite(tmp_path: Path, kn: Kn) -> None:
    np.save(tmp_path / "x.npy", np.array([*range(10), np.nan, np.inf, -np.inf], np.float32))
    lines = kn("run", identity(tmp_path), "--input", f"x={tmp_path / 'x.npy'}").lines
    assert lines[1:3] == ["  0, 1, 2, 3, 4, 5, 6, 7, ...", "  min 0, mean 4.5, max 9, 1 nan, 2 inf"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([], np.float32), ["y  float32[0]"]),
        (np.array(3, np.int64), ["y  int64[]", "  3"]),
        (np.array([True, False]), ["y  bool[2]", "  True, False"]),
        (np.array([2**64 - 1], np.uint64), ["y  uint64[1]", "  18446744073709551615"]),
        (np.array([1, -3], ml_dtypes.bfloat16), ["y  bfloat16[2]", "  1, -3"]),
        (np.array([1, -3], ml_dtypes.int4), ["y  int4[2]", "  1, -3"]),
        (np.array([1 + 2j], np.complex64), ["y  complex64[1]", "  '(1+2j)'"]),
        (np.array(["a", "[bold]b"], object), ["y  string[2]", "  'a', '[bold]b'"]),
    ],
)
def test_outputs_of_every_kind(value: Any, text: list[str], tmp_path: Path, kn: Kn) -> None:
    tensor = onnx.numpy_helper.from_array(value, "v")
    path = write(tmp_path, model([node("Constant", "", "y", value=tensor)]))
    result = kn("run", path, "--input", "random")
    assert result.lines[: len(text)] == text
    assert kn("run", path, "--input", "random", "--json").json()["outputs"]["y"]["shape"] == list(
        value.shape
    )


def test_sequences_and_optionals(tmp_path: Path, kn: Kn) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    proto = model(
        [node("SequenceConstruct", "x x", "s"), node("Optional", "", "o", type=tensor)],
        [info("x", [2])],
        [
            helper.make_value_info("s", helper.make_sequence_type_proto(tensor)),
            helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
        ],
    )
    path = write(tmp_path, proto)
    lines = kn("run", path, "--input", "random").lines
    assert lines[0] == "s  sequence of 2: float32[2]"
    assert lines[1].count(",") == 3
    assert lines[2] == "o  empty optional"
    facts = kn("run", path, "--input", "random", "--json").json()["outputs"]
    assert len(facts["s"]["first"]) == 2
    assert facts["o"] == {"type": "empty optional", "first": None}
    assert kn("run", path, "--input", "random", "--output", tmp_path / "out").code == 0
    saved = json.loads((tmp_path / "out" / "outputs.json").read_text())
    assert saved["o"] is None
    assert [e["file"] for e in saved["s"]] == ["s.0.npy", "s.1.npy"]
    assert np.load(tmp_path / "out" / "s.1.npy").shape == (2,)


# ---- labels --------------------------------------------------------------------------------


def scores(folder: Path, rows: Any) -> Path:
    np.save(folder / "x.npy", np.array(rows, np.float32))
    return identity(folder, ["n", *np.shape(rows)[1:]])


def labels_of(folder: Path, *names: str) -> Path:
    (folder / "labels.txt").write_text("\n".join(names) + "\n\n", encoding="utf-8")
    return folder / "labels.txt"


def test_scores_that_are_no_probabilities_have_no_bars(tmp_path: Path, kn: Kn) -> None:
    path, labels = scores(tmp_path, [[-1, 7.5, 2]]), labels_of(tmp_path, "a", "größer", "c")
    result = kn("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--labels", labels)
    assert result.lines[:4] == ["y: größer", "  größer  7.5", "  c         2", "  a        -1"]


def test_each_row_has_its_labels(tmp_path: Path, kn: Kn) -> None:
    path, labels = scores(tmp_path, np.tile(np.eye(3), (4, 1))), labels_of(tmp_path, *"abc")
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--labels", str(labels)]
    out = kn("run", path, *given).out
    assert re.findall(r"y\[(\d)\]: (\w)", out) == [(str(i), "abcabcab"[i]) for i in range(8)]
    assert "... and 4 more rows" in out
    facts = kn("run", path, *given, "--json").json()["outputs"]["y"]
    assert (facts["rows"], len(facts["top"]), facts["probabilities"]) == (12, 8, True)
    assert facts["top"][1][0] == {"label": "b", "index": 1, "score": 1.0}


def test_axes_of_size_1_after_the_scores_do_not_matter(tmp_path: Path, kn: Kn) -> None:
    path, labels = scores(tmp_path, [[[[0.25]], [[0.75]]]]), labels_of(tmp_path, "no", "yes")
    result = kn("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--labels", labels)
    assert result.lines[0] == "y: yes"


def test_a_score_that_is_nan_comes_last(tmp_path: Path, kn: Kn) -> None:
    path, labels = scores(tmp_path, [[np.nan, -5, 3]]), labels_of(tmp_path, *"abc")
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--labels", str(labels), "--json"]
    top = kn("run", path, *given).json()["outputs"]["y"]["top"][0]
    assert [(e["label"], e["score"]) for e in top] == [("c", 3), ("b", -5), ("a", "NaN")]


def test_labels_that_fit_no_output_are_an_error(tmp_path: Path, kn: Kn) -> None:
    path, labels = scores(tmp_path, [[1, 2]]), labels_of(tmp_path, *"abc")
    result = kn("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--labels", labels)
    text = result.error(2, "usage")
    assert "3 names" in text
    assert "'y': float32[1, 2]" in text


def test_labels_that_cannot_be_read_are_an_error(tmp_path: Path, kn: Kn) -> None:
    model_path = str(MODELS / "digits.onnx")
    text = kn("run", model_path, "--labels", tmp_path / "absent.txt").error(2, "usage")
    assert "absent.txt cannot be read: No such file" in text
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe\x00")
    text = kn("run", model_path, "--labels", tmp_path / "odd.txt").error(2, "usage")
    assert "not UTF-8" in text


# ---- JSON ----------------------------------------------------------------------------------


def test_json_is_one_object_and_nothing_else(digits: Sequence[str], kn: Kn) -> None:
    result = kn("run", *digits, "--json")
    report = result.json()
    assert (result.code, result.err) == (0, "")
    assert set(report) == {
        "model", "device", "reason", "random", "assumed", "load_ms", "run_ms", "outputs"
    }  # fmt: skip
    facts = report["outputs"]["probabilities"]
    assert (facts["dtype"], facts["shape"]) == ("float32", [1, 10])
    assert facts["top"][0][0]["label"] == "three"
    assert facts["nan"] == 0


def test_json_has_texts_for_what_is_not_finite(tmp_path: Path, kn: Kn) -> None:
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf, -np.inf], np.float32))
    path = identity(tmp_path)
    facts = kn("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--json").json()["outputs"]["y"]
    assert facts["first"] == ["NaN", "Infinity", "-Infinity"]
    assert (facts["nan"], facts["inf"]) == (1, 2)
    assert "min" not in facts


def test_json_errors_leave_stdout_empty(kn: Kn) -> None:
    kn("run", "absent.onnx", "--json").error(2, "malformed_model")


def test_a_newer_opset_is_a_warning(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, model([node("Relu", "x", "y")], opset=999))
    result = kn("run", path, "--input", "random", "--json")
    assert result.code == 0
    assert result.err.startswith("warning: ")
    assert "opset 999 of ai.onnx is newer than" in result.err
    assert result.err.count("\n") == 1
    result.json()


# ---- --output ------------------------------------------------------------------------------


def test_outputs_are_written(digits: Sequence[str], tmp_path: Path, kn: Kn) -> None:
    folder = tmp_path / "new" / "folder"
    assert kn("run", *digits, "--output", folder).code == 0
    listing = json.loads((folder / "outputs.json").read_text())
    expected = {"file": "probabilities.npy", "dtype": "float32", "shape": [1, 10]}
    assert listing == {"probabilities": expected}
    assert np.load(folder / "probabilities.npy").argmax() == 3


def test_odd_names_become_file_names_that_differ(tmp_path: Path, kn: Kn) -> None:
    names = ["a/b", "a:b", "..", "ä" * 300, "a_b"]
    nodes = [helper.make_node("Identity", ["x"], [n]) for n in names]
    path = write(tmp_path, model(nodes, outputs=[info(n, None) for n in names]))
    folder = tmp_path / "out"
    assert kn("run", path, "--input", "random", "--output", folder).code == 0
    listing = json.loads((folder / "outputs.json").read_text())
    files = [listing[n]["file"] for n in names]
    assert files == ["a_b.npy", "a_b-2.npy", "...npy", "_" * 200 + ".npy", "a_b-3.npy"]
    assert sorted(f.name for f in folder.iterdir()) == sorted([*files, "outputs.json"])


def test_strings_are_in_the_listing(tmp_path: Path, kn: Kn) -> None:
    path = write(tmp_path, model([node("Constant", "", "y", value_strings=["ä", "b"])]))
    folder = tmp_path / "out"
    assert kn("run", path, "--input", "random", "--output", folder).code == 0
    listing = json.loads((folder / "outputs.json").read_text())
    assert listing == {"y": {"dtype": "string", "shape": [2], "value": ["ä", "b"]}}


def test_a_bfloat16_output_can_be_given_as_input(tmp_path: Path, kn: Kn) -> None:
    path = identity(tmp_path, [4], TensorProto.BFLOAT16)
    first = kn("run", path, "--input", "random", "--output", tmp_path, "--json").json()
    second = kn("run", path, "--input", f"x={tmp_path / 'y.npy'}", "--json").json()
    assert first["outputs"] == second["outputs"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, kn: Kn) -> None:
    (tmp_path / "file").write_text("")
    path = identity(tmp_path)
    result = kn("run", path, "--input", "random", "--output", tmp_path / "file" / "x")
    assert "cannot be written" in result.error(2, "usage")


# ---- sizes, seeds --------------------------------------------------------------------------


def test_dims_pin_sizes(tmp_path: Path, kn: Kn) -> None:
    path = identity(tmp_path, ["batch", "seq"])
    report = kn("run", path, "--input", "random", "--dim", "batch=3", "--json").json()
    assert report["outputs"]["y"]["shape"] == [3, 64]
    assert report["assumed"] == {"seq": 64}


def test_a_size_of_zero_is_legal(tmp_path: Path, kn: Kn) -> None:
    report = kn("run", identity(tmp_path), "--input", "random", "--dim", "n=0", "--json").json()
    assert report["outputs"]["y"]["shape"] == [0]


def test_the_seed_decides_random_inputs(tmp_path: Path, kn: Kn) -> None:
    path = identity(tmp_path, [4])
    first, again, other = (
        kn("run", path, "--input", "x=random", "--json", "--seed", s).json()["outputs"]["y"][
            "first"
        ]
        for s in "001"
    )
    assert first == again != other
