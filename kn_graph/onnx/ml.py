"""Converters of ai.onnx.ml operators that prepare features, look values up, or handle maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.ml_scores import ML
from kn_graph.onnx.registry import converter
from kn_graph.types import MapType, TensorType

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

Array = np.ndarray[Any, Any]

DENSE_GROWTH = 4
"""Integer keys are looked up in a table over their range if that is at most this times larger."""


# ---- scaling and cleaning -----------------------------------------------------------------------


def _column_constant(ctx: NodeContext, numbers: Any, dtype: DType) -> Value:
    """Return numbers for each feature, or one for all."""
    array = np.array(numbers).astype(dtype.numpy)
    return ctx.graph.constant(array.reshape(()) if array.size == 1 else array)


@converter("Scaler", domain=ML)
def scaler(ctx: NodeContext) -> Value:
    """(x - offset) * scale."""
    g, x = ctx.graph, ctx.graph.cast(ctx.input(0), DType.FLOAT32)
    offset, scale = ctx.reals("offset", None), ctx.reals("scale", None)
    x = g.sub(x, _column_constant(ctx, offset, x.dtype)) if offset else x
    return g.mul(x, _column_constant(ctx, scale, x.dtype)) if scale else x


@converter("Normalizer", domain=ML)
def normalizer(ctx: NodeContext) -> Value:
    """Divide by the maximum, the sum of magnitudes or the length of each row, unless that is 0."""
    g, x = ctx.graph, ctx.graph.cast(ctx.input(0), DType.FLOAT32)
    if x.rank not in (1, 2):
        ctx.fail(f"expected [N, C] or [C], got {x.type}")
    kind = ctx.choice("norm", "MAX", ("MAX", "L1", "L2"))
    last = (x.rank - 1,)
    if kind == "MAX":
        size = g.reduce("max", x, last, keep=True)
    elif kind == "L1":
        size = g.reduce("sum", g.unary("abs", x), last, keep=True)
    else:
        size = g.sqrt(g.reduce("sum", g.mul(x, x), last, keep=True))
    zero = g.compare("eq", size, g.scalar(0, x.dtype))
    return g.div(x, g.select(zero, g.scalar(1, x.dtype), size))


@converter("Imputer", domain=ML)
def imputer(ctx: NodeContext) -> Value:
    """Replace the elements that equal one value; a NaN equals itself here."""
    g, x = ctx.graph, ctx.input(0)
    real = ctx.real("replaced_value_float", 0.0), ctx.reals("imputed_value_floats", ())
    integer = ctx.integer("replaced_value_int64", 0), ctx.integers("imputed_value_int64s", ())
    wanted, numbers = real if x.dtype.is_float else integer
    if not numbers:
        ctx.fail(f"has no values to put into {x.type}")
    if wanted != wanted:
        found = g.unary("isnan", x)
    else:
        found = g.compare("eq", x, g.scalar(wanted, x.dtype))
    return g.select(found, _column_constant(ctx, numbers, x.dtype), x)


@converter("Binarizer", domain=ML)
def binarizer(ctx: NodeContext) -> Value:
    """1 above the threshold, else 0."""
    g, x = ctx.graph, ctx.input(0)
    # an integer is above 0.5 if it is above 0: floats compare rightly
    real = x if x.dtype.is_float else g.cast(x, DType.FLOAT64)
    above = g.compare("gt", real, g.scalar(ctx.real("threshold", 0.0), real.dtype))
    return g.cast(above, x.dtype)


# ---- features -----------------------------------------------------------------------------------


@converter("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(ctx: NodeContext) -> Value:
    """Choose elements of the last axis; a vector becomes one row."""
    g, x, indices = ctx.graph, ctx.input(0), ctx.input(1)
    if x.rank == 0:
        ctx.fail("expected at least one axis, got a scalar")
    indices = g.reshape(indices, [-1]) if indices.rank != 1 else indices
    x = g.unsqueeze(x, [0]) if x.rank == 1 else x
    return g.gather(x, indices, x.rank - 1)


@converter("FeatureVectorizer", domain=ML)
def feature_vectorizer(ctx: NodeContext) -> Value:
    """Concatenate columns; of each input as many as asked for, with zeros where it has fewer."""
    g, parts = ctx.graph, ctx.inputs()
    widths = ctx.integers("inputdimensions", None) or (None,) * len(parts)
    if len(widths) != len(parts):
        ctx.fail(f"has {len(parts)} inputs and {len(widths)} inputdimensions")
    columns = []
    for x, width in zip(parts, widths, strict=True):
        x = g.unsqueeze(x, [0]) if x.rank == 1 else g.flatten(x, 1) if x.rank > 2 else x
        x = g.cast(x, DType.FLOAT32)
        if width is not None and width != x.shape[1]:
            x = g.pad(x, [(0, 0), (0, width - x.shape[1])])
        columns.append(x)
    return g.concat(columns, 1)


@converter("OneHotEncoder", domain=ML)
def one_hot_encoder(ctx: NodeContext) -> Value:
    """Rows of an identity matrix; an unknown category gives zeros, or is an error if zeros=0."""
    g, x = ctx.graph, ctx.input(0)
    texts, numbers = ctx.texts("cats_strings", ()), ctx.integers("cats_int64s", ())
    if bool(texts) == bool(numbers):
        ctx.fail("needs one of cats_strings and cats_int64s")
    keys = np.array(texts, object) if texts else np.array(numbers, np.int64)
    x = x if texts or x.dtype is DType.INT64 else g.cast(x, DType.INT64)
    found = _places(ctx, x, keys)
    # without a row for unknown categories, their place is out of range
    rows = np.eye(len(keys) + bool(ctx.integer("zeros", 1)), len(keys), dtype=np.float32)
    return g.gather(g.constant(rows), found)


# ---- looking up ---------------------------------------------------------------------------------


def _places(ctx: NodeContext, x: Value, keys: Array) -> Value:
    """Return for each element the place of the last equal key, and len(keys) where there is none.

    A NaN equals a NaN.
    """
    if x.dtype is not DType.from_numpy(keys.dtype):
        ctx.fail(f"the keys are {DType.from_numpy(keys.dtype)}, the input is {x.type}")
    if keys.dtype == object:
        return ctx.graph.host_call("find_strings", x, keys=tuple(keys.tolist()))[0]
    if keys.dtype.kind == "i" and len(keys):
        low, high = int(keys.min()), int(keys.max())
        if high - low < DENSE_GROWTH * len(keys):
            return _places_in_range(ctx, x, keys, low, high)
    return _places_by_comparing(ctx, x, keys)


def _places_in_range(ctx: NodeContext, x: Value, keys: Array, low: int, high: int) -> Value:
    """Look integers up in a table over [low, high] and one more for all others."""
    g = ctx.graph
    table = np.full(high - low + 2, len(keys), np.int64)
    table[keys.astype(np.int64) - low] = np.arange(len(keys))
    bottom, top = g.scalar(low, x.dtype), g.scalar(high, x.dtype)
    outside = g.binary("logical_or", g.compare("lt", x, bottom), g.compare("gt", x, top))
    inside = g.cast(g.minimum(g.maximum(x, bottom), top), DType.INT64)
    last = g.scalar(high - low + 1, DType.INT64)
    return g.gather(g.constant(table), g.select(outside, last, inside - low))


def _places_by_comparing(ctx: NodeContext, x: Value, keys: Array) -> Value:
    """Compare every element with every key."""
    g = ctx.graph
    if not len(keys):
        return g.broadcast(g.scalar(0, DType.INT64), x.shape)
    column = g.unsqueeze(x, [x.rank])
    equal = g.compare("eq", column, g.constant(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        both = g.binary("logical_and", g.unary("isnan", column), g.constant(np.isnan(keys)))
        equal = g.binary("logical_or", equal, both)
    one, zero = g.scalar(1, DType.INT32), g.scalar(0, DType.INT32)
    place = g.arg_reduce(g.select(equal, one, zero), x.rank, last=True)
    known = g.reduce("any", equal, (x.rank,))
    return g.select(known, place, g.scalar(len(keys), DType.INT64))


def _translated(ctx: NodeContext, keys: Array, values: Array, default: Any) -> Value:
    """Return values[i] where an element is keys[i], else the default."""
    if len(keys) != len(values):
        ctx.fail(f"has {len(keys)} keys and {len(values)} values")
    rest = np.empty(1, values.dtype)
    rest[0] = default
    table = ctx.graph.constant(np.concatenate([values, rest]))
    return ctx.graph.gather(table, _places(ctx, ctx.input(0), keys))


@converter("LabelEncoder", until=1, domain=ML)
def label_encoder_of_classes(ctx: NodeContext) -> Value:
    """Strings to their places in a list, or back."""
    classes = np.array(ctx.texts("classes_strings", ()), object)
    return _both_ways(ctx, classes, np.arange(len(classes)))


@converter("CategoryMapper", domain=ML)
def category_mapper(ctx: NodeContext) -> Value:
    """Strings to integers, or back."""
    texts = np.array(ctx.texts("cats_strings", ()), object)
    return _both_ways(ctx, texts, np.array(ctx.integers("cats_int64s", ()), np.int64))


def _both_ways(ctx: NodeContext, texts: Array, numbers: Array) -> Value:
    number, text = ctx.integer("default_int64", -1), ctx.text("default_string", "_Unused")
    if ctx.input(0).dtype is DType.STRING:
        return _translated(ctx, texts, numbers, number)
    return _translated(ctx, numbers, texts, text)


KINDS: dict[str, tuple[Any, Any]] = {
    "strings": (object, ("default_string", "_Unused")),
    "int64s": (np.int64, ("default_int64", -1)),
    "floats": (np.float32, ("default_float", -0.0)),
}
"""Suffixes of keys_* and values_*: the element type, and the default with its attribute."""


@converter("LabelEncoder", since=2, domain=ML)
def label_encoder(ctx: NodeContext) -> Value:
    """Any of a few types to any of them."""
    keys, values = _list(ctx, "keys"), _list(ctx, "values")
    defaults = {
        "default_string": ctx.text("default_string", "_Unused"),
        "default_int64": ctx.integer("default_int64", -1),
        "default_float": ctx.real("default_float", -0.0),
    }
    tensor = ctx.tensor("default_tensor", None) if ctx.opset >= 4 else None
    kind = {"O": "default_string", "i": "default_int64", "f": "default_float"}[values.dtype.kind]
    default = defaults[kind] if tensor is None else tensor.array.ravel()[0]
    return _translated(ctx, keys, values, default)


def _list(ctx: NodeContext, name: str) -> Array:
    """Take keys or values from the one attribute that is given."""
    found = []
    for suffix, take in (("strings", ctx.texts), ("int64s", ctx.integers), ("floats", ctx.reals)):
        numbers = take(f"{name}_{suffix}", None)
        if numbers:
            found.append(np.array(numbers, KINDS[suffix][0]))
    tensor = ctx.tensor(f"{name}_tensor", None) if ctx.opset >= 4 else None
    if tensor is not None:
        found.append(np.asarray(tensor.array).ravel())
    if len(found) != 1:
        ctx.fail(f"needs one of {name}_strings, {name}_int64s, {name}_floats, {name}_tensor")
    return found[0]


# ---- maps ---------------------------------------------------------------------------------------


def _keys(ctx: NodeContext, texts: str, numbers: str) -> tuple[Any, ...]:
    strings, integers = ctx.texts(texts, ()), ctx.integers(numbers, ())
    if bool(strings) == bool(integers):
        ctx.fail(f"needs one of {texts} and {numbers}")
    return tuple(strings or integers)


@converter("ZipMap", domain=ML)
def zip_map(ctx: NodeContext) -> Value:
    """Each row as a dictionary."""
    keys = _keys(ctx, "classlabels_strings", "classlabels_int64s")
    return ctx.graph.host_call("zip_map", ctx.input(0), keys=keys)[0]


@converter("DictVectorizer", domain=ML)
def dict_vectorizer(ctx: NodeContext) -> Value:
    """A dictionary as a row."""
    keys = _keys(ctx, "string_vocabulary", "int64_vocabulary")
    x = ctx.input(0)
    if not (isinstance(x.type, MapType) and isinstance(x.type.value, TensorType)):
        ctx.fail(f"expected a map to numbers or strings, got {x.type}")
    return ctx.graph.host_call("vectorize_map", x, keys=keys, dtype=x.type.value.dtype)[0]


@converter("CastMap", domain=ML)
def cast_map(ctx: NodeContext) -> Value:
    """The values of a dictionary by ascending keys, or at the places that the keys say."""
    targets = {"TO_FLOAT": DType.FLOAT32, "TO_STRING": DType.STRING, "TO_INT64": DType.INT64}
    dtype = targets[ctx.choice("cast_to", "TO_FLOAT", tuple(targets))]
    sparse = ctx.choice("map_form", "DENSE", ("DENSE", "SPARSE")) == "SPARSE"
    length = ctx.integer("max_map", 1)
    attributes = {"dtype": dtype, "length": length if sparse else None}
    return ctx.graph.host_call("cast_map", ctx.input(0), **attributes)[0]
