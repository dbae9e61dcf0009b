"""What the operators of an opset take: element types, and which of them exist."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from kn_graph.dtype import DType, Kind
from kn_graph.onnx.write.registry import refuse

if TYPE_CHECKING:
    from onnx.defs import OpSchema

__all__ = ["Fit", "check_dtype", "fit", "schema_of"]

ONNX_NAMES = {DType.FLOAT32: "float", DType.FLOAT64: "double"}
WIDER: dict[Kind, tuple[DType, ...]] = {
    Kind.FLOAT: (DType.FLOAT32, DType.FLOAT64),
    Kind.INT: (DType.INT32, DType.INT64, DType.FLOAT64),
    Kind.UINT: (DType.INT32, DType.UINT32, DType.INT64, DType.UINT64, DType.FLOAT64),
    Kind.BOOL: (DType.UINT8, DType.INT32, DType.FLOAT32),
}
"""Types that a value may take a detour through, the best first."""
EXACT_BITS = {DType.FLOAT32: 24, DType.FLOAT64: 53}


def _type_text(dtype: DType) -> str:
    return f"tensor({ONNX_NAMES.get(dtype, dtype.text)})"


_BY_TEXT = {_type_text(d): d for d in DType}


@cache
def schema_of(operator: str, opset: int, domain: str) -> OpSchema:
    """Return the schema of an operator; refuses where the opset does not have it."""
    import onnx

    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        schema = None
    if schema is None or schema.deprecated:
        every = onnx.defs.get_all_schemas_with_history()
        since = [s.since_version for s in every if (s.name, s.domain) == (operator, domain)]
        first = f"; {operator} exists from opset {min(since)} on" if since else ""
        refuse(f"opset {opset} has no operator for it{first}")
    return schema


@cache
def check_dtype(dtype: DType, opset: int) -> None:
    """Refuse an element type that no tensor of the opset may have."""
    if _type_text(dtype) not in schema_of("Identity", opset, "").inputs[0].types:
        refuse(f"opset {opset} has no element type {dtype}")


@dataclass(frozen=True)
class Fit:
    """Element types around one operator.

    Attributes:
        inputs: what each input is cast to, or None where it stays.
        outputs: the type that each output has, or None where it is no tensor or not known.
        results: what each output is cast to, or None.
    """

    inputs: tuple[DType | None, ...]
    outputs: tuple[DType | None, ...]
    results: tuple[DType | None, ...]


@lru_cache(maxsize=4096)
def fit(
    operator: str, opset: int, domain: str, given: tuple[DType | None, ...], outputs: int
) -> Fit:
    """Return the casts that an operator needs to be applied to some element types.

    An operator that does not take a type computes in a wider one; the result is cast back.
    """
    schema = schema_of(operator, opset, domain)
    bound: dict[str, tuple[DType, DType]] = {}
    casts: list[DType | None] = []
    for i, dtype in enumerate(given):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if dtype is None:
            casts.append(None)
            continue
        wide = bound.get(formal.type_str, (dtype, dtype))[1]
        if _type_text(wide) not in formal.types:
            wide = _wider(operator, opset, dtype, formal.types)
        bound[formal.type_str] = dtype, wide
        casts.append(wide if wide is not dtype else None)
    have: list[DType | None] = []
    results: list[DType | None] = []
    for i in range(outputs):
        formal = schema.outputs[min(i, len(schema.outputs) - 1)]
        dtype, use = found if (found := bound.get(formal.type_str)) else (None, None)
        if dtype is None and len(formal.types) == 1:
            use = _BY_TEXT.get(next(iter(formal.types)))
        have.append(use)
        results.append(dtype if dtype is not use and dtype is not None else None)
    return Fit(tuple(casts), tuple(have), tuple(results))


def _wider(operator: str, opset: int, dtype: DType, allowed: Collection[str]) -> DType:
    """Return a type that holds every number of another one and that an operator takes."""
    for other in WIDER.get(dtype.kind, ()):
        bits = EXACT_BITS.get(other, other.bits - (other.kind is not dtype.kind))
        holds = bits >= dtype.bits if dtype.is_int else other.bits >= dtype.bits
        if holds and _type_text(other) in allowed:
            return other
    refuse(f"{operator}-{opset} does not take {dtype}")
