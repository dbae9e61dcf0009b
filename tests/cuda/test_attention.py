"""Attention on the host in place of a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor
from kn_graph import DType, Graph
from kn_graph.ops.attention import Attention
from tests.cuda.run import (
    assert_clean,
    check,
    check_graph,
    host_backend,
    launched,
    needs_compiler,
)

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]

CAUSAL = Attention(right=0)


@dataclass(frozen=True)
class Sizes:
    """Sizes of one attention: batch, heads, heads of keys, queries, keys, sizes of both."""

    b: int = 2
    h: int = 2
    hk: int = 2
    s: int = 3
    t: int = 70
    d: int = 20
    dv: int = 24

    def arrays(self, dtype: str = "float32") -> dict[str, Array]:
        """Return operands."""
        rng, numpy = np.random.default_rng(0), DType.parse(dtype).numpy
        shapes = {
            "q": (self.b, self.h, self.s, self.d),
            "k": (self.b, self.hk, self.t, self.d),
            "v": (self.b, self.hk, self.t, self.dv),
        }
        return {n: rng.standard_normal(shape).astype(numpy) for n, shape in shapes.items()}


def attended(op: Attention, arrays: dict[str, Array], *others: dict[str, Array]) -> CudaExecutor:
    """Compare with the reference; other runs have arrays of the same shapes."""
    g = Graph("attention")
    made = [g.input(n, DType.from_numpy(a.dtype), a.shape) for n, a in arrays.items()]
    g.output("y", g.push(op, *made))
    dtype = arrays["q"].dtype
    return check_graph(g, [arrays, *others], ulps=0 if dtype in (np.float32, np.float64) else 1)


def both(op: Attention, sizes: Sizes, **masks: Any) -> None:
    """Compare few queries and many; masks are made for a number of queries."""
    for s in (2, 70):
        now = replace(sizes, s=s)
        given = {n: make(now) for n, make in masks.items()}
        ran = attended(op, {**now.arrays(), **given})
        assert ran.proof.kernels == {"attention_rows" if s == 2 else "attention_tiles": 1}


@pytest.mark.parametrize("s", [1, 8, 9, 64, 65, 130])
def test_numbers_of_queries_and_keys(s: int) -> None:
    def build(g: Graph) -> Any:
        q, k, v = (
            g.input(n, "float32", (1, 2, x, 8)) for n, x in (("q", s), ("k", "n"), ("v", "n"))
        )
        return g.push(Attention(), q, k, v), g.push(replace(CAUSAL, offset=3), q, k, v)

    check(build, *({"n": t} for t in (0, 1, 33, 64, 65, 200)))


def test_the_number_of_queries_chooses_the_kernel() -> None:
    def build(g: Graph) -> Any:
        q, k, v = (
            g.input(n, "float32", ("n", 2, x, 9)) for n, x in (("q", "s"), ("k", 40), ("v", 40))
        )
        return g.push(CAUSAL, q, k, v)

    ran = check(build, *({"n": 2, "s": s} for s in (1, 8, 9, 20)), {"n": 0, "s": 3})
    assert ran.proof.kernels == {"attention_rows": 2, "attention_tiles": 2}
    assert_clean([k.widened for k in ran.loaded().skeleton.kernels])


@pytest.mark.parametrize(("d", "dv"), [(1, 3), (0, 5), (33, 64), (128, 65), (255, 256)])
def test_sizes_of_keys_and_values(d: int, dv: int) -> None:
    both(Attention(), Sizes(b=1, h=1, hk=1, d=d, dv=dv))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("s", [1, 20])
def test_other_types(dtype: str, s: int) -> None:
    for d in (24, 256):
        attended(Attention(softcap=2.5), Sizes(b=1, s=s, d=d, dv=d).arrays(dtype))


@pytest.mark.parametrize("s", [2, 20])
def test_any_strides(s: int) -> None:
    def build(g: Graph) -> Any:
        packed = g.input("packed", "float32", (2, s, 3, 3, 17))
        parts = [g.permute(g.slice(packed, 2, i, 1, 1), (0, 3, 1, 4, 2)) for i in range(3)]
        q, k, v = (g.reshape(x, (2, 3, s, 17)) for x in parts)
        turned = g.permute(g.input("turned", "float32", (17, s, 3, 2)), (3, 2, 1, 0))
        out = g.permute(g.push(Attention(scale=0.3), q, k, v), (0, 2, 1, 3))
        return g.reshape(out, (2, s, 51)), g.push(Attention(), turned, turned, turned)

    check(build)


@pytest.mark.parametrize(("h", "hk"), [(4, 1), (6, 3)])
def test_heads_that_share_keys(h: int, hk: int) -> None:
    both(Attention(), Sizes(h=h, hk=hk))


@pytest.mark.parametrize(("left", "right"), [(None, 0), (0, None), (5, 0), (None, 3), (2, -1)])
def test_positions(left: int | None, right: int | None) -> None:
    def build(g: Graph) -> Any:
        k, v = (g.input(n, "float32", (1, 1, 150, 8)) for n in "kv")
        queries = [g.input(f"q{s}", "float32", (1, 1, s, 8)) for s in (2, 70)]
        places = (-80, 0, 90, 500)
        return [
            g.push(Attention(left=left, right=right, offset=o), q, k, v)
            for o in places
            for q in queries
        ]

    check(build)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_biases_and_masks(dtype: str) -> None:
    def build(g: Graph) -> Any:
        k, v = (g.input(n, "float32", (2, 2, 77, 8)) for n in "kv")
        made = []
        for s in (3, 19):
            q, grid = g.input(f"q{s}", "float32", (2, 2, s, 8)), (2, 2, s, 77)
            for i, axes in enumerate(((), (0,), (1,), (0, 1, 2), (3,))):
                shape = [1 if a in axes else n for a, n in enumerate(grid)]
                bias = g.broadcast(g.input(f"bias{s}_{i}", dtype, shape), grid)
                made += [g.push(op, q, k, v, bias) for op in (Attention(), CAUSAL)]
        return made

    check(build, high=2)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    def mask(of: Sizes) -> Array:
        made = np.ones((of.b, of.h, of.s, of.t), bool)
        made[..., 0, :] = False
        made[..., 1, :69] = False
        return made

    both(Attention(), Sizes(), bias=mask)
    both(Attention(right=0, offset=-1), Sizes())
    both(Attention(right=0, offset=-1000), Sizes())


@pytest.mark.parametrize("op", [Attention(), CAUSAL, Attention(left=7, right=0)])
def test_lengths(op: Attention) -> None:
    both(op, Sizes(b=4, t=80), lengths=lambda of: np.array([80, 0, 57, 9], np.int64))


def test_keys_behind_the_length_are_not_read() -> None:
    for s in (1, 20):
        arrays = {**Sizes(b=1, s=s).arrays(), "lengths": np.array([40], np.int64)}
        clean = attended(CAUSAL, arrays).eval(arrays)["y"]
        for name in ("k", "v"):
            arrays[name][:, :, 40:] = np.nan
        g = Graph("garbage")
        made = [g.input(n, DType.from_numpy(a.dtype), a.shape) for n, a in arrays.items()]
        g.output("y", g.push(CAUSAL, *made))
        got = CudaExecutor(g, host_backend()).eval(arrays)["y"]
        np.testing.assert_array_equal(got, clean)


@pytest.mark.parametrize("s", [2, 20])
def test_nan_and_infinity_spread_along_their_row(s: int) -> None:
    first = Sizes(b=1, s=s).arrays()
    first["q"][0, 0, 1, 3] = np.nan
    second = {n: a.copy() for n, a in first.items()}
    second["q"][0, 0, 0] = np.inf
    third = {n: a.copy() for n, a in second.items()}
    third["v"][0, 1, 60, 5] = np.inf
    fourth = {n: a.copy() for n, a in third.items()}
    fourth["k"][0, 1, 69] = np.nan
    attended(Attention(), first, second, third, fourth)
    attended(Attention(scale=1e30), first)


@pytest.mark.parametrize("s", [2, 70])
def test_scores_far_apart(s: int) -> None:
    arrays = Sizes(s=s, t=300).arrays()
    far = arrays["k"] * np.linspace(0, 40, 300, dtype=np.float32)[:, None]
    attended(Attention(scale=3.0), arrays, {**arrays, "k": far})


def test_values_without_elements_need_no_launch() -> None:
    assert attended(Attention(), Sizes(dv=0).arrays()).proof.total == 0


def test_what_follows_runs_in_the_same_kernel() -> None:
    def build(g: Graph) -> Any:
        q, k, v = (g.input(n, "float16", (1, 2, "n", 8)) for n in "qkv")
        y = g.push(CAUSAL, q, k, v)
        return g.cast(y, DType.FLOAT32) * 2 + g.input("x", "float32", (1, 2, "n", 1))

    ran = check(build, {"n": 3}, {"n": 40})
    assert ran.proof.total == 2
    assert launched(ran, "attention_rows") == 1
