"""Converters of operators on strings, and of image files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kn_graph.onnx.registry import converter

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []


@converter("StringNormalizer")
def string_normalizer(ctx: NodeContext) -> Value:
    """Case mapping follows Unicode, whatever the locale."""
    ctx.ignore("locale")
    attributes = {
        "case": ctx.choice("case_change_action", "NONE", ("LOWER", "UPPER", "NONE")),
        "case_sensitive": ctx.flag("is_case_sensitive", False),
        "stopwords": ctx.texts("stopwords", ()),
    }
    return ctx.graph.host_call("string_normalize", ctx.input(0), **attributes)[0]


@converter("StringConcat")
def string_concat(ctx: NodeContext) -> Value:
    """Join strings pairwise, with broadcasting."""
    pair = ctx.graph.broadcast_together(ctx.input(0), ctx.input(1))
    return ctx.graph.host_call("string_concat", *pair)[0]


@converter("StringSplit")
def string_split(ctx: NodeContext) -> tuple[Value, ...]:
    """Split at a delimiter, or at white space."""
    return ctx.graph.host_call(
        "string_split",
        ctx.input(0),
        delimiter=ctx.text("delimiter", ""),
        most=ctx.integer("maxsplit", None),
    )


@converter("Tokenizer", domain="com.microsoft")
def tokenizer(ctx: NodeContext) -> Value:
    """Cut strings into tokens, along a new last axis: text pipelines of scikit-learn do.

    One `separator`, the empty string, cuts into characters; several cut one after the other.
    """
    separators, token = ctx.texts("separators", ()), ctx.text("tokenexp", "")
    shortest = ctx.integer("mincharnum")
    if shortest < 1 or not (separators or token):
        ctx.fail("needs separators or tokenexp, and a mincharnum of at least 1")
    if len(separators) > 1 and "" in separators:
        ctx.unsupported("an empty separator among others")
    attributes = {
        "separators": separators,
        "token": "" if separators else token,
        "shortest": shortest,
        "mark": ctx.flag("mark"),
        "pad": ctx.text("pad_value"),
    }
    return ctx.graph.host_call("string_tokenize", ctx.input(0), **attributes)[0]


@converter("RegexFullMatch")
def regex_full_match(ctx: NodeContext) -> Value:
    """Whether a pattern matches the whole of each string."""
    pattern = ctx.text("pattern", "")
    return ctx.graph.host_call("regex_full_match", ctx.input(0), pattern=pattern)[0]


@converter("TfIdfVectorizer")
def tf_idf_vectorizer(ctx: NodeContext) -> Value:
    """Count n-grams of a pool."""
    texts, numbers = ctx.texts("pool_strings", None), ctx.integers("pool_int64s", None)
    if (texts is None) == (numbers is None):
        ctx.fail("needs one of pool_strings and pool_int64s")
    columns = ctx.integers("ngram_indexes")
    pool = _grams(ctx, numbers if texts is None else texts, ctx.integers("ngram_counts"))
    weights = ctx.reals("weights", None) or (1.0,) * len(columns)
    if not len(pool) == len(columns) == len(weights) or min(columns, default=0) < 0:
        ctx.fail(f"has {len(pool)} n-grams, {len(columns)} indexes and {len(weights)} weights")
    attributes: dict[str, Any] = {
        "mode": ctx.choice("mode", "", ("TF", "IDF", "TFIDF")),
        "shortest": ctx.integer("min_gram_length"),
        "longest": ctx.integer("max_gram_length"),
        "skips": ctx.integer("max_skip_count"),
        "pool": pool,
        "columns": columns,
        "weights": weights,
        "width": max(columns, default=-1) + 1,
    }
    return ctx.graph.host_call("count_grams", ctx.input(0), **attributes)[0]


def _grams(
    ctx: NodeContext, pool: tuple[Any, ...], starts: tuple[int, ...]
) -> tuple[tuple[Any, ...], ...]:
    """Cut the pool into n-grams: those of length n start at `starts[n - 1]`."""
    grams: list[tuple[Any, ...]] = []
    for n, (start, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % n:
            ctx.fail(f"ngram_counts {starts} do not cut a pool of {len(pool)} into n-grams")
        grams += [pool[i : i + n] for i in range(start, end, n)]
    return tuple(grams)


@converter("ImageDecoder")
def image_decoder(ctx: NodeContext) -> Value:
    """Decode an image file."""
    form = ctx.choice("pixel_format", "RGB", ("RGB", "BGR", "Grayscale"))
    return ctx.graph.host_call("decode_image", ctx.input(0), format=form)[0]
