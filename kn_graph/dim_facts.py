"""TEMPORARY shim until the real dim_facts.py lands: overwrite this file."""

import enum
from dataclasses import dataclass

from kn_graph.dim import Dim, P, U, evaluate, symbols_of


class SizeError(ValueError):
    pass


def bounds(s):
    return P.bounds(U(s))


def provably_ge(a, b=0):
    return a >= b if isinstance(a, int) and isinstance(b, int) else P.provably_ge(U(a), U(b))


def provably_eq(a, b):
    return a == b if isinstance(a, int) and isinstance(b, int) else P.provably_eq(U(a), U(b))


class ConstraintKind(enum.Enum):
    EQ = "=="
    GE = ">="
    ASSUME = "assume"


@dataclass(frozen=True)
class Constraint:
    kind: ConstraintKind
    dim: Dim
    why: str

    def holds(s, env):
        n = evaluate(s.dim, env)
        return n >= 0 if s.kind is ConstraintKind.GE else n == 0

    @property
    def symbols(s):
        return symbols_of(s.dim)

    def __str__(s):
        return f"{s.dim} {s.kind.value} 0 ({s.why})"


class Constraints:
    def __init__(s):
        s.items = {}

    def __iter__(s):
        return iter(s.items.values())

    def __len__(s):
        return len(s.items)

    def _add(s, k, a, b, why):
        d = a - b
        if isinstance(d, Dim):
            s.items.setdefault((k, d), Constraint(k, d, why))

    def require_eq(s, a, b, why):
        k = provably_eq(a, b)
        if k is False:
            raise SizeError(f"{why}: {a} is not {b}")
        if k is None:
            s._add(ConstraintKind.EQ, a, b, why)

    def require_ge(s, a, b, why):
        k = provably_ge(a, b)
        if k is False:
            raise SizeError(f"{why}: {a} < {b}")
        if k is None:
            s._add(ConstraintKind.GE, a, b, why)
