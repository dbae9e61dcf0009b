"""What users see: names, signatures, docstrings, errors."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, get_origin

import pytest

from kn_graph import errors
from kn_graph.errors import KnError
from tests.api.public_api import PACKAGES, SNAPSHOT, describe, public_members, public_names

ROOT = Path(__file__).parents[2]
FILES = sorted(f for p in PACKAGES for f in (ROOT / p).rglob("*.py"))
NAMES = list(public_names())


def test_public_names_are_those_of_the_snapshot() -> None:
    hint = "if this is meant: python -m tests.api.public_api --update"
    assert describe().splitlines() == SNAPSHOT.read_text(encoding="utf-8").splitlines(), hint


@pytest.mark.parametrize(
    ("module", "name", "value"), NAMES, ids=lambda x: x if type(x) is str else ""
)
def test_every_public_name_has_a_docstring(module: str, name: str, value: Any) -> None:
    if not callable(value) or get_origin(value) is not None:
        return
    assert value.__doc__
    if inspect.isclass(value):
        bare = [n for n, member in public_members(value) if not inspect.getdoc(member)]
        assert bare == []


@pytest.mark.parametrize(
    ("module", "name", "value"), NAMES, ids=lambda x: x if type(x) is str else ""
)
def test_an_args_section_has_every_argument(module: str, name: str, value: Any) -> None:
    functions = [(name, value)] if inspect.isfunction(value) else []
    if inspect.isclass(value):
        functions += [(n, m) for n, m in public_members(value) if inspect.isfunction(m)]
    for function_name, function in functions:
        section = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        if not section:
            continue  # a short docstring that needs none
        heads = re.findall(r"^ {4}([*\w, ]+):", section, re.MULTILINE)
        described = {argument.strip("* ") for head in heads for argument in head.split(",")}
        arguments = inspect.signature(function).parameters.keys() - {"self"}
        assert described == arguments, function_name


# ---- errors --------------------------------------------------------------------------------

CATEGORIES = {
    "bad_size",
    "bad_value",
    "compile_failed",
    "device_unavailable",
    "dtype_mismatch",
    "external_data",
    "internal",
    "malformed_model",
    "missing_input",
    "out_of_memory",
    "shape_mismatch",
    "unexpected_input",
    "unsupported_on_device",
    "unsupported_operator",
    "usage",
}
ERRORS = {n: getattr(errors, n) for n in errors.__all__ if n.endswith("Error")}


def test_categories() -> None:
    assert {e.category for e in ERRORS.values()} == CATEGORIES


def test_the_tree_in_the_docstring_is_the_hierarchy() -> None:
    tree = re.findall(
        r"^( *)(\w+Error)(?: \((\w+)\))?(?: +([a-z_]+))?(?:  |$)",
        errors.__doc__ or "",
        re.MULTILINE,
    )
    above: list[type] = []
    found = set()
    for indent, name, builtin, category in tree:
        cls = ERRORS[name]
        depth = len(indent) // 2
        above = [*above[:depth], cls]
        if depth:
            assert cls.__bases__[0] is above[depth - 1], name
        assert [b.__name__ for b in cls.__bases__[1:]] == ([builtin] if builtin else []), name
        if category:
            assert cls.category == category, name
        found.add(name)
    assert found == set(ERRORS)


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_a_kn_error_that_takes_context(name: str) -> None:
    error = ERRORS[name]("what failed")
    assert isinstance(error, KnError)
    error.add_context("node n")
    error.add_context("model.onnx")
    assert str(error) == "model.onnx: node n: what failed"


def test_errors_are_raised_by_their_own_class_only() -> None:
    """Base classes are for `except`; raising one would leave its category to chance."""
    bases = {"KnError", "ModelError", "InputError", "DeviceError"}
    for path in FILES:
        for line, name in _raised(ast.parse(path.read_text(encoding="utf-8"))):
            assert name not in bases, f"{path}:{line}: raises {name}"


def _raised(tree: ast.AST) -> list[tuple[int, str]]:
    calls = [n.exc for n in ast.walk(tree) if isinstance(n, ast.Raise) and n.exc is not None]
    return [
        (c.lineno, c.func.id)
        for c in calls
        if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)
    ]


# ---- silence -------------------------------------------------------------------------------

COMMANDS = ("kn_runtime/cli", "kn_cuda/selftest.py")
"""What is run from a shell."""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_command_line_prints(path: Path) -> None:
    if any(path.is_relative_to(ROOT / command) for command in COMMANDS):
        return
    for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(found, ast.Name):
            assert found.id not in ("print", "input"), f"{path}:{found.lineno}"
        if isinstance(found, ast.Attribute) and ast.unparse(found) in ("sys.stdout", "sys.stderr"):
            raise AssertionError(f"{path}:{found.lineno}: uses {ast.unparse(found)}")
