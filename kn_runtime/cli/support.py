"""`kn support`: which operators are supported, and the page of the documentation that says so."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kn_graph.errors import UsageError
from kn_graph.onnx.coverage import coverage, coverage_markdown
from kn_runtime.cli.common import console, emit_json, table

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn support
  kn support --markdown > docs/supported-operators.md
  kn support --check docs/supported-operators.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("--markdown", action="store_true", help="print the documentation page")
    parser.add_argument("--check", metavar="FILE", help="exit with 1 where the page is stale")


def execute(args: argparse.Namespace) -> int:
    """Print, or compare."""
    if args.check:
        try:
            current = Path(args.check).read_text()
        except OSError as error:
            raise UsageError(f"--check {args.check}: {error.strerror}") from None
        stale = current != coverage_markdown()
        if stale:
            sys.stderr.write(f"{args.check} is stale: run kn support --markdown > {args.check}\n")
        return 1 if stale else 0
    if args.markdown:
        sys.stdout.write(coverage_markdown())
        return 0
    rows = coverage()
    if args.json:
        emit_json({"operators": [vars(r) for r in rows]})
        return 0
    console().print(
        table(("operator", "opsets", "how"), ((r.operator, r.versions, r.how) for r in rows))
    )
    return 0
