"""Sizes written as text in model files."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

from kn_graph.dim.division import exact_div, floordiv
from kn_graph.dim.extremes import size_max, size_min
from kn_graph.dim.polynomial import Size

__all__ = ["parse_size"]


class _Fraction(NamedTuple):
    """`over / under`: what `/` makes until something rounds it.

    SymPy, which writes these texts, means `floor(h/2 - 1/2)` to be the floor of (h-1)/2.
    """

    over: Size
    under: Size = 1

    def floor(self) -> Size:
        return floordiv(self.over, self.under)

    def ceil(self) -> Size:
        return -floordiv(-self.over, self.under)  # for negative divisors too


def _add(a: _Fraction, b: _Fraction) -> _Fraction:
    if a.under == b.under:
        return _reduced(a.over + b.over, a.under)
    return _reduced(a.over * b.under + b.over * a.under, a.under * b.under)


def _subtract(a: _Fraction, b: _Fraction) -> _Fraction:
    return _add(a, _Fraction(-b.over, b.under))


def _multiply(a: _Fraction, b: _Fraction) -> _Fraction:
    return _reduced(a.over * b.over, a.under * b.under)


def _divide(a: _Fraction, b: _Fraction) -> _Fraction:
    return _reduced(a.over * b.under, a.under * b.over)


def _reduced(over: Size, under: Size) -> _Fraction:
    """Return a fraction, without its denominator where that is a number which divides."""
    if isinstance(under, int) and (whole := exact_div(over, under)) is not None:
        return _Fraction(whole)
    return _Fraction(over, under)


def _divide_down(a: _Fraction, b: _Fraction) -> _Fraction:
    return _Fraction(_divide(a, b).floor())


def _modulo(a: _Fraction, b: _Fraction) -> _Fraction:
    return _subtract(a, _multiply(b, _divide_down(a, b)))


_OPERATORS: dict[type[ast.AST], Callable[[_Fraction, _Fraction], _Fraction]] = {
    ast.Add: _add,
    ast.Sub: _subtract,
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: _divide_down,
    ast.Mod: _modulo,
}
_ROUNDINGS: dict[str, Callable[[_Fraction], Size]] = {
    "floor": _Fraction.floor,
    "ceil": _Fraction.ceil,
    "ceiling": _Fraction.ceil,
}
_EXTREMES: dict[str, Callable[..., Size]] = {"max": size_max, "min": size_min}


def parse_size(text: str, resolve: Callable[[str], Size]) -> Size:
    """Read an expression such as `past + seq` or `floor(h/2)`.

    Sizes are integers: what is still a fraction at the end, or in a maximum, is rounded down.

    Args:
        text: as in an ONNX dim_param.
        resolve: gives the size that a name stands for.

    Raises:
        ValueError: the text is no such expression.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no expression of sizes") from None
    if sum(1 for _ in ast.walk(tree)) > 500:
        raise ValueError(f"{text[:40]!r}... is too long for an expression of sizes")
    return _read(tree, text, resolve).floor()


def _read(tree: ast.AST, text: str, resolve: Callable[[str], Size]) -> _Fraction:
    def inner(t: ast.AST) -> _Fraction:
        return _read(t, text, resolve)

    if isinstance(tree, ast.Name):
        return _Fraction(resolve(tree.id))
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return _Fraction(tree.value)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return _subtract(_Fraction(0), inner(tree.operand))
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        left, right = inner(tree.left), inner(tree.right)
        if right.over == 0 and not isinstance(tree.op, (ast.Add, ast.Sub, ast.Mult)):
            raise ValueError(f"{text!r} divides by zero")
        return _OPERATORS[type(tree.op)](left, right)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.keywords:
        name = tree.func.id.lower()  # SymPy writes `Max`
        if name in _ROUNDINGS and len(tree.args) == 1:
            return _Fraction(_ROUNDINGS[name](inner(tree.args[0])))
        if name in _EXTREMES and tree.args:
            return _Fraction(_EXTREMES[name](*(inner(t).floor() for t in tree.args)))
    raise ValueError(f"{text!r} is no expression of sizes")
