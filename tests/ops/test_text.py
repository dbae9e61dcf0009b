"""Operators on strings, n-grams and image files."""

from __future__ import annotations

import builtins
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from kn_graph.errors import (
    DTypeError,
    ExecutionError,
    KnError,
    MalformedModelError,
    ShapeError,
    UnsupportedModelError,
)
from kn_graph.hosted.re2 import compile_re2
from kn_graph.onnx import load_graph_from_onnx_bytes
from tests.ops.single_node import assert_like_onnxruntime, node_model, run_here


def texts(*words: Any) -> Any:
    return np.array(words, object)


def run(op: str, x: Any, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> list[Any]:
    return run_here(node_model(op, {"x": x}, outputs, **attributes), {"x": x})


# ---- normalizing --------------------------------------------------------------------------------

DAYS = texts("monday", "Tuesday", "WEDNESDAY", "Äpfel")


@pytest.mark.parametrize("case", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("stopwords", [None, ["Monday"], ["monday", "tuesday"]])
@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_normalizer(case: str, sensitive: int, stopwords: Any, shape: tuple[int, ...]) -> None:
    attributes: dict[str, Any] = {"case_change_action": case, "is_case_sensitive": sensitive}
    attributes |= {} if stopwords is None else {"stopwords": stopwords}
    (y,) = run("StringNormalizer", DAYS.reshape(shape), **attributes)
    fold: Any = str if sensitive else str.lower
    stop = {fold(w) for w in stopwords or ()}
    change: Any = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[case]
    assert y.ravel().tolist() == [change(w) for w in DAYS if fold(w) not in stop]
    assert y.ndim == len(shape)


@pytest.mark.parametrize("shape", [(2,), (1, 2)])
def test_normalizer_leaves_one_empty_string_where_all_words_are_dropped(shape: Any) -> None:
    (y,) = run("StringNormalizer", texts("a", "b").reshape(shape), stopwords=["a", "b"])
    assert y.tolist() == np.full((1,) * len(shape), "", object).tolist()


def test_normalizer_keeps_empty_words_and_accents() -> None:
    (y,) = run("StringNormalizer", texts("", "é"), stopwords=["x"])
    assert y.tolist() == ["", "é"]


# ---- joining and splitting ----------------------------------------------------------------------


def test_concat_broadcasts() -> None:
    x, y = texts("a", "b").reshape(2, 1), texts("1", "2", "")
    model = node_model("StringConcat", {"x": x, "y": y}, ("z",))
    (z,) = run_here(model, {"x": x, "y": y})
    assert z.tolist() == [["a1", "a2", "a"], ["b1", "b2", "b"]]


@pytest.mark.parametrize("shape", [(0,), (2, 0), ()])
def test_concat_of_any_shape(shape: tuple[int, ...]) -> None:
    x = np.full(shape, "ab", object)
    (z,) = run_here(node_model("StringConcat", {"x": x, "y": x}, ("z",)), {"x": x, "y": x})
    assert z.shape == shape
    assert z.size == 0 or z.item() == "abab"


SPLITS: list[tuple[dict[str, Any], Any]] = [
    ({"delimiter": "."}, texts("a.b", "c", "d.e.f", ".", "g..h")),
    ({"delimiter": ".", "maxsplit": 1}, texts("a.b.c", "d")),
    ({"delimiter": ", "}, texts("a, b", "c,d").reshape(2, 1)),
    ({}, texts("  a  b ", "c\td\ne", "f")),
    ({"delimiter": "", "maxsplit": 1}, texts("a b c", "d")),
    ({"maxsplit": 0}, texts("a b", "c")),
]


@pytest.mark.parametrize(("attributes", "x"), SPLITS, ids=str)
def test_split(attributes: dict[str, Any], x: Any) -> None:
    y, counts = run("StringSplit", x, ("y", "n"), **attributes)
    most = attributes.get("maxsplit", -1)
    parts = [s.split(attributes.get("delimiter") or None, most) for s in x.ravel()]
    assert counts.tolist() == np.reshape([len(p) for p in parts], x.shape).tolist()
    longest = max(map(len, parts))
    assert y.shape == (*x.shape, longest)
    flat = y.reshape(-1, longest).tolist()
    assert flat == [p + [""] * (longest - len(p)) for p in parts]


@pytest.mark.parametrize("attributes", [SPLITS[i][0] for i in (0, 1, 3)])
def test_split_as_onnxruntime(attributes: dict[str, Any]) -> None:
    x = texts("a.b c", " d  e", "f.g.h").reshape(3, 1)
    assert_like_onnxruntime("StringSplit", {"x": x}, ("y", "n"), **attributes)


def test_split_of_nothing() -> None:
    y, counts = run("StringSplit", texts().reshape(0, 3), ("y", "n"))
    assert (y.shape, counts.shape) == ((0, 3, 0), (0, 3))


# ---- matching -----------------------------------------------------------------------------------

PATTERNS: list[tuple[str, list[str]]] = [
    (r"www\.[\w.-]+\.\bcom\b", ["www.google.com", "www.facebook.com", "www.bbc.co.uk"]),
    ("", ["", "a"]),
    ("a|ab", ["a", "ab", "abc"]),
    (r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", ["account@gmail.com", "account@hotmail.com"]),
    (r"\d+", ["12", "٣", "a"]),
    (r"\w*", ["abc_1", "é"]),
    (r"[\d\s]+", ["1 2", "1_2"]),
    (r"[[:alpha:]]+[^[:digit:]]", ["abc!", "abc1", "a"]),
    (r"\Qa.b\E.", ["a.bc", "axbc"]),
    (r"\x{41}\x42", ["AB", "ab"]),
    (r"(?i)abc", ["ABC", "abd"]),
    (r"a.c", ["abc", "a\nc"]),
    (r"(?s)a.c", ["a\nc"]),
    (r"a$", ["a", "a\n"]),
    (r"ab\z", ["ab", "ab\n"]),
    (r"(?P<word>a)+?", ["aaa", "b"]),
    (r"[]a]+", ["]a", "b"]),
    (r"\.\[\]\$", [".[]$"]),
    (r"[[a]+", ["[a", "b"]),
]


@pytest.mark.parametrize(("pattern", "words"), PATTERNS, ids=[p for p, _ in PATTERNS])
def test_patterns_match_as_in_re2(pattern: str, words: list[str]) -> None:
    assert_like_onnxruntime("RegexFullMatch", {"x": texts(*words)}, pattern=pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"(?=a)b", r"(?<!a)b", r"(a)\1", r"a++", r"(?>a)", "(", r"\pL", "[a", r"[[:nothing:]]", r"\C"],
)
def test_what_is_not_re2_or_not_supported_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedModelError, match="pattern"):
        compile_re2(pattern)
    with pytest.raises(KnError, match="pattern"):
        run("RegexFullMatch", texts("a"), pattern=pattern)


# ---- n-grams ------------------------------------------------------------------------------------

POOL: dict[str, Any] = {
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}
TOKENS = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("skips", [0, 1, 5])
@pytest.mark.parametrize("rows", [1, 2])
def test_n_grams(mode: str, lengths: tuple[int, int], skips: int, rows: int) -> None:
    x = TOKENS if rows == 2 else TOKENS[1]
    low, high = lengths
    assert_like_onnxruntime(
        "TfIdfVectorizer", {"x": x}, mode=mode, min_gram_length=low, max_gram_length=high,
        max_skip_count=skips, weights=[2.0, 3, 4, 5, 6, 7, 8], **POOL,
    )  # fmt: skip


def test_n_grams_of_strings() -> None:
    attributes = POOL | {"pool_strings": [str(n) for n in POOL["pool_int64s"]]}
    del attributes["pool_int64s"]
    assert_like_onnxruntime(
        "TfIdfVectorizer", {"x": TOKENS.astype(str).astype(object)}, mode="TF", min_gram_length=1,
        max_gram_length=2, max_skip_count=2, **attributes,
    )  # fmt: skip


def test_weights_belong_to_n_grams_not_to_columns_as_the_text_says() -> None:
    x = np.array([3, 2], np.int64)
    (y,) = run(
        "TfIdfVectorizer", x, mode="TFIDF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
        ngram_counts=[0], ngram_indexes=[2, 0], pool_int64s=[2, 3], weights=[10.0, 20.0],
    )  # fmt: skip
    assert y.tolist() == [20, 0, 10]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_n_grams_of_nothing(shape: tuple[int, ...]) -> None:
    (y,) = run(
        "TfIdfVectorizer", np.zeros(shape, np.int64), mode="TF", min_gram_length=1,
        max_gram_length=2, max_skip_count=0, **POOL,
    )  # fmt: skip
    assert y.shape == (*shape[:-1], 7)
    assert not y.any()


# ---- images -------------------------------------------------------------------------------------


def png(mode: str, pixels: Any) -> Any:
    image = pytest.importorskip("PIL.Image").fromarray(pixels, mode=None)
    stream = BytesIO()
    image.convert(mode).save(stream, "PNG")
    return np.frombuffer(stream.getvalue(), np.uint8)


PIXELS = np.random.default_rng(0).integers(0, 256, (3, 5, 3), np.uint8)


@pytest.mark.parametrize(("form", "expected"), [("RGB", PIXELS), ("BGR", PIXELS[..., ::-1])])
def test_images_keep_their_pixels(form: str, expected: Any) -> None:
    (y,) = run("ImageDecoder", png("RGB", PIXELS), pixel_format=form)
    np.testing.assert_array_equal(y, expected)


def test_gray_images_have_one_channel() -> None:
    (y,) = run("ImageDecoder", png("L", PIXELS[..., 0]), pixel_format="Grayscale")
    np.testing.assert_array_equal(y, PIXELS[..., :1])


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(ExecutionError, match="cannot be decoded"):
        run("ImageDecoder", np.arange(20, dtype=np.uint8))


def test_a_missing_pillow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pillow(name: str, *rest: Any, **more: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(ExecutionError, match=r"pip install kn-engine\[images\]"):
        run("ImageDecoder", np.zeros(4, np.uint8))


# ---- refusals -----------------------------------------------------------------------------------

NUMBERS = np.zeros(3, np.int64)
GRAMS = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
REFUSED: list[tuple[str, Any, dict[str, Any], Any, str]] = [
    ("StringNormalizer", NUMBERS, {}, DTypeError, "expected strings"),
    ("StringNormalizer", texts("a").reshape(1, 1, 1), {}, ShapeError, r"expected strings \[C\]"),
    ("StringNormalizer", texts("a", "b").reshape(2, 1), {}, ShapeError, "in one row"),
    ("StringSplit", NUMBERS, {}, DTypeError, "expected strings"),
    ("RegexFullMatch", NUMBERS, {"pattern": "a"}, DTypeError, "expected strings"),
    ("TfIdfVectorizer", texts("a"), {**GRAMS, **POOL}, DTypeError, "the pool holds integers"),
    ("TfIdfVectorizer", NUMBERS, {**GRAMS, **POOL, "ngram_counts": [0, 3]}, MalformedModelError,
     "do not cut a pool"),
    ("TfIdfVectorizer", NUMBERS, {**GRAMS, **POOL, "weights": [1.0]}, MalformedModelError,
     "7 n-grams, 7 indexes and 1 weights"),
    ("ImageDecoder", NUMBERS, {}, DTypeError, "uint8"),
    ("ImageDecoder", NUMBERS.astype(np.uint8), {"pixel_format": "CMYK"}, MalformedModelError,
     "must be one of RGB"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "x", "attributes", "kind", "text"), REFUSED, ids=str)
def test_refusals(op: str, x: Any, attributes: dict[str, Any], kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        load_graph_from_onnx_bytes(node_model(op, {"x": x}, ("y",), **attributes))


# ---- tokens of com.microsoft --------------------------------------------------------------------

SENTENCES = texts("Hello World", "", "a-b  c_d é1", "I love computer-science!", "12 3")
TOKENIZERS: list[dict[str, Any]] = [
    {"separators": [" "]},
    {"separators": ["-", " "]},
    {"separators": ["[0-9]+", "[.]", " "]},
    {"separators": ["(l+)o"]},
    {"separators": [" "], "mincharnum": 3},
    {"separators": [" "], "mark": 1},
    {"separators": [""]},
    {"separators": [""], "mark": 1},
    {"tokenexp": "[a-zA-Z]+"},
    {"tokenexp": "[a-zA-Z]+", "mark": 1, "mincharnum": 2},
    {"tokenexp": r"\b\w\w+\b"},
    {"tokenexp": "l|lo|love|."},
    {"tokenexp": "[a-z]*"},
    {"tokenexp": "never there", "mark": 1},
]


@pytest.mark.parametrize("options", TOKENIZERS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5)])
def test_tokenizer(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    options = {"mark": 0, "mincharnum": 1, "pad_value": "#", **options}
    x = {"x": SENTENCES.reshape(shape)}
    assert_like_onnxruntime("Tokenizer", x, domain="com.microsoft", **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs separators or tokenexp"),
        ({"separators": [" "], "mincharnum": 0}, "mincharnum of at least 1"),
        ({"separators": ["", "b"]}, "an empty separator among others"),
        ({"tokenexp": "(?=a)"}, "not supported"),
    ],
)
def test_tokenizers_that_cannot_be(options: dict[str, Any], text: str) -> None:
    options = {"mark": 0, "mincharnum": 1, "pad_value": "#", **options}
    with pytest.raises(KnError, match=text):
        run("Tokenizer", texts("a b"), domain="com.microsoft", **options)
