"""Converters of matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []


@converter("MatMul")
def matmul(ctx: NodeContext) -> Value:
    """Multiply matrices as NumPy does."""
    return ctx.graph.matmul(ctx.input(0), ctx.input(1))


@converter("Gemm")
def gemm(ctx: NodeContext) -> Value:
    """Compute alpha*A'*B' + beta*C, with C broadcast; before opset 7 only where `broadcast` is 1.

    A flag that says so is no loss of meaning: without it C has the full shape anyway.
    """
    g, a, b, c = ctx.graph, ctx.input(0), ctx.input(1), ctx.optional(2)
    if ctx.opset < 7:
        ctx.ignore("broadcast")
    if (a.rank, b.rank) != (2, 2):
        ctx.fail(f"A and B must be matrices, got {a.type} and {b.type}")
    if c is None and ctx.opset < 11:
        ctx.fail("input C is required before opset 11")
    a = g.transpose(a) if ctx.flag("transA", False) else a
    b = g.transpose(b) if ctx.flag("transB", False) else b
    product = _scaled(ctx, g.matmul(a, b), "alpha")
    beta = ctx.real("beta", 1.0)
    if c is None or beta == 0.0:
        return product
    return g.add(product, g.broadcast(_scaled(ctx, c, "beta"), product.shape))


def _scaled(ctx: NodeContext, x: Value, name: str) -> Value:
    factor = ctx.real(name, 1.0)
    if factor == 1.0:
        return x
    if x.dtype.is_int and factor != int(factor):
        ctx.unsupported(f"{name} = {factor} times integers")
    return x * (int(factor) if x.dtype.is_int else factor)


@converter("Einsum", since=12)
def einsum(ctx: NodeContext) -> Value:
    """Sum products by Einstein's convention."""
    return ctx.graph.einsum(ctx.text("equation"), *ctx.inputs())
