"""Exported models, raw and optimized, written and run: by onnxruntime and on the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_graph import (
    Graph,
    cpu_eval_graph,
    load_graph_from_onnx_path,
    optimize_graph,
    save_graph_to_onnx_path,
)
from kn_graph.errors import UnsupportedModelError
from tests.onnx.writing import assert_agree, onnxruntime_outputs, written

EXPORTS = Path.home() / ".cache" / "kn-exports"
LARGEST = 64 * 2**20
REFUSED = {"lstm_crnn.legacy.dyn_int8": "a recurrent layer that quantizes its states"}
COARSE = ("fp16", "int8", "qdq", "qop")
"""Models whose roundings onnxruntime takes at other places."""
FILES = sorted(p for p in EXPORTS.glob("*.onnx") if p.stat().st_size < LARGEST)

pytestmark = [pytest.mark.real_models, pytest.mark.slow]


def recorded(path: Path, graph: Graph) -> dict[str, Any]:
    """Return the inputs that were stored beside a model."""
    with np.load(path.with_suffix(".npz")) as stored:
        return {v.name: stored[f"in:{v.name}"] for v in graph.inputs}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("optimize", [False, True], ids=["raw", "optimized"])
def test_exports_compute_the_same_when_they_were_written(
    path: Path, optimize: bool, tmp_path: Path
) -> None:
    graph = load_graph_from_onnx_path(path)
    feeds = recorded(path, graph)
    graph = optimize_graph(graph) if optimize else graph
    if path.stem in REFUSED:
        with pytest.raises(UnsupportedModelError, match=REFUSED[path.stem]):
            written(graph)
        return
    out, once, twice = (tmp_path / f"{i}.onnx" for i in range(3))
    save_graph_to_onnx_path(graph, out)
    again = load_graph_from_onnx_path(out)
    assert_agree(graph, feeds, cpu_eval_graph(again, feeds))
    save_graph_to_onnx_path(again, once)
    data = out.read_bytes()
    assert optimize or once.read_bytes() == data
    save_graph_to_onnx_path(load_graph_from_onnx_path(once), twice)
    assert twice.read_bytes() == once.read_bytes()
    if not any(word in path.stem for word in COARSE):
        outputs = onnxruntime_outputs(data, feeds)
        assert outputs is not None
        assert_agree(graph, feeds, outputs)


def test_there_are_exports_to_test() -> None:
    assert FILES, f"no models in {EXPORTS}"
