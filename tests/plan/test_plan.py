"""Plans, carried out with NumPy on the memory they say, give what the graph gives."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from kn_cpu.target import CpuTarget
from kn_graph import Graph, cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.errors import InternalError
from kn_graph.variants import open_call
from kn_plan.layout import StridedLayout
from kn_plan.memory import arenas
from kn_plan.options import PlanOptions
from kn_plan.plan import Operand, Plan
from kn_plan.planner import plan_graph
from kn_plan.replay import replay
from kn_plan.target import Target
from models.generate import inputs, model_bytes
from tests.ops.example import Example
from tests.ops.test_examples import EXAMPLES, name_of

MODELS = (
    "residual_cnn",
    "depthwise_cnn",
    "transformer_layer",
    "gqa_decoder_step",
    "lstm_gru",
    "unet_block",
    "dynamic_int8",
    "if_loop",
)
SWITCHES = [f.name for f in fields(PlanOptions)]


def carried_out(
    graph: Graph,
    feeds: dict[str, Any],
    options: PlanOptions | None = None,
    *,
    target: Target | None = None,
) -> dict[str, Any]:
    """Plan the graph that holds for some inputs, and carry the plan out under checks."""
    call = open_call(graph, feeds)
    plan = plan_graph(call.graph, target, options)
    return replay(plan, call.arrays, call.env, options, check=True)


def assert_agree(want: dict[str, Any], got: dict[str, Any]) -> None:
    """Sums over other strides may be in another order."""
    assert list(want) == list(got)
    for name, x in want.items():
        y = got[name]
        if not isinstance(x, np.ndarray) or x.dtype == object:
            assert repr(x) == repr(y), name
            continue
        assert (x.dtype, x.shape) == (y.dtype, y.shape), name
        if x.dtype.kind != "f":
            np.testing.assert_array_equal(y, x, err_msg=name)
            continue
        largest = np.abs(x[np.isfinite(x)]).max(initial=0)
        np.testing.assert_allclose(y, x, rtol=0, atol=1e-5 * largest, err_msg=name)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_operation_at_all_sizes(example: Example) -> None:
    for sizes in example.sizes:
        graph, feeds = example.graph(), example.feeds(sizes)
        assert_agree(cpu_eval_graph(graph, feeds), carried_out(graph, feeds))


@pytest.mark.parametrize("optimize", [False, True], ids=["raw", "optimized"])
@pytest.mark.parametrize("name", MODELS)
def test_generated_models(name: str, optimize: bool) -> None:
    graph = load_graph_from_onnx_bytes(model_bytes(name))
    graph = optimize_graph(graph) if optimize else graph
    feeds = inputs(name)
    assert_agree(cpu_eval_graph(graph, feeds), carried_out(graph, feeds))


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("name", ["residual_cnn", "transformer_layer", "gqa_decoder_step"])
def test_every_mechanism_can_be_switched_off(name: str, switch: str) -> None:
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes(name)))
    feeds = inputs(name)
    options = replace(PlanOptions(), **{switch: False})
    assert_agree(cpu_eval_graph(graph, feeds), carried_out(graph, feeds, options))


def planned(name: str, options: PlanOptions | None = None) -> Plan:
    return plan_graph(
        optimize_graph(load_graph_from_onnx_bytes(model_bytes(name))), options=options
    )


def test_mechanisms_do_what_they_are_for() -> None:
    """Fewer steps with fusion, less memory with reuse and in-place results."""
    full = planned("residual_cnn")
    for switch in ("fuse_scalars", "fuse_epilogues"):
        without = planned("residual_cnn", replace(PlanOptions(), **{switch: False}))
        assert len(without.steps) > len(full.steps)

    def memory(options: PlanOptions) -> int:
        plan = planned("residual_cnn", options)
        call = open_call(plan.graph, inputs("residual_cnn"))
        return sum(a.allocate(plan, call.env).total for a in arenas(plan, options))

    assert memory(PlanOptions()) < memory(replace(PlanOptions(), reuse_memory=False)) * 0.6


def test_a_bert_needs_no_copies() -> None:
    plan = planned("transformer_layer")
    assert [s.kind for s in plan.steps].count("copy") == 0


# ---- plans that are wrong are found ---------------------------------------------------------


def run(plan: Plan, name: str = "transformer_layer") -> dict[str, Any]:
    call = open_call(plan.graph, inputs(name))
    return replay(plan, call.arrays, call.env, check=True)


def test_a_step_too_early_reads_what_was_not_written() -> None:
    plan = planned("transformer_layer")
    for i in range(1, len(plan.steps)):
        first, second = plan.steps[i - 1], plan.steps[i]
        if {o.buffer for o in first.writes} & {o.buffer for o in second.inputs}:
            steps = [*plan.steps]
            steps[i - 1 : i + 1] = second, first
            with pytest.raises(InternalError, match="reads b"):
                run(plan.with_steps(tuple(steps)))


def test_a_buffer_that_dies_too_soon_is_found() -> None:
    plan = planned("transformer_layer")
    found = 0
    for number, death in enumerate(plan.deaths):
        if 0 <= plan.births[number] < death - 1 and death < len(plan.steps):
            deaths = list(plan.deaths)
            deaths[number] = plan.births[number]
            try:
                run(replace(plan, deaths=tuple(deaths)))
            except InternalError:
                found += 1
    assert found > 0


def test_a_layout_that_leaves_its_buffer_is_found() -> None:
    plan = planned("transformer_layer")
    step = plan.steps[0]
    (target,) = step.writes
    moved = replace(target.layout, offset=target.layout.offset + 1)
    steps = (replace(step, writes=(Operand(target.buffer, moved),)), *plan.steps[1:])
    with pytest.raises(InternalError, match="leaves its buffer"):
        run(plan.with_steps(steps))


def test_inputs_and_constants_are_never_written() -> None:
    plan = planned("transformer_layer")
    step = plan.steps[0]
    for number in (plan.inputs[0], next(iter(plan.constants))):
        given = Operand(number, StridedLayout.contiguous(step.writes[0].layout.sizes))
        steps = (replace(step, writes=(given,)), *plan.steps[1:])
        with pytest.raises(InternalError, match="belongs to the caller"):
            run(plan.with_steps(steps))


def test_a_plan_is_text() -> None:
    text = str(planned("residual_cnn"))
    assert "Conv +" in text
    assert "output " in text


def test_deep_chains_are_planned() -> None:
    g = Graph("deep")
    v = g.input("x", "float32", ["n"])
    for i in range(20_000):
        v = g.unary("neg", v) if i % 2 else g.unary("sin", v)
    g.output("y", v)
    plan = plan_graph(g)
    assert len(plan.steps) == -(-20_000 // 64)


def test_a_group_norm_between_convolutions_needs_no_copy() -> None:
    """Channels are stored last behind a convolution, and stay there through norm and activation."""

    def build(g: Graph) -> None:
        x = g.input("x", "float32", ["n", 8, "h", "w"])
        for i in range(2):
            weight = g.constant(np.full((8, 8, 3, 3), i + 0.01, np.float32))
            x = g.conv(x, weight, pads=[(1, 1), (1, 1)])
            n, c, h, w = x.shape
            y = g.view(g.norm(g.view(x, (n, 4, 2 * h * w)), [2], 1e-5), (n, c, h, w))
            x = g.mul(y, g.unary("sigmoid", y))
        g.output("y", g.reduce("mean", x, [2, 3]))

    g = Graph("norms")
    build(g)
    steps = plan_graph(optimize_graph(g), CpuTarget()).steps
    assert [s.kind for s in steps] == ["Conv", "Norm", "Conv", "Norm", "reduce_mean"]
    assert all(s.writes[0].layout.strides[2 if s.kind == "Norm" else 1] == 1 for s in steps[:4])
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 8, 5, 3), np.float32)}
    assert_agree(
        cpu_eval_graph(g, feeds), carried_out(optimize_graph(g), feeds, target=CpuTarget())
    )


def test_a_scale_for_each_block_of_a_row_needs_no_copy() -> None:
    def graph() -> Graph:
        g = Graph("blocks")
        x, s = g.input("x", "float32", ["n", 12]), g.input("s", "float32", ["n", 3])
        n = x.shape[0]
        rows = g.view(g.broadcast(g.view(s, (n, 3, 1)), (n, 3, 4)), (n, 12))
        g.output("y", g.unary("exp", g.mul(x, rows)))
        return g

    (step,) = plan_graph(graph()).steps
    assert list(map(str, step.shape)) == ["n", "3", "4"]
    apart = plan_graph(graph(), options=PlanOptions(split_views=False)).steps
    assert [s.kind for s in apart] == ["copy", "scalar"]
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((5, 12)), "s": rng.standard_normal((5, 3))}
    feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
    assert_agree(cpu_eval_graph(graph(), feeds), carried_out(graph(), feeds))


def test_an_output_under_other_sizes_is_not_copied() -> None:
    g = Graph("viewed")
    x = g.input("x", "float32", ["n", 4])
    g.output("y", g.view(g.unary("exp", x), (x.shape[0], 2, 2)))
    plan = plan_graph(g)
    (step,) = plan.steps
    assert plan.outputs["y"].buffer == step.writes[0].buffer
    assert len(plan_graph(g, options=PlanOptions(view_outputs=False)).steps) == 2
    g.output("twice", g.unary("neg", g.unary("exp", x)))  # somebody else reads it as well
    assert [s.kind for s in plan_graph(g).steps].count("copy") == 1
