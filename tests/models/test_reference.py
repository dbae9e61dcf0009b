"""The models of this repository on the reference executor, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from kn_graph import Graph, cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from models.architectures import ARCHITECTURES
from models.generate import NAMES, inputs, model_bytes

SIZES = [{}, dict.fromkeys(("batch", "seq"), 1), dict.fromkeys(("batch", "seq", "past"), 5)]


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> tuple[str, bytes, Graph]:
    data = model_bytes(request.param)
    return request.param, data, load_graph_from_onnx_bytes(data)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("optimize", [False, True], ids=["raw", "optimized"])
def test_outputs_are_those_of_onnxruntime(
    model: tuple[str, bytes, Graph], sizes: dict[str, int], optimize: bool
) -> None:
    name, data, graph = model
    known = {n: k for n, k in sizes.items() if n in ARCHITECTURES[name].dims}
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    graph = optimize_graph(graph) if optimize else graph
    for seed in range(2):
        feeds = inputs(name, seed, **known)
        want = dict(
            zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True)
        )
        got = cpu_eval_graph(graph, feeds)
        assert list(got) == list(want)
        for output, x in want.items():
            assert got[output].dtype == x.dtype
            scale = float(np.abs(x).max(initial=1e-6)) if x.dtype.kind == "f" else 0
            np.testing.assert_allclose(got[output], x, rtol=1e-4, atol=2e-5 * scale, err_msg=output)


def test_graphs_verify_and_hold_no_shape_arithmetic(model: tuple[str, bytes, Graph]) -> None:
    name, _, graph = model
    graph.verify()
    if name != "if_loop":
        assert not graph.guards
        assert not any(n.op.title == "ReadSizes" for n in graph.nodes)
