"""Honest plans pass the check at all sizes, however they were made; mutated ones do not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from kn_graph import DType, Graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.dim import Symbol, SymbolKind, floordiv
from kn_graph.errors import InternalError, KnError, SymbolError
from kn_graph.variants import Call, open_call
from kn_plan.check import CheckReport, check_plan
from kn_plan.fault import Fault
from kn_plan.memory import arenas
from kn_plan.numbers import all_numbers
from kn_plan.options import PlanOptions
from kn_plan.plan import Plan
from kn_plan.planner import plan_graph
from kn_plan.replay import Replay, replay
from models.generate import inputs, model_bytes
from tests.ops.example import Example
from tests.ops.test_examples import EXAMPLES, name_of
from tests.plan import mutants
from tests.plan.mutants import MUTATIONS
from tests.plan.test_plan import MODELS, SWITCHES, assert_agree


@dataclass(frozen=True)
class Case:
    """A graph planned for a call.

    Attributes:
        plan: of the graph.
        call: inputs and sizes.
        found: numbers of the sizes that nodes found.
        want: what the graph gives.
    """

    plan: Plan
    call: Call
    found: dict[Symbol, int]
    want: dict[str, Any]

    @classmethod
    def of(cls, graph: Graph, feeds: Any, options: PlanOptions | None = None) -> Case:
        """Plan and run a graph."""
        call = open_call(graph, feeds)
        plan = plan_graph(call.graph, options=options)
        run = Replay(plan, call.arrays, call.env, options or PlanOptions(), check=False, seed=0)
        want = run.outputs()
        found = {s: n for s, n in run.env.items() if s.kind is SymbolKind.DATA}
        return cls(plan, call, found, want)

    def check(self, plan: Plan | None = None, **others: Any) -> CheckReport:
        """Check the plan, or a mutant of it, at the sizes of the call."""
        dims = {s.name: n for s, n in self.call.env.items()}
        return check_plan(plan or self.plan, dims, found=self.found, **others)

    def unchanged(self, mutant: Plan) -> bool:
        """Return whether a plan, carried out without checks, gives what the graph gives."""
        try:
            assert_agree(self.want, replay(mutant, self.call.arrays, self.call.env))
        except (AssertionError, KnError, ValueError, TypeError, LookupError):
            return False
        return True


def model(name: str) -> Case:
    return Case.of(optimize_graph(load_graph_from_onnx_bytes(model_bytes(name))), inputs(name))


def faults(graph: Graph, feeds: Any, options: PlanOptions | None = None) -> tuple[Fault, ...]:
    case = Case.of(graph, feeds, options)
    return case.check(options=options).faults


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_plans_of_every_operation_are_right(example: Example) -> None:
    for sizes in example.sizes:
        assert faults(example.graph(), example.feeds(sizes)) == ()


@pytest.mark.parametrize("optimize", [False, True], ids=["raw", "optimized"])
@pytest.mark.parametrize("name", MODELS)
def test_plans_of_models_are_right(name: str, optimize: bool) -> None:
    graph = load_graph_from_onnx_bytes(model_bytes(name))
    graph = optimize_graph(graph) if optimize else graph
    for options in (None, *(replace(PlanOptions(), **{s: False}) for s in SWITCHES)):
        assert faults(graph, inputs(name), options) == ()


# ---- mutated plans --------------------------------------------------------------------------


MOST_MUTANTS = 20
"""Of one kind in one plan."""


def assert_caught(case: Case, mutation: Callable[[Plan], Iterator[Plan]]) -> Counter[str]:
    """Check that what changes a result is rejected; return how often which rule was broken."""
    found: Counter[str] = Counter()
    mutants = list(mutation(case.plan))
    for mutant in random.Random(0).sample(mutants, min(MOST_MUTANTS, len(mutants))):
        checked = case.check(mutant)
        found[checked.faults[0].rule if checked.faults else "harmless"] += 1
        assert checked.faults or case.unchanged(mutant), f"{mutation.__name__} in\n{mutant}"
    return found


MOST_HARMLESS = 0.4
"""Of mutants: strides of axes of size 1, the order of steps that do not need each other."""


@pytest.mark.parametrize("name", MODELS)
def test_mutants_of_models_that_change_a_result_are_rejected(name: str) -> None:
    case = model(name)
    found = sum((assert_caught(case, m) for m in MUTATIONS), Counter[str]())
    assert found["harmless"] < MOST_HARMLESS * found.total()


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_mutants_of_every_operation_that_change_a_result_are_rejected(example: Example) -> None:
    case = Case.of(example.graph(), example.feeds(example.sizes[0]))
    for mutation in MUTATIONS:
        assert_caught(case, mutation)


@pytest.mark.parametrize(
    ("mutation", "rules"),
    [
        (mutants.swapped_steps, {"structure", "memory"}),
        (mutants.dropped_steps, {"memory"}),
        (mutants.shifted_offsets, {"views", "meaning"}),
        (mutants.turned_strides, {"views", "meaning", "in-place"}),
        (mutants.other_buffers, {"memory", "meaning"}),
        (mutants.shrunk_buffers, {"views"}),
        (mutants.aliased_buffers, {"structure", "in-place"}),
        (mutants.taken_operands, {"in-place"}),
        (mutants.foreign_writes, {"read-only"}),
        (mutants.wrong_lives, {"structure"}),
        (mutants.other_programs, {"meaning"}),
        (mutants.other_outputs, {"structure", "meaning"}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_rules_that_mutants_break(mutation: Any, rules: set[str]) -> None:
    found = assert_caught(model("transformer_layer"), mutation)
    assert rules <= found.keys()


def test_a_step_that_does_not_say_what_it_finds_is_rejected() -> None:
    g = Graph("late")
    g.output("y", g.unary("exp", g.cast(g.nonzero(g.input("x", "float32", [5])), DType.FLOAT32)))
    case = Case.of(g, {"x": np.arange(5, dtype=np.float32)})
    assert assert_caught(case, mutants.late_sizes) == {"structure": 1}


def test_buffers_that_lie_over_others_are_rejected() -> None:
    case = model("residual_cnn")
    (arena,) = arenas(case.plan, PlanOptions())
    honest = arena.allocate(case.plan, case.call.env)
    assert case.check(allocations=[honest]).ok
    rejected = 0
    for i in range(len(honest.offsets)):
        for by in (-64, 64):
            offsets = honest.offsets.copy()
            offsets[i] = max(offsets[i] + by, 0)
            moved = replace(honest, offsets=offsets, total=honest.total + 64)
            rejected += not case.check(allocations=[moved]).ok
    assert rejected >= len(honest.offsets)


def test_a_report_says_where_and_raises() -> None:
    case = model("transformer_layer")
    mutant = next(mutants.dropped_steps(case.plan))
    report = case.check(mutant)
    with pytest.raises(InternalError, match=r"the plan is wrong: memory: step \d+ \(.+\): "):
        report.require()
    case.check().require()


def test_sizes_that_nobody_gave() -> None:
    g = Graph("late")
    x = g.input("x", "float32", ["n"])
    g.output("y", g.nonzero(x))
    plan = plan_graph(g)
    assert list(check_plan(plan, {"n": 5}).assumed.values()) == [2]
    with pytest.raises(SymbolError, match="'n' has no number"):
        check_plan(plan)


def test_a_body_may_use_sizes_that_are_found_around_it() -> None:
    g = Graph("around")
    x = g.input("x", "float32", ["n"])
    found = g.nonzero(x)
    body = Graph("body", parent=g)
    v = body.input_of_type("found", found.type)
    body.output("y", v * 2)
    (count,) = g.size_sources
    assert check_plan(plan_graph(body), {"n": 5}, found={count: 3}).ok


def test_sizes_that_are_counted_in_others_are_not_0() -> None:
    g = Graph("parts")
    x = g.input("x", "float32", [12])
    parts, wide = g.read_sizes(g.input("k", "int64", [2]))
    g.output("y", g.iota(floordiv(x.shape[0], parts - 2) + wide))
    assert all_numbers(g, {})[1] == {"k_0": 3, "k_1": 3}
