"""The fuzzer: some seeds of every check, and that it finds what is broken."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph, cpu_eval_graph
from kn_graph import builder as builders
from kn_graph.optimizer import OptimizerReport, optimize_graph_report
from kn_graph.transform import GraphCopier
from tests.fuzz import __main__ as command
from tests.fuzz import bodies, checks
from tests.fuzz.checks import CHECKS, Failure, run_check
from tests.fuzz.generate import crash_of, generate
from tests.fuzz.program import Feed, Line, Program, array_text
from tests.fuzz.shrink import shrink

SEEDS = range(30)

NOT_CALLED = {
    "broadcast_together": "everything of two operands calls it",
    "channels": "conv calls it for its bias",
    "centered": "the quantized products call it",
    "clamp_cast": "quantize calls it",
    "scaled_sizes": "resize calls it",
    "if_else": "through bodies.either",
    "loop": "through bodies.repeated",
    "scan": "through bodies.scanned",
    "host_call": "strings and sequences are no tensors of numbers",
}
"""Builder methods that no line names, with the reason."""


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int, check: str) -> None:
    program = generate(seed)
    failure = run_check(check, program)
    if failure is not None:
        program, failure = shrink(program, failure)
        pytest.fail(f"{failure.kind}\n\n{program}\n\n{failure.text}", pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_many_seeds(check: str) -> None:
    failures = {s: f[1].kind for s in range(500) if (f := command.failure_of(check, s))}
    assert failures == {}, (
        f"python -m tests.fuzz --check {check} --seeds SEED shows a small program"
    )


# ---- programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 7, 23, 42])
def test_a_seed_is_always_the_same_program_and_its_text_runs(seed: int) -> None:
    program = generate(seed)
    assert str(generate(seed)) == str(program)
    names: dict[str, Any] = {}
    exec(str(program), names)
    assert str(names["g"]) == str(program.build()).replace("'fuzz'", "''")
    for name, x in program.inputs().items():
        given = names["inputs"][name]
        assert given.dtype == x.dtype
        np.testing.assert_array_equal(given, x)
        assert np.array_equal(np.signbit(given.astype(float)), np.signbit(x.astype(float)))


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.1, -0.0, np.nan, np.inf, -np.inf, 1e-45], np.float32),
        np.zeros((0, 3), np.float16),
        np.full((2, 2), -0.0),
        np.array(True),
        np.array([[-128, 127]], np.int8),
    ],
    ids=str,
)
def test_arrays_as_text(array: np.ndarray) -> None:
    read = eval(array_text(array), {"np": np, "nan": np.nan, "inf": np.inf})
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    assert read.tobytes() == array.tobytes()


def test_programs_call_every_builder_method() -> None:
    methods = {
        name
        for cls in (getattr(builders, n) for n in builders.__all__)
        for name, _ in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }
    called: set[str] = set()
    for seed in range(1500):
        for line in generate(seed).lines:
            called |= set(re.findall(r"g\.(\w+)\(", line.template))
            called |= {"index"} if "[" in line.template.replace("([", "") else set()
        if methods - NOT_CALLED.keys() <= called:
            break
    assert methods - called == set(NOT_CALLED), "a method without a family of lines"
    texts = inspect.getsource(bodies)
    assert all(f"g.{n}(" in texts for n, why in NOT_CALLED.items() if "bodies" in why)


def test_sizes_and_values_are_odd() -> None:
    arrays = [x for s in range(60) for x in generate(s).inputs().values()]
    floats = np.concatenate([x.astype(np.float64).ravel() for x in arrays])
    assert np.isnan(floats).any()
    assert np.isinf(floats).any()
    assert (np.signbit(floats) & (floats == 0)).any()
    assert ((np.abs(floats) < 1e-38) & (floats != 0)).any()
    assert {0, 1} <= {n for x in arrays for n in x.shape}
    assert any(x.ndim == 0 for x in arrays)
    assert any(isinstance(n, str) for s in range(60) for f in generate(s).feeds for n in f.shape)


# ---- that it finds something -----------------------------------------------------------------


def without_relu(graph: Graph) -> Graph:
    """Return a copy in which relu does nothing."""
    target = Graph(graph.name)
    target.symbols = dict(graph.symbols)
    copier = GraphCopier(target)
    for node in graph.nodes:
        if node.op.title == "relu":
            copier.values[node.results[0]] = copier.values[node.operands[0]]
        else:
            copier.copy(node)
    target.inputs = [copier.values[v] for v in graph.inputs]
    for name, v in graph.outputs.items():
        target.output(name, copier.values[v])
    return target


@pytest.fixture
def broken_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def optimize(graph: Graph) -> tuple[Graph, OptimizerReport]:
        return optimize_graph_report(without_relu(graph))

    monkeypatch.setattr(checks, "optimize_graph_report", optimize)


def first_failure(check: str) -> tuple[Program, Failure]:
    found = (command.failure_of(check, seed) for seed in range(100))
    return next(f for f in found if f is not None)


def test_a_wrong_rule_is_found_and_shrunk(broken_optimizer: None) -> None:
    program, failure = first_failure("optimize")
    assert failure.kind == "optimized: differs"
    small, failure = shrink(program, failure)
    assert len(small.lines) == 1
    assert "relu" in small.lines[0].template
    assert len(small.feeds) == 1
    assert small.feeds[0].array.size == 1
    assert failure.kind == "optimized: differs"


def test_the_command_prints_a_program(
    broken_optimizer: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--seeds", "0:40", "--check", "optimize"])
    assert command.main() == 1
    out = capsys.readouterr().out
    assert "fails the check 'optimize': optimized: differs" in out
    assert re.search(r"^v\d+ = g\.relu\(x\d+\)$", out, re.MULTILINE) or "'relu'" in out
    assert "40 seeds in " in out


def test_a_rule_that_loses_a_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def optimize(graph: Graph) -> tuple[Graph, OptimizerReport]:
        out, report = optimize_graph_report(graph)
        out.outputs = {f"{n}_": v for n, v in out.outputs.items()}
        return out, report

    monkeypatch.setattr(checks, "optimize_graph_report", optimize)
    assert first_failure("optimize")[1].kind == "interface"


def test_a_rule_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def optimize(graph: Graph) -> None:
        while True:
            pass

    monkeypatch.setattr(checks, "optimize_graph_report", optimize)
    failure = run_check("optimize", generate(0), seconds=0.1)
    assert failure is not None
    assert failure.kind == checks.ENDLESS


def test_a_device_whose_float64_is_slightly_wrong_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def evaluate(graph: Graph, inputs: Any, dims: Any = None, *, seed: int = 0) -> dict[str, Any]:
        out = cpu_eval_graph(graph, inputs, dims, seed=seed)
        return {n: x * 1.0001 if x.dtype == np.float64 else x for n, x in out.items()}

    monkeypatch.setattr("kn_runtime.prepared.cpu_eval_graph", evaluate)
    assert first_failure("devices")[1].kind.endswith("differs")


def test_what_crashes_the_reference_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from kn_graph.ops.norm import Softmax

    def crash(self: Softmax, ctx: Any, x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("as a bug would")

    monkeypatch.setattr(Softmax, "eval", crash)
    program = next(p for s in range(100) if (p := crash_of(s)) is not None)
    failure = run_check("reference", program)
    assert failure is not None
    small, _ = shrink(program, failure)
    assert [line.template.split("(")[0] for line in small.lines][-1] in (
        "g.softmax",
        "g.log_softmax",
    )
    assert len(small.lines) == 1


def test_an_invalid_program_is_no_failure() -> None:
    x = Feed("x", (2,), np.zeros(2, np.float32))
    line = Line(("y",), "g.view({0}, (3,))", ("x",))
    assert run_check("verify", Program((x,), (line,), ("y",))) is None


@pytest.mark.parametrize(("text", "seeds"), [("3:5", [3, 4]), ("7", [7])])
def test_seeds_as_text(text: str, seeds: list[int]) -> None:
    assert list(command.parse_seeds(text)) == seeds
