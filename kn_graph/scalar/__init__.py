"""Scalar functions: primitives, expressions over them, and the table of all functions."""

from kn_graph.scalar.c_text import (
    c_function,
    c_literal,
    c_prelude,
    c_statements,
    c_type,
    c_type_name,
)
from kn_graph.scalar.expression import (
    Arg,
    Call,
    E,
    Expression,
    Literal,
    Param,
    constant,
    depth,
    evaluate,
    operation_counts,
    postorder,
    substitute,
)
from kn_graph.scalar.primitives import PRIMITIVES, Form, Primitive, Signature, widen
from kn_graph.scalar.table import (
    SCALAR_TABLE,
    NanRule,
    ScalarFunction,
    evaluate_scalar,
    scalar_function,
)

__all__ = [
    "PRIMITIVES",
    "SCALAR_TABLE",
    "Arg",
    "Call",
    "E",
    "Expression",
    "Form",
    "Literal",
    "NanRule",
    "Param",
    "Primitive",
    "ScalarFunction",
    "Signature",
    "c_function",
    "c_literal",
    "c_prelude",
    "c_statements",
    "c_type",
    "c_type_name",
    "constant",
    "depth",
    "evaluate",
    "evaluate_scalar",
    "operation_counts",
    "postorder",
    "scalar_function",
    "substitute",
    "widen",
]
