"""`kn run` on folders: once for each file, with a line for each and one result file for all."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kn_graph.errors import KnError, UsageError
from kn_runtime.cli import feeds
from kn_runtime.cli.arguments import write_text
from kn_runtime.cli.common import counted, emit_json, grid, json_text, show
from kn_runtime.cli.input_files import input_suffixes
from kn_runtime.cli.progress import progress
from kn_runtime.cli.results import check_labels, first_text, save_outputs, summary
from kn_runtime.cli.table import Column, Table

if TYPE_CHECKING:
    from kn_runtime.prepared import PreparedGraph

__all__ = ["RESULTS", "calls_of", "execute"]

RESULTS = "results.json"
"""The file in `--output DIR` that holds what is known of all files."""

COLUMNS = (
    Column("file", least=12),
    Column("result", least=20),
    Column("ms", right=True, rank=1),
)


@dataclass(frozen=True)
class _Call:
    """One run.

    Attributes:
        name: of the files, without suffix; a folder of results is called so.
        files: what is shown of it.
        inputs: what `--input` would be.
    """

    name: str
    files: str
    inputs: list[str]


def calls_of(inputs: Sequence[str]) -> list[_Call] | None:
    """Return the runs that inputs from folders ask for; None where no input is a folder.

    Raises:
        UsageError: a folder holds nothing to read, or folders do not belong together.
    """
    rest: list[str] = []
    folders: dict[str, dict[str, Path]] = {}
    for text in inputs:
        name, equals, source = text.partition("=")
        if equals and Path(source).is_dir():
            folders[name] = _files(name, Path(source))
        else:
            rest.append(text)
    if not folders:
        return None
    first, *others = folders
    for other in others:
        alone = folders[first].keys() ^ folders[other].keys()
        if alone:
            raise UsageError(
                f"the folders for {first!r} and {other!r} hold different files: {min(alone)!r} is "
                "in one of them only; files of one run are called the same"
            )
    return [
        _Call(
            stem,
            " ".join(found[stem].name for found in folders.values()),
            [*rest, *(f"{name}={found[stem]}" for name, found in folders.items())],
        )
        for stem in folders[first]
    ]


def _files(name: str, folder: Path) -> dict[str, Path]:
    suffixes = input_suffixes()
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in suffixes and file.is_file():
            if file.stem in found:
                raise UsageError(f"{folder} has two files called {file.stem!r}: {file.name} and "
                                 f"{found[file.stem].name}")  # fmt: skip
            found[file.stem] = file
    if not found:
        raise UsageError(
            f"--input {name}: {folder} holds no file with one of the suffixes {', '.join(suffixes)}"
        )
    return found


def execute(
    args: argparse.Namespace,
    prepared: PreparedGraph,
    calls: Sequence[_Call],
    labels: Sequence[str] | None,
) -> int:
    """Run all, print, write; return 1 where a file failed."""
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()
    with progress("running", len(calls)) as advance:
        for row in _rows(args, prepared, calls, labels):
            rows.append(row)
            advance()
    failed = sum("error" in row for row in rows)
    report = {
        "model": args.model,
        "device": str(prepared.device),
        "reason": prepared.device.reason,
        "seconds": round(time.perf_counter() - start, 3),
        "failed": failed,
        "files": [{k: v for k, v in row.items() if k != "shown"} for row in rows],
    }
    if args.output is not None:
        Path(args.output).mkdir(parents=True, exist_ok=True)
        write_text(Path(args.output, RESULTS), json_text(report))
    if args.json:
        emit_json(report)
    else:
        _print(args, report, rows)
    return 1 if failed else 0


def _rows(
    args: argparse.Namespace,
    prepared: PreparedGraph,
    calls: Sequence[_Call],
    labels: Sequence[str] | None,
) -> Iterator[dict[str, Any]]:
    """Yield what is known of each run; one that fails does not end the others."""
    for call in calls:
        named = {"name": call.name, "file": call.files}
        own = argparse.Namespace(**{**vars(args), "input": call.inputs})
        try:
            given = feeds.read_feeds(prepared.graph, own)
            start = time.perf_counter()
            outputs = prepared.eval(given.values, seed=args.seed)
            seconds = time.perf_counter() - start
        except KnError as error:
            yield {**named, "error": str(error), "category": error.category}
            continue
        facts = {n: summary(x, labels) for n, x in outputs.items()}
        if labels is not None:
            check_labels(facts, args.labels, labels)
        if args.output is not None:
            save_outputs(outputs, Path(args.output, call.name))
        shown = _shown(facts, outputs)
        yield {**named, "run_ms": round(seconds * 1e3, 3), "outputs": facts, "shown": shown}


def _shown(facts: Mapping[str, Mapping[str, Any]], outputs: Mapping[str, Any]) -> str:
    """Return the best label where there is one, else the first numbers of the first output."""
    for found in facts.values():
        if "top" in found:
            best = found["top"][0][0]
            share = f"{best['score']:.2%}" if found["probabilities"] else f"{best['score']:.4g}"
            return f"{best['label']}  {share}"
    name = next(iter(facts), None)
    return "" if name is None else f"{name} {facts[name]['type']}: {first_text(outputs[name])}"


def _print(
    args: argparse.Namespace, report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    from rich.text import Text

    shown = [
        (r["file"], r["shown"], f"{r['run_ms']:.1f}")
        if "error" not in r
        else (r["file"], Text("failed, see below", "bold red"), "")
        for r in rows
    ]
    show(Table(COLUMNS, shown), "")
    errors = [(Text(r["file"], "red"), r["error"]) for r in rows if "error" in r]
    if errors:
        show(grid(errors), "")
    files = counted(len(rows), "file")
    facts = {
        "files": f"{files} in {report['seconds']:.1f} s, {report['failed']} failed",
        "device": f"{report['device']}: {report['reason']}",
        "written": args.output and str(Path(args.output, RESULTS)),
    }
    show(grid((k, v) for k, v in facts.items() if v))
