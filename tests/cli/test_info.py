"""`kn info`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kn_runtime.model_info import model_info
from tests.cli.bad_models import deep_ifs, external
from tests.cli.conftest import MODELS, Kn
from tests.small_models import info, model, node

DIGITS_80 = """
  format          opset ai.onnx 17; IR version 8; 29.4 KiB
  nodes           11
  weights         7,178 (float32), 28.0 KiB in memory
  symbolic sizes  batch

inputs
  image  float32[batch, 1, 8, 8]

outputs
  probabilities  float32[batch, 10]

operators
  3 Conv   3 Relu   2 MaxPool   1 Flatten   1 Gemm   1 Softmax

metadata
  producer           kn-engine models/train_digits.py
  description        Handwritten digits, bright ink on dark ground, 8x8 pixels
                     from 0 to 1.
  class_names        zero,one,two,three,four,five,six,seven,eight,nine
  held_out_accuracy  0.9889
  held_out_pictures  360
  training_data      scikit-learn load_digits (UCI optical recognition of
                     handwritten digits)
"""


@pytest.fixture
def rich_model(tmp_path: Path) -> Path:
    """Return a model with one of nearly everything."""
    inner = helper.make_graph(
        [node("Add", "x v", "t")], "then", [], [info("t", None)],
        [onnx.numpy_helper.from_array(np.ones(3, np.float16), "v")],
    )  # fmt: skip
    other = helper.make_graph(
        [node("Strange", "x", "e", domain="own")], "else", [], [info("e", None)]
    )
    proto = model(
        [
            node("Constant", "", "k", value=onnx.numpy_helper.from_array(np.ones(5, np.int64))),
            node("If", "c", "y", then_branch=inner, else_branch=other),
            node("Double", "y", "z", domain="mine"),
        ],
        [info("x", ["batch", "2*seq", 3]), info("c", [], TensorProto.BOOL), info("w", [4])],
        [info("y", None), info("z", ["batch", None, 3])],
        {"w": external("w", "weights.bin")},
        opsets={"": 21, "own": 2, "mine": 1},
        functions=[
            helper.make_function(
                "mine",
                "Double",
                ["a"],
                ["b"],
                [node("Add", "a a", "b")],
                [helper.make_opsetid("", 21)],
            )
        ],
    )
    proto.producer_name, proto.doc_string = "me", "line one\nline [bold]two[/bold]"
    path = tmp_path / "[rich] model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_text_at_80_columns(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MODELS)
    result = kn("info", "digits.onnx", columns=80)
    assert (result.code, result.err) == (0, "")
    assert result.out == "digits.onnx" + DIGITS_80


@pytest.mark.parametrize("columns", [20, 40, 80, 160])
def test_lines_fit_the_terminal(columns: int, rich_model: Path, kn: Kn) -> None:
    out = kn("info", rich_model, columns=columns).out
    assert max(map(len, out.splitlines())) <= columns
    assert not any(line != line.rstrip() for line in out.splitlines())


def test_without_a_terminal_a_row_is_a_line(rich_model: Path, kn: Kn) -> None:
    lines = kn("info", rich_model).lines
    assert lines[0] == str(rich_model)
    assert "  x  float32[batch, 2*seq, 3]" in lines
    assert "  description  line one line [bold]two[/bold]" in lines


def test_everything_is_counted(rich_model: Path) -> None:
    facts = model_info(rich_model)
    assert facts.file_bytes == rich_model.stat().st_size
    assert facts.opsets == {"ai.onnx": 21, "own": 2, "mine": 1}
    assert facts.symbols == ["batch", "seq", "z_1"]
    assert facts.nodes == 6
    assert facts.operators == {
        "Add": 2, "Constant": 1, "If": 1, "mine:Double": 1, "own:Strange": 1
    }  # fmt: skip
    assert facts.functions == ["mine:Double"]
    assert facts.unsupported == ["own:Strange-2 x1 (first: Strange->e)"]
    assert facts.parameters == 4 + 3 + 5
    assert facts.weight_bytes == 4 * 4 + 3 * 2 + 5 * 8
    assert facts.weight_dtypes == {"int64": 5, "float32": 4, "float16": 3}
    assert facts.external_files == ["weights.bin"]
    assert facts.metadata["producer"] == "me"


def test_json(rich_model: Path, kn: Kn) -> None:
    result = kn("info", rich_model, "--json")
    facts = result.json()
    assert (result.code, result.err) == (0, "")
    assert facts["inputs"] == [
        {"name": "x", "type": "float32[batch, 2*seq, 3]", "dtype": "float32",
         "shape": ["batch", "2*seq", 3], "optional": False},
        {"name": "c", "type": "bool[]", "dtype": "bool", "shape": [], "optional": False},
        {"name": "w", "type": "float32[4]", "dtype": "float32", "shape": [4], "optional": True},
    ]  # fmt: skip
    assert facts["outputs"][0]["shape"] is None
    assert list(facts["operators"]) == ["Add", "Constant", "If", "mine:Double", "own:Strange"]


def test_an_initializer_that_may_be_fed_is_shown_as_such(rich_model: Path, kn: Kn) -> None:
    assert "  w  float32[4]                may be left out" in kn("info", rich_model).lines


def test_before_ir_4_initializers_are_no_inputs(tmp_path: Path) -> None:
    inputs = [info("x", [1]), info("w", [1])]
    weights = {"w": np.ones(1, np.float32)}
    proto = model([node("Add", "x w", "y")], inputs, weights=weights, ir_version=3)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    assert [i.name for i in model_info(tmp_path / "m.onnx").inputs] == ["x"]


def test_types_other_than_tensors(tmp_path: Path) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    inputs = [
        helper.make_value_info("s", helper.make_sequence_type_proto(tensor)),
        helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
        helper.make_value_info("m", helper.make_map_type_proto(TensorProto.INT64, tensor)),
        helper.make_empty_tensor_value_info("e"),
    ]
    proto = model([node("Identity", "s", "y")], inputs)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    ends = model_info(tmp_path / "m.onnx").inputs
    assert [(e.type, e.optional) for e in ends[:3]] == [
        ("seq(float32[s_0])", False),
        ("optional(float32[n])", True),
        ("map(int64, float32[n])", False),
    ]
    assert ends[3].type.startswith("unusable")


@pytest.mark.parametrize(
    ("data", "says"), [(b"", "empty"), (b"text", "text file"), (deep_ifs(200), "protobuf")]
)
def test_no_model_is_an_error(data: bytes, says: str, tmp_path: Path, kn: Kn) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    assert says in kn("info", tmp_path / "m.onnx").error(2, "malformed_model")


def test_every_generated_model_can_be_shown(kn: Kn) -> None:
    for path in sorted((MODELS / "generated").glob("*.onnx")):
        assert kn("info", path, columns=80).code == 0
