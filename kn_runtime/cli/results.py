"""Outputs of a model: summaries for people and tools, and files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import UsageError

__all__ = ["check_labels", "first_text", "save_outputs", "summary", "type_text"]

Array = np.ndarray[Any, Any]

SHOWN = 8
"""Elements of an output, and rows of scores, that are printed."""

TOP = 5
"""Labels that are printed for each row."""

MAX_TEXT = 100
"""Characters of a string that are printed."""


# ---- summaries ------------------------------------------------------------------------------


def summary(x: Any, labels: Sequence[str] | None = None) -> dict[str, Any]:
    """Return facts about one output, to be printed as JSON.

    Args:
        x: the value.
        labels: names of classes; an output with one score a label gets the best of them.

    Returns:
        `type` always. Of an array `dtype`, `shape` and the `first` elements; of one of numbers
        `min`, `mean` and `max` of the finite ones, and how many are `nan` and `inf`. With labels
        `rows`, the `top` of the first of them, and whether the scores are `probabilities`.
    """
    if not isinstance(x, np.ndarray):
        return {"type": type_text(x), "first": _first(x)}
    dtype = DType.from_numpy(x.dtype)
    facts = {"type": type_text(x), "dtype": dtype.text, "shape": list(x.shape), "first": _first(x)}
    if x.size and (dtype.is_float or dtype.is_int):
        facts |= _statistics(x.astype(np.float64))
    if labels and dtype.is_float and (rows := _score_rows(x, len(labels))) is not None:
        facts |= _best(rows, labels)
    return facts


def type_text(x: Any) -> str:
    """Return the type of a value as text, such as `float32[1, 10]`."""
    if isinstance(x, np.ndarray):
        return f"{DType.from_numpy(x.dtype)}{list(x.shape)}"
    if isinstance(x, list):
        kinds = sorted({type_text(e) for e in x})
        return f"sequence of {len(x)}" + (f": {', '.join(kinds[:3])}" if kinds else "")
    if isinstance(x, Mapping):
        return f"map of {len(x)}"
    return "empty optional" if x is None else type(x).__name__


def check_labels(
    outputs: Mapping[str, Mapping[str, Any]], path: str, labels: Sequence[str]
) -> None:
    """Refuse labels that no output has scores for.

    Raises:
        UsageError: says the types of the outputs.
    """
    if not any("top" in facts for facts in outputs.values()):
        types = ", ".join(f"{n!r}: {f['type']}" for n, f in outputs.items())
        raise UsageError(
            f"--labels {path} has {len(labels)} names, and no output has as many scores: {types}"
        )


def first_text(x: Any) -> str:
    """Return the first elements of a value as text; '' for None."""
    return "" if x is None else _joined(_first(x), _length(x))


def _joined(x: Any, length: int) -> str:
    if isinstance(x, dict):
        parts = [f"{k}: {_joined(v, 0)}" for k, v in x.items()]
    elif isinstance(x, list):
        parts = [_joined(e, 0) for e in x]
    elif isinstance(x, str):
        return repr(x if len(x) <= MAX_TEXT else x[: MAX_TEXT - 3] + "...")
    else:
        return "none" if x is None else f"{x:.5g}" if isinstance(x, float) else str(x)
    return ", ".join(parts) + (", ..." if length > len(parts) else "")


def _length(x: Any) -> int:
    return x.size if isinstance(x, np.ndarray) else len(x) if isinstance(x, (list, dict)) else 0


def _first(x: Any) -> Any:
    """Return the first elements of a value as Python objects, in a list or dict."""
    if isinstance(x, np.ndarray):
        return _python(x.reshape(-1)[:SHOWN])
    if isinstance(x, list):
        return [_first(e) for e in x[:SHOWN]]
    if isinstance(x, Mapping):
        return {str(k): _first(v) for k, v in list(x.items())[:SHOWN]}
    return x.item() if isinstance(x, np.generic) else x


def _python(x: Array) -> Any:
    """Return nested lists of numbers and texts that JSON knows; complex numbers become texts."""
    dtype = DType.from_numpy(x.dtype)
    if dtype.is_float:
        return x.astype(np.float64).tolist()
    if dtype.is_int:
        return x.astype(np.uint64 if dtype is DType.UINT64 else np.int64).tolist()
    return x.astype(str).tolist() if x.dtype.kind == "c" else x.tolist()


def _statistics(x: Array) -> dict[str, Any]:
    finite = x[np.isfinite(x)]
    facts: dict[str, Any] = {}
    if finite.size:
        facts = {
            "min": float(finite.min()),
            "mean": float(finite.mean()),
            "max": float(finite.max()),
        }
    return facts | {"nan": int(np.isnan(x).sum()), "inf": int(np.isinf(x).sum())}


def _score_rows(x: Array, count: int) -> Array | None:
    """Return the rows of an output that has `count` scores along its last axis larger than 1."""
    shape = x.shape
    while len(shape) > 1 and shape[-1] == 1 and count > 1:
        shape = shape[:-1]
    if not shape or shape[-1] != count:
        return None
    return x.reshape(-1, count).astype(np.float64)


def _best(rows: Array, labels: Sequence[str]) -> dict[str, Any]:
    top = []
    for row in rows[:SHOWN]:
        order = np.argsort(-row, kind="stable")[:TOP].tolist()  # NaN comes last
        top.append([{"label": labels[i], "index": i, "score": float(row[i])} for i in order])
    likely = (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1, atol=0.01)
    return {"rows": len(rows), "top": top, "probabilities": bool(likely)}


# ---- files ----------------------------------------------------------------------------------


def save_outputs(outputs: Mapping[str, Any], folder: Path) -> None:
    """Write every array into a .npy file, and a list of all outputs into outputs.json.

    A sequence has one file an element. Strings, maps and empty optionals are in outputs.json.

    Raises:
        UsageError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken: set[str] = {"outputs.json"}
        listing = {name: _saved(x, name, folder, taken) for name, x in outputs.items()}
        text = json.dumps(listing, indent=2, ensure_ascii=True, default=str)
        (folder / "outputs.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--output {folder} cannot be written: {error.strerror or error}"
        ) from None


def _saved(x: Any, name: str, folder: Path, taken: set[str]) -> Any:
    if x is None:
        return None
    if isinstance(x, list):
        return [_saved(e, f"{name}.{i}", folder, taken) for i, e in enumerate(x)]
    if isinstance(x, Mapping):
        entries = enumerate(x.items())
        return {str(k): _saved(v, f"{name}.{i}", folder, taken) for i, (k, v) in entries}
    if not isinstance(x, np.ndarray):
        return {"value": x.item() if isinstance(x, np.generic) else x}
    facts = {"dtype": DType.from_numpy(x.dtype).text, "shape": list(x.shape)}
    if x.dtype == object:
        return facts | {"value": x.tolist()}
    file = _free_file(name, taken)
    np.save(folder / file, x)
    return {"file": file, **facts}


def _free_file(name: str, taken: set[str]) -> str:
    """Return a file name for an output; names that only differ in odd characters get numbers."""
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:200] or "_"
    file, number = f"{stem}.npy", 2
    while file in taken:
        file, number = f"{stem}-{number}.npy", number + 1
    taken.add(file)
    return file
