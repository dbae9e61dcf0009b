"""The public names of the packages as text.

`python -m tests.api.public_api` prints it, with `--update` it writes `public_api.txt`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin

MODULES = (
    "kn_graph",
    "kn_graph.autodiff",
    "kn_graph.compare",
    "kn_graph.errors",
    "kn_graph.render",
    "kn_runtime",
    "kn_runtime.ort",
    "kn_runtime.testing",
)
SNAPSHOT = Path(__file__).with_name("public_api.txt")
PACKAGES = ("kn_graph", "kn_plan", "kn_cpu", "kn_cuda", "kn_runtime")


def public_names() -> Iterator[tuple[str, str, Any]]:
    """Yield module, name and object of everything that is exported."""
    for module in MODULES:
        found = import_module(module)
        for name in sorted(found.__all__):
            yield module, name, getattr(found, name)


def public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that our packages define."""
    own = [c for c in cls.__mro__ if c.__module__.startswith(PACKAGES)]
    for name in sorted({n for c in own for n in vars(c) if not n.startswith("_")}):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, (property, staticmethod, classmethod)) or inspect.isfunction(member):
            yield name, member


def _signature(callable_: Any) -> str:
    try:
        signature = str(inspect.signature(callable_))
    except ValueError:
        return "(...)"
    return re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", signature)  # annotations without quotes


def _class_lines(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(b.__name__ for b in cls.__bases__ if not b.__name__.endswith("Builder"))
    if issubclass(cls, Enum):
        yield f"enum {name}: {', '.join(cls.__members__)}"
    elif issubclass(cls, BaseException):
        category = getattr(cls, "category", None)
        yield f"error {name}({bases})" + (f": {category}" if category else "")
        return
    else:
        yield f"class {name}({bases}) {_signature(cls)}"
    for member_name, member in public_members(cls):
        if isinstance(member, property):
            returned = inspect.signature(member.fget).return_annotation if member.fget else ""
            yield f"    {member_name}: {returned}"
        else:
            kind = {classmethod: "classmethod ", staticmethod: "staticmethod "}.get(
                type(member), ""
            )
            yield f"    {kind}{member_name}{_signature(getattr(cls, member_name))}"


def describe() -> str:
    """Return one paragraph a module, one line a name or member."""
    lines: list[str] = []
    seen = ""
    for module, name, value in public_names():
        if module != seen:
            lines += ["", f"[{module}]"]
            seen = module
        if get_origin(value) is not None:
            lines.append(f"type {name} = {value}")
        elif inspect.isclass(value):
            lines += _class_lines(name, value)
        elif callable(value):
            lines.append(f"def {name}{_signature(value)}")
        else:
            lines.append(f"{name}: {type(value).__name__}")
    return "\n".join(lines).lstrip("\n") + "\n"


if __name__ == "__main__":
    if "--update" in sys.argv:
        SNAPSHOT.write_text(describe(), encoding="utf-8")
    else:
        sys.stdout.write(describe())
