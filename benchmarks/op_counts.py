"""How many operations models have before and after the optimizer, and what they are.

    python benchmarks/op_counts.py [REGEX] [--markdown] [--models DIR ...] [--no-onnxruntime]

Counts the operations that compute: without inputs, constants, and operations that only move, repeat
or rename elements (View, Broadcast, Permute, Slice, Flip), those in control-flow bodies included.
Beside them are the nodes of the model that onnxruntime writes after its own optimization (level
`ORT_ENABLE_EXTENDED`), without Constant nodes; in brackets without such layout operators, too.

Models are those of `models/generate.py` and all files in $KN_EXPORTS_DIR (default
~/.cache/kn-exports) and $KN_MODELS_DIR (default ~/.cache/kn-models) that are there. A file
`names.json` in such a folder, {file name: what to call it}, gives them other names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
if __package__ in (None, ""):  # run as a script: the folder above is not on the path
    sys.path.insert(0, str(HERE.parent))

from benchmarks.tables import markdown  # noqa: E402
from kn_graph import Graph, KnError, load_graph_from_onnx_path, optimize_graph  # noqa: E402
from kn_graph.liveness import bodies_of, live_nodes  # noqa: E402

__all__ = ["Row", "count", "main", "measure", "model_files", "onnx_nodes", "onnxruntime_nodes"]

UNCOUNTED = frozenset({"Input", "Constant", "View", "Broadcast", "Permute", "Slice", "Flip"})

ONNX_LAYOUT = frozenset(
    {"Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)

KINDS = 8
"""How many kinds of operation a row names."""


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        name: what it is called.
        before: how many operations of each kind the loaded graph has.
        after: the same of the optimized graph.
        theirs: nodes that onnxruntime leaves, and those without layout operators; None where it
            does not load the model or was not asked.
    """

    name: str
    before: Counter[str]
    after: Counter[str]
    theirs: tuple[int, int] | None

    @property
    def kinds(self) -> str:
        """What is left, the most frequent kinds first."""
        named = [f"{n} {kind}" for kind, n in self.after.most_common(KINDS)]
        rest = self.after.total() - sum(n for _, n in self.after.most_common(KINDS))
        return ", ".join(named + ([f"{rest} others"] if rest else []))


def count(graph: Graph) -> Counter[str]:
    """Return how many operations of each kind a graph has, by what texts call them."""
    found: Counter[str] = Counter()
    graphs = [graph]
    while graphs:
        current = graphs.pop()
        for node in live_nodes(current, current.outputs.values()):
            found[node.op.title] += node.op.title not in UNCOUNTED
            graphs += bodies_of(node)
    return +found


def measure(name: str, path: Path, *, onnxruntime: bool = True) -> Row:
    """Load, optimize and count one model."""
    graph = load_graph_from_onnx_path(path)
    theirs = onnxruntime_nodes(path) if onnxruntime else None
    return Row(name, count(graph), count(optimize_graph(graph)), theirs)


def onnxruntime_nodes(path: Path) -> tuple[int, int] | None:
    """Return how many nodes onnxruntime leaves of a model, with and without layout operators."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "optimized.onnx"
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(written)
        try:
            ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            model = onnx.load(written, load_external_data=False)
        except Exception:
            return None  # a model that it does not run, or a file above 2 GB that it cannot write
    kinds = [n.op_type for n in onnx_nodes(model.graph) if n.op_type != "Constant"]
    return len(kinds), sum(k not in ONNX_LAYOUT for k in kinds)


def onnx_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a file, those of control-flow bodies included."""
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            yield node
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else []
                graphs += attribute.graphs


def _folders() -> list[Path]:
    cache = Path.home() / ".cache"
    given = {"KN_EXPORTS_DIR": "kn-exports", "KN_MODELS_DIR": "kn-models"}
    found = [Path(os.environ.get(name, cache / folder)) for name, folder in given.items()]
    return [HERE.parent / "models" / "generated", *found]


def model_files(folders: Iterable[Path] | None = None) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each model, of those that are there by default."""
    for folder in folders or _folders():
        table = folder / "names.json"
        names = json.loads(table.read_text()) if table.exists() else {}
        for path in sorted(folder.glob("*.onnx")):
            yield names.get(path.name, path.stem), path


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    theirs = "-" if row.theirs is None else "{} ({})".format(*row.theirs)
    return row.name, str(row.before.total()), str(row.after.total()), theirs, row.kinds


HEAD = ("model", "before", "after", "onnxruntime", "what is left")


def _table(rows: Iterable[Row]) -> Table:
    table = Table(*HEAD[:1])
    for title in HEAD[1:-1]:
        table.add_column(title, justify="right")
    table.add_column(HEAD[-1])
    for row in rows:
        table.add_row(*_cells(row))
    return table


def main(arguments: list[str] | None = None) -> int:
    """Measure the models and print the table; return 1 where one does not load."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", metavar="REGEX", help="which models")
    parser.add_argument("--markdown", action="store_true", help="print a table for a document")
    parser.add_argument("--models", type=Path, nargs="+", metavar="DIR", help="folders of models")
    parser.add_argument("--no-onnxruntime", action="store_true", help="leave its column empty")
    args = parser.parse_args(arguments)
    rows, failed = [], False
    for name, path in model_files(args.models):
        if not re.search(args.pattern, name):
            continue
        try:
            rows.append(measure(name, path, onnxruntime=not args.no_onnxruntime))
        except KnError as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr)
    if args.markdown:
        print(markdown(HEAD, map(_cells, rows), (0, -1)))
    else:
        Console().print(_table(rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
