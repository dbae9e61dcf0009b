"""Other runtimes in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from kn_graph.errors import UsageError
from kn_runtime.oracle import child_environment, run_oracle
from kn_runtime.ort.__main__ import _serve_children
from tests.small_models import info, model, node


def write(folder: Path, *nodes: object, **rest: object) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model(nodes, **rest).SerializeToString())  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, np.nan, np.inf], np.float32),
        np.array([1, 2], np.float16),
        np.array([], np.int64),
        np.array(["a", "", "ü"], object),
        np.array([True, False]),
    ],
    ids=lambda x: str(x.dtype),
)
def test_values_pass_unchanged(array: np.ndarray, tmp_path: Path) -> None:
    from kn_graph import DType

    code = DType.from_numpy(array.dtype).onnx_code
    ends = {"inputs": [info("x", ("n",), code)], "outputs": [info("y", ("n",), code)]}
    path = write(tmp_path, node("Identity", "x", "y"), **ends)
    (y,) = run_oracle("onnxruntime", path, {"x": array}).values()
    assert y.dtype == array.dtype
    np.testing.assert_array_equal(y, array)


def test_bfloat16_passes_as_bytes(tmp_path: Path) -> None:
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    nodes = [node("Cast", "x", "y", to=TensorProto.FLOAT)]
    path = write(tmp_path, *nodes, inputs=[info("x", ("n",), TensorProto.BFLOAT16)])
    assert run_oracle("onnx.reference", path, {"x": x})["y"].tolist() == [1.5, -2]


def test_sequences(tmp_path: Path) -> None:
    nodes = [node("SplitToSequence", "x", "y", axis=0, keepdims=1)]
    path = write(tmp_path, *nodes, inputs=[info("x", (2,))], outputs=["y"])
    out = run_oracle("onnx.reference", path, {"x": np.array([1, 2], np.float32)})
    assert [e.tolist() for e in out["y"]] == [[1.0], [2.0]]


def test_a_model_that_does_not_run_says_why(tmp_path: Path) -> None:
    path = write(tmp_path, node("Reshape", "x s", "y"), weights={"s": np.array([7])})
    with pytest.raises(UsageError, match=r"onnxruntime does not run .*model\.onnx: .*[Rr]eshape"):
        run_oracle("onnxruntime", path, {"x": np.zeros(3, np.float32)})


def test_unknown_runtime(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no runtime 'os' is known; there are onnxruntime"):
        run_oracle("os", tmp_path, {})


def test_a_served_program_does_not_ask_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m kn_runtime.ort` has children import this library as onnxruntime."""
    monkeypatch.setenv("PYTHONPATH", "")
    _serve_children()
    assert _imported("onnxruntime", dict(os.environ)) == "served"
    assert _imported("onnxruntime", child_environment()) == "installed"


def _imported(module: str, environment: dict[str, str]) -> str:
    code = f"import {module}; print('served' if 'kn_runtime.ort' in sys.modules else 'installed')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; {code}"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout.strip()
