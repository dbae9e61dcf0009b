"""Sizes written as text in model files."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from kn_graph.dim.division import floordiv
from kn_graph.dim.extremes import size_max, size_min
from kn_graph.dim.polynomial import Size

__all__ = ["parse_size"]

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: floordiv,
    ast.Div: floordiv,  # sizes are integers: `h/2` in a file means the same
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Size]] = {
    "max": size_max,
    "min": size_min,
    "floor": lambda x: x,  # of a division, which rounds down already
}


def parse_size(text: str, resolve: Callable[[str], Size]) -> Size:
    """Read an expression such as `past + seq` or `floor(h/2)`.

    Args:
        text: as in an ONNX dim_param.
        resolve: gives the size that a name stands for.

    Raises:
        ValueError: the text is no such expression.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no expression of sizes") from None
    if sum(1 for _ in ast.walk(tree)) > 500:
        raise ValueError(f"{text[:40]!r}... is too long for an expression of sizes")
    return _read(tree, text, resolve)


def _read(tree: ast.AST, text: str, resolve: Callable[[str], Size]) -> Size:
    def inner(t: ast.AST) -> Size:
        return _read(t, text, resolve)

    if isinstance(tree, ast.Name):
        return resolve(tree.id)
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -inner(tree.operand)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        left, right = inner(tree.left), inner(tree.right)
        if right == 0 and not isinstance(tree.op, (ast.Add, ast.Sub, ast.Mult)):
            raise ValueError(f"{text!r} divides by zero")
        out: Size = _OPERATORS[type(tree.op)](left, right)
        return out
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.args:
        function = _FUNCTIONS.get(tree.func.id)
        if function is not None and not tree.keywords:
            return function(*map(inner, tree.args))
    raise ValueError(f"{text!r} is no expression of sizes")
