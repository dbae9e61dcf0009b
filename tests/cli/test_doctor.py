"""`kn doctor`, and where CUDA libraries are looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_graph.errors import DeviceUnavailableError
from kn_runtime import PreparedGraph, doctor
from kn_runtime.cuda_libraries import LIBRARIES, find_cuda_libraries
from tests.cli.conftest import Kn


def findings(kn: Kn, *arguments: str) -> dict[tuple[str, str], Any]:
    facts = kn("doctor", "--json", *arguments).json()
    return {(f["section"], f["name"]): f for f in facts["findings"]}


def test_what_is_here_works(kn: Kn) -> None:
    result = kn("doctor", columns=80)
    assert result.err == ""
    assert result.code == (1 if "no native kernels" in result.out else 0)
    assert max(map(len, result.lines)) <= 80
    found = findings(kn)
    assert found["packages", "numpy"]["text"] == np.__version__
    assert found["devices", "reference"]["text"].startswith("agrees with the reference")
    assert {name for section, name in found if section == "cuda libraries"} == {*LIBRARIES}


def test_a_package_that_is_missing_is_wrong_and_says_what_to_do(
    kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda n: None if n == "onnx" else there(n))
    result = kn("doctor")
    assert result.code == 1
    assert "pip install onnx" in result.out
    assert result.lines[-1] == "1 thing wrong"
    assert findings(kn)["packages", "onnx"]["level"] == "wrong"


def test_what_is_optional_and_absent_is_only_noted(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    there = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda n: None if n == "pillow" else there(n))
    finding = findings(kn)["packages", "pillow"]
    assert finding["level"] == "note"
    assert "kn-engine[images]" in finding["text"]


def test_a_device_that_computes_something_else_is_wrong(
    kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = {"y": np.zeros((3, 8), np.float32)}
    monkeypatch.setattr(PreparedGraph, "eval", lambda *a, **k: zeros)
    assert kn("doctor", "--json").code == 1
    assert findings(kn)["devices", "cpu"]["level"] == "wrong"


def test_instruction_sets_that_are_not_there(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise DeviceUnavailableError("there are no native kernels for 'neon' here")

    monkeypatch.setattr("kn_cpu.native.library", refused)
    monkeypatch.setattr(doctor, "SECTIONS", (doctor._kernels,))
    finding = findings(kn)["native kernels", "in use"]
    assert (finding["level"], finding["advice"]) == ("wrong", "unset KN_CPU_ISA")


def library(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    return folder / name


def test_wheels_come_before_variables_and_these_before_the_loader(tmp_path: Path) -> None:
    wheel = library(tmp_path / "site" / "nvidia" / "cublas" / "lib", "libcublas.so.12")
    named = library(tmp_path / "cuda" / "lib64", "libnvrtc.so.12")
    library(tmp_path / "cuda" / "lib64", "libcublas.so.12")
    cudnn = library(tmp_path / "cudnn" / "lib", "libcudnn.so.9")
    environ = {"CUDA_PATH": str(tmp_path / "cuda"), "CUDNN_PATH": str(tmp_path / "cudnn")}
    found = {lib.name: lib for lib in find_cuda_libraries([str(tmp_path / "site")], environ)}
    assert (found["cublas"].source, found["cublas"].path) == ("wheel", str(wheel))
    assert (found["nvrtc"].source, found["nvrtc"].path) == ("CUDA_PATH", str(named))
    assert (found["cudnn"].source, found["cudnn"].path) == ("CUDNN_PATH", str(cudnn))
    nothing = find_cuda_libraries([str(tmp_path)], {})
    assert all(lib.source in (None, "loader") for lib in nothing)


def test_libcublas_is_not_taken_for_libcublaslt(tmp_path: Path) -> None:
    library(tmp_path / "nvidia" / "cublas" / "lib", "libcublasLt.so.12")
    found = {lib.name: lib for lib in find_cuda_libraries([str(tmp_path)], {})}
    assert found["cublasLt"].source == "wheel"
    assert found["cublas"].source != "wheel"
