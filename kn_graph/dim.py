"""TEMPORARY shim until the real dim.py lands: overwrite this file."""

import enum
import importlib.util
import sys
from math import inf

spec = importlib.util.spec_from_file_location(
    "_proto_dim", "/work/shared/prototypes/symbolic_planning/dim.py"
)
P = importlib.util.module_from_spec(spec)
sys.modules["_proto_dim"] = P
spec.loader.exec_module(P)


class SymbolKind(enum.Enum):
    INPUT = "input"
    DATA = "data"


class UnboundSymbolError(KeyError):
    pass


class Symbol:
    _by = {}

    def __init__(s, name, kind, lo, hi, atom):
        s.name, s.kind, s.lo, s.hi, s.atom = name, kind, lo, hi, atom
        Symbol._by[atom.key] = s

    def __repr__(s):
        return s.name


_n = [0]


class Dim:
    __slots__ = ("d",)

    def __init__(s, d):
        s.d = d

    def __eq__(s, o):
        return isinstance(o, Dim) and s.d == o.d

    def __hash__(s):
        return hash(s.d)

    def __str__(s):
        t = repr(s.d)
        import re

        return re.sub(r"«\d+»", "", t)

    __repr__ = __str__

    @property
    def symbols(s):
        return frozenset(Symbol._by[a.key] for a in s.d.symbols())

    @property
    def as_symbol(s):
        t = s.d.terms
        if len(t) == 1 and t[0][1] == 1 and len(t[0][0]) == 1 and t[0][0][0].kind == "sym":
            return Symbol._by[t[0][0][0].key]

    def __bool__(s):
        raise TypeError("symbolic size has no truth")

    __int__ = __index__ = __bool__


def W(d):
    c = d.const
    return c if c is not None else Dim(d)


def U(x):
    return x.d if isinstance(x, Dim) else P.Dim.of(int(x))


def _op(f):
    return lambda a, b: W(f(U(a), U(b)))


Dim.__add__ = _op(lambda a, b: a + b)
Dim.__radd__ = _op(lambda a, b: b + a)
Dim.__sub__ = _op(lambda a, b: a - b)
Dim.__rsub__ = _op(lambda a, b: b - a)
Dim.__mul__ = _op(lambda a, b: a * b)
Dim.__rmul__ = _op(lambda a, b: b * a)
Dim.__floordiv__ = _op(lambda a, b: a // b)
Dim.__rfloordiv__ = _op(lambda a, b: b // a)
Dim.__mod__ = _op(lambda a, b: a % b)
Dim.__rmod__ = _op(lambda a, b: b % a)
Dim.__neg__ = lambda a: W(-a.d)
Size = int | Dim


def symbol(name, *, lo=1, hi=None, kind=SymbolKind.INPUT):
    _n[0] += 1
    d = P.symbol(f"{name}«{_n[0]}»", lo, inf if hi is None else hi)
    (a,) = d.atoms()
    Symbol(name, kind, lo, hi, a)
    return Dim(d)


def size_max(*a):
    return max(a) if all(isinstance(x, int) for x in a) else W(P.dmax(*map(U, a)))


def size_min(*a):
    return min(a) if all(isinstance(x, int) for x in a) else W(P.dmin(*map(U, a)))


def floordiv(a, b):
    return a // b


def ceildiv(a, b):
    return (a + (b - 1)) // b


def exact_div(a, b):
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    r = U(a).exact_div(U(b))
    return None if r is None else W(r)


def size_prod(xs):
    r = 1
    for x in xs:
        r = r * x
    return r


def size_sum(xs):
    r = 0
    for x in xs:
        r = r + x
    return r


def substitute(s, table):
    if isinstance(s, int):
        return s
    return W(s.d.replace({k.atom: U(v) for k, v in table.items()}))


def evaluate(s, env):
    if isinstance(s, int):
        return s
    try:
        return s.d.eval({k.atom.key: v for k, v in env.items()})
    except KeyError as e:
        raise UnboundSymbolError(str(e)) from None


def symbols_of(s):
    return frozenset() if isinstance(s, int) else s.symbols


def parse_size(text, resolve):
    import re

    if re.fullmatch(r"[A-Za-z_][\w.]*", text):
        return resolve(text)
    raise ValueError(text)
