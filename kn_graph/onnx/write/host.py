"""Writers of functions that run on the host: sequences, optionals, strings, maps, images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.dtype import DType
from kn_graph.onnx.proto_types import type_proto
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.host import HostCall
from kn_graph.types import TensorType, UnrankedType

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__ = ["LABELS", "label_encoder"]

ML = "ai.onnx.ml"
Attributes = dict[str, Any]
Write = Callable[["NodeWriter", Attributes], "str | Sequence[str]"]


def _plain(operator: str) -> Write:
    def write(ctx: NodeWriter, a: Attributes) -> str:
        return _one(ctx, operator)

    return write


def _one(ctx: NodeWriter, operator: str, domain: str = "", **attributes: Any) -> str:
    """Write an operator with one output, whose type the graph knows."""
    t = ctx.node.results[0].type
    dtype = t.dtype if isinstance(t, (TensorType, UnrankedType)) else None
    return ctx.emit(operator, *ctx.inputs, domain=domain, dtype=dtype, **attributes)


def _construct(ctx: NodeWriter, a: Attributes) -> str:
    if ctx.inputs:
        return _one(ctx, "SequenceConstruct")
    return ctx.scope.append("SequenceEmpty", [], 1, "", {"dtype": a["dtype"]})[0]


def _split_to_sequence(ctx: NodeWriter, a: Attributes) -> str:
    keep = None if a["keep"] or len(ctx.inputs) > 1 else 0
    return _one(ctx, "SplitToSequence", axis=a["axis"], keepdims=keep)


def _optional(ctx: NodeWriter, a: Attributes) -> str:
    kind = None if ctx.inputs else type_proto(a["type"])
    return _one(ctx, "Optional", type=kind)


def _normalize(ctx: NodeWriter, a: Attributes) -> str:
    return _one(
        ctx,
        "StringNormalizer",
        case_change_action=a["case"],
        is_case_sensitive=1 if a["case_sensitive"] else 0,
        stopwords=list(a["stopwords"]) or None,
    )


def _string_split(ctx: NodeWriter, a: Attributes) -> Sequence[str]:
    delimiter = a["delimiter"] or None
    return ctx.emit_all("StringSplit", ctx.x, outputs=2, delimiter=delimiter, maxsplit=a["most"])


def _count_grams(ctx: NodeWriter, a: Attributes) -> str:
    """The pool is cut by length: n-grams of one length stand together, the shortest first."""
    pool = a["pool"]
    order = sorted(range(len(pool)), key=lambda i: len(pool[i]))
    longest = max((len(g) for g in pool), default=1)
    flat = [word for i in order for word in pool[i]]
    starts = [sum(len(pool[i]) for i in order if len(pool[i]) < n) for n in range(1, longest + 1)]
    columns = [a["columns"][i] for i in order]
    if max(columns, default=-1) + 1 != a["width"]:
        refuse("n-grams that leave the last columns empty")
    return _one(
        ctx,
        "TfIdfVectorizer",
        mode=a["mode"],
        min_gram_length=a["shortest"],
        max_gram_length=a["longest"],
        max_skip_count=a["skips"],
        ngram_counts=starts,
        ngram_indexes=columns,
        weights=[float(a["weights"][i]) for i in order],
        **_keyed("pool_strings", "pool_int64s", flat),
    )


def _find_strings(ctx: NodeWriter, a: Attributes) -> str:
    return label_encoder(ctx, a["keys"], range(len(a["keys"]) + 1))


LABELS = {DType.INT64: "int64", DType.STRING: "string", DType.FLOAT32: "float"}


def label_encoder(ctx: NodeWriter, keys: Sequence[str], values: Sequence[Any]) -> str:
    """Write a look-up of strings; the last value is for all others."""
    name = LABELS[ctx.dtype]
    given = {f"values_{name}s": list(values[:-1]), f"default_{name}": values[-1]}
    return _one(ctx, "LabelEncoder", ML, keys_strings=list(keys), **given)


def _keyed(strings: str, integers: str, keys: Sequence[Any]) -> Attributes:
    texts = any(isinstance(k, str) for k in keys)
    return {strings if texts else integers: list(keys)}


def _zip_map(ctx: NodeWriter, a: Attributes) -> str:
    keys = _keyed("classlabels_strings", "classlabels_int64s", a["keys"])
    return _one(ctx, "ZipMap", ML, **keys)


def _vectorize_map(ctx: NodeWriter, a: Attributes) -> str:
    keys = _keyed("string_vocabulary", "int64_vocabulary", a["keys"])
    return _one(ctx, "DictVectorizer", ML, **keys)


CAST_MAP = {DType.FLOAT32: "TO_FLOAT", DType.STRING: "TO_STRING", DType.INT64: "TO_INT64"}


def _cast_map(ctx: NodeWriter, a: Attributes) -> str:
    form = {} if a["length"] is None else {"map_form": "SPARSE", "max_map": a["length"]}
    return _one(ctx, "CastMap", ML, cast_to=CAST_MAP[a["dtype"]], **form)


WRITERS: dict[str, Write] = {
    "sequence_construct": _construct,
    "sequence_insert": _plain("SequenceInsert"),
    "sequence_erase": _plain("SequenceErase"),
    "sequence_at": _plain("SequenceAt"),
    "sequence_length": _plain("SequenceLength"),
    "split_to_sequence": _split_to_sequence,
    "concat_from_sequence": lambda ctx, a: _one(
        ctx, "ConcatFromSequence", axis=a["axis"], new_axis=1 if a["stack"] else None
    ),
    "optional": _optional,
    "optional_has_element": _plain("OptionalHasElement"),
    "optional_get_element": _plain("OptionalGetElement"),
    "string_normalize": _normalize,
    "string_concat": _plain("StringConcat"),
    "string_split": _string_split,
    "regex_full_match": lambda ctx, a: _one(ctx, "RegexFullMatch", pattern=a["pattern"]),
    "count_grams": _count_grams,
    "find_strings": _find_strings,
    "zip_map": _zip_map,
    "vectorize_map": _vectorize_map,
    "cast_map": _cast_map,
    "decode_image": lambda ctx, a: _one(ctx, "ImageDecoder", pixel_format=a["format"]),
}


@writer(HostCall)
def host_call(ctx: NodeWriter, op: HostCall) -> str | Sequence[str]:
    """The operator that the function implements."""
    write = WRITERS.get(op.name)
    if write is None:
        refuse(f"the host function {op.name} has no operator")
    return write(ctx, dict(op.attributes))
