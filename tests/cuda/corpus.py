"""The kernels of many graphs: what is compiled for all architectures."""

from __future__ import annotations

from functools import cache
from typing import Any

from kn_cuda.options import CudaOptions
from kn_cuda.program import Skeleton
from kn_cuda.source import KernelSource
from kn_cuda.target import CudaTarget
from kn_graph import Graph, load_graph_from_onnx_bytes, optimize_graph
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph
from models.generate import model_bytes
from tests.cpu.test_recurrent import layer, operands
from tests.ops.test_examples import EXAMPLES
from tests.plan.test_plan import MODELS

__all__ = ["corpus", "kernels_of"]


def kernels_of(graph: Graph) -> tuple[KernelSource, ...]:
    """Return the kernels of a graph's plan."""
    plan = plan_graph(graph, CudaTarget())
    return Skeleton(plan, CudaOptions(allow_host=True), PlanOptions()).kernels


@cache
def corpus() -> list[KernelSource]:
    """Return the kernels of the examples of every operation and of the generated models."""
    graphs = [e.graph() for e in EXAMPLES]
    loaded = [load_graph_from_onnx_bytes(model_bytes(name)) for name in MODELS]
    graphs += [*loaded, *map(optimize_graph, loaded), *_layers()]
    return list({k.name: k for g in graphs for k in kernels_of(g)}.values())


def _layers() -> list[Graph]:
    """Return layers that round states: of one sequence in a block, of several in rounds."""
    gru, lstm = (operands(kind, directions=2) for kind in ("gru", "lstm"))
    options: dict[str, Any] = {"direction": "bidirectional", "quantize_hidden": True}
    return [layer("gru", gru, **options), layer("lstm", lstm, **options)]
