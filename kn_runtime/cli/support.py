"""`kn support`: which operators are supported, and the page of the documentation that says so."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kn_graph.errors import UsageError
from kn_runtime.cli.common import emit_json, grid, show

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn support
  kn support --markdown > docs/supported-operators.md
  kn support --check docs/supported-operators.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print the documentation page")
    form.add_argument("--check", metavar="FILE", help="exit with 1 where the page is stale")


def execute(args: argparse.Namespace) -> int:
    """Print, or compare."""
    from kn_graph.onnx.coverage import coverage, coverage_markdown

    if args.check is not None:
        return _check(args.check, coverage_markdown(), json=args.json)
    rows = coverage()
    if args.json:
        emit_json({"operators": [vars(r) for r in rows]})
    elif args.markdown:
        sys.stdout.write(coverage_markdown())
    else:
        texts = ((r.operator, r.versions, r.how) for r in rows)
        show(grid(texts, ("operator", "opset versions", "how")))
    return 0


def _check(path: str, page: str, *, json: bool) -> int:
    try:
        stale = Path(path).read_text(encoding="utf-8") != page
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--check {path}: cannot be read: {reason}") from None
    if json:
        emit_json({"file": path, "stale": stale})
    elif stale:
        sys.stderr.write(f"{path} is stale: run kn support --markdown > {path}\n")
    return 1 if stale else 0
