"""Real models with recorded inputs, as tools/real_models.py fetches them.

Their list and recordings are looked for in $KN_MODELS_REAL, else in ../shared/models_real beside
this repository; the files in $KN_MODELS_DIR, else in ~/.cache/kn-models.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import ROOT
from benchmarks.rows import models_folder

__all__ = ["RealModel", "real_models", "recorded_feeds"]

Array = np.ndarray[Any, Any]

QUANTIZED = re.compile("Quant|Integer|MatMulNBits")


@dataclass(frozen=True)
class RealModel:
    """A model of the list.

    Attributes:
        name: package and file, which tell it from the others.
        path: of the file.
        recording: inputs and outputs, if there is one.
        shapes: of float inputs otherwise: `NAME:1x3x48x320 ...`.
        quantized: whether it computes with int8.
    """

    name: str
    path: Path
    recording: Path | None
    shapes: str
    quantized: bool

    def feeds(self) -> dict[str, Array]:
        """Return its inputs, recorded or seeded."""
        if self.recording is not None:
            return recorded_feeds(self.recording)
        rng = np.random.default_rng(0)
        named = (item.rsplit(":", 1) for item in self.shapes.split())
        return {n: rng.standard_normal([*map(int, s.split("x"))], np.float32) for n, s in named}


def recorded_feeds(path: Path) -> dict[str, Array]:
    """Return the inputs in a recording."""
    with np.load(path) as content:
        return {k.removeprefix("in:"): content[k] for k in content.files if k.startswith("in:")}


def real_models() -> Iterator[RealModel]:
    """Yield all that are there."""
    lists = Path(os.environ.get("KN_MODELS_REAL", ROOT.parent / "shared" / "models_real"))
    if not (lists / "manifest.json").exists():
        raise SystemExit(f"no list of real models in {lists}; KN_MODELS_REAL says where it is")
    entries = json.loads((lists / "manifest.json").read_text())
    stems = [Path(e["path"]).name.removesuffix(".gz").removesuffix(".onnx") for e in entries]
    names = [f"{e['package']}/{stem}" for e, stem in zip(entries, stems, strict=True)]
    times = Counter(names)
    for entry, name in zip(entries, names, strict=True):
        digest = entry["sha256"]
        yield RealModel(
            name if times[name] == 1 else f"{name} {digest[:4]}",
            models_folder() / f"{digest[:12]}.onnx",
            lists / "io" / entry["io"] if entry.get("io") else None,
            entry.get("shapes", ""),
            any(QUANTIZED.search(op) for op in entry["ops"]),
        )
