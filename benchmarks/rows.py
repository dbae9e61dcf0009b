"""The rows of `models.toml`."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Row", "exports_folder", "models_folder", "rows"]

TABLE = Path(__file__).parent / "models.toml"

LIMITS = {"float32": 1e-3, "float16": 0.1, "int8": 0.1, "int4": 1e-2}
"""How far outputs may lie from onnxruntime's before a speed means nothing, by element type."""


@dataclass(frozen=True)
class Row:
    """A model at certain sizes.

    Attributes:
        name: of the row.
        file: of the model.
        dtype: of what it mostly computes.
        threads: of each engine.
        dims: sizes by name.
        highest: of integer inputs, by name.
        target: how many times longer onnxruntime must take; None where nothing is asked.
    """

    name: str
    file: str
    dtype: str
    threads: int
    dims: Mapping[str, int] = field(default_factory=dict)
    highest: Mapping[str, int] = field(default_factory=dict)
    target: float | None = None

    @property
    def limit(self) -> float:
        """How far outputs may lie from onnxruntime's."""
        return LIMITS[self.dtype]


def rows(pattern: str = "", table: Path = TABLE) -> list[Row]:
    """Return the rows whose name a regular expression finds."""
    content = tomllib.loads(table.read_text())
    made = [Row(**{"threads": content["threads"], **row}) for row in content["row"]]
    return [row for row in made if re.search(pattern, row.name)]


def exports_folder(given: str | None = None) -> Path:
    """Return where the exported models lie."""
    return Path(given or os.environ.get("KN_EXPORTS_DIR", "~/.cache/kn-exports")).expanduser()


def models_folder() -> Path:
    """Return where tools/real_models.py puts the real models."""
    return Path(os.environ.get("KN_MODELS_DIR", "~/.cache/kn-models")).expanduser()
