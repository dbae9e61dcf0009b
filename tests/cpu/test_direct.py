"""Calls of graphs that are one native run: quick, and as careful as others."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from kn_cpu import direct
from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.errors import InputDTypeError, InputError, InputShapeError, MissingInputError
from kn_plan.recent import KEPT
from tests.plan.test_plan import assert_agree

KERNELS = library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

Array = np.ndarray[Any, Any]


@pytest.fixture(params=["native", "plain"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CpuExecutor:
    """An executor whose calls go through the module in C, or do without it."""
    if request.param == "plain":
        monkeypatch.setattr(direct, "_extension", lambda: None)
    elif direct._extension() is None:
        pytest.skip("the module for quick calls is not built")
    assert KERNELS is not None
    return CpuExecutor(network(), KERNELS, 2)


def network() -> Graph:
    g = Graph("network")
    x, y = g.input("x", "float32", ["n", 5]), g.input("y", "float32", ["n", 5])
    g.output("sum", g.unary("exp", x) + y)
    g.output("product", x @ g.constant(np.arange(15, dtype=np.float32).reshape(5, 3)))
    return g


def feeds(n: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal((n, 5)).astype(np.float32) for k in "xy"}


def assert_right(run: CpuExecutor, given: dict[str, Array]) -> None:
    want, got = cpu_eval_graph(run.graph, given), run.eval(given)
    assert list(got) == list(want)
    assert_agree(want, got)


def test_again_and_for_other_sizes(run: CpuExecutor) -> None:
    for n in (3, 3, 1, 3, 17, 1):
        assert_right(run, feeds(n, n))


def test_more_sizes_than_are_kept(run: CpuExecutor) -> None:
    for n in [*range(1, KEPT + 9), 1, 2]:
        assert_right(run, feeds(n))


ALONE = """
import gc, sys
import numpy as np
from kn_cpu import direct
from kn_graph import Graph
from kn_runtime import Device

if sys.argv[1] == "plain":
    direct._extension = lambda: None
g = Graph()
w = np.random.default_rng(0).standard_normal((1536, 1024)).astype(np.float32)
g.output("y", g.input("x", "float32", (1, 1536)) @ g.constant(w))
call = Device.cpu().prepare(g).bind({"x": np.ones((1, 1536), np.float32)})
run, y = call.run, call.outputs["y"]
want = y.copy()
del call, g
gc.collect()
filled = [np.full(1 << k, 7, np.float32) for k in range(8, 24) for _ in range(3)]
y[...] = 0
run()
sys.exit(0 if np.array_equal(y, want) else 1)
"""


@pytest.mark.parametrize("kind", ["native", "plain"])
def test_what_runs_a_bound_call_keeps_all_that_it_reads(kind: str) -> None:
    """Weights and memory belong to objects that nobody else may hold any more."""
    done = subprocess.run([sys.executable, "-c", ALONE, kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_call_gives_fresh_arrays(run: CpuExecutor) -> None:
    first, second = run.eval(feeds(3)), run.eval(feeds(3))
    first["sum"][...] = 0
    assert not np.shares_memory(first["sum"], second["sum"])
    assert second["sum"].any()


def test_a_list_in_order(run: CpuExecutor) -> None:
    given = feeds(4)
    for _ in range(2):
        got = run.eval([given["x"], given["y"]])
        np.testing.assert_array_equal(got["sum"], run.eval(given)["sum"])


@pytest.mark.parametrize(
    "strange",
    [
        lambda x: x[:, ::-1][:, ::-1],
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x.astype(">f4"),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.float32, x.size, 1).reshape(x.shape),
        lambda x: x.view(np.ndarray).view(Subclass),
    ],
    ids=["reversed twice", "columns first", "strided", "big endian", "odd address", "subclass"],
)
def test_arrays_that_a_kernel_cannot_read_as_they_are(run: CpuExecutor, strange: Any) -> None:
    plain = feeds(4)
    want = run.eval(plain)
    for _ in range(2):
        got = run.eval({**plain, "x": strange(plain["x"])})
        for name, x in want.items():
            np.testing.assert_array_equal(got[name], x)


class Subclass(np.ndarray[Any, Any]):
    """An array of another class."""


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda f: {**f, "x": f["x"].astype(np.float64)}, InputDTypeError),
        (lambda f: {**f, "x": f["x"].view(np.int32)}, InputDTypeError),
        (lambda f: {**f, "x": f["x"][:, :4]}, InputShapeError),
        (lambda f: {**f, "x": f["x"][:2]}, InputError),
        (lambda f: {"x": f["x"]}, MissingInputError),
        (lambda f: {**f, "z": f["x"]}, InputError),
        (lambda f: {"x": f["x"], "z": f["x"]}, InputError),
        (lambda f: [f["x"]], MissingInputError),
        (lambda f: {**f, "x": None}, InputDTypeError),
    ],
)
def test_what_does_not_fit_is_refused_after_what_fits(
    run: CpuExecutor, change: Any, error: type[Exception]
) -> None:
    given = feeds(4)
    run.eval(given)
    with pytest.raises(error):
        run.eval(change(given))
    assert_right(run, given)


def test_dims_are_checked_against_the_inputs(run: CpuExecutor) -> None:
    given = feeds(4)
    for _ in range(2):
        run.eval(given, {"n": 4})
        with pytest.raises(InputError):
            run.eval(given, {"n": 5})


def test_many_threads_at_once(run: CpuExecutor) -> None:
    many = [feeds(n % 3 + 1, n) for n in range(64)]
    want = [cpu_eval_graph(run.graph, f) for f in many]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for w, got in zip(want, pool.map(run.eval, many), strict=True):
                assert_agree(w, got)


def test_a_bound_call_follows_its_arrays(run: CpuExecutor) -> None:
    given = feeds(4)
    call = run.bind(given)
    outputs = dict(call.outputs)
    for seed in (1, 2):
        for name, x in feeds(4, seed).items():
            given[name][...] = x
        call.run()
        assert_agree(cpu_eval_graph(run.graph, given), outputs)
        assert all(call.outputs[name] is x for name, x in outputs.items())


def test_a_bound_call_wants_arrays_that_it_need_not_copy(run: CpuExecutor) -> None:
    given = feeds(4)
    with pytest.raises(InputError, match="row-major"):
        run.bind({**given, "x": given["x"][:, ::-1]})
    with pytest.raises(InputError, match="row-major"):
        run.bind({**given, "x": given["x"].astype(">f4")})


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_element_type(run: CpuExecutor, dtype: DType) -> None:
    g = Graph("moved")
    g.output("y", g.permute(g.input("x", dtype, [2, "n"]), (1, 0)))
    moved = CpuExecutor(g, run.library, 1)
    kind = object if dtype is DType.STRING else dtype.numpy
    x = np.array([list("abc"), list("def")], object)
    x = x if kind is object else np.arange(1, 7).reshape(2, 3).astype(kind)
    for _ in range(2):
        np.testing.assert_array_equal(moved.eval({"x": x})["y"], x.T)
