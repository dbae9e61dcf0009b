"""`import onnxruntime` served by this library, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "models" / "digits.onnx"


def run(
    *arguments: object, folder: Path | None = None, path: str = str(ROOT)
) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments, this library being importable."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder or ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )


def served(code: str) -> str:
    """Return what code prints that runs on this library."""
    done = run("-m", "kn_runtime.ort", "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PROGRAM = f"""
import sys
import numpy as np
import onnxruntime as rt
from helper import shape
session = rt.InferenceSession({str(DIGITS)!r}, providers=["CPUExecutionProvider"])
result = session.run(None, {{"image": np.zeros(shape, np.float32)}})[0]
print(__name__, sys.argv[1:], result.shape, rt.get_build_info().split()[0])
sys.exit(7)
"""


@pytest.mark.parametrize("form", ["file", "module"])
def test_a_program_runs_unchanged_with_its_arguments_and_exit_code(
    form: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("shape = (2, 1, 8, 8)\n")
    what = [tmp_path / "program.py"] if form == "file" else ["-m", "program"]
    done = run("-m", "kn_runtime.ort", *what, "--flag", "x", folder=tmp_path)
    assert done.stdout.strip() == "__main__ ['--flag', 'x'] (2, 10) kn-engine"
    assert done.returncode == 7


def test_the_installed_onnxruntime_is_hidden_with_all_that_looks_for_it() -> None:
    code = """
import importlib.metadata as metadata, importlib.util
import onnxruntime, onnxruntime.capi.onnxruntime_inference_collection as collection
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NoSuchFile
import kn_runtime.ort as ours
import kn_runtime.ort.errors as errors
assert importlib.util.find_spec("onnxruntime").origin == "kn_runtime.ort"
assert metadata.version("onnxruntime") == onnxruntime.__version__
assert type(metadata.distribution("onnxruntime")).__module__ == "kn_runtime.ort.install"
assert metadata.version("numpy")
assert sum(d.name == "onnxruntime" for d in metadata.distributions()) >= 1
assert onnxruntime.InferenceSession is collection.InferenceSession is ours.InferenceSession
assert C.get_available_providers() == onnxruntime.get_available_providers()
assert (Fail, NoSuchFile) == (errors.Fail, errors.NoSuchFile)
try:
    onnxruntime.InferenceSession("absent.onnx")
except NoSuchFile as error:
    print("caught")
"""
    assert served(code) == "caught"


@pytest.mark.parametrize(
    ("code", "error", "what"),
    [
        ("import onnxruntime; onnxruntime.SparseTensor", "AttributeError", "SparseTensor"),
        ("from onnxruntime import SparseTensor", "ImportError", "SparseTensor"),
        ("import onnxruntime.quantization", "ModuleNotFoundError", "onnxruntime.quantization"),
        ("from onnxruntime.capi import nothing", "ImportError", "nothing"),
    ],
)
def test_what_is_missing_is_an_error_that_names_it(code: str, error: str, what: str) -> None:
    done = run("-m", "kn_runtime.ort", "-c", code)
    assert done.returncode == 1
    assert error in done.stderr
    assert what in done.stderr.strip().splitlines()[-1]


def test_it_is_refused_once_the_real_one_is_imported() -> None:
    code = "import onnxruntime, kn_runtime.ort; kn_runtime.ort.install()"
    done = run("-c", code)
    assert "UsageError: onnxruntime is imported already" in done.stderr
    assert "python -m kn_runtime.ort program.py" in done.stderr


def test_it_may_be_done_twice() -> None:
    code = (
        "import sys, kn_runtime.ort as o; o.install(); n = len(sys.meta_path); o.install();"
        "import onnxruntime; print(len(sys.meta_path) - n, onnxruntime.__spec__.origin)"
    )
    assert run("-c", code).stdout.strip() == "0 kn_runtime.ort"


CHILDREN = """
import multiprocessing, subprocess, sys

def where(_):
    import onnxruntime
    return onnxruntime.__spec__.origin

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, *pool.map(where, [0]))
    code = "import onnxruntime, hidden; print('subprocess', onnxruntime.__spec__.origin, hidden.x)"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


def test_child_processes_are_served_as_well(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CHILDREN)
    (tmp_path / "sitecustomize.py").write_text("import sys, hidden; hidden.x = 'seen'\n")
    (tmp_path / "hidden.py").write_text("x = 'not seen'\n")
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = run("-m", "kn_runtime.ort", tmp_path / "program.py", path=paths)
    assert done.stdout.splitlines() == [
        "fork kn_runtime.ort",
        "spawn kn_runtime.ort",
        "forkserver kn_runtime.ort",
        "subprocess kn_runtime.ort seen",
    ], done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 0), (["--help"], 0), (["-m"], 2), (["-c"], 2)], ids=str
)
def test_without_a_program_it_says_what_it_takes(arguments: list[str], code: int) -> None:
    done = run("-m", "kn_runtime.ort", *arguments)
    assert done.returncode == code
    assert "-m package" in done.stdout + done.stderr
