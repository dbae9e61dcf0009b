"""`import onnxruntime` served by `kn_runtime.ort`.

A finder goes in front of `sys.meta_path`, so that it also hides an onnxruntime that is installed.
It answers for the package, its submodules, and for its version in `importlib.metadata`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from kn_graph.errors import UsageError
from kn_runtime.ort.reporting import API_VERSION, lacking

__all__ = ["PACKAGE", "install"]

PACKAGE = "onnxruntime"

HERE = "kn_runtime.ort"


def _everything() -> dict[str, Any]:
    """Return what the package has."""
    ours = import_module(HERE)
    names = {n: getattr(ours, n) for n in ours.__all__ if n != "install"}
    return {**names, "version": API_VERSION, "package_name": PACKAGE, "cuda_version": ""}


def _state() -> dict[str, Any]:
    """Return what the compiled module has: the classes, and the exceptions."""
    errors = import_module(f"{HERE}.errors")
    return {**_everything(), **{kind.__name__: kind for kind in errors.EXCEPTIONS}}


def _validation() -> dict[str, Any]:
    return {"get_package_name_and_version_info": lambda: (PACKAGE, API_VERSION, "")}


MODULES: Mapping[str, Callable[[], dict[str, Any]]] = {
    PACKAGE: _everything,
    f"{PACKAGE}.capi": dict,
    f"{PACKAGE}.capi._pybind_state": _state,
    f"{PACKAGE}.capi.onnxruntime_pybind11_state": _state,
    f"{PACKAGE}.capi.onnxruntime_inference_collection": _everything,
    f"{PACKAGE}.capi.onnxruntime_validation": _validation,
}
"""What each module has."""


class _Loader(Loader):
    """Makes a module of a table of names."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill it; what it lacks says so."""
        name = module.__name__
        for attribute, value in MODULES[name]().items():
            setattr(module, attribute, value)

        def refuse(attribute: str) -> NoReturn:
            text = f"module {name!r} has no attribute {attribute!r}"
            raise AttributeError(lacking(text), name=attribute, obj=module)

        module.__doc__ = f"{name}, served by {HERE}."
        module.__dict__["__getattr__"] = refuse


class _Metadata(Distribution):
    """What `importlib.metadata` says of the package."""

    def read_text(self, filename: str) -> str | None:
        """Return the one file that there is."""
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {API_VERSION}\n"

    def locate_file(self, path: Any) -> Path:
        """Return where a file would be."""
        return Path(__file__).parent / str(path)


class _Finder(MetaPathFinder):
    """Finds the package here, and nowhere else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module of the package, and None for others.

        Raises:
            ModuleNotFoundError: the package has such a module, and this library has not.
        """
        if fullname.partition(".")[0] != PACKAGE:
            return None
        if fullname not in MODULES:
            raise ModuleNotFoundError(lacking(f"no module named {fullname!r}"), name=fullname)
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        spec = ModuleSpec(fullname, _Loader(), origin=HERE, is_package=is_package)
        return spec

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterable[Distribution]:
        """Return the package where it is asked for, or everything is."""
        return [_Metadata()] if context.name in (None, PACKAGE) else []


def install() -> None:
    """Serve `import onnxruntime` from now on, in this process. Doing it twice changes nothing.

    Raises:
        UsageError: the real onnxruntime is imported already.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if PACKAGE in sys.modules:
        where = getattr(sys.modules[PACKAGE], "__file__", None)
        raise UsageError(
            f"{PACKAGE} is imported already, from {where}; call {HERE}.install() before that, or "
            f"start the program by: python -m {HERE} program.py"
        )
    sys.meta_path.insert(0, _Finder())
