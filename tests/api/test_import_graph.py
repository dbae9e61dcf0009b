"""Who imports whom, read from the source by `ast`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("kn_graph", "kn_plan", "kn_cpu", "kn_cuda", "kn_runtime")
BELOW = {
    "kn_graph": set(),
    "kn_plan": {"kn_graph"},
    "kn_cpu": {"kn_graph", "kn_plan"},
    "kn_cuda": {"kn_graph", "kn_plan"},
    "kn_runtime": {"kn_graph", "kn_plan", "kn_cpu", "kn_cuda"},
}
FORBIDDEN = ("onnx.reference", "onnxruntime", "onnxscript", "torch")
FILES = sorted(f for p in PACKAGES for f in (ROOT / p).rglob("*.py"))


def imports(node: ast.AST, *, lazy: bool = True) -> Iterator[tuple[str, int]]:
    """Yield modules imported, and the lines; `lazy=False` leaves out those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((a.name, child.lineno) for a in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level <= 1, f"line {child.lineno}: relative import of another package"
            yield (child.module or "", child.lineno)
            yield from ((f"{child.module}.{a.name}", child.lineno) for a in child.names)
        elif _is_type_checking(child):
            continue
        elif lazy or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports(child, lazy=lazy)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_packages_import_only_what_lies_below(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    for name, line in imports(ast.parse(path.read_text())):
        top = name.split(".")[0]
        assert top not in PACKAGES or top == package or top in BELOW[package], (
            f"{path}:{line}: {package} may not import {name}"
        )
        assert not any(name == f or name.startswith(f + ".") for f in FORBIDDEN), (
            f"{path}:{line}: {name} is not for shipped code"
        )


@pytest.mark.parametrize(("package", "other"), [("optimizer", "onnx"), ("onnx", "optimizer")])
def test_optimizer_and_onnx_do_not_know_each_other(package: str, other: str) -> None:
    for path in (ROOT / "kn_graph" / package).rglob("*.py"):
        for name, line in imports(ast.parse(path.read_text())):
            assert not name.startswith(f"kn_graph.{other}"), f"{path}:{line}: imports {name}"


def test_modules_have_no_import_cycle_at_import_time() -> None:
    edges = {}
    modules = {".".join(f.relative_to(ROOT).with_suffix("").parts): f for f in FILES}
    modules = {m.removesuffix(".__init__"): f for m, f in modules.items()}
    for module, path in modules.items():
        found = imports(ast.parse(path.read_text()), lazy=False)
        edges[module] = {n for n, _ in found if n in modules and n != module}
    state: dict[str, int] = {}
    for root in edges:
        stack = [(root, iter(sorted(edges[root])))]
        while stack and state.get(root) != 2:
            module, rest = stack[-1]
            state[module] = 1
            following = next(rest, None)
            if following is None:
                state[module] = 2
                stack.pop()
            elif state.get(following) == 1:
                cycle = [m for m, _ in stack]
                raise AssertionError(" -> ".join([*cycle[cycle.index(following) :], following]))
            elif state.get(following) is None:
                stack.append((following, iter(sorted(edges[following]))))


@pytest.mark.parametrize("package", ["kn_graph", "kn_runtime"])
def test_importing_a_package_leaves_heavy_modules_alone(package: str) -> None:
    code = f"import sys, {package}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert not loaded & {"onnx", "cupy", "graphviz", "PIL", "rich", "torch", "google.protobuf"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_under_500_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 500


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_exports(path: Path) -> None:
    assigned = {
        t.id
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for t in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(t, ast.Name)
    }
    assert "__all__" in assigned or path.name == "__main__.py"
