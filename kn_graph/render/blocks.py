"""Parts of a model: by the paths in its names, or by what repeats where names say nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kn_graph.ops.source import Input
from kn_graph.render.repeats import repeated_paths
from kn_graph.value import Node

__all__ = ["Parts", "paths_of"]

Path = tuple[str, ...]

MIN_NODES = 4
"""Fewer are not worth a block."""

FLAT_NODES = 60
"""So many are drawn flat inside a block, framed by part, instead of folded again."""

MOSTLY = 0.8
"""A part with this share of all nodes is no part but the model itself."""


def paths_of(nodes: Sequence[Node]) -> dict[Node, Path]:
    """Return the part that each node belongs to, as path components; inputs belong to none."""
    inner = [n for n in nodes if not isinstance(n.op, Input)]
    paths = _paths_of_names(inner)
    parts = Parts(paths)
    numbered = {p for path in paths.values() for p in _prefixes(path) if parts.is_repeated(p)}
    named = sum(any(p in numbered for p in _prefixes(paths[n])) for n in inner)
    if named * 2 >= len(inner):
        return paths
    found = repeated_paths([(n.op.title, len(n.operands)) for n in inner])
    by_structure = dict(zip(inner, found, strict=True))
    repeated = sum(map(bool, found))
    return by_structure if repeated > named else paths


def _paths_of_names(nodes: Sequence[Node]) -> dict[Node, Path]:
    paths: dict[Node, Path] = {}
    for node in nodes:
        path = _path_of_name(node.origins)
        if path is None:
            before = [paths[v.node] for v in node.operands if v.node in paths]
            path = max(before, key=len, default=())
        paths[node] = path
    return paths


def _path_of_name(names: Sequence[str]) -> Path | None:
    """Return the path of the first name that has one: others were merged into it later."""
    for name in names:
        path = tuple(p for p in re.split(r"/+", name) if p)[:-1]
        if path:
            return path
    return None


def _prefixes(path: Path) -> list[Path]:
    return [path[:i] for i in range(1, len(path) + 1)]


@dataclass
class Parts:
    """The tree of parts, and where a picture folds it.

    Attributes:
        paths: the part of each node.
    """

    paths: Mapping[Node, Path]

    def __post_init__(self) -> None:
        self._sizes = Counter(p for path in self.paths.values() for p in _prefixes(path))
        self._holds_repeated = {p[:-1] for p in self._sizes if self.is_repeated(p)}

    def is_repeated(self, part: Path) -> bool:
        """Whether the name of a part is numbered, as those of layers are, and it is no trifle."""
        return self._sizes[part] >= MIN_NODES and re.search(r"\d", part[-1]) is not None

    def fold(self, nodes: Sequence[Node], inside: Path) -> dict[Node, Path]:
        """Return the part that each node of a picture is folded into, () for those it shows.

        Args:
            nodes: of the picture.
            inside: the part that is drawn; () for the whole graph.
        """
        if inside and len(nodes) <= FLAT_NODES:
            return dict.fromkeys(nodes, ())
        return self.frames(nodes, inside)

    def frames(self, nodes: Sequence[Node], inside: Path) -> dict[Node, Path]:
        """Return the next smaller part that each node of a picture belongs to, () for none."""
        total = self._sizes[inside] if inside else len(self.paths)
        return {n: self._cut(self.paths.get(n, ()), len(inside), total) for n in nodes}

    def _cut(self, path: Path, depth: int, total: int) -> Path:
        for part in _prefixes(path)[depth:]:
            size = self._sizes[part]
            if size < MIN_NODES:
                break
            if size > MOSTLY * total:
                continue
            if self.is_repeated(part) or part not in self._holds_repeated:
                return part
        return ()
