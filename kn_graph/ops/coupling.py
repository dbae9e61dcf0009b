"""Probabilities of several classes from those of each pair of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.types import TensorType

__all__ = ["PairwiseCoupling"]

Array = np.ndarray[Any, Any]

MAX_STEPS = 100


@dataclass(frozen=True)
class PairwiseCoupling(Op):
    """Find probabilities of classes that fit those of pairs.

    p >= 0 with sum 1 that minimizes the sum over i, j != i of (r[j, i] * p[i] - r[i, j] * p[j])^2.
    r[i, j] is the probability of class i if it is i or j, r[j, i] = 1 - r[i, j]. Solved as libsvm
    does, by at most 100 sweeps over the classes until max |Qp - p'Qp| < 0.005 / classes, since
    models were made with that precision. A NaN makes its row NaN.

    Source: Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise
    coupling", JMLR 5, 2004, section 4.2 (algorithm 2).

    Shapes: float [N, P], one column for each pair (0, 1), (0, 2), .., (1, 2), .. -> [N, classes].
    """

    classes: int

    def infer(self, ctx: InferContext, r: TensorType) -> TensorType:
        """Replace pairs by classes."""
        pairs = self.classes * (self.classes - 1) // 2
        if not r.dtype.is_float:
            raise DTypeError(f"probabilities are floats, got {r.dtype}")
        if r.rank != 2:
            raise ShapeError(f"expected [N, {pairs}], got {r}")
        ctx.require_eq(r.shape[1], pairs, f"pairs of {self.classes} classes")
        return TensorType(r.dtype, (r.shape[0], self.classes))

    def eval(self, ctx: EvalContext, r: Array) -> Array:
        """Sweep over the classes; rows that have converged stay."""
        k = self.classes
        q = _quadratic_form(r.astype(np.float64), k)
        p = np.full((len(r), k), 1 / k)
        for _ in range(MAX_STEPS):
            qp = np.einsum("nij,nj->ni", q, p)
            pqp = np.einsum("ni,ni->n", p, qp)
            going = ~(np.abs(qp - pqp[:, None]).max(1, initial=0) < 0.005 / k)
            if not going.any():
                break
            p[going] = _sweep(q[going], p[going], qp[going], pqp[going])
        return p.astype(r.dtype)


def _quadratic_form(r: Array, k: int) -> Array:
    """Return Q [N, k, k]: Q[i, i] = sum over j of r[j, i]^2, Q[i, j] = -r[j, i] * r[i, j]."""
    full = np.zeros((len(r), k, k))
    upper = np.triu_indices(k, 1)
    full[:, upper[0], upper[1]] = r
    full[:, upper[1], upper[0]] = 1 - r
    q = -full * full.transpose(0, 2, 1)
    diagonal = np.arange(k)
    q[:, diagonal, diagonal] = (full**2).sum(1)
    return q


def _sweep(q: Array, p: Array, qp: Array, pqp: Array) -> Array:
    """Improve one class after the other, keeping the sum at 1."""
    with np.errstate(all="ignore"):
        for i in range(p.shape[1]):
            diagonal = q[:, i, i]
            step = (pqp - qp[:, i]) / diagonal
            p[:, i] += step
            scale = 1 + step
            pqp = (pqp + step * (step * diagonal + 2 * qp[:, i])) / scale**2
            qp = (qp + step[:, None] * q[:, i]) / scale[:, None]
            p /= scale[:, None]
    return p
