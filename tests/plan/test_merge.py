"""Programs of one element that follow from one another are one step, in the right place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.value import Value
from kn_plan.options import PlanOptions
from kn_plan.plan import Plan
from kn_plan.planner import plan_graph
from tests.plan.test_plan import assert_agree, carried_out

F32 = DType.FLOAT32
APART = PlanOptions(merge_single=False)


def quantized(g: Graph, x: Value) -> dict[str, Value]:
    """Scale and zero point from two numbers, both read in several places."""
    codes, scale, zero = g.dynamic_quantize(x)
    return {"codes": codes, "scale": scale, "twice": g.mul(scale, g.scalar(2, F32)), "zero": zero}


def through_tensor(g: Graph, x: Value) -> dict[str, Value]:
    """The second number needs a tensor that is made from the first: they stay apart."""
    first = g.reduce("max", x, (0, 1)) * 0.5
    shifted = g.sub(x, g.broadcast(first, x.shape))
    second = g.add(g.reduce("max", g.mul(shifted, shifted), (0, 1)), first)
    return {"first": first, "second": second}


def of_constants(g: Graph, x: Value) -> dict[str, Value]:
    """What depends on constants alone is computed when the plan is made, not with the rest."""
    fixed = g.reduce("sum", g.constant(np.arange(4, dtype=np.float32)), (0,)) + 1.0
    return {"y": g.mul(g.reduce("max", x, (0, 1)), fixed), "z": g.mul(x, fixed)}


def beside_itself(g: Graph, x: Value) -> dict[str, Value]:
    """A number is read as it is and through views by one program: it has to be in memory."""
    y = g.mul(g.reduce("max", x, (0, 1)), g.scalar(2, F32))
    seen = g.view(g.flip(g.view(y, (1,)), 0), ())
    return {"y": y, "z": g.add(y, seen)}


CASES: dict[str, tuple[Callable[[Graph, Value], dict[str, Value]], int]] = {
    # how many steps fewer there are
    "quantized": (quantized, 3),
    "through_tensor": (through_tensor, 0),
    "of_constants": (of_constants, 0),
    "beside_itself": (beside_itself, 0),
}


def planned(name: str, options: PlanOptions) -> tuple[Graph, Plan]:
    g = Graph(name)
    for key, value in CASES[name][0](g, g.input("x", F32, (3, 5))).items():
        g.output(key, value)
    return g.seal(), plan_graph(g, options=options)


@pytest.mark.parametrize("name", CASES)
def test_steps_of_one_element_are_merged(name: str) -> None:
    _, merged = planned(name, PlanOptions())
    _, apart = planned(name, APART)
    assert len(apart.steps) - len(merged.steps) == CASES[name][1]


@pytest.mark.parametrize("options", [PlanOptions(), APART], ids=["merged", "apart"])
@pytest.mark.parametrize("name", CASES)
def test_results_stay(name: str, options: PlanOptions) -> None:
    graph, _ = planned(name, options)
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    assert_agree(cpu_eval_graph(graph, {"x": x}), carried_out(graph, {"x": x}, options))


def test_a_step_of_constants_stays_apart() -> None:
    _, plan = planned("of_constants", PlanOptions())
    assert len(plan.done) == 2
