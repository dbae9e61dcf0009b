"""Models of one ONNX node, run here and by onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph

MICROSOFT = "com.microsoft"


def node_model(
    operator: str,
    inputs: Mapping[str, Any],
    outputs: Sequence[str] = ("y",),
    *,
    opset: int = 21,
    domain: str = "",
    constant: Sequence[str] = (),
    symbolic: Mapping[str, Sequence[Any]] | None = None,
    **attributes: Any,
) -> bytes:
    """Return a serialized model of one node.

    Args:
        operator: its name.
        inputs: arrays by name, in order; None leaves an input out.
        outputs: names; '' leaves one out.
        opset: version of ai.onnx; other domains have version 1.
        domain: of the operator.
        constant: inputs that are initializers.
        symbolic: declared shapes of inputs that differ from the arrays'.
        attributes: of the node.
    """
    given = {n: np.asarray(a) for n, a in inputs.items() if a is not None}
    names = [n if n in given else "" for n in inputs]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(operator, names, list(outputs), "node", domain=domain, **attributes)
    declared = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(a.dtype), (symbolic or {}).get(n, a.shape)
        )
        for n, a in given.items()
        if n not in constant
    ]
    graph = helper.make_graph(
        [node],
        operator,
        declared,
        [onnx.ValueInfoProto(name=o) for o in outputs if o],
        [numpy_helper.from_array(given[n], n) for n in constant],
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def feeds_of(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays that a graph's inputs take."""
    return {v.name: np.asarray(inputs[v.name]) for v in graph.inputs}


def run_here(model: bytes, inputs: Mapping[str, Any]) -> list[Any]:
    """Load a model and run it on the reference."""
    graph = load_graph_from_onnx_bytes(model)
    return list(cpu_eval_graph(graph, feeds_of(graph, inputs)).values())


def run_onnxruntime(model: bytes, inputs: Mapping[str, Any]) -> list[Any]:
    """Run a model on onnxruntime as it is, on one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: np.asarray(inputs[i.name]) for i in session.get_inputs()})


def assert_same(got: Sequence[Any], expected: Sequence[Any], **tolerance: Any) -> None:
    """Compare types, shapes and elements; exact unless a tolerance is given."""
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if tolerance:
            wide = np.float64 if a.dtype.kind != "c" else np.complex128
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), **tolerance)
        else:
            np.testing.assert_array_equal(a, b)


def assert_like_onnxruntime(
    operator: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ("y",), **options: Any
) -> None:
    """Check one node against onnxruntime; options as of `node_model`, and rtol and atol."""
    tolerance = {k: options.pop(k) for k in ("rtol", "atol") if k in options}
    model = node_model(operator, inputs, outputs, **options)
    assert_same(run_here(model, inputs), run_onnxruntime(model, inputs), **tolerance)
