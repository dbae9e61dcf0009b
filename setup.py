"""The package build: compiles `kn_cpu/native` into `kn_cpu/_native`; pyproject.toml says the rest.

Without a C compiler, or with KN_NATIVE=0, the package installs all the same, without kernels.
"""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def _load_build() -> ModuleType:
    """Load the module by its path: what kn_cpu imports is not there while it is built."""
    spec = spec_from_file_location("kn_native_build", ROOT / "kn_cpu" / "native" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


native = _load_build()
compiler = None if os.environ.get("KN_NATIVE") == "0" else native.find_compiler()


class BuildWithKernels(build_py):
    """Puts the libraries beside the Python files, in the source tree if that is installed."""

    def run(self) -> None:
        """Copy the packages, then compile."""
        super().run()
        if compiler is None:
            return
        root = ROOT if self.editable_mode else Path(self.build_lib)
        try:
            target, work = root / "kn_cpu" / "_native", ROOT / "build" / "native"
            native.build(compiler, target, work)
            native.build_extension(compiler, target, work)
        except native.BuildError as error:
            sys.exit(f"{error}\nKN_NATIVE=0 installs without native kernels")


class NativeDistribution(Distribution):
    """A distribution for one kind of machine, if there is a compiler."""

    def has_ext_modules(self) -> bool:
        """Return whether the wheel holds compiled code."""
        return compiler is not None


class PlatformWheel(bdist_wheel):
    """The libraries are loaded by ctypes: any Python will do, but only this kind of machine."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, ABI and platform."""
        _, _, machine = super().get_tag()
        return "py3", "none", machine


setup(
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel},
)
