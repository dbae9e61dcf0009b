"""The generated models: the same bytes everywhere, valid, and runnable at several sizes."""

import hashlib

import numpy as np
import onnx
import onnxruntime
import pytest

from models import generate

BINDINGS = [
    ("residual_cnn", {"batch": 1}),
    ("residual_cnn", {"batch": 3}),
    ("depthwise_cnn", {}),
    ("depthwise_cnn", {"batch": 1, "height": 33, "width": 47}),
    ("transformer_layer", {"batch": 1, "seq": 1}),
    ("transformer_layer", {"batch": 3, "seq": 17}),
    ("gqa_decoder_step", {"past": 0, "seq": 5}),
    ("gqa_decoder_step", {"batch": 1, "seq": 1, "past": 40}),
    ("gqa_decoder_step", {"batch": 3, "seq": 4, "past": 3}),
    ("unet_block", {}),
    ("unet_block", {"batch": 2, "height": 8, "width": 12}),
    ("lstm_gru", {}),
    ("lstm_gru", {"seq": 1, "batch": 1}),
    ("dynamic_int8", {"batch": 1}),
    ("dynamic_int8", {"batch": 4}),
    ("if_loop", {}),
    ("if_loop", {"batch": 5}),
]


def run(name, feeds):
    session = onnxruntime.InferenceSession(
        generate.model_bytes(name), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def bind(value, sizes):
    """Check an array's shape against a declared one; `sizes` collects what each symbol is."""
    declared = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]

    def check(array):
        assert array.dtype == onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        assert array.ndim == len(declared)
        for size, dim in zip(array.shape, declared, strict=True):
            assert size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim), dim

    return check


def test_names_are_those_of_the_sums():
    assert set(generate.read_sums()) == set(generate.NAMES)
    assert len(generate.NAMES) == 8


@pytest.mark.parametrize("name", generate.NAMES)
def test_bytes_are_those_of_the_sums(name):
    data = generate.model_bytes(name)
    assert hashlib.sha256(data).hexdigest() == generate.read_sums()[name]
    assert len(data) < 300_000


@pytest.mark.parametrize("name", generate.NAMES)
def test_model_passes_the_full_check(name):
    onnx.checker.check_model(generate.build(name), full_check=True)


def test_opsets_cover_old_and_new():
    opsets = [generate.build(name).opset_import[0].version for name in generate.NAMES]
    assert sorted(opsets) == [11, 17, 17, 17, 17, 17, 17, 20]


def test_every_model_runs_at_two_sizes_at_least():
    names = [name for name, _ in BINDINGS]
    assert all(names.count(name) >= 2 for name in generate.NAMES)


@pytest.mark.parametrize(("name", "dims"), BINDINGS)
def test_model_runs_in_onnxruntime_with_its_declared_shapes(name, dims):
    graph, feeds = generate.build(name).graph, generate.inputs(name, **dims)
    outputs = run(name, feeds)
    assert set(feeds) == {value.name for value in graph.input}
    sizes = {}
    for value in graph.input:
        bind(value, sizes)(feeds[value.name])
    for value in graph.output:
        bind(value, sizes)(outputs[value.name])
        assert np.isfinite(outputs[value.name]).all()
    assert dims.items() <= sizes.items()


@pytest.mark.parametrize("name", generate.NAMES)
def test_outputs_depend_on_the_inputs(name):
    first, again, other = (run(name, generate.inputs(name, seed)) for seed in (0, 0, 1))
    for output, value in first.items():
        np.testing.assert_array_equal(value, again[output])
        assert value.shape != other[output].shape or not np.allclose(value, other[output], 0, 0.005)


def test_if_loop_seeds_reach_both_branches_and_both_ends_of_the_loop():
    branches, ends = set(), set()
    for seed in range(12):
        feeds = generate.inputs("if_loop", seed)
        branches.add(bool(feeds["x"].mean() > feeds["threshold"]))
        turns = len(run("if_loop", feeds)["trace"])
        ends.add("steps" if turns == feeds["steps"] else "limit")
    assert branches == {True, False}
    assert ends == {"steps", "limit"}


def test_inputs_refuse_a_symbol_that_the_model_has_not():
    with pytest.raises(ValueError, match="lstm_gru has the symbols seq, batch, not past"):
        generate.inputs("lstm_gru", past=3)


def test_command_writes_the_named_files_only(tmp_path, capsys):
    assert generate.main(["--out", str(tmp_path), "lstm_gru", "if_loop"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"lstm_gru.onnx", "if_loop.onnx"}
    assert (tmp_path / "if_loop.onnx").read_bytes() == generate.model_bytes("if_loop")
    assert "differs" not in capsys.readouterr().out


def test_command_refuses_an_unknown_name(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        generate.main(["--out", str(tmp_path), "resnet"])
    assert stop.value.code == 2
    assert "no model called resnet" in capsys.readouterr().err
