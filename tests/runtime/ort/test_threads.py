"""Sessions are for any number of threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import kn_runtime.ort
from tests.runtime.ort.both import F32, session

DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"


def test_threads_with_different_sizes_get_what_one_thread_gets_bit_for_bit() -> None:
    made = kn_runtime.ort.InferenceSession(DIGITS)
    rng = np.random.default_rng(0)
    images = [rng.random((1 + k % 7, 1, 8, 8), F32) for k in range(64)]
    alone = [kn_runtime.ort.InferenceSession(DIGITS).run(None, {"image": x})[0] for x in images]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda x: made.run(None, {"image": x})[0], images * 4))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(together, alone * 4, strict=True))


def test_graphs_for_other_ranks_are_made_once_among_threads() -> None:
    made = session(kn_runtime.ort, "scalar")
    inputs = [np.ones((2,) * (k % 4), F32) for k in range(64)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: made.run(None, {"x": x})[0], inputs))
    assert [r.shape for r in results] == [x.shape for x in inputs]
    assert len(made._model._graphs) == 4
