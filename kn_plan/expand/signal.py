"""Fourier transforms as products with the factors of roots of unity.

A transform is linear, so one of few elements is a product with a constant matrix. One of N = a*r
elements is, for each of r places, a transform of a elements with other factors, then one of r
elements: n = i*r + j and k = p + a*q give exp(-2 pi i k n/N) = u(N, jp) u(a, ip) u(r, jq).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.ops.signal import Dft
from kn_graph.value import Node, Value

__all__ = ["dft", "has_factors"]

Array = np.ndarray[Any, Any]

DIRECT = 1024
"""Elements up to which a transform is one product."""

MOST_SPLIT = 32
"""Elements of a part; a product of this many is as fast as one of fewer."""


def has_factors(node: Node) -> bool:
    """Return whether the length is a number, and short or a product of small ones."""
    op = node.op
    assert isinstance(op, Dft)
    if not isinstance(node.operands[0].shape[op.axis], int) or not isinstance(op.length, int):
        return False
    parts = _factors(op.length)
    return bool(parts) and not (len(parts) > 1 and op.onesided and op.inverse)


def dft(g: Graph, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Multiply by one matrix, or one for each part of the length."""
    op, (x,) = node.op, operands
    assert isinstance(op, Dft)
    given, length = x.shape[op.axis], op.length
    assert isinstance(length, int)
    parts = _factors(length)
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    # the axis goes in front of the parts of a number, all others are rows
    order = [*(a for a in range(x.rank - 1) if a != op.axis), op.axis, x.rank - 1]
    moved = g.permute(g.cast(x, wide), order)
    rows = g.view(moved, (size_prod(moved.shape[:-2]), given, x.shape[-1]))
    out = _product(g, op, rows) if len(parts) == 1 else _stages(g, op, rows, parts)
    out = g.view(out, (*moved.shape[:-2], *out.shape[1:]))
    return [g.cast(g.permute(out, [order.index(a) for a in range(x.rank)]), x.dtype)]


def _factors(length: int) -> list[int]:
    """Return the parts that a length is cut into: small divisors, then what is left; or none."""
    parts = []
    while length > DIRECT:
        split = max((a for a in range(1, MOST_SPLIT + 1) if length % a == 0), default=1)
        if split == 1:
            return []
        parts.append(split)
        length //= split
    return [*parts, length]


def _product(g: Graph, op: Dft, rows: Value) -> Value:
    """Transform [rows, n, parts] by one product."""
    given, parts = rows.shape[1:]
    assert isinstance(given, int)
    assert isinstance(parts, int)
    assert isinstance(op.length, int)
    used = min(given, op.length // 2 + 1 if op.inverse and op.onesided else op.length)
    rows = g.slice(rows, 1, 0, used)
    matrix = _matrix(op, used, parts)
    flat = g.view(rows, (rows.shape[0], used * parts))
    weights = g.constant(matrix.reshape(used * parts, -1).astype(rows.dtype.numpy))
    return g.view(g.matmul(flat, weights), (rows.shape[0], *matrix.shape[2:]))


def _matrix(op: Dft, used: int, parts: int) -> Array:
    """Return what becomes of a 1 at each place and part: [n, parts, N, parts of the result]."""
    n = op.length
    assert isinstance(n, int)
    if op.inverse and op.onesided:
        turns = np.outer(np.arange(used), np.arange(n))
        both = np.where((np.arange(used) == 0) | (2 * np.arange(used) == n), 1, 2) / n
        root = _roots(turns, n) * both[:, None]  # those that are left out are the conjugates
        return np.stack([root.real, root.imag], axis=1)[..., None]
    root = _roots(np.outer(np.arange(used), np.arange(n // 2 + 1 if op.onesided else n)), n)
    return _as_matrix(root.conj() / n if op.inverse else root)[:, :parts]


def _roots(turns: Array, n: int) -> Array:
    """Return exp(-2 pi i turns/n), with all digits however many turns there are."""
    angle = 2 * np.pi / n * (turns % n)
    return np.asarray(np.cos(angle) - 1j * np.sin(angle))


def _as_matrix(root: Array) -> Array:
    """Return products with complex numbers [.., i, k] on parts of numbers: [.., i, 2, k, 2]."""
    rows = [np.stack([root.real, root.imag], -1), np.stack([-root.imag, root.real], -1)]
    return np.stack(rows, axis=-3)


def _stages(g: Graph, op: Dft, rows: Value, parts: Sequence[int]) -> Value:
    """Transform [rows, n, parts] in one product a part of the length."""
    n, count = op.length, rows.shape[0]
    assert isinstance(n, int)
    given = rows.shape[1]
    assert isinstance(given, int)
    used = min(given, n)
    rows = g.pad(g.slice(rows, 1, 0, used), [(0, 0), (0, n - used), (0, 0)])
    rest, done = n, 1
    for split in parts[:-1]:
        rows, rest = _split(g, rows, split, rest // split, op.inverse), rest // split
        done *= split
        rows = g.view(rows, (count * done, rest, 2))
    rows = _product(g, replace(op, length=rest, onesided=False), rows)
    for split in reversed(parts[:-1]):
        done //= split
        rows = g.view(rows, (count * done, split, rest, 2))
        rows, rest = g.permute(rows, (0, 2, 1, 3)), rest * split
    out = g.view(rows, (count, n, 2))
    return g.slice(out, 1, 0, n // 2 + 1) if op.onesided else out


def _split(g: Graph, rows: Value, split: int, rest: int, inverse: bool) -> Value:
    """Transform [rows, split*rest, parts] along `split`: [rows, split, rest, 2]."""
    n, count, parts = split * rest, rows.shape[0], rows.shape[2]
    i, j, p = np.arange(split)[:, None], np.arange(rest)[:, None, None], np.arange(split)
    root = _roots((i * rest + j) * p, n)  # [rest, split, split]
    matrix = _as_matrix(root.conj() / split if inverse else root)[:, :, :parts]
    weights = g.constant(matrix.reshape(rest, -1, 2 * split).astype(rows.dtype.numpy))
    columns = g.permute(g.view(rows, (count, split, rest, parts)), (2, 0, 1, 3))
    out = g.matmul(g.view(columns, (rest, count, split * parts)), weights)
    return g.permute(g.view(out, (rest, count, split, 2)), (1, 2, 0, 3))
