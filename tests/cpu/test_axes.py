"""Calls of kernels over symbolic sizes: evaluated, they are those of the numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kn_cpu.attention import attention_call
from kn_cpu.axes import KernelCall, float_bits, units_for
from kn_cpu.copy import copy_call, pad_copies
from kn_cpu.gather import (
    gather_call,
    gather_elements_call,
    gather_nd_call,
    scatter_elements_call,
    scatter_nd_call,
)
from kn_cpu.norm import norm_call
from kn_cpu.pool import pool_call
from kn_cpu.reduce import arg_reduce_call, reduce_call
from kn_cpu.resize import resize_call
from kn_cpu.softmax import softmax_call
from kn_graph.dim import Dim, Size, evaluate, symbol
from kn_graph.dtype import DType
from kn_graph.ops.attention import Attention
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import ArgReduce
from kn_graph.ops.resize import Resize
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_plan.layout import StridedLayout

Make = Callable[[Size], KernelCall]


def dense(*sizes: Size) -> StridedLayout:
    return StridedLayout.contiguous(sizes)


def attention(n: Size) -> KernelCall:
    q = dense(2, n, 4, 64).permute((0, 2, 1, 3))
    bias = dense(1, 1, 1, n).broadcast((2, 4, n, n))
    return attention_call(Attention(right=0, offset=n), q, q, q, q, bias, DType.BOOL)


def pool(n: Size) -> KernelCall:
    op = Pool("max", (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1)))
    return pool_call(op, dense(1, 3, 7, (n - 1) // 2 + 1), dense(1, 3, 13, n))


def pad(n: Size) -> KernelCall:
    copies = pad_copies(dense(n + 3, 4), dense(n, 4), [(1, 2), (0, 0)], "reflect")
    return copy_call(copies[0].write, copies[0].read, 4)


MAKERS: dict[str, Make] = {
    "copy": lambda n: copy_call(dense(64, n), dense(n, 64).permute((1, 0)), 4),
    "pad": pad,
    "norm": lambda n: norm_call(
        Norm((2,), 1e-5), dense(1, n, 64), dense(1, n, 64), dense(1, 1, 64).broadcast((1, n, 64))
    ),
    "softmax": lambda n: softmax_call(Softmax(1), dense(5, n), dense(5, n)),
    "reduce": lambda n: reduce_call("sum", DType.FLOAT32, dense(n), dense(n, 7), [1]),
    "arg": lambda n: arg_reduce_call(ArgReduce(0, True), DType.INT32, dense(7), dense(n, 7)),
    "attention": attention,
    "pool": pool,
    "gather": lambda n: gather_call(
        Gather(1), dense(3, n, 8), dense(3, 9, 8), dense(n),
        dtype=DType.FLOAT32, index_dtype=DType.INT64,
    ),
    "gather_nd": lambda n: gather_nd_call(
        GatherND(), dense(n, 8), dense(3, n, 8), dense(n, 2),
        dtype=DType.FLOAT32, index_dtype=DType.INT64,
    ),
    "scatter_nd": lambda n: scatter_nd_call(
        ScatterND(), dense(3, n, 8), dense(n, 8), dense(n, 2),
        dtype=DType.FLOAT32, index_dtype=DType.INT64,
    ),
    "gather_elements": lambda n: gather_elements_call(
        GatherElements(0), dense(n, 3), dense(9, 3), dense(n, 3), dtype=DType.FLOAT32,
        index_dtype=DType.INT64,
    ),
    "scatter_elements": lambda n: scatter_elements_call(
        ScatterElements(0), dense(n, 3), dense(9, 3), dense(9, 3), dtype=DType.FLOAT32,
        index_dtype=DType.INT64,
    ),
    "resize": lambda n: resize_call(
        Resize((2, 3), (8, 2 * n)), dense(1, 3, 8, 2 * n), dense(1, 3, 4, n), [1, 2, 2]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("number", [2, 77, 100_000])
def test_symbolic_calls_evaluate_to_those_of_numbers(name: str, number: int) -> None:
    n = symbol("n")
    call, want = MAKERS[name](n), MAKERS[name](number)
    env = dict.fromkeys(n.symbols, number)
    assert any(isinstance(size, Dim) for size in call.numbers)
    assert [evaluate(s, env) for s in call.numbers] == list(want.numbers)
    assert evaluate(call.units, env) == want.units
    assert evaluate(call.scratch, env) == want.scratch
    assert (call.kernel, call.grain) == (want.kernel, want.grain)


def test_there_is_at_least_one_unit() -> None:
    assert [units_for(n, 10) for n in (0, 1, 10, 11)] == [1, 1, 1, 2]


def test_bits_of_floats() -> None:
    assert float_bits(1.0) == 0x3F800000
    assert float_bits(-0.0) == -0x80000000
