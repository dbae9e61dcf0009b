"""From scalar programs to instructions of the native interpreter (`native/scalar_ops.h`).

A scalar function that the interpreter lacks is taken apart into primitives. Bools and integers of
up to 32 bits are computed in 32 bits and wrapped, uint32 in 64; narrow floats in float32, and
rounded where the program says that their value is a narrow one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Compare, Select, Unary
from kn_graph.scalar import Arg, Call, Literal, constant, postorder, scalar_function
from kn_plan.program import Instruction, ScalarProgram

__all__ = ["CLASSES", "OPS", "Code", "Node", "ScalarRefusal", "lower"]

_F32 = """move affine clamp affine_clamp add_clamp mul_add mul_add_clamp fma add sub mul div min max
neg abs sign sqrt floor ceil trunc round_even exp expm1 log log1p erf tanh sigmoid silu gelu
gelu_tanh hard_swish softplus mish scaled_silu eq lt le isnan isinf select"""
_LIBRARY = "sin cos tan asin acos atan sinh cosh asinh acosh atanh pow mod fmod"
_F64 = f"""move add sub mul div fma min max neg abs sign sqrt floor ceil trunc round_even exp expm1
log log1p erf tanh {_LIBRARY} eq lt le isnan isinf select"""
_INT = """add sub mul div mod fmod pow fma neg abs sign min max eq lt le bit_not bit_and bit_or
bit_xor shift_left shift_right"""
_CASTS = """f32_f64 f32_i32 f32_i64 f64_f32 f64_i32 f64_i64 i32_f32 i32_f64 i32_i64 i64_f32 i64_f64
i64_i32"""

OPS: tuple[str, ...] = (
    *(f"{n}_f32" for n in _F32.split()),
    *("sigmoid_once_f32", "silu_once_f32", "round_f16", "round_bf16", "round_small"),
    *(f"{n}_f32" for n in _LIBRARY.split()),
    *(f"{n}_f64" for n in _F64.split()),
    *(f"{n}_i32" for n in (*_INT.split(), "logical_not")),
    *(f"{n}_i64" for n in _INT.split()),
    *("wrap_i8", "wrap_u8", "wrap_i16", "wrap_u16", "wrap_u32"),
    *("wrap_i4", "wrap_u4", "wrap_i2", "wrap_u2"),
    *_CASTS.split(),
)
"""The instructions, by number: as VM_OPS in `native/scalar_ops.h` lists them."""

CLASSES: Mapping[DType, str] = {
    DType.FLOAT32: "f32",
    DType.INT32: "i32",
    DType.FLOAT64: "f64",
    DType.INT64: "i64",
    DType.FLOAT16: "f32",
    DType.BFLOAT16: "f32",
    DType.INT8: "i32",
    DType.UINT8: "i32",
    DType.BOOL: "i32",
    DType.INT16: "i32",
    DType.UINT16: "i32",
    DType.UINT32: "i64",
    DType.INT4: "i32",
    DType.UINT4: "i32",
    DType.INT2: "i32",
    DType.UINT2: "i32",
    DType.FLOAT8E4M3FN: "f32",
    DType.FLOAT8E4M3FNUZ: "f32",
    DType.FLOAT8E5M2: "f32",
    DType.FLOAT8E5M2FNUZ: "f32",
}
"""What kind of register holds a type."""

_NARROW = {
    DType.FLOAT16: "round_f16",
    DType.BFLOAT16: "round_bf16",
    DType.INT8: "wrap_i8",
    DType.UINT8: "wrap_u8",
    DType.INT16: "wrap_i16",
    DType.UINT16: "wrap_u16",
    DType.UINT32: "wrap_u32",
    DType.INT4: "wrap_i4",
    DType.UINT4: "wrap_u4",
    DType.INT2: "wrap_i2",
    DType.UINT2: "wrap_u2",
}
_SMALL = {
    DType.FLOAT8E4M3FN: (3.0, -9.0, 448.0),
    DType.FLOAT8E4M3FNUZ: (3.0, -10.0, 240.0),
    DType.FLOAT8E5M2: (2.0, -16.0, 57344.0),
    DType.FLOAT8E5M2FNUZ: (2.0, -17.0, 57344.0),
}
"""Bits of the mantissa, exponent of the smallest number, and the largest number."""
_CLASS_TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
_INF = float("inf")

# functions whose results are among the values of a narrow type if their operands are
_CLOSED = frozenset(
    {"min", "max", "sign", "floor", "ceil", "trunc", "round_even", "relu", "fmod", "mod"}
    | {"bit_and", "bit_or", "bit_xor", "shift_right"}
)
_CLOSED_FLOATS = _CLOSED - {"mod"} | {"neg", "abs"}
_AS_BITS = {"logical_and": "bit_and", "logical_or": "bit_or", "logical_xor": "bit_xor"}


@dataclass(frozen=True)
class ScalarRefusal:
    """Why a program does not run natively.

    Attributes:
        instruction: the one that has no native routine, as the program prints it.
        reason: what is missing.
    """

    instruction: str
    reason: str

    def __str__(self) -> str:
        """Return a line of text."""
        return f"{self.instruction}: {self.reason}"


class UnsupportedError(Exception):
    """There is no native routine; the text says for what."""


@dataclass(frozen=True)
class Node:
    """A value: an input, a constant, or what an instruction computes.

    Attributes:
        op: name of the instruction; empty for inputs and constants.
        kind: of its register: f32, f64, i32 or i64.
        args: places of the values read.
        k: immediate numbers; which ones count is up to the instruction.
        bits: of a constant; None for everything else.
    """

    op: str
    kind: str
    args: tuple[int, ...] = ()
    k: tuple[float, ...] = (1.0, -0.0, -_INF, _INF)
    bits: int | None = None


class Code:
    """Values in the order in which they are computed; equal ones are one. Inputs come first."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self.inputs = len(inputs)
        self.nodes: list[Node] = [Node("", kind) for kind in inputs]
        self._known: dict[tuple[Node, str], int] = {}

    def add(self, node: Node) -> int:
        """Append a value and return its place."""
        # 0.0 and -0.0 are equal, but not the same
        key = (node, "" if node.k is Node.k else repr(node.k))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.nodes)
            self.nodes.append(node)
        return found

    def emit(self, op: str, *args: int, k: Mapping[int, float] | None = None) -> int:
        """Append an instruction; `k` says which immediate numbers differ from doing nothing."""
        if op not in _KINDS:
            raise UnsupportedError(f"there is no native {op}")
        numbers = tuple([k.get(i, v) for i, v in enumerate(Node.k)]) if k else Node.k
        return self.add(Node(op, _KINDS[op], args, numbers))

    def constant(self, kind: str, value: Any) -> int:
        """Append a number."""
        number = np.asarray(value).astype(_CLASS_TYPES[kind])
        integer = number.view(np.int32 if number.itemsize == 4 else np.int64)
        return self.add(Node("", kind, bits=int(integer)))


def _kind_of(op: str) -> str:
    name, _, last = op.rpartition("_")
    if name in ("eq", "lt", "le", "isnan", "isinf"):
        return "i32"
    if name == "round":
        return "f32"
    if name == "wrap":
        return "i64" if last == "u32" else "i32"
    return last


_KINDS = {op: _kind_of(op) for op in OPS}


def lower(
    program: ScalarProgram, *, exact: bool = False
) -> tuple[Code, tuple[int, ...]] | ScalarRefusal:
    """Return instructions and the places of the outputs, or why there are none.

    Args:
        program: what to compute.
        exact: whether functions of float32 are computed in float64 and rounded once.
    """
    for dtype in (*program.inputs, *(program.dtype(r) for r in program.outputs)):
        if dtype not in CLASSES:
            return ScalarRefusal(f"{dtype}", "no native instruction loads or stores this type")
    lowering = _Lowering(program, exact)
    for step in program.instructions:
        try:
            lowering.step(step)
        except UnsupportedError as refused:
            return ScalarRefusal(str(step), str(refused))
    return lowering.code, tuple(lowering.places[r] for r in program.outputs)


class _Lowering:
    """Goes through a program; `places` has the value of each of its registers."""

    def __init__(self, program: ScalarProgram, exact: bool) -> None:
        self.code = Code([CLASSES[d] for d in program.inputs])
        self.places = list(range(len(program.inputs)))
        self._program, self._exact = program, exact

    def step(self, step: Instruction) -> None:
        """Append what one instruction of the program is."""
        if step.dtype not in CLASSES:
            raise UnsupportedError(f"no native registers for {step.dtype}")
        if step.op is None:
            number = np.array(step.number).astype(step.dtype.numpy)
            self.places.append(self.code.constant(CLASSES[step.dtype], number))
            return
        args = [self.places[r] for r in step.operands]
        dtypes = [self._program.dtype(r) for r in step.operands]
        self.places.append(_LOWER[type(step.op)](self, step.op, args, dtypes))

    def function(self, op: Any, args: list[int], dtypes: list[DType]) -> int:
        """Append a row of the scalar table: as a whole if there is an instruction for it."""
        name, params = op.fn, scalar_function(op.fn).bind(dict(getattr(op, "params", ())))
        if self._exact and DType.FLOAT32 in dtypes and not scalar_function(name).rounds_once:
            return self._in_double(name, params, args, dtypes)
        return self._function(name, params, args, dtypes)

    def _in_double(
        self, name: str, params: Mapping[str, float], args: list[int], dtypes: list[DType]
    ) -> int:
        """Append a function of float32 that is computed in float64."""
        if name in _ONCE:
            return self.code.emit(_ONCE[name], *args)
        is_float = [d is DType.FLOAT32 for d in dtypes]
        wide = [
            self.code.emit("f32_f64", a) if f else a for a, f in zip(args, is_float, strict=True)
        ]
        types = [DType.FLOAT64 if f else d for d, f in zip(dtypes, is_float, strict=True)]
        return self.code.emit("f64_f32", self._function(name, params, wide, types))

    def _function(
        self, name: str, params: Mapping[str, float], args: list[int], dtypes: list[DType]
    ) -> int:
        kind = CLASSES[dtypes[0]]
        whole = _WHOLE.get(name)
        if kind == "f32" and whole is not None:
            instruction, immediates = whole
            result = self.code.emit(instruction, *args, k=immediates(params))
            return self._narrow(name, result, dtypes[0])
        if f"{name}_{kind}" in _KINDS or name in _AS_BITS:
            return self._primitive(name, args, dtypes[0])
        return self._expanded(name, params, args, dtypes)

    def select(self, op: Select, args: list[int], dtypes: list[DType]) -> int:
        """Append a choice."""
        wide = CLASSES[dtypes[1]] in ("f64", "i64")
        return self._select(args, wide)

    def _select(self, args: Sequence[int], wide: bool) -> int:
        return self.code.emit("select_f64" if wide else "select_f32", *args)

    def _primitive(self, name: str, args: Sequence[int], dtype: DType) -> int:
        op = f"{_AS_BITS.get(name, name)}_{CLASSES[dtype]}"
        result = self.code.emit(op, *args)
        return result if _KINDS[op] != CLASSES[dtype] else self._narrow(name, result, dtype)

    def _narrow(self, name: str, value: int, dtype: DType) -> int:
        """Round or wrap to a narrow type, if a function may leave it."""
        if dtype in _SMALL:
            raise UnsupportedError(f"no native arithmetic of {dtype}")
        closed = _CLOSED_FLOATS if dtype.is_float else _CLOSED
        narrow = _NARROW.get(dtype)
        return value if narrow is None or name in closed else self.code.emit(narrow, value)

    def _expanded(
        self, name: str, params: Mapping[str, float], args: list[int], dtypes: list[DType]
    ) -> int:
        """Append the primitives of an expression; narrow floats are rounded at its end."""
        row = scalar_function(name)
        common = next((d for d in dtypes if d is not DType.BOOL), DType.BOOL)
        inner = DType.FLOAT32 if CLASSES[common] == "f32" else common
        places: dict[int, int] = {}
        types: dict[int, DType] = {}
        for node in postorder(row.expression):
            key = id(node)
            if isinstance(node, Arg):
                places[key], dtype = args[node.index], dtypes[node.index]
                types[key] = inner if dtype is common else dtype
            elif isinstance(node, Call):
                operands = [places[id(o)] for o in node.arguments]
                typed = types[id(node.arguments[node.primitive.signature.typed])]
                if node.primitive.name == "select":
                    places[key] = self._select(operands, CLASSES[typed] in ("f64", "i64"))
                else:
                    places[key] = self._primitive(node.primitive.name, operands, typed)
                types[key] = node.primitive.result_type(*(types[id(o)] for o in node.arguments))
            else:
                value = node.value if isinstance(node, Literal) else params[node.name]  # type: ignore[attr-defined]
                types[key] = DType.BOOL if isinstance(value, bool) else inner
                places[key] = self.code.constant(CLASSES[types[key]], constant(value, common))
        result, of = places[id(row.expression)], types[id(row.expression)]
        return self._narrow(name, result, common) if of is inner and common.is_float else result

    def cast(self, op: Cast, args: list[int], dtypes: list[DType]) -> int:
        """Append a conversion."""
        source, target = dtypes[0], op.dtype
        have, want = CLASSES[source], CLASSES[target]
        value = args[0]
        if source is target:
            return value
        if target is DType.BOOL:
            zero = self.code.constant(have, 0)
            return self.code.emit("logical_not_i32", self.code.emit(f"eq_{have}", value, zero))
        if source is DType.FLOAT64 and target.is_float and target.bits < 32:
            raise UnsupportedError(f"no native conversion of {source} to {target} rounds once")
        if source is DType.FLOAT64 and target.is_int and target.bits < 8:  # low bits of large ones
            value, have = self.code.emit("f64_i64", value), "i64"
        if have != want:
            value = self.code.emit(f"{have}_{want}", value)
        if target in _SMALL:
            return self._small(value, target, op.saturate)
        narrow = _NARROW.get(target)
        return value if narrow is None or source is DType.BOOL else self.code.emit(narrow, value)

    def _small(self, value: int, dtype: DType, saturate: bool) -> int:
        """Round to a float of 8 bits."""
        mantissa, smallest, most = _SMALL[dtype]
        beyond = most if saturate else _INF if dtype is DType.FLOAT8E5M2 else float("nan")
        numbers = {0: mantissa, 1: smallest, 2: most, 3: beyond}
        value = self.code.emit("round_small", value, k=numbers)
        if dtype in (DType.FLOAT8E5M2, DType.FLOAT8E4M3FN):
            return value
        return self.code.emit("add_f32", value, self.code.constant("f32", 0.0))  # there is no -0

    def bit_cast(self, op: BitCast, args: list[int], dtypes: list[DType]) -> int:
        """Append a reinterpretation: registers hold bits already."""
        source, target = dtypes[0], op.dtype
        if source.bits >= 32 and DType.UINT32 not in (source, target):
            return args[0]
        if source.is_int and target.is_int:
            return self.cast(Cast(target), args, dtypes)
        raise UnsupportedError(f"no native reinterpretation of {source} as {target}")


_LOWER: dict[type, Callable[..., int]] = {
    Unary: _Lowering.function,
    Binary: _Lowering.function,
    Compare: _Lowering.function,
    Select: _Lowering.select,
    Cast: _Lowering.cast,
    BitCast: _Lowering.bit_cast,
}

_ONCE = {"sigmoid": "sigmoid_once_f32", "silu": "silu_once_f32"}
"""Functions that one instruction computes in float64 and rounds once."""

_Immediates = Callable[[Mapping[str, float]], Mapping[int, float]]


def _none(params: Mapping[str, float]) -> Mapping[int, float]:
    return {}


# rows of the scalar table that are one instruction with immediate numbers
_WHOLE: dict[str, tuple[str, _Immediates]] = {
    **{
        n: (f"{n}_f32", _none)
        for n in ("sigmoid", "silu", "gelu", "gelu_tanh", "hard_swish", "softplus", "mish")
    },
    "relu": ("clamp_f32", lambda p: {2: 0.0}),
    "affine": ("affine_f32", lambda p: {0: p["alpha"], 1: p["beta"]}),
    "hard_sigmoid": (
        "affine_clamp_f32",
        lambda p: {0: p["alpha"], 1: p["beta"], 2: 0.0, 3: 1.0},
    ),
    "swish": ("scaled_silu_f32", lambda p: {0: p["alpha"]}),
    "quick_gelu": ("scaled_silu_f32", lambda p: {0: p["alpha"]}),
}
