"""Whether arrays agree inside a band, and what to say where they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kn_graph.dtype import DType, Kind

__all__ = [
    "HISTOGRAM",
    "Array",
    "Band",
    "CompareReport",
    "Verdict",
    "Worst",
    "compare_arrays",
    "compare_outputs",
    "element_text",
    "leaves",
]

Array = np.ndarray[Any, Any]

EDGES = (0.0, 0.01, 0.1, 0.5, 1.0, 10.0, 1000.0)
HISTOGRAM = ("exact", "<=1%", "<=10%", "<=50%", "<=100%", "<=10x", "<=1000x", "beyond")
"""Names of the buckets: error as a part of the band. The last has NaN and infinities, too."""

ENOUGH = 64
"""An array of at least so many elements may not be undecided by half."""


@dataclass(frozen=True)
class Worst:
    """The element that is farthest from where it should be.

    Attributes:
        index: its place.
        actual: the value found.
        expected: the reference's value.
        error: distance of the two; NaN where one is not finite.
        tolerance: what was allowed.
    """

    index: tuple[int, ...]
    actual: Any
    expected: Any
    error: float
    tolerance: float

    def __str__(self) -> str:
        """Return `[1, 2]: got x, expected y, off by e, allowed t`."""
        place = f"[{', '.join(map(str, self.index))}]"
        text = f"{place}: got {element_text(self.actual)}, expected {element_text(self.expected)}"
        if np.isnan(self.error):
            return text
        return f"{text}, off by {self.error:.3g}, allowed {self.tolerance:.3g}"


@dataclass(frozen=True)
class Verdict:
    """How one output compares with the reference.

    Attributes:
        name: of the output.
        ok: whether it agrees.
        why: the reason where it does not: about type, shape, NaN, infinities or the band.
        type: element type and shape of the reference, as text.
        elements: how many there are.
        outside: how many are not where they should be.
        undecided: how many the reference itself does not determine; see `Band`.
        nan: numbers of NaN found and expected.
        inf: numbers of infinities found and expected.
        worst: the worst element, where anything differs at all.
        histogram: numbers of elements by error as a part of the band; see `HISTOGRAM`.
    """

    name: str
    ok: bool
    why: str = ""
    type: str = ""
    elements: int = 0
    outside: int = 0
    undecided: int = 0
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    worst: Worst | None = None
    histogram: tuple[int, ...] = (0,) * len(HISTOGRAM)

    @property
    def fraction_outside(self) -> float:
        """Part of the elements that is not where it should be."""
        return self.outside / self.elements if self.elements else 0.0

    def describe(self) -> str:
        """Return a few lines: verdict, counts, the worst element, the histogram."""
        head = f"{self.name} {self.type}: {'agrees' if self.ok else self.why or 'differs'}"
        lines = [head]
        if self.outside:
            part = f"{self.outside:,} of {self.elements:,} ({self.fraction_outside:.2%})"
            lines.append(f"  {part} outside of the band")
        if self.undecided:
            lines.append(f"  {self.undecided:,} undecided: the reference's own precision fails")
        for what, (got, expected) in (("NaN", self.nan), ("infinite", self.inf)):
            if got or expected:
                lines.append(f"  {got:,} {what}, expected {expected:,}")
        if self.worst is not None:
            lines.append(f"  worst {self.worst}")
        shown = [f"{n}: {c:,}" for n, c in zip(HISTOGRAM, self.histogram, strict=True) if c]
        if shown and not self.ok:
            lines.append(f"  error / band  {', '.join(shown)}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, texts and lists."""
        worst = None
        if self.worst is not None:
            worst = {
                "index": list(self.worst.index),
                "actual": _plain(self.worst.actual),
                "expected": _plain(self.worst.expected),
                "error": self.worst.error,
                "tolerance": self.worst.tolerance,
            }
        return {
            "ok": self.ok,
            "why": self.why,
            "type": self.type,
            "elements": self.elements,
            "outside": self.outside,
            "fraction_outside": self.fraction_outside,
            "undecided": self.undecided,
            "nan": {"actual": self.nan[0], "expected": self.nan[1]},
            "inf": {"actual": self.inf[0], "expected": self.inf[1]},
            "worst": worst,
            "histogram": dict(zip(HISTOGRAM, self.histogram, strict=True)),
        }


@dataclass(frozen=True)
class CompareReport:
    """How all outputs compare.

    Attributes:
        verdicts: one an output, in order; elements of sequences and maps have one each.
    """

    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Whether all outputs agree."""
        return all(v.ok for v in self.verdicts)

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The outputs that do not agree."""
        return tuple(v for v in self.verdicts if not v.ok)

    def describe(self) -> str:
        """Return the verdicts as text, those that do not agree first."""
        ordered = [*self.failed, *(v for v in self.verdicts if v.ok)]
        return "\n".join(v.describe() for v in ordered)


@dataclass(frozen=True)
class Band:
    """What is expected, and how far from it a result may be.

    Attributes:
        expected: {name: value} of the reference.
        tolerance: absolute tolerance of each element, by name of the array (see `leaves`); what is
            missing must be exact. Infinite where the reference does not determine the element:
            such elements are counted as undecided.
        ties: by name, for outputs that are indices of extremes.
    """

    expected: Mapping[str, Any]
    tolerance: Mapping[str, Array] = field(default_factory=dict)
    ties: Mapping[str, Ties] = field(default_factory=dict)


@dataclass(frozen=True)
class Ties:
    """The scores that an output of indices was chosen by.

    Attributes:
        scores: of the reference.
        tolerance: of each score.
        axis: along which they were chosen.
        shape: of the indices, with the axis.
    """

    scores: Array
    tolerance: Array
    axis: int
    shape: tuple[int, ...]

    def allow(self, actual: Array, expected: Array) -> Array:
        """Return where another index has a score that is as good, as far as the band tells."""
        n = self.scores.shape[self.axis]
        valid = (actual >= 0) & (actual < n)
        picks = [np.where(valid, actual, 0).reshape(self.shape), expected.reshape(self.shape)]
        with np.errstate(all="ignore"):
            mine, best = (np.take_along_axis(self.scores, p, self.axis) for p in picks)
            slack = sum(np.take_along_axis(self.tolerance, p, self.axis) for p in picks)
            near = (np.abs(mine - best) <= slack) | (mine == best)
            near |= np.isnan(mine) & np.isnan(best)
        allowed: Array = near.reshape(actual.shape) & valid
        return allowed


def leaves(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of an output, which may be a list, a map or nothing, with names.

    Nothing (an empty optional) is an object array of rank 0 that holds None.
    """
    stack = [(name, value)]
    while stack:
        at, x = stack.pop()
        if isinstance(x, Mapping):
            stack += [(f"{at}[{k!r}]", e) for k, e in reversed(list(x.items()))]
        elif isinstance(x, (list, tuple)):
            stack += [(f"{at}[{i}]", x[i]) for i in reversed(range(len(x)))]
        else:
            array = np.asarray(x)
            yield at, array.astype(object) if array.dtype.kind in "US" else array


def compare_outputs(actual: Mapping[str, Any], band: Band) -> CompareReport:
    """Compare results with a band.

    Args:
        actual: {name: value}, as executors return it.
        band: what is expected.

    Returns:
        A verdict for each array expected, and one for each that nobody expects.
    """
    expected = dict(pair for n, x in band.expected.items() for pair in leaves(n, x))
    found = dict(pair for n, x in actual.items() for pair in leaves(n, x))
    verdicts = []
    for name, x in expected.items():
        if name not in found:
            verdicts.append(Verdict(name, False, "missing", _type_text(x)))
        else:
            tolerance, ties = band.tolerance.get(name), band.ties.get(name)
            verdicts.append(compare_arrays(name, found[name], x, tolerance, ties))
    extra = [Verdict(n, False, "not expected", _type_text(found[n])) for n in found]
    return CompareReport((*verdicts, *(v for v in extra if v.name not in expected)))


def compare_arrays(
    name: str,
    actual: Array,
    expected: Array,
    tolerance: Array | None = None,
    ties: Ties | None = None,
) -> Verdict:
    """Compare two arrays.

    NaN and infinities must be at the same places. An element that cannot be compared counts as
    outside: no NaN makes a verdict better.

    Args:
        name: for the verdict.
        actual: what was found.
        expected: what the reference says.
        tolerance: absolute, an array of the same shape; exact without.
        ties: for indices of extremes.
    """
    text = _type_text(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        kind = "shape" if actual.dtype == expected.dtype else "type"
        return Verdict(name, False, f"{kind}: got {_type_text(actual)}", text, expected.size)
    if expected.dtype.kind == "O" or DType.from_numpy(expected.dtype).kind is Kind.STRING:
        return _compare_objects(name, actual, expected, text)
    got, want = _wide(actual), _wide(expected)
    allowed = np.zeros(want.shape) if tolerance is None else np.broadcast_to(tolerance, want.shape)
    free = np.isposinf(allowed)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if ties is not None:
        same = same | ties.allow(actual, expected)
    finite = np.isfinite(got) & np.isfinite(want)
    with np.errstate(all="ignore"):
        error = np.where(same, 0.0, np.where(finite, _distance(got, want), np.inf))
        inside = error <= allowed
        ratio = np.where(error == 0, 0.0, np.where(allowed > 0, error / allowed, np.inf))
    ratio = np.where(free, 0.0, np.where(np.isnan(ratio), np.inf, ratio))
    outside = ~inside & ~free
    count, undecided = int(outside.sum()), int((free & ~same).sum())
    too_vague = expected.size >= ENOUGH and 2 * int(free.sum()) > expected.size
    nan, inf = (_counts(test, got, want) for test in (np.isnan, np.isinf))
    why = _reason(outside, got, want) if count else "undecided" if too_vague else ""
    return Verdict(
        name,
        not why,
        why,
        text,
        expected.size,
        count,
        undecided,
        nan,
        inf,
        _worst(actual, expected, ratio, error, allowed),
        _histogram(ratio[~free]),
    )


def _wide(x: Array) -> Array:
    """Return numbers in a type that NumPy computes with; integers stay exact."""
    if x.dtype.kind in "cfiub" and x.dtype.itemsize > 2:
        return x
    dtype = DType.from_numpy(x.dtype)
    return x.astype(np.float64 if dtype.is_float else np.int64)


def _distance(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and a.dtype.itemsize == 8:  # the difference may leave the type
        return np.abs(a.astype(np.longdouble) - b.astype(np.longdouble)).astype(np.float64)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return np.abs(a.astype(wide) - b.astype(wide))


def _reason(outside: Array, got: Array, want: Array) -> str:
    for what, test in (("NaN", np.isnan), ("infinities", np.isinf)):
        if (outside & (test(got) != test(want))).any():
            return f"{what} differ"
    return "differs"


def _counts(test: Any, got: Array, want: Array) -> tuple[int, int]:
    return int(test(got).sum()), int(test(want).sum())


def _histogram(ratio: Array) -> tuple[int, ...]:
    places = np.searchsorted(np.array(EDGES), ratio.ravel(), side="left")
    return tuple(np.bincount(places, minlength=len(HISTOGRAM)).tolist())


def _worst(
    actual: Array, expected: Array, ratio: Array, error: Array, allowed: Array
) -> Worst | None:
    if not ratio.size or not ratio.any():
        return None
    # among equally bad ones (an exact output has infinite ratios only) the largest error
    candidates = np.where(ratio == ratio.max(), error, -1.0)
    at = np.unravel_index(int(np.argmax(candidates)), ratio.shape)
    index = tuple(int(i) for i in at)
    off = float(error[at])
    off = off if np.isfinite(off) else float("nan")
    return Worst(index, actual[at], expected[at], off, float(allowed[at]))


def _compare_objects(name: str, actual: Array, expected: Array, text: str) -> Verdict:
    pairs = zip(actual.ravel().tolist(), expected.ravel().tolist(), strict=True)
    differs = np.array([type(a) is not type(b) or a != b for a, b in pairs], bool)
    count, worst = int(differs.sum()), None
    if count:
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), actual.shape))
        worst = Worst(at, actual[at], expected[at], float("nan"), 0.0)
    histogram = (differs.size - count, *(0,) * (len(HISTOGRAM) - 2), count)
    return Verdict(
        name, not count, "differs" if count else "", text, differs.size, count, worst=worst,
        histogram=histogram,
    )  # fmt: skip


def _type_text(x: Array) -> str:
    if x.dtype == object and x.ndim == 0 and x.item() is None:
        return "nothing"
    return f"{DType.from_numpy(x.dtype)}{list(x.shape)}"


def element_text(x: Any) -> str:
    """Return one element of an array as text, with the digits that tell it from its neighbours."""
    if isinstance(x, str) or x is None:
        return repr(x)
    dtype = np.asarray(x).dtype
    if dtype.kind in "iub":
        return str(x)
    if dtype.kind == "c":
        return f"{complex(x):.9g}"
    return f"{float(x):.17g}" if dtype == np.float64 else f"{float(x):.9g}"


def _plain(x: Any) -> Any:
    if isinstance(x, str) or x is None:
        return x
    array = np.asarray(x)
    if array.dtype.kind in "iub":
        return array.item()
    return str(x) if array.dtype.kind == "c" else float(x)
