"""Converters of one step of an optimizer of weights (ai.onnx.preview.training)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kn_graph.dtype import DType
from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

DOMAIN = "ai.onnx.preview.training"


def _scalar(ctx: NodeContext, index: int) -> Value:
    """Return an input of one element as a float64 of rank 0."""
    x = ctx.input(index)
    x = x if x.rank == 0 else ctx.graph.view(x, ())
    return ctx.graph.cast(x, DType.FLOAT64)


def _each(ctx: NodeContext, count: int, update: Callable[..., tuple[Value, ...]]) -> list[Value]:
    """Update every tensor.

    The inputs from 2 on are `count` groups of as many tensors: weights, gradients, and states. The
    results are groups likewise, without the gradients.
    """
    tensors = ctx.inputs(2)
    if not tensors or len(tensors) % count:
        ctx.fail(f"has {len(tensors)} tensors, expected a multiple of {count}")
    n = len(tensors) // count
    results = [update(*tensors[i::n]) for i in range(n)]
    return [v for group in zip(*results, strict=True) for v in group]


def _regularized(x: Value, gradient: Value, coefficient: float) -> Value:
    return gradient if coefficient == 0.0 else x * coefficient + gradient


@converter("Adagrad", domain=DOMAIN)
def adagrad(ctx: NodeContext) -> list[Value]:
    """Steps that shrink with the sum of all squared gradients so far."""
    g, r, t = ctx.graph, _scalar(ctx, 0), _scalar(ctx, 1)
    rate = r / (t * ctx.real("decay_factor", 0.0) + 1)
    norm, epsilon = ctx.real("norm_coefficient", 0.0), ctx.real("epsilon", 1e-6)

    def update(x: Value, gradient: Value, squares: Value) -> tuple[Value, ...]:
        gradient = _regularized(x, gradient, norm)
        squares = squares + gradient * gradient
        step = g.cast(rate, x.dtype) * gradient / (g.sqrt(squares) + epsilon)
        return x - step, squares

    return _each(ctx, 3, update)


@converter("Adam", domain=DOMAIN)
def adam(ctx: NodeContext) -> list[Value]:
    """Steps along an averaged gradient, divided by the root of the averaged squares."""
    g, r, t = ctx.graph, _scalar(ctx, 0), _scalar(ctx, 1)
    alpha, beta = ctx.real("alpha", 0.9), ctx.real("beta", 0.999)
    norm, epsilon = ctx.real("norm_coefficient", 0.0), ctx.real("epsilon", 1e-6)
    post = ctx.real("norm_coefficient_post", 0.0)
    # in float64, since 1 - beta**t loses most digits of float32
    left = [g.scalar(1.0, DType.FLOAT64) - g.scalar(c, DType.FLOAT64) ** t for c in (alpha, beta)]
    started = g.compare("gt", t, g.scalar(0.0, DType.FLOAT64))
    rate = g.select(started, r * g.sqrt(left[1]) / left[0], r)

    def update(x: Value, gradient: Value, mean: Value, squares: Value) -> tuple[Value, ...]:
        gradient = _regularized(x, gradient, norm)
        mean = mean * alpha + gradient * (1 - alpha)
        squares = squares * beta + gradient * gradient * (1 - beta)
        step = g.cast(rate, x.dtype) * mean / (g.sqrt(squares) + epsilon)
        x = x - step
        return x if post == 0.0 else x * (1 - post), mean, squares

    return _each(ctx, 4, update)


@converter("Momentum", domain=DOMAIN)
def momentum(ctx: NodeContext) -> list[Value]:
    """Steps along an accumulated gradient, as usual or by Nesterov."""
    g, r, t = ctx.graph, _scalar(ctx, 0), _scalar(ctx, 1)
    alpha, beta = ctx.real("alpha"), ctx.real("beta")
    norm, mode = ctx.real("norm_coefficient"), ctx.choice("mode", "", ("nesterov", "standard"))
    one = g.scalar(1.0, DType.FLOAT64)
    started = g.compare("gt", t, g.scalar(0.0, DType.FLOAT64))
    factor = g.select(started, g.scalar(beta, DType.FLOAT64), one)

    def update(x: Value, gradient: Value, state: Value) -> tuple[Value, ...]:
        gradient = _regularized(x, gradient, norm)
        state = state * alpha + g.cast(factor, x.dtype) * gradient
        step = gradient + state * alpha if mode == "nesterov" else state
        return x - g.cast(r, x.dtype) * step, state

    return _each(ctx, 3, update)


@converter("Gradient", domain=DOMAIN)
def gradient(ctx: NodeContext) -> list[Value]:
    """The derivatives of a named tensor by others, at the values of the inputs."""
    from kn_graph.autodiff import gradients  # few models ask for it, and loading is timed
    from kn_graph.autodiff.gradient import replay

    xs, zs = ctx.texts("xs"), ctx.texts("zs", ())
    inputs = ctx.inputs()
    if len(inputs) != len(xs) + len(zs):
        ctx.fail(f"has {len(inputs)} inputs for the {len(xs) + len(zs)} tensors in xs and zs")
    named = [ctx.scope.lookup(n, ctx.where) for n in (*xs, *zs)]
    y = ctx.scope.lookup(ctx.text("y"), ctx.where)
    if y in ctx.scope.captures.values():
        ctx.unsupported(f"{y} is computed outside of the body that asks for its gradient")
    if len(set(named)) < len(named):
        ctx.unsupported(
            "two of the tensors in xs and zs are computed the same way, so they are one"
        )
    at = dict(zip(named, inputs, strict=True))
    found = gradients(y, named[: len(xs)], held=named[len(xs) :])
    return [replay(v, at) for v in found]
