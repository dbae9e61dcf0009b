"""Serves `import onnxruntime` in the child processes of a program that is served.

Python imports this when it starts, if `python -m kn_runtime.ort` put this folder on `PYTHONPATH`. A
`sitecustomize` of the system or of the environment, which this one hides, is imported as well.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

__all__: list[str] = []

HERE = str(Path(__file__).parent)


def _import_hidden() -> None:
    """Import the module of the same name that would be found without this folder."""
    rest = [p for p in sys.path if p != HERE]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


_import_hidden()
with suppress(ImportError):  # a child of another environment, which does not have this library
    from kn_runtime.ort.install import install

    install()
