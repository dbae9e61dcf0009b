"""`python -m kn_runtime.ort program.py ...`: its `import onnxruntime` is served by this library."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from kn_runtime.ort.install import install

FORMS = "program.py ..., -m package ..., or -c code ..."


def main(arguments: Sequence[str]) -> None:
    """Run a program.

    Args:
        arguments: what to run, and then the program's own.

    Raises:
        SystemExit: the program ended itself, or there is nothing to run.
    """
    parser = argparse.ArgumentParser(
        prog="python -m kn_runtime.ort",
        usage=f"%(prog)s {FORMS}",
        description="Runs an unmodified program whose `import onnxruntime` is served by kn-engine.",
    )
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.parse_args(["--help"])
    form, rest = arguments[0], list(arguments[1:])
    run = {"-m": _run_module, "-c": _run_code}.get(form, _run_file)
    if run is _run_file:
        rest = list(arguments)
    elif not rest:
        parser.error(f"{form} needs something to run: {FORMS}")
    install()
    _stay_importable()
    _serve_children()
    run(rest)


def _run_module(arguments: list[str]) -> None:
    sys.argv, sys.path[0] = arguments, ""
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _run_code(arguments: list[str]) -> None:
    sys.argv, sys.path[0] = ["-c", *arguments[1:]], ""
    exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})


def _run_file(arguments: list[str]) -> None:
    sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


def _stay_importable() -> None:
    """Keep this library importable where it was found by the working directory alone."""
    root = str(Path(__file__).parents[2])
    if root not in sys.path[1:]:
        sys.path.append(root)


def _serve_children() -> None:
    """Let Python processes that the program starts be served, too: they inherit the environment."""
    places = [
        str(Path(__file__).parent / "children"),
        *_inherited(),
        str(Path(__file__).parents[2]),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))


def _inherited() -> list[str]:
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


if __name__ == "__main__":
    main(sys.argv[1:])
