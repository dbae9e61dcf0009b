"""Builds the stand-in, and CuPy's module of the runtime against it.

    python -m tests.cuda.standin.build FOLDER

NVIDIA's runtime is linked into that module of CuPy's wheels, and accepts NVIDIA's driver only. So
the module is compiled once more, from CuPy's source, against a runtime of ours; all else is CuPy as
it is installed. Downloads CuPy's source and Cython (8 MB) with pip, where they are not there yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from kn_cuda.host import host_compiler

__all__ = ["BLAS", "DRIVER", "LIGHT", "RUNTIME", "build"]

HERE = Path(__file__).parent
DRIVER, BLAS, LIGHT = "libcuda.so.1", "libcublas.so.12", "libcublasLt.so.12"
RUNTIME = "runtime.so"
MODULE = Path("cupy_backends") / "cuda" / "api"
CYTHON = "Cython>=3.2,<3.3"
"""What CuPy 14 is built with."""

CONSTANTS = {
    "CUPY_USE_CUDA_PYTHON": "False",
    "CUPY_CUFFT_STATIC": "False",
    "CUPY_CUDA_VERSION": "12090",
    "CUPY_HIP_VERSION": "0",
}
"""How the wheels for CUDA 12 are compiled."""

FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC")


def build(folder: Path) -> None:
    """Build everything that is not there yet or is older than its source."""
    folder.mkdir(parents=True, exist_ok=True)
    headers = _headers()
    common = [*FLAGS, f"-I{HERE / 'include'}", f"-isystem{headers}", f"-L{folder}"]
    refused = folder / "refused.o"
    _compile(["-x", "c", "-w", "-fPIC", "-c", str(HERE / "refused.c")], refused)
    parts = [str(HERE / f"{name}.cpp") for name in ("machine", "driver", "runtime")]
    _compile([*common, f"-Wl,-soname,{DRIVER}", *parts, str(refused)], folder / DRIVER)
    linked = [f"-l:{DRIVER}"]
    blas = [*common, "-O2", f"-Wl,-soname,{BLAS}", str(HERE / "cublas.cpp"), *linked]
    _compile(blas, folder / BLAS)
    empty = folder / "empty.c"
    empty.write_text("int kn_standin_nothing;\n")
    _compile([*FLAGS[2:], f"-Wl,-soname,{LIGHT}", "-x", "c", str(empty)], folder / LIGHT)
    if not (folder / RUNTIME).exists():
        source = _cupy(folder)
        text = _cythonized(folder, source)
        python = sysconfig.get_paths()["include"]
        places = [f"-I{source / MODULE}", f"-I{python}"]
        _compile([*common, "-w", *places, str(text), *linked], folder / RUNTIME)


def _compile(arguments: list[str], made: Path) -> None:
    compiler = host_compiler()
    assert compiler is not None, "a C++ compiler is needed"
    subprocess.run([compiler, *arguments, "-o", str(made)], check=True)


def _headers() -> Path:
    """Return the folder of CUDA's headers, which come with a wheel of NVIDIA's."""
    found = find_spec("nvidia.cuda_runtime")
    assert found is not None, "nvidia-cuda-runtime-cu12 is needed"
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "include"


def _pip(*arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, "--quiet"]
    subprocess.run(command, env={**os.environ, **environment}, check=True)


def _cupy(folder: Path) -> Path:
    """Return the source of the version that is installed."""
    number = version("cupy-cuda12x")
    source = folder / f"cupy-{number}"
    if not source.exists():
        chosen = ["--no-deps", "--no-binary", "cupy", f"cupy=={number}", "-d", str(folder)]
        # or else pip, which asks the source for its metadata, has it look for a CUDA toolkit
        _pip("download", *chosen, READTHEDOCS="True")
        with tarfile.open(folder / f"cupy-{number}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return source


def _cythonized(folder: Path, source: Path) -> Path:
    """Return the C++ text of the module."""
    made, cython = folder / "runtime.cpp", folder / "cython"
    if not cython.exists():
        _pip("install", "--target", str(cython), CYTHON)
    constants = ",".join(f"{name}={value}" for name, value in CONSTANTS.items())
    command = [sys.executable, "-m", "cython", "--cplus", "-3", "-w", str(source)]
    command += ["-E", constants, "-o", str(made), str(MODULE / "runtime.pyx")]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(cython)}, check=True)
    return made


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
