"""Writes docs/performance.md and its charts from what the benchmarks measured.

    python -m benchmarks.report                     from build/benchmarks/*.json
    python -m benchmarks.report --run [--quick]     after running all of them, which takes an hour

Another folder of results: --folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chart import ABOVE, OTHER, Bar, Line, bars, lines
from benchmarks.results import RESULTS, ROOT, load

PAGE = ROOT / "docs" / "performance.md"
CHARTS = ROOT / "docs" / "charts"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A benchmark on the page.

    Attributes:
        name: of the module.
        title: heading.
        text: what is measured.
        unit: of the columns of both engines.
        scale: how many of the unit a number is.
        chart: whether bars are drawn.
        pictures: other charts, by fact.
    """

    name: str
    title: str
    text: str
    unit: str = "ms"
    scale: float = 1e3
    chart: bool = True
    pictures: tuple[str, ...] = ()


SECTIONS = (
    Section(
        "vs_onnxruntime",
        "Exported architectures",
        "Seeded weights; files, sizes and targets are those of `benchmarks/models.toml`.",
    ),
    Section(
        "real_models",
        "Real models",
        "Models that ship in public packages, on recorded inputs.",
    ),
    Section(
        "dynamic_sizes",
        "Changing sizes",
        "`decode` is 200 tokens whose cache grows, `widths` 50 text lines of different widths, "
        "each on a graph that has seen none of these sizes. For `bind` (within the capacity of "
        "the arena) and `anew` (beyond it) the second column is what binding may take.",
        chart=False,
    ),
    Section(
        "overhead",
        "What a call costs",
        "`mlp` is a perceptron of 64, 64 and 16 numbers; `call` gives inputs by name, `bound` runs "
        "on arrays that stay (io binding in onnxruntime).",
        "µs",
        1e6,
        chart=False,
        pictures=("batch", "depth"),
    ),
    Section(
        "cold_start",
        "Cold start",
        "Load, optimize, prepare and the first eval, against the creation of a session and the "
        "first run; everything is imported before.",
    ),
    Section(
        "processes",
        "Whole programs",
        "`memory` is the peak of resident memory in MB over five runs, `program` the seconds from "
        "the first line of Python, imports included, to the first outputs; each engine in "
        "processes of its own.",
        "",
        1.0,
    ),
)

MEASURED = (
    "Every figure is the median over {runs} fresh processes (fewer where the command above a table "
    "says so; `--quick` is one) of the median ratio of interleaved turns in one process, two "
    "threads each; onnxruntime's threads do not spin "
    "(`session.force_spinning_stop`), or they would take the other engine's turns. `speed` is how "
    "many times longer onnxruntime takes, or how much more it needs; smallest and largest run in "
    "brackets. Outputs are compared as well."
)
AGAIN = (
    "`python -m benchmarks.report --run` measures everything again and writes this page; loading "
    "against the `onnx` package is on [a page of its own](startup.md)."
)
WIDTH = 100


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and its charts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run", action="store_true", help="run all benchmarks first")
    parser.add_argument("--quick", action="store_true", help="with short runs")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="of the results")
    args = parser.parse_args(argv)
    if args.run:
        for section in SECTIONS:
            command = [sys.executable, "-m", f"benchmarks.{section.name}"]
            json = ["--json", str(args.folder / f"{section.name}.json")]
            subprocess.run(
                [*command, *json, *(["--quick"] if args.quick else [])], cwd=ROOT, check=False
            )
    found = {s.name: content for s in SECTIONS if (content := load(s.name, args.folder))}
    if not found:
        raise SystemExit(f"there are no results in {args.folder}; --run makes them")
    PAGE.write_text("\n".join(page(found)) + "\n")
    for name, svg in charts(found):
        (CHARTS / f"{name}.svg").write_text(svg)
    print(f"written {PAGE.relative_to(ROOT)} from {', '.join(found)}")
    return 0


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    first = next(iter(found.values()))
    runs = max(row["runs"] for content in found.values() for row in content["rows"])
    yield "# Performance against onnxruntime"
    yield ""
    yield from machine_lines(first["machine"])
    yield ""
    yield textwrap.fill(MEASURED.format(runs=runs), WIDTH)
    yield ""
    yield textwrap.fill(AGAIN, WIDTH)
    for section in SECTIONS:
        if section.name in found:
            yield ""
            yield from section_lines(section, found[section.name])


def machine_lines(machine: Row) -> Iterator[str]:
    """Yield where and with what it was measured."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    yield f"{machine['processor']}, {machine['cores']} cores, kernels for {machine['isa']};"
    yield f"{machine['system']}, Python {machine['python']}, {packages}."
    yield f"{machine['date']}; commits are beside the commands."


def section_lines(section: Section, content: Row) -> Iterator[str]:
    """Yield a benchmark."""
    yield f"## {section.title}"
    yield ""
    yield textwrap.fill(section.text, WIDTH)
    yield ""
    yield f"`{content['command']}` (commit {content['machine']['commit']})"
    total = content["total"]
    if total["target"] is not None:
        yield ""
        yield (
            f"Geometric mean **{total['geomean']:.2f}** (asked: {total['target']:.2f}), smallest "
            f"{total['low']:.2f} ({total['slowest']}), {total['measured']} measured, "
            f"{total['failed']} failed or wrong."
        )
    yield ""
    if section.chart:
        yield f"![{section.title}](charts/{section.name}.svg)"
        yield ""
    if section.pictures:
        yield " ".join(f"![by {p}](charts/{p}.svg)" for p in section.pictures)
        yield ""
    unit = f" {section.unit}" if section.unit else ""
    yield f"| | what | ours{unit} | onnxruntime{unit} | speed | asked | |"
    yield "|-|-|-|-|-|-|-|"
    for row in content["rows"]:
        yield f"| {' | '.join(cells(section, row))} |"


def cells(section: Section, row: Row) -> list[str]:
    """Return a row of a table."""
    target = "" if row["target"] is None else f"{row['target']:.2f}"
    if row["speed"] is None:
        return [row["name"], facts(row), "", "", "", target, f"failed: {row['failure'][:80]}"]
    speed = "{median:.2f} ({low:.2f} to {high:.2f})".format(**row["speed"])
    numbers = [f"{row[k] * section.scale:.4g}" for k in ("ours", "theirs")]
    return [row["name"], facts(row), *numbers, speed, target, row["verdict"]]


def facts(row: Row) -> str:
    """Return file, sizes and element type, where a row has them."""
    known = row["facts"]
    sizes = ", ".join(f"{name} {size}" for name, size in known.get("dims", {}).items())
    return ", ".join(filter(None, (known.get("file", ""), sizes, known.get("dtype", ""))))


def charts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the charts."""
    for section in SECTIONS:
        if section.name in found and section.chart:
            rows = [r for r in found[section.name]["rows"] if r["speed"] is not None]
            made = [bar(row) for row in rows]
            title = f"{section.title}: how many times more onnxruntime takes; | is what is asked"
            yield section.name, bars(title, made)
    if "overhead" in found:
        rows = found["overhead"]["rows"]
        for fact, across in (("batch", "rows"), ("depth", "layers")):
            points = [r for r in rows if fact in r["facts"] and r["speed"] is not None]
            series = [
                Line(label, [(r["facts"][fact], 1e6 * r[key]) for r in points], color)
                for label, key, color in (("ours", "ours", ABOVE), ("onnxruntime", "theirs", OTHER))
            ]
            if points:
                yield fact, lines("A perceptron", across, "µs", series)


def bar(row: Row) -> Bar:
    """Return the bar of a row."""
    speed = row["speed"]
    return Bar(row["name"], speed["median"], speed["low"], speed["high"], row["target"])


if __name__ == "__main__":
    sys.exit(main())
