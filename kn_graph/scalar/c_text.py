"""Scalar expressions as C99 text that CUDA C++ understands as well.

An expression becomes one assignment a primitive, so that shared parts are computed once and the
text grows with the expression and never faster. Floating constants are exact: the shortest decimal
that reads back as the same number. Contraction (`-ffp-contract`) and fast-math are the business of
whoever compiles; NaN tests here need fast-math to be off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.errors import DTypeError, GraphError
from kn_graph.scalar.expression import (
    Arg,
    Call,
    Expression,
    Literal,
    Param,
    common_type,
    constant,
    postorder,
)

__all__ = ["c_function", "c_literal", "c_prelude", "c_statements", "c_type", "c_type_name"]

_FLOATS = {DType.FLOAT32: ("float", "f32"), DType.FLOAT64: ("double", "f64")}
_INTS = {d: (f"{d.text}_t", f"{d.text[0]}{d.bits}") for d in DType if d.is_int and d.bits >= 8}
_C_TYPES = {**_FLOATS, **_INTS, DType.BOOL: ("bool", "b8")}

# text of each helper, for a type {T}; format doubles the braces
_POWER = """
KN_FN {T} kn_pow_{name}({T} base, {T} exponent) {{
    {U} result = 1, square = ({U})base;
    {negative}
    for ({U} left = ({U})exponent; left != 0; left >>= 1) {{
        if (left & 1) result *= square;
        square *= square;
    }}
    return ({T})result;
}}
"""
_NEGATIVE = """if (exponent < 0) {{
        if (base == -1) return (exponent & 1) ? ({T})-1 : ({T})1;
        return ({T})(base == 1);
    }}"""
_MOD_INT = """
KN_FN {T} kn_mod_{name}({T} a, {T} b) {{
    if (b == 0 || b == -1) return 0;
    {T} rest = ({T})(a % b);
    return (rest != 0 && (rest < 0) != (b < 0)) ? ({T})(rest + b) : rest;
}}
"""
_MOD_FLOAT = """
KN_FN {T} kn_mod_{name}({T} a, {T} b) {{
    {T} rest = fmod{s}(a, b);
    if (rest == 0) return copysign{s}(rest, b);
    return ((rest < 0) != (b < 0)) ? rest + b : rest;
}}
"""
_HELPERS = {
    ("kn_pow", Kind.INT): _POWER.replace("{negative}", _NEGATIVE),
    ("kn_pow", Kind.UINT): _POWER.replace("    {negative}\n", ""),
    ("kn_mod", Kind.INT): _MOD_INT,
    ("kn_mod", Kind.FLOAT): _MOD_FLOAT,
}

_PRELUDE = """\
#ifndef KN_FN
#ifdef __CUDACC__
#define KN_FN static __device__ __forceinline__
#else
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#define KN_FN static inline
#endif
#endif
"""


def c_type(dtype: DType) -> str:
    """Return the C type, such as `int32_t`.

    Raises:
        DTypeError: scalar code does not compute in this type.
    """
    return _lookup(dtype)[0]


def c_type_name(dtype: DType) -> str:
    """Return the short name of a type for identifiers, such as `i32`."""
    return _lookup(dtype)[1]


def _lookup(dtype: DType) -> tuple[str, str]:
    try:
        return _C_TYPES[dtype]
    except KeyError:
        raise DTypeError(
            f"there is no scalar C code for {dtype}; types are {', '.join(map(str, _C_TYPES))},"
            " narrower ones are converted where they are loaded and stored"
        ) from None


def _fields(dtype: DType) -> dict[str, str]:
    """Return what a template may use besides its operands; see `Form.c`."""
    text, name = _lookup(dtype)
    return {
        "T": text,
        "name": name,
        # narrow unsigned types would be promoted to signed int, whose overflow is undefined
        "U": "uint64_t" if dtype.bits > 32 else "uint32_t",
        "bits": str(dtype.bits),
        "s": "f" if dtype is DType.FLOAT32 else "",
        "inf": "(1.0f/0.0f)" if dtype is DType.FLOAT32 else "(1.0/0.0)",
    }


def c_literal(value: float, dtype: DType) -> str:
    """Return a constant of type `dtype`, converted as `constant` does; a bool stays bool."""
    number = constant(value, dtype).item()
    if isinstance(number, bool):
        return "true" if number else "false"
    if dtype.is_int:
        return _int_literal(number, dtype)
    suffix = _fields(dtype)["s"]
    if math.isnan(number):
        return f"(0.0{suffix}/0.0{suffix})"
    if math.isinf(number):
        return f"({'-' if number < 0 else ''}1.0{suffix}/0.0{suffix})"
    text = f"{np.float32(number) if suffix else np.float64(number)!s}{suffix}"
    return f"({text})" if text.startswith("-") else text


def _int_literal(number: int, dtype: DType) -> str:
    if number == -(2**63):
        return f"((int64_t){number + 1}LL - 1)"
    suffix = ("ULL" if dtype.kind is Kind.UINT else "LL") if dtype.bits > 32 else ""
    suffix = suffix or ("U" if dtype.kind is Kind.UINT else "")
    # -2147483648 would be the negation of a constant that does not fit int
    suffix = "LL" if number == -(2**31) else suffix
    return f"(({c_type(dtype)}){number}{suffix})"


def c_statements(
    root: Expression,
    dtypes: Sequence[DType],
    operands: Sequence[str],
    params: Mapping[str, float] | None = None,
    prefix: str = "t",
) -> tuple[list[str], str]:
    """Render an expression as assignments.

    Args:
        root: the expression.
        dtypes: types of the operands.
        operands: their names (or constants) in C.
        params: values of all parameters, which become constants.
        prefix: start of the names of temporaries.

    Returns:
        The statements, and the name or constant that holds the result.

    Raises:
        DTypeError: a primitive does not take the types that reach it.
    """
    lines, result, _ = _render(root, dtypes, operands, params or {}, prefix)
    return lines, result


def _render(
    root: Expression,
    dtypes: Sequence[DType],
    operands: Sequence[str],
    params: Mapping[str, float],
    prefix: str,
) -> tuple[list[str], str, DType]:
    common = common_type(dtypes)
    lines: list[str] = []
    names: dict[int, str] = {}
    types: dict[int, DType] = {}
    for node in postorder(root):
        key = id(node)
        if isinstance(node, Call):
            names[key], types[key] = f"{prefix}{len(lines)}", _result(node, types)
            text = _call(node, [names[id(o)] for o in node.arguments], types)
            lines.append(f"const {c_type(types[key])} {names[key]} = {text};")
        elif isinstance(node, Arg):
            names[key], types[key] = operands[node.index], dtypes[node.index]
        else:
            value = _value(node, params)
            types[key] = DType.BOOL if isinstance(value, bool) else common
            names[key] = c_literal(value, common)
    return lines, names[id(root)], types[id(root)]


def _result(node: Call, types: Mapping[int, DType]) -> DType:
    return node.primitive.result_type(*(types[id(o)] for o in node.arguments))


def _call(node: Call, operands: Sequence[str], types: Mapping[int, DType]) -> str:
    dtype = types[id(node.arguments[node.primitive.signature.typed])]
    return node.primitive.forms[dtype.kind].c.format(*operands, **_fields(dtype))


def _value(node: Expression, params: Mapping[str, float]) -> float:
    if isinstance(node, Literal):
        return node.value
    assert isinstance(node, Param)
    if node.name not in params:
        raise GraphError(f"parameter {node.name!r} of the expression has no value")
    return params[node.name]


def c_function(
    name: str,
    root: Expression,
    dtypes: Sequence[DType],
    params: Mapping[str, float] | None = None,
    qualifier: str = "KN_FN",
) -> str:
    """Render an expression as a function of scalars `x0`, `x1`...; it needs `c_prelude`.

    Args:
        name: name of the function.
        root: the expression.
        dtypes: types of the operands.
        params: values of all parameters, which become constants.
        qualifier: what stands before the result type.
    """
    operands = [f"x{i}" for i in range(len(dtypes))]
    lines, result, result_type = _render(root, dtypes, operands, params or {}, "t")
    arguments = ", ".join(f"{c_type(d)} {n}" for d, n in zip(dtypes, operands, strict=True))
    body = "".join(f"    {line}\n" for line in [*lines, f"return {result};"])
    return f"{qualifier} {c_type(result_type)} {name}({arguments}) {{\n{body}}}\n"


def c_prelude(code: str) -> str:
    """Return the includes and helper functions that `code` needs; CUDA brings its own types."""
    used = set(re.findall(r"\bkn_(?:pow|mod)_[fiu]\d+\b", code))
    helpers = [
        template.format(**_fields(dtype))
        for dtype in _C_TYPES
        for (helper, kind), template in _HELPERS.items()
        if dtype.kind is kind and f"{helper}_{c_type_name(dtype)}" in used
    ]
    return _PRELUDE + "".join(helpers)
