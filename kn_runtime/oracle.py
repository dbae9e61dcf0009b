"""Other runtimes, asked for a second opinion in a process of their own.

This library never imports one: the module to import is named on the command line of the child,
which reads the inputs from one .npz file and writes the outputs to another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import UsageError

__all__ = ["ORACLES", "child_environment", "read_values", "run_oracle", "write_values"]

MISSING = 3
"""Exit code of the child where the module is not installed."""

LISTING = "listing"
"""Member of the archives that describes the others, as JSON."""

NATIVE = frozenset("biufc")


def run_oracle(
    module: str, model: str | os.PathLike[str], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a model file on another runtime.

    Args:
        module: one of `ORACLES`.
        model: path of the file.
        inputs: arrays by name.

    Returns:
        {output name: value}.

    Raises:
        UsageError: the runtime is not installed, or cannot run the model.
    """
    if module not in ORACLES:
        raise UsageError(f"no runtime {module!r} is known; there are {', '.join(ORACLES)}")
    with TemporaryDirectory(prefix="kn-oracle-") as folder:
        given, found = Path(folder, "in.npz"), Path(folder, "out.npz")
        write_values(given, dict(inputs))
        command = [sys.executable, "-P", "-m", "kn_runtime.oracle", module, str(model), str(given)]
        done = subprocess.run(
            [*command, str(found)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=child_environment(),
        )
        if done.returncode == MISSING:
            package = module.partition(".")[0]
            raise UsageError(f"{module} is not installed here: pip install {package}")
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            why = lines[-1] if lines else f"it ended with code {done.returncode}"
            raise UsageError(f"{module} does not run {os.fspath(model)}: {why}")
        result: dict[str, Any] = read_values(found)
        return result


def child_environment() -> dict[str, str]:
    """Return variables for a child that finds this very package, wherever it was imported from.

    The child needs `python -P` as well, or it takes what lies in the current folder. Where programs
    that import onnxruntime are served (`kn_runtime.ort`), it is not: it would be its own oracle.
    """
    here = Path(__file__).parent
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [str(here.parent), *(p for p in inherited if p != str(here / "ort" / "children"))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


# ---- values in archives ---------------------------------------------------------------------


def write_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write values of any kind; what NumPy cannot store is stored as bytes and described."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    listing = {name: _describe(x, arrays) for name, x in values.items()}
    text = np.array(json.dumps(listing))
    np.savez(path, **{LISTING: text, **arrays})  # type: ignore[arg-type]


def _describe(x: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if x is None:
        return None
    if isinstance(x, Mapping):
        return {"map": [[k, _describe(v, arrays)] for k, v in x.items()]}
    if isinstance(x, (list, tuple)):
        return {"list": [_describe(e, arrays) for e in x]}
    x = np.asarray(x)
    dtype = DType.from_numpy(x.dtype)
    name = f"x{len(arrays)}"
    if dtype is DType.STRING:
        arrays[name] = x.astype(str)
    elif dtype.numpy.kind in NATIVE and dtype.numpy.isbuiltin == 1:
        arrays[name] = x
    else:
        arrays[name] = np.ascontiguousarray(x).view(f"u{dtype.itemsize}").reshape(x.shape)
    return {"array": name, "dtype": dtype.text}


def read_values(path: Path) -> dict[str, Any]:
    """Return what `write_values` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        listing = json.loads(archive[LISTING].item())
        return {name: _restore(entry, archive) for name, entry in listing.items()}


def _restore(entry: Any, archive: Mapping[str, Any]) -> Any:
    if entry is None:
        return None
    if "map" in entry:
        return {k: _restore(v, archive) for k, v in entry["map"]}
    if "list" in entry:
        return [_restore(e, archive) for e in entry["list"]]
    x, dtype = archive[entry["array"]], DType.parse(entry["dtype"])
    if dtype is DType.STRING:
        return x.astype(object)
    return x if x.dtype == dtype.numpy else x.view(dtype.numpy)


# ---- the child ------------------------------------------------------------------------------


def _onnxruntime(module: Any, model: str, inputs: dict[str, Any]) -> dict[str, Any]:
    options = module.SessionOptions()
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _evaluator(module: Any, model: str, inputs: dict[str, Any]) -> dict[str, Any]:
    evaluator = module.ReferenceEvaluator(model)
    return dict(zip(evaluator.output_names, evaluator.run(None, inputs), strict=True))


ORACLES: dict[str, Callable[[Any, str, dict[str, Any]], dict[str, Any]]] = {
    "onnxruntime": _onnxruntime,
    "onnx.reference": _evaluator,
}
"""Runtimes by the module that they are imported from."""


def _main(arguments: Sequence[str]) -> int:
    name, model, given, found = arguments
    try:
        module = import_module(name)
    except ImportError:
        return MISSING
    write_values(Path(found), ORACLES[name](module, model, read_values(Path(given))))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
