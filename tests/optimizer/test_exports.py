"""What is left of PyTorch exports, by both exporters (`pytest -m real_models`)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.op_counts import count
from kn_graph import Graph, Value, load_graph_from_onnx_path, optimize_graph
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.ops.source import ReadSizes, Sizes
from kn_graph.variants import open_call
from tests.optimizer.rewriting import EXPORTS

pytestmark = pytest.mark.real_models

# model: layers with attention, norms
TRANSFORMERS = {
    "bert_mini": (4, 9),
    "distilbert": (6, 13),
    "vit_tiny": (12, 25),
    "gpt2_prefill": (4, 9),
    "gpt2_kv": (4, 9),
    "llama_prefill": (4, 9),
    "llama_kv": (4, 9),
    "t5_encoder": (3, 7),
    "clip_text": (4, 9),
    "whisper_encoder": (2, 5),
}
SHAPE_ARITHMETIC = (Sizes, ReadSizes)
CNNS = ("resnet18", "resnet50", "mobilenetv2", "mobilenetv3s")


def loaded(name: str, exporter: str) -> Graph:
    path = EXPORTS / f"{name}.{exporter}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: tools/export_models.py makes it")
    return load_graph_from_onnx_path(path)


def sizes_of(graph: Graph, name: str, exporter: str) -> dict[str, int]:
    """Return the sizes of the inputs recorded beside an export."""
    with np.load(EXPORTS / f"{name}.{exporter}.npz") as recorded:
        feeds = {v.name: recorded[f"in:{v.name}"] for v in graph.inputs}
    return {s.name: n for s, n in open_call(graph, feeds).env.items() if s.name in graph.symbols}


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_has_one_attention_a_layer_and_one_operation_a_norm(
    name: str, exporter: str
) -> None:
    layers, norms = TRANSFORMERS[name]
    graph = optimize_graph(loaded(name, exporter))
    counts = count(graph)
    assert counts["Attention"] == layers
    assert counts["Norm"] + counts["RMSNorm"] == norms
    assert not counts.keys() & {"Softmax", "reduce_mean", "erf", "tanh", "pow", "sqrt"}


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_no_shape_arithmetic_is_left_once_sizes_are_known(name: str, exporter: str) -> None:
    graph = loaded(name, exporter)
    fixed = optimize_graph(optimize_graph(graph).specialize(sizes_of(graph, name, exporter)))
    for node in fixed.nodes:
        assert not isinstance(node.op, SHAPE_ARITHMETIC), node
        if isinstance(node.op, (Binary, Unary)):
            assert not node.results[0].dtype.is_int, node


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize("name", CNNS)
def test_a_convolution_has_at_most_one_bias_behind_it_and_no_other_constant_is_left(
    name: str, exporter: str
) -> None:
    graph = optimize_graph(loaded(name, exporter))
    counts = count(graph)
    products = counts["Conv"] + counts["MatMul"]
    by_channel = [n for n in graph.nodes if isinstance(n.op, Binary) and _per_channel(n.operands)]
    assert {n.op.title for n in by_channel} <= {"add"}
    assert len(by_channel) <= products
    for node in by_channel:
        behind = [_base(v).node.op.title for v in node.operands]
        assert set(behind) & {"Conv", "MatMul"}, behind
    assert counts["BatchNormalization"] == counts["div"] == counts["sub"] == 0


def _base(v: Value) -> Value:
    while v.node.op.title in ("View", "Broadcast", "Permute"):
        (v,) = v.node.operands
    return v


def _per_channel(operands: tuple[Value, ...]) -> bool:
    """Return whether an operand is a constant of several elements."""
    arrays = [_base(v).constant for v in operands]
    return any(a is not None and math.prod(a.shape) > 1 for a in arrays)
