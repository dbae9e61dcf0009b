"""How far one operation may be from the reference when both read the same operands.

A rule returns an absolute tolerance for each element of each result. It computes the operation in
float64 and adds how far the reference itself is from that, so that a sum which NumPy happens to add
up badly makes the band wider, not the verdict wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np

from kn_graph.cast import cast_array
from kn_graph.compare.precision import accumulator_roundoff, smallest, unit_roundoff
from kn_graph.compare.verdict import Array
from kn_graph.compare.walk import Context
from kn_graph.dtype import DType
from kn_graph.op import Op, field_names
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import Reduce, ReduceTo
from kn_graph.ops.signal import Dft
from kn_graph.scalar import scalar_function

__all__ = [
    "WIDENINGS",
    "Case",
    "Rule",
    "attention",
    "declared",
    "determinant",
    "deviation",
    "factors",
    "fourier",
    "norm",
    "products",
    "reduction",
    "scalar",
    "softmax",
]

Rule = Callable[["Case"], Sequence[Array]]

BASE = 4.0
"""Roundoffs of a sum that do not depend on its length."""


@dataclass(frozen=True)
class Case:
    """One operation and what it read and made.

    Attributes:
        op: the operation, with numbers for all sizes.
        operands: what it read.
        reference: its results by the NumPy reference.
        context: for evaluating it again.
        widening: factor of the roundoff of sums, where a device computes products less precisely.
    """

    op: Op
    operands: tuple[Any, ...]
    reference: tuple[Any, ...]
    context: Context
    widening: float = 1.0

    @property
    def dtype(self) -> DType:
        """Element type of the first result."""
        return DType.from_numpy(self.reference[0].dtype)

    @property
    def roundoff(self) -> float:
        """Of the type that sums are computed in."""
        return accumulator_roundoff(self.dtype) * self.widening

    @property
    def u_out(self) -> float:
        """Roundoff of the first result's type."""
        return unit_roundoff(self.dtype)

    def wide(self, f: Callable[[Array], Array] = lambda x: x) -> list[Any]:
        """Return the operands in float64, with f applied to those that are floats."""
        return [f(_float64(x)) if _is_float(x) else x for x in self.operands]

    def evaluate(self, op: Op, operands: Sequence[Any]) -> list[Array]:
        """Return the results of an operation in float64."""
        changed = {n: DType.FLOAT64 for n in field_names(type(op)) if _float_type(getattr(op, n))}
        with np.errstate(all="ignore"):
            out = (replace(op, **changed) if changed else op).eval(self.context, *operands)
        return [np.asarray(x) for x in (out if isinstance(out, tuple) else (out,))]

    def exactly(self) -> list[Array]:
        """Return the results in float64."""
        return self.evaluate(self.op, self.wide())


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and DType.from_numpy(x.dtype).is_float


def _float_type(x: Any) -> bool:
    return isinstance(x, DType) and x.is_float


def _float64(x: Array) -> Array:
    return x.astype(np.float64)


def deviation(reference: Array, exact: Array) -> Array:
    """Return how far the reference is from the exact result.

    Infinite where one of them is finite and the other is not: an intermediate value overflowed, or
    did not, depending on the order. The exact result counts as what it is in the reference's type.
    """
    dtype = DType.from_numpy(reference.dtype)
    rounded = _float64(cast_array(exact, dtype, saturate=False))
    found = _float64(reference)
    both = np.isfinite(found) & np.isfinite(rounded)
    alike = both | (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    with np.errstate(all="ignore"):
        off = np.where(both, np.abs(found - exact), 0.0)
    return np.where(alike, off, np.inf)


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0.0)


# ---- scalar functions -----------------------------------------------------------------------


def scalar(case: Case) -> list[Array]:
    """Rows of the scalar table have a bound each; a correctly rounded one leaves no choice."""
    op = case.op
    assert isinstance(op, (Unary, Binary))
    function, dtype = scalar_function(op.fn), case.dtype
    if function.ulps <= 0.5:
        return [np.zeros(case.reference[0].shape)]
    exact = case.exactly()[0]
    params = dict(op.params)
    allowed = function.tolerance(exact, case.wide(), params, dtype)
    return [allowed + deviation(case.reference[0], exact)]


# ---- sums and products ----------------------------------------------------------------------


Shapes = Sequence[tuple[int, ...]]

_TERMS: dict[type[Op], Callable[[Any, Shapes], int]] = {
    MatMul: lambda op, shapes: shapes[0][-1],
    Conv: lambda op, shapes: prod(shapes[1][1:]),
    ConvTranspose: lambda op, shapes: prod(shapes[1]) // max(shapes[1][1], 1),
    Reduce: lambda op, shapes: prod(shapes[0][a] for a in op.axes),
    Cumulative: lambda op, shapes: shapes[0][op.axis],
    Pool: lambda op, shapes: prod(op.kernel),
    ReduceTo: lambda op, shapes: prod(shapes[0]),
}
"""Number of terms of a sum. Of others, at most all elements of the last operand are added."""


def _terms(case: Case) -> int:
    shapes = [x.shape for x in case.operands]
    count = _TERMS.get(type(case.op))
    return int(prod(shapes[-1]) if count is None else count(case.op, shapes))


def growth(terms: int) -> float:
    """Return the factor c of a sum: the error of sums in any order grows like the root of n."""
    return BASE + sqrt(terms)


def reduction(case: Case) -> list[Array]:
    """Sums and means are sums of products; products of elements are `factors`."""
    fn = getattr(case.op, "fn", None) or getattr(case.op, "reduction", None)
    return factors(case) if fn in ("prod", "mul") else products(case)


def products(case: Case) -> list[Array]:
    """Allow c * u_acc * S + u_out * |ref| with S the sum of the magnitudes of what is added."""
    exact = case.exactly()
    sizes = case.evaluate(case.op, case.wide(np.abs))
    factor = growth(_terms(case)) * case.roundoff
    return [
        case.u_out * _finite(np.abs(x)) + factor * _finite(np.abs(s)) + deviation(ref, x)
        for ref, x, s in zip(case.reference, exact, sizes, strict=True)
    ]


def factors(case: Case) -> list[Array]:
    """A product of n factors: n roundings relative to the result."""
    (exact,) = case.exactly()
    relative = (_terms(case) + 1) * case.roundoff + case.u_out
    tiny = smallest(case.dtype) * unit_roundoff(case.dtype)
    return [relative * _finite(np.abs(exact)) + tiny + deviation(case.reference[0], exact)]


def fourier(case: Case) -> list[Array]:
    """Each result is a sum of all elements with factors of magnitude 1."""
    op = case.op
    assert isinstance(op, Dft)
    (exact,), (x,) = case.exactly(), case.wide(np.abs)
    total = x.sum((op.axis, x.ndim - 1), keepdims=True)
    bound = growth(x.shape[op.axis]) * case.roundoff * _finite(total)
    return [bound + case.u_out * _finite(np.abs(exact)) + deviation(case.reference[0], exact)]


def determinant(case: Case) -> list[Array]:
    """The determinant is at most the product of the lengths of the rows (Hadamard)."""
    (exact,), (x,) = case.exactly(), case.wide()
    with np.errstate(all="ignore"):
        volume = np.sqrt(np.square(x).sum(-1)).prod(-1)
    n = x.shape[-1]
    bound = (BASE + n * n) * case.roundoff * _finite(volume)
    return [bound + case.u_out * _finite(np.abs(exact)) + deviation(case.reference[0], exact)]


# ---- local rules ----------------------------------------------------------------------------


def softmax(case: Case) -> list[Array]:
    """exp(x - m) carries the rounding of x - m: u*|x - m|; so does the sum, weighted.

    Far below the maximum results are subnormal, and their last bits are nobody's.
    """
    op = case.op
    assert isinstance(op, Softmax)
    (exact,), (x,) = case.exactly(), case.wide()
    if not x.size:
        return [np.zeros(x.shape)]
    u, axis = case.roundoff, op.axis
    with np.errstate(all="ignore"):
        depth = _finite(np.abs(x - x.max(axis, keepdims=True)))
        weights = _finite(np.exp(exact) if op.log else exact)
        spread = (weights * depth).sum(axis, keepdims=True)
        common = growth(x.shape[axis]) + BASE + spread
        if op.log:
            bound = u * (depth + common + 2 * _finite(np.abs(exact)))
        else:
            bound = u * weights * (depth + common) + smallest(DType.FLOAT32)
    return [bound + case.u_out * _finite(np.abs(exact)) + deviation(case.reference[0], exact)]


def norm(case: Case) -> list[Array]:
    """The mean carries c*u*mean|x|, which is divided by the deviation like everything else."""
    op = case.op
    assert isinstance(op, Norm)
    (exact,), (x,) = case.exactly(), case.wide()
    if not x.size:
        return [np.zeros(x.shape)]
    c = (growth(prod(x.shape[a] for a in op.axes)) + BASE) * case.roundoff
    with np.errstate(all="ignore"):
        centred = x - x.mean(op.axes, keepdims=True) if op.center else x
        scale = np.sqrt(np.square(centred).mean(op.axes, keepdims=True) + op.epsilon)
        offset = np.abs(x).mean(op.axes, keepdims=True) / scale if op.center else 0.0
        bound = c * (offset + np.abs(exact) * (1 + offset))
    allowed = _finite(bound) + case.u_out * _finite(np.abs(exact))
    return [allowed + deviation(case.reference[0], exact)]


def attention(case: Case) -> list[Array]:
    """Scores carry c*u*sum|q||k|; weights carry what their score and all others do, weighted."""
    op = case.op
    assert isinstance(op, Attention)
    q, k, v, *masks = case.wide()
    u, keys = case.roundoff, k.shape[2]

    def stage(name: str, *operands: Any) -> Array:
        asked = replace(op, scores=name)  # type: ignore[arg-type]
        return case.evaluate(asked, [*operands, *masks])[1]

    with np.errstate(all="ignore"):
        out = case.evaluate(replace(op, scores="none"), [q, k, v, *masks])[0]
        raw = np.abs(stage("raw", np.abs(q), np.abs(k), v))
        weights, biased = _finite(stage("weights", q, k, v)), _finite(stage("biased", q, k, v))
        score = growth(q.shape[3]) * u * _finite(raw) + BASE * u * np.abs(biased)
        top = biased.max(-1, keepdims=True) if keys else biased
        each = score + u * np.abs(biased - top)
        row = (weights * each).sum(-1, keepdims=True) + (growth(keys) + BASE) * u
        moved = weights * (each + row)
        shared = v if v.shape[1] in (0, q.shape[1]) else v.repeat(q.shape[1] // v.shape[1], 1)
        bound = np.matmul(moved + growth(keys) * u * weights, _finite(np.abs(shared)))
    allowed = [bound + case.u_out * _finite(np.abs(out)) + deviation(case.reference[0], out)]
    if op.scores != "none":
        exact = stage(op.scores, q, k, v)
        size = moved if op.scores == "weights" else score
        size = size + case.u_out * _finite(np.abs(exact))
        allowed.append(size + deviation(case.reference[1], exact))
    return allowed


# ---- the rest -------------------------------------------------------------------------------


def declared(rtol: float, atol: float) -> Rule:
    """Return a rule of fixed numbers, in roundoffs.

    Args:
        rtol: relative to each element of the result.
        atol: relative to the largest finite element of the float operands.
    """

    def rule(case: Case) -> list[Array]:
        floats = [np.abs(_finite(x)) for x in case.wide() if _is_float(x)]
        largest = max((float(x.max()) for x in floats if x.size), default=1.0)
        u = max(case.roundoff, unit_roundoff(case.dtype))
        return [
            u * (rtol * _finite(np.abs(_float64(x))) + atol * largest)
            if _is_float(x)
            else np.zeros(x.shape)
            for x in case.reference
        ]

    return rule


WIDENINGS: Mapping[str, float] = {
    "float32": 1.0,
    "tf32": 2.0**13,
    "float16": 2.0**13,
    "bfloat16": 2.0**16,
    "winograd": 16.0,
}
"""Factor of the roundoff of products by how a device computes them: operands rounded to a narrower
type, or convolutions by Winograd's F(4x4, 3x3), which was measured at ten times the plain error."""
