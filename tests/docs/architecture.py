"""The two pictures of docs/architecture.md.

`python -m tests.docs.architecture --update` writes them. Graphviz lays them out, so their exact
text depends on its version; the test looks at what they say.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from kn_graph import Graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.ops.source import Constant, Input
from kn_graph.render.engine import layout_svg
from kn_graph.render.families import colour_of, family_of
from kn_plan.memory import arenas
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Plan
from kn_plan.planner import plan_graph
from kn_plan.target import NeutralTarget

__all__ = ["FOLDER", "pipeline_dot", "small_model", "stages_dot"]

FOLDER = Path(__file__).parents[2] / "docs" / "architecture"

NOISE = re.compile(r"<!--.*?-->\s*|<!DOCTYPE.*?>\s*|<title>.*?</title>\s*", re.DOTALL)

STYLE = """
  graph [fontname="sans-serif", fontsize=12, nodesep=0.18, ranksep=0.3, pad=0.15, bgcolor="white"];
  node [fontname="sans-serif", fontsize=11, shape=box, style="filled,rounded", fillcolor="#f4f4f4",
        color="#888888", height=0.3, margin="0.1,0.04"];
  edge [fontname="sans-serif", fontsize=9, color="#666666", arrowsize=0.6];
"""


# ---- the pipeline ---------------------------------------------------------------------------

PARTS = {
    "file": ("ONNX file", "#dcdcdc"),
    "loader": ("loader\\nkn_graph.onnx", "#cfe6ff"),
    "built": ("graph\\nSSA, symbolic sizes", "#fff1b8"),
    "optimizer": ("optimizer\\nkn_graph.optimizer", "#cfe6ff"),
    "optimized": ("graph\\nless to do", "#fff1b8"),
    "planner": ("planner: group, format,\\nlower, schedule\\nkn_plan", "#cfe6ff"),
    "plan": ("plan over symbols\\nsteps, buffers", "#fff1b8"),
    "binding": ("binding\\nto the sizes of a call", "#cfe6ff"),
    "cpu": ("native kernels\\nkn_cpu", "#c5ecce"),
    "cuda": ("CUDA kernels\\nkn_cuda", "#c5ecce"),
    "reference": ("reference, NumPy\\nkn_graph.reference", "#ffc9b5"),
    "compare": ("comparison\\nkn_graph.compare", "#ffc9b5"),
    "picture": ("picture\\nkn_graph.render", "#ddd0ff"),
    "writer": ("ONNX file", "#dcdcdc"),
    "check": ("plan check\\nkn_plan.check", "#ffc9b5"),
}
"""Text and colour: data are yellow, what works on them blue, what checks red."""

ARROWS = [
    "file -> loader -> built -> optimizer -> optimized -> planner -> plan -> binding",
    "binding -> cpu",
    "binding -> cuda",
    "built -> reference",
    "built -> picture",
    "optimized -> writer",
    "plan -> check",
    "reference -> compare",
    "cpu -> compare",
    "cuda -> compare",
]


def pipeline_dot() -> str:
    """Return the way of a model through the packages."""
    lines = ["digraph pipeline {", STYLE, "  rankdir=LR;"]
    lines += [
        f'  {name} [label="{text}", fillcolor="{colour}"];'
        for name, (text, colour) in PARTS.items()
    ]
    return "\n".join([*lines, *(f"  {arrow};" for arrow in ARROWS), "}"]) + "\n"


# ---- one small net --------------------------------------------------------------------------


def small_model() -> ModelProto:
    """Return a convolution with batch norm and activation, then a classifier."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.random(shape, np.float32) + 0.5, name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "bn"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "k", "o"], ["g"], "fc"),
        helper.make_node("Softmax", ["g"], ["y"], "softmax"),
    ]
    weights = [weight("w", 8, 3, 3, 3), *(weight(n, 8) for n in "sbmv"), weight("k", 8, 10)]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 32, 32]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10]),
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], [*weights, weight("o", 10)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def stages_dot() -> str:
    """Return the small net as it is loaded, optimized and planned, side by side."""
    loaded = load_graph_from_onnx_bytes(small_model().SerializeToString())
    optimized = optimize_graph(loaded)
    plan = plan_graph(optimized, NeutralTarget())
    lines = ["digraph stages {", STYLE, "  newrank=true;"]
    for name, title, body in (
        ("loaded", "graph, as loaded", _graph_lines(loaded, "a")),
        ("optimized", "optimized graph", _graph_lines(optimized, "b")),
        ("plan", "plan", _plan_lines(plan)),
    ):
        lines += [f"  subgraph cluster_{name} {{", f'    label="{title}"; color="#bbbbbb";']
        lines += [f"    {line}" for line in body]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _graph_lines(graph: Graph, prefix: str) -> Iterator[str]:
    """Yield boxes of all nodes but constants, which are lines of those that read them."""
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            continue
        name = "input x" if isinstance(node.op, Input) else node.op.title
        types = ", ".join(str(v.type) for v in node.results)
        constants = [str(v.type) for v in node.operands if isinstance(v.node.op, Constant)]
        extra = "".join(f"\\nconstant {t}" for t in constants)
        fill = colour_of(family_of(node.op))
        yield f'{prefix}{node.index} [label="{name}\\n{types}{extra}", fillcolor="{fill}"];'
        for v in node.operands:
            if not isinstance(v.node.op, Constant):
                yield f"{prefix}{v.node.index} -> {prefix}{node.index};"


def _plan_lines(plan: Plan) -> Iterator[str]:
    """Yield steps and the buffers between them, with their places in the arena at batch 1."""
    env = dict.fromkeys(plan.graph.input_symbols(), 1)
    places: dict[int, int] = {}
    for arena in arenas(plan, PlanOptions()):
        found = arena.allocate(plan, env).offsets.tolist()
        places |= zip(arena.members, found, strict=True)
    for b in plan.buffers:
        if b.home is Home.CONSTANT:
            continue
        place = f"arena, from byte {places[plan.root(b.number)]}" if b.number in places else ""
        where = place or f"the caller's {b.home.value}"
        yield (
            f'm{b.number} [label="b{b.number}: {b.dtype}[{b.numel}]\\n{where}", shape=box, '
            f'style="filled", fillcolor="white"];'
        )
    for number, step in enumerate(plan.steps):
        count = len(step.program.instructions) if step.program else 0
        title = f"{step.kind} +{count}" if count and step.op is not None else step.kind
        fill = colour_of(family_of(step.op) if step.op is not None else "scalar")
        yield f's{number} [label="{number}: {title}\\n{step.label}", fillcolor="{fill}"];'
        yield from _arrows([o.buffer for o in step.inputs], number, plan, "m{0} -> s{1};")
        yield from _arrows([o.buffer for o in step.writes], number, plan, "s{1} -> m{0};")


def _arrows(buffers: Sequence[int], step: int, plan: Plan, form: str) -> Iterator[str]:
    for buffer in dict.fromkeys(buffers):
        if plan.buffers[buffer].home is not Home.CONSTANT:
            yield form.format(buffer, step)


if __name__ == "__main__" and "--update" in sys.argv:
    for name, dot in (("pipeline", pipeline_dot()), ("stages", stages_dot())):
        text = NOISE.sub("", layout_svg(dot))
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")
