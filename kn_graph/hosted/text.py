"""Strings: case, stop words, joining, splitting, matching, counting n-grams."""

from __future__ import annotations

from collections.abc import Callable
from re import Pattern
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.hosted.function import Attributes, HostFunction
from kn_graph.hosted.re2 import compile_re2, longest_matches
from kn_graph.op import InferContext
from kn_graph.types import TensorType

__all__ = ["FUNCTIONS"]

Array = np.ndarray[Any, Any]

WHY = "strings are Python objects: only the host has those"

CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


def _check_strings(*xs: TensorType) -> None:
    for x in xs:
        if x.dtype is not DType.STRING:
            raise DTypeError(f"expected strings, got {x.dtype}")


def _objects(items: list[Any], shape: tuple[int, ...]) -> Array:
    out = np.empty(len(items), object)
    out[:] = items
    return out.reshape(shape)


# ---- normalizing --------------------------------------------------------------------------------


def _infer_normalize(ctx: InferContext, a: Attributes, x: TensorType) -> TensorType:
    _check_strings(x)
    if x.rank not in (1, 2):
        raise ShapeError(f"expected strings [C] or [1, C], got {x}")
    if x.rank == 2:
        ctx.require_eq(x.shape[0], 1, "strings to normalize come in one row")
    if not a["stopwords"]:
        return x
    return TensorType(x.dtype, (*x.shape[:-1], ctx.data_symbol("words", lo=1)))


def _normalize(a: Attributes, x: Array) -> Array:
    """Drop stop words, then change the case; a single empty string where nothing is left."""
    case = CASES[a["case"]]
    same = str if a["case_sensitive"] else str.casefold
    stop = {same(w) for w in a["stopwords"]}
    words = [case(w) for w in x.ravel().tolist() if same(w) not in stop]
    if stop and not words:
        words = [""]
    return _objects(words, (*x.shape[:-1], len(words)))


# ---- joining and splitting ----------------------------------------------------------------------


def _infer_concat(ctx: InferContext, a: Attributes, x: TensorType, y: TensorType) -> TensorType:
    _check_strings(x, y)
    if x.rank != y.rank:
        raise ShapeError(f"string_concat of {x} and {y}")
    for axis, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)):
        ctx.require_eq(m, n, f"string_concat of equal shapes at axis {axis}")
    return x


def _concat(a: Attributes, x: Array, y: Array) -> Array:
    pairs = zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    return _objects([s + t for s, t in pairs], x.shape)


def _infer_split(ctx: InferContext, a: Attributes, x: TensorType) -> tuple[TensorType, TensorType]:
    _check_strings(x)
    parts = TensorType(x.dtype, (*x.shape, ctx.data_symbol("parts")))
    return parts, TensorType(DType.INT64, x.shape)


def _split(a: Attributes, x: Array) -> tuple[Array, Array]:
    """Split each string; shorter lists are filled with empty strings."""
    most = -1 if a["most"] is None else a["most"]
    lists = [s.split(a["delimiter"] or None, most) for s in x.ravel().tolist()]
    longest = max(map(len, lists), default=0)
    flat = [part for parts in lists for part in (*parts, *[""] * (longest - len(parts)))]
    counts = np.array([len(parts) for parts in lists], np.int64)
    return _objects(flat, (*x.shape, longest)), counts.reshape(x.shape)


# ---- tokens -------------------------------------------------------------------------------------

MARKS = ("\x02", "\x03")
"""What stands in front of and behind the tokens of a string, where that is asked for."""


def _infer_tokens(ctx: InferContext, a: Attributes, x: TensorType) -> TensorType:
    _check_strings(x)
    if x.rank not in (1, 2):
        raise ShapeError(f"expected strings [C] or [N, C], got {x}")
    for pattern in (*a["separators"], a["token"]):
        compile_re2(pattern)
    return TensorType(x.dtype, (*x.shape, ctx.data_symbol("tokens")))


def _tokens(a: Attributes, x: Array) -> Array:
    """Cut each string into tokens; shorter lists are filled up."""
    lists = [[t for t in _tokens_of(a, s) if len(t) >= a["shortest"]] for s in x.ravel().tolist()]
    longest = max(map(len, lists), default=0)
    if a["mark"] and longest:
        lists, longest = [[MARKS[0], *tokens, MARKS[1]] for tokens in lists], longest + 2
    flat = [t for tokens in lists for t in (*tokens, *[a["pad"]] * (longest - len(tokens)))]
    return _objects(flat, (*x.shape, longest))


def _tokens_of(a: Attributes, text: str) -> list[str]:
    if a["token"]:
        return longest_matches(a["token"], text)
    if a["separators"] == ("",):
        return list(text)
    parts = [text]
    for separator in a["separators"]:
        pattern = compile_re2(separator)
        parts = [piece for part in parts for piece in _between(pattern, part)]
    return parts


def _between(pattern: Pattern[str], text: str) -> list[str]:
    """Return what lies between matches; groups of the pattern are no pieces."""
    pieces, start = [], 0
    for found in pattern.finditer(text):
        pieces.append(text[start : found.start()])
        start = found.end()
    return [*pieces, text[start:]]


# ---- matching -----------------------------------------------------------------------------------


def _infer_match(ctx: InferContext, a: Attributes, x: TensorType) -> TensorType:
    _check_strings(x)
    compile_re2(a["pattern"])
    return TensorType(DType.BOOL, x.shape)


def _match(a: Attributes, x: Array) -> Array:
    pattern = compile_re2(a["pattern"])
    found = [pattern.fullmatch(s) is not None for s in x.ravel().tolist()]
    return np.array(found, bool).reshape(x.shape)


# ---- n-grams ------------------------------------------------------------------------------------


def _infer_grams(ctx: InferContext, a: Attributes, x: TensorType) -> TensorType:
    strings = any(isinstance(w, str) for gram in a["pool"] for w in gram)
    if strings != (x.dtype is DType.STRING) or not (strings or x.dtype.is_int):
        raise DTypeError(f"the pool holds {'strings' if strings else 'integers'}, got {x.dtype}")
    if x.rank not in (1, 2):
        raise ShapeError(f"expected [C] or [N, C], got {x}")
    return TensorType(DType.FLOAT32, (*x.shape[:-1], a["width"]))


def _grams(a: Attributes, x: Array) -> Array:
    """Count the n-grams of each row: Y[columns[i]] += how often gram i occurs, times its weight."""
    grams = {gram: i for i, gram in enumerate(a["pool"])}
    columns, weights = a["columns"], a["weights"]
    rows = x if x.ndim == 2 else x[None]
    out = np.zeros((len(rows), a["width"]), np.float32)
    for row, words in zip(out, rows.tolist(), strict=True):
        for i, count in _occurrences(words, grams, a).items():
            count = min(count, 1) if a["mode"] == "IDF" else count
            row[columns[i]] += count * (1 if a["mode"] == "TF" else weights[i])
    return out.reshape(*x.shape[:-1], a["width"])


def _occurrences(
    words: list[Any], grams: dict[tuple[Any, ...], int], a: Attributes
) -> dict[int, int]:
    """Return how often each known n-gram occurs, its words 1 to skips+1 places apart."""
    found: dict[int, int] = {}
    for n in range(a["shortest"], a["longest"] + 1):
        # one word is the same at any distance
        for step in range(1, (a["skips"] if n > 1 else 0) + 2):
            for start in range(len(words) - (n - 1) * step):
                i = grams.get(tuple(words[start : start + (n - 1) * step + 1 : step]))
                if i is not None:
                    found[i] = found.get(i, 0) + 1
    return found


def _function(infer: Any, run: Any) -> HostFunction:
    return HostFunction(infer, run, WHY)


FUNCTIONS = {
    "string_normalize": _function(_infer_normalize, _normalize),
    "string_concat": _function(_infer_concat, _concat),
    "string_split": _function(_infer_split, _split),
    "string_tokenize": _function(_infer_tokens, _tokens),
    "regex_full_match": _function(_infer_match, _match),
    "count_grams": _function(_infer_grams, _grams),
}
