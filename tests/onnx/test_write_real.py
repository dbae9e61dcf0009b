"""Exported models, raw and optimized, written and run: by onnxruntime and on the reference."""

from __future__ import annotations

from collections.abc import Sequence
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
from kn_graph.types import TensorType
from kn_runtime import Device
from kn_runtime.assume import assumed_sizes, concrete_shape
from tests.onnx.writing import assert_agree, onnxruntime_outputs, written

EXPORTS = Path.home() / ".cache" / "kn-exports"
REAL = Path.home() / ".cache" / "kn-models"
"""Models of public packages, each called by the beginning of its SHA-256."""
LARGEST = 64 * 2**20
QUANTIZED_STATES = "a recurrent layer that quantizes its states"
REFUSED = {"lstm_crnn.legacy.dyn_int8": QUANTIZED_STATES, "b8f2ad9cbc1f": QUANTIZED_STATES}
NOTES, MUSIC, VOICE = (60, 144), (100, None), (1, 576, 1)
SIZES: dict[str, tuple[int | None, ...]] = {
    **dict.fromkeys(("be6810f0e704", "6bb588b25eca"), NOTES),
    **dict.fromkeys(("8b9fa8faad96", "2cc4eb72c891", "91e2f37be4b9"), MUSIC),
    **dict.fromkeys(("1a153a22f450", "2623a2953f6f", "7671cd04b004", "a35ebf52fd3c"), VOICE),
    "9ca1858a726e": (100, 105),
}
"""Numbers of the first symbols of models that do not allow those assumed, or squeeze them."""
SAMPLE_RATE = 16_000
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


def made_up(graph: Graph, sizes: Sequence[int | None]) -> dict[str, Any]:
    """Return seeded inputs of sizes that the model allows."""
    known = {n: k for n, k in zip(graph.symbols, sizes, strict=False) if k is not None}
    rng, numbers = np.random.default_rng(0), known | assumed_sizes(graph, known)
    feeds = {}
    for v in graph.inputs:
        assert isinstance(v.type, TensorType)
        shape = concrete_shape(v.type, numbers)
        whole = not v.dtype.is_float
        drawn = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
        drawn = np.full(shape, SAMPLE_RATE) if v.name == "sr" else drawn
        feeds[v.name] = drawn.astype(v.dtype.numpy)
    return feeds


@pytest.mark.parametrize("path", sorted(REAL.glob("*.onnx")), ids=lambda p: p.stem)
def test_real_models_compute_exactly_the_same_when_they_were_written(
    path: Path, tmp_path: Path
) -> None:
    graph = load_graph_from_onnx_path(path)
    out = tmp_path / "written.onnx"
    if path.stem in REFUSED:
        with pytest.raises(UnsupportedModelError, match=REFUSED[path.stem]):
            save_graph_to_onnx_path(graph, out)
        return
    save_graph_to_onnx_path(graph, out)
    feeds = made_up(graph, SIZES.get(path.stem, ()))
    expected, got = (
        Device.parse("cpu").prepare(g, optimize=False).eval(feeds)
        for g in (graph, load_graph_from_onnx_path(out))
    )
    assert expected.keys() == got.keys()
    for name, x in expected.items():
        np.testing.assert_equal(got[name], x)


def test_there_are_models_to_test() -> None:
    assert FILES, f"no models in {EXPORTS}"
    assert list(REAL.glob("*.onnx")), f"no models in {REAL}"
