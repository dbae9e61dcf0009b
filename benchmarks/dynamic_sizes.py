"""Sizes that change from call to call, against onnxruntime, and what binding new ones takes.

    python -m benchmarks.dynamic_sizes [--rows REGEX] [--quick] [--runs 5]

`decode` is 200 tokens through llama_kv whose cache grows by one each, `widths` 50 different text
lines through rapidocr's recognizer; both are total times of a graph that has seen none of them.
`bind` is the time to bind sizes within the capacity of the arena, `anew` beyond it; there the
second column is what it may take.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.engines import named_outputs, prepared, scaled_error, session
from benchmarks.figures import Benchmark, Case, Run
from benchmarks.rows import exports_folder, models_folder
from benchmarks.startup import block_model
from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph import load_graph_from_onnx_path, optimize_graph
from kn_graph.variants import open_call

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Engine = Callable[[Feeds], Mapping[str, Any]]

THREADS = 2
TURNS = 3
LLAMA = "llama_kv.legacy.onnx"
RECOGNIZERS = {"PP-OCRv4": "48fc40f24f6d.onnx", "PP-OCRv6 small": "6f327246b503.onnx"}
"""Files of tools/real_models.py."""

WIDTHS = [80 + 16 * i for i in range(50)]
FIRST, TOKENS = 8, 200


def decode(run: Engine) -> Mapping[str, Any]:
    """Feed tokens one after another, each with what the calls before left."""
    cache: dict[str, Array] = {
        f"past.{k}.{x}": np.zeros((1, 2, FIRST, 32), np.float32)
        for k in range(4)
        for x in ("key", "value")
    }
    outputs: Mapping[str, Any] = {}
    for token in range(TOKENS):
        ids = np.full((1, 1), 1 + token, np.int64)
        mask = np.ones((1, FIRST + token + 1), np.int64)
        outputs = run({"input_ids": ids, "attention_mask": mask, **cache})
        cache = {n: outputs[n.replace("past", "present")] for n in cache}
    return outputs


def widths(name: str, run: Engine) -> Mapping[str, Any]:
    """Feed text lines of different widths."""
    outputs: Mapping[str, Any] = {}
    for width in WIDTHS:
        line = np.full((1, 3, 48, width), 0.25, np.float32)
        line[..., ::7] = -0.5
        outputs = run({name: line})
    return outputs


def totals(path: Path, work: Callable[[Engine], Mapping[str, Any]], seconds: float) -> Run:
    """Measure work in turns, on a newly prepared graph and session each time."""
    times: list[tuple[float, float]] = []
    error = 0.0
    for turn in range(TURNS if seconds > 1 else 1):
        made, theirs = prepared(path, THREADS), session(path, THREADS)
        engines: tuple[Engine, Engine] = (made.eval, partial(named_outputs, theirs))
        took, results = [0.0, 0.0], [dict[str, Any](), dict[str, Any]()]
        for i in (turn % 2, 1 - turn % 2):
            start = time.perf_counter()
            results[i] = dict(work(engines[i]))
            took[i] = time.perf_counter() - start
        times.append((took[0], took[1]))
        error = max(error, scaled_error(results[1], results[0]))
    ours, others = (statistics.median(column) for column in zip(*times, strict=True))
    return Run(ours, others, statistics.median(b / a for a, b in times), error)


def recognize(path: Path, seconds: float) -> Run:
    """Measure text lines through a recognizer."""
    name = session(path, 1).get_inputs()[0].name
    return totals(path, partial(widths, name), seconds)


def llama_feeds(past: int) -> dict[str, Array]:
    """Return the inputs of one step of decoding."""
    cache = np.zeros((1, 2, past, 32), np.float32)
    named = {f"past.{k}.{x}": cache for k in range(4) for x in ("key", "value")}
    one = np.ones((1, 1), np.int64)
    return {"input_ids": one, "attention_mask": np.ones((1, past + 1), np.int64), **named}


def bert_feeds(length: int) -> dict[str, Array]:
    """Return a text."""
    ones = np.ones((1, length), np.int64)
    return {"input_ids": ones, "attention_mask": ones}


def block_feeds(side: int) -> dict[str, Array]:
    """Return a picture."""
    return {"x": np.zeros((1, 16, 8, side), np.float32)}


WITHIN = [130, *range(131, 151)]
"""The first takes the capacity that the others are within."""

ANEW = [2**k for k in range(4, 9)]


def binding(
    path: Path, feeds: Callable[[int], Feeds], sizes: Sequence[int], limit: float, _: float
) -> Run:
    """Measure binding, as a ratio of what it may take."""
    kernels = library()
    assert kernels is not None
    executor = CpuExecutor(optimize_graph(load_graph_from_onnx_path(path)), kernels, THREADS)
    times: list[float] = []
    for size in sizes:
        opened = open_call(executor.graph, feeds(size))
        skeleton = executor.skeleton(opened.graph)
        start = time.perf_counter()
        for index in range(len(skeleton.stages)):
            executor.stages.at(skeleton, index, opened.env)
        times.append(time.perf_counter() - start)
    took = statistics.median(times[1:])
    return Run(took, limit, limit / took)


def blocks(sizes: Sequence[int], limit: float, seconds: float) -> Run:
    """Measure binding of a model of 1,000 nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "blocks.onnx"
        onnx.save(block_model(1000), path)
        return binding(path, block_feeds, sizes, limit, seconds)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield all of them."""
    exports = exports_folder(args.folder)
    yield Case("decode", partial(totals, exports / LLAMA, decode), 1.0, facts={"tokens": TOKENS})
    for name, file in RECOGNIZERS.items():
        measure = partial(recognize, models_folder() / file)
        yield Case(f"widths {name}", measure, 1.0, facts={"widths": WIDTHS})
    llama, bert = exports / LLAMA, exports / "bert_mini.legacy.onnx"
    yield Case("bind llama_kv", partial(binding, llama, llama_feeds, WITHIN, 2e-4), 1.0)
    yield Case("bind bert_mini", partial(binding, bert, bert_feeds, WITHIN, 2e-4), 1.0)
    yield Case("bind 1,000 nodes", partial(blocks, WITHIN, 2e-3), 1.0)
    yield Case("anew llama_kv", partial(binding, llama, llama_feeds, ANEW, 1e-2), 1.0)
    yield Case("anew bert_mini", partial(binding, bert, bert_feeds, ANEW, 1e-2), 1.0)
    yield Case("anew 1,000 nodes", partial(blocks, ANEW, 1e-2), 1.0)


BENCHMARK = Benchmark(
    "dynamic_sizes",
    __doc__ or "",
    cases,
    arguments=lambda parser: parser.add_argument("--folder", help="of the exported models"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
