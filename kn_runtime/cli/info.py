"""`kn info`: what a model file contains."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from kn_runtime.cli.arguments import add_model
from kn_runtime.cli.common import INDENT, emit_json, grid, human_bytes, joined, show
from kn_runtime.model_info import ModelEnd, ModelInfo, model_info

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn info model.onnx
  kn info model.onnx --json
"""

MAX_TEXT = 300
"""Characters of a metadata value that are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the facts."""
    info = model_info(args.model)
    if args.json:
        emit_json(asdict(info))
    else:
        _print(info)
    return 0


def _print(info: ModelInfo) -> None:
    from rich.text import Text

    show(Text(info.path, "bold"))
    show(grid(_facts(info).items()), indent=INDENT)
    sections = {
        "inputs": grid(map(_end_row, info.inputs)) if info.inputs else "none",
        "outputs": grid(map(_end_row, info.outputs)) if info.outputs else "none",
        "operators": joined(f"{count:,} {name}" for name, count in info.operators.items()),
        "unsupported operators": grid((Text(o, "red"),) for o in info.unsupported),
        "metadata": grid((k, _shortened(v)) for k, v in info.metadata.items()),
    }
    empty = {"operators": not info.operators, "unsupported operators": not info.unsupported}
    empty["metadata"] = not info.metadata
    for title, content in sections.items():
        if not empty.get(title):
            show("", Text(title, "bold"))
            show(content, indent=INDENT)


def _facts(info: ModelInfo) -> dict[str, str]:
    opsets = ", ".join(f"{d} {v}" for d, v in info.opsets.items())
    dtypes = ", ".join(info.weight_dtypes)
    facts = {
        "format": f"opset {opsets}; IR version {info.ir_version}; {human_bytes(info.file_bytes)}",
        "nodes": f"{info.nodes:,}",
        "weights": f"{info.parameters:,} ({dtypes}), {human_bytes(info.weight_bytes)} in memory"
        if info.parameters
        else "none",
        "weight files": ", ".join(info.external_files),
        "functions": ", ".join(info.functions),
        "symbolic sizes": ", ".join(info.symbols),
    }
    return {k: v for k, v in facts.items() if v}


def _end_row(end: ModelEnd) -> Sequence[str]:
    return (end.name, end.type, "may be left out") if end.optional else (end.name, end.type)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
