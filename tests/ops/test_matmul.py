"""Matrix products: MatMul, Gemm and Einsum."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import (
    DTypeError,
    MalformedModelError,
    ShapeError,
    SymbolError,
    UnsupportedModelError,
)
from kn_graph.graph import Graph
from kn_graph.ops.matmul import MatMul
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

RNG = np.random.default_rng(7)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def product(x: np.ndarray, y: np.ndarray, out_dtype: DType | None = None) -> np.ndarray:
    """Multiply through the graph."""
    g = Graph()
    a = g.input("x", DType.from_numpy(x.dtype), x.shape)
    b = g.input("y", DType.from_numpy(y.dtype), y.shape)
    g.output("out", g.matmul(a, b, out_dtype=out_dtype))
    return cpu_eval_graph(g, {"x": x, "y": y})["out"]


SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((5, 2, 3), (5, 3, 1)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0, 2, 3), (3, 4)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_matmul_follows_numpy(a: tuple, b: tuple, dtype: Any) -> None:
    x, y = (RNG.integers(0, 9, s).astype(dtype) for s in (a, b))
    assert_same([product(x, y)], [np.asarray(np.matmul(x, y))])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_in_float32(dtype: Any) -> None:
    x, y = np.full((1, 4096), 0.25, dtype), np.full((4096, 1), 0.5, dtype)
    assert product(x, y)[0, 0] == 512  # a float16 or bfloat16 sum stops growing before
    wide = product(x, y, DType.FLOAT32)
    assert wide.dtype == np.float32
    assert wide[0, 0] == 512


def test_integers_wrap_or_widen() -> None:
    x, y = np.full((1, 3), 100, np.int8), np.full((3, 1), -100, np.int8)
    assert product(x, y)[0, 0] == np.int64(-30000).astype(np.int8)
    assert product(x, y, DType.INT32)[0, 0] == -30000
    assert product(np.full((1, 3), 200, np.uint8), y, DType.INT32)[0, 0] == -60000
    big = np.full((1, 2), 2**40 + 1, np.int64)
    assert product(big, big.T)[0, 0] == np.sum(big * big)  # exact beyond 2**53, and wrapped


def test_nan_and_infinity_spread_along_rows_and_columns() -> None:
    x = np.array([[np.nan, 1], [1, 1]], np.float32)
    y = np.array([[1, np.inf], [1, 0]], np.float32)
    assert_same([product(x, y)], [np.matmul(x, y)])


@pytest.mark.parametrize(
    ("x", "y", "out", "error"),
    [
        ((2, 3), (4, 5), None, ShapeError),
        ((2, 2, 3), (3, 3, 5), None, ShapeError),
        ((), (3,), None, ShapeError),
        ((2, 3), (3, 5), DType.INT32, DTypeError),
        ((2, 3), (3, 5), DType.FLOAT16, DTypeError),
    ],
)
def test_matmul_refuses_what_does_not_fit(x: Any, y: Any, out: Any, error: Any) -> None:
    g = Graph()
    a, b = g.input("x", "float32", x), g.input("y", "float32", y)
    with pytest.raises(error):
        g.matmul(a, b, out_dtype=out)


def test_matmul_refuses_mixed_types_and_truths() -> None:
    g = Graph()
    x, y = g.input("x", "int8", [2, 2]), g.input("y", "uint8", [2, 2])
    with pytest.raises(DTypeError, match="equal types"):
        g.matmul(x, y)
    with pytest.raises(DTypeError, match="bool"):
        g.matmul(g.cast(x, DType.BOOL), g.cast(x, DType.BOOL))


def test_one_matrix_for_a_batch_is_one_product_of_symbolic_size() -> None:
    g = Graph()
    x, y = g.input("x", "float32", ["b", "s", 3]), g.input("y", "float32", [3, 4])
    g.output("out", g.matmul(x, y))
    assert [str(n.operands[0].type) for n in g.nodes if isinstance(n.op, MatMul)] == [
        "float32[b*s, 3]"
    ]
    a, b = normal(2, 5, 3), normal(3, 4)
    got = cpu_eval_graph(g, {"x": a, "y": b})["out"]
    assert_same([got], [np.matmul(a, b)], rtol=1e-6, atol=1e-6)


def test_an_inner_size_that_only_shows_when_running_is_checked() -> None:
    g = Graph()
    g.output("out", g.matmul(g.input("x", "float32", [2, "k"]), g.input("y", "float32", ["m", 2])))
    with pytest.raises(SymbolError):
        cpu_eval_graph(g, {"x": normal(2, 3), "y": normal(4, 2)})


# ---- ONNX -----------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 9, 13])
def test_matmul_operator(opset: int) -> None:
    inputs = {"a": normal(2, 3, 4), "b": normal(4, 5)}
    got = run_here(node_model("MatMul", inputs, opset=opset), inputs)
    assert_same(got, [np.matmul(inputs["a"], inputs["b"])], rtol=1e-6, atol=1e-6)


C_SHAPES: list[tuple] = [(), (1,), (4,), (2, 1), (1, 4), (2, 4)]


@pytest.mark.parametrize("flags", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(
    ("opset", "c"),
    [
        *((opset, c) for opset in (7, 9, 11, 13) for c in C_SHAPES),
        *((opset, None) for opset in (11, 13)),
    ],
)
def test_gemm_like_onnxruntime(flags: tuple[int, int], opset: int, c: Any) -> None:
    a = normal(3, 2) if flags[0] else normal(2, 3)
    b = normal(4, 3) if flags[1] else normal(3, 4)
    inputs = {"a": a, "b": b, "c": None if c is None else normal(*c)}
    options: dict[str, Any] = {"transA": flags[0], "transB": flags[1], "alpha": 0.5, "beta": 2.0}
    assert_like_onnxruntime("Gemm", inputs, opset=opset, rtol=1e-5, atol=1e-6, **options)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(("shape", "broadcast"), [((2, 4), 0), ((4,), 1), ((1,), 1)])
def test_gemm_of_old_opsets(opset: int, shape: tuple, broadcast: int) -> None:
    inputs = {"a": normal(2, 3), "b": normal(3, 4), "c": normal(*shape)}
    got = run_here(node_model("Gemm", inputs, opset=opset, broadcast=broadcast), inputs)
    expected = inputs["a"] @ inputs["b"] + inputs["c"]
    assert_same(got, [expected], rtol=1e-5, atol=1e-6)


def test_gemm_of_integers() -> None:
    inputs = {n: RNG.integers(-9, 9, s).astype(np.int32) for n, s in (("a", (2, 3)), ("b", (3, 2)))}
    got = run_here(node_model("Gemm", inputs, alpha=2.0), inputs)
    assert_same(got, [2 * inputs["a"] @ inputs["b"]])
    with pytest.raises(UnsupportedModelError, match="alpha"):
        run_here(node_model("Gemm", inputs, alpha=0.5), inputs)


def test_gemm_with_beta_0_ignores_c() -> None:
    inputs = {"a": normal(2, 3), "b": normal(3, 2), "c": np.full((2, 2), np.nan, np.float32)}
    assert_like_onnxruntime("Gemm", inputs, beta=0.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "opset", "error"),
    [
        ({"a": normal(2), "b": normal(2, 2)}, 13, MalformedModelError),
        ({"a": normal(2, 2), "b": normal(2, 2)}, 9, MalformedModelError),
        ({"a": normal(2, 2), "b": normal(2, 2), "c": normal(3, 2)}, 13, ShapeError),
        ({"a": normal(2, 2), "b": normal(2, 2), "c": normal(1, 1, 2)}, 13, ShapeError),
    ],
)
def test_gemm_refuses_what_does_not_fit(inputs: dict, opset: int, error: Any) -> None:
    with pytest.raises(error, match="node node"):
        run_here(node_model("Gemm", inputs, opset=opset), inputs)


# ---- Einsum ---------------------------------------------------------------------------------

EQUATIONS = [
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ij,jk->ki", [(2, 3), (3, 4)]),
    ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij->j", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("ijkj->ki", [(2, 3, 4, 3)]),
    ("iiii->i", [(3, 3, 3, 3)]),
    ("iji,ki->jk", [(2, 3, 2), (4, 2)]),
    ("i,i", [(3,), (3,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i->i", [(3,), (3,)]),
    ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]),
    ("...ij,...jk", [(5, 2, 3), (1, 3, 4)]),
    ("...ij,...jk->...ik", [(2, 5, 2, 3), (3, 4)]),
    ("i...,i...->...", [(3, 2, 4), (3, 2, 1)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("...", [(2, 3)]),
    ("...->...", [()]),
    (",->", [(), ()]),
    (",ij->ij", [(), (2, 3)]),
    ("ij, jk , kl -> il", [(2, 3), (3, 4), (4, 5)]),
    ("i,ij,j->", [(2,), (2, 3), (3,)]),
    ("ab,cd,ac->bd", [(2, 3), (4, 5), (2, 4)]),
    ("bA,Ab", [(2, 3), (3, 2)]),
    ("bA,AB", [(2, 3), (3, 4)]),
    ("ij,ij->i", [(2, 3), (1, 3)]),
    ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("ij,kl->ik", [(2, 3), (4, 5)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_einsum_follows_numpy(equation: str, shapes: list[tuple], dtype: Any) -> None:
    arrays = [RNG.integers(-4, 5, s).astype(dtype) for s in shapes]
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    got = run_here(node_model("Einsum", inputs, equation=equation), inputs)
    assert_same(got, [np.asarray(np.einsum(equation, *arrays))])


@pytest.mark.parametrize("opset", [12, 28])
def test_einsum_like_onnxruntime(opset: int) -> None:
    inputs = {"a": normal(2, 3, 4), "b": normal(2, 4, 5)}
    model = node_model("Einsum", inputs, equation="bij,bjk->bki", opset=opset)
    expected = np.einsum("bij,bjk->bki", inputs["a"], inputs["b"])
    assert_same(run_here(model, inputs), [expected], rtol=1e-5, atol=1e-6)
    if opset == 12:
        assert_same(run_here(model, inputs), run_onnxruntime(model, inputs), rtol=1e-5, atol=1e-6)


def test_einsum_of_symbolic_sizes() -> None:
    g = Graph()
    x, y = g.input("x", "float32", ["n", "m", "n"]), g.input("y", "float32", ["m", "k"])
    g.output("out", g.einsum("nmn,mk->nk", x, y))
    a, b = normal(3, 2, 3), normal(2, 4)
    got = cpu_eval_graph(g, {"x": a, "y": b})["out"]
    assert_same([got], [np.einsum("nmn,mk->nk", a, b)], rtol=1e-5, atol=1e-6)


def test_einsum_keeps_nan_off_the_diagonal_out() -> None:
    x = np.array([[1, np.nan], [np.nan, 2]], np.float32)
    assert_same(
        run_here(node_model("Einsum", {"x": x}, equation="ii"), {"x": x}),
        [np.array(3.0, np.float32)],
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk", [(2, 3)]),
        ("ijk", [(2, 3)]),
        ("i", [(2, 3)]),
        ("ij->ik", [(2, 3)]),
        ("ij->ii", [(2, 3)]),
        ("i1->i", [(2, 3)]),
        ("i..j", [(2, 3)]),
        ("ij,jk", [(2, 3), (4, 5)]),
        ("ii", [(2, 3)]),
        ("ij->i->j", [(2, 3)]),
    ],
)
def test_einsum_refuses_malformed_equations(equation: str, shapes: list[tuple]) -> None:
    inputs = {f"x{i}": normal(*s) for i, s in enumerate(shapes)}
    with pytest.raises(ShapeError, match="Einsum"):
        run_here(node_model("Einsum", inputs, equation=equation), inputs)
