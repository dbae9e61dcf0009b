"""Every code block of README.md and docs/ runs, in the order of its page."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from kn_runtime.cli import main
from kn_runtime.cli.main import VERBS
from models.generate import model_bytes
from tests.api.public_api import MODULES
from tests.docs.blocks import LANGUAGES, Block, Command, blocks_of, commands_of, differences

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "models" / "README.md"]
BLOCKS = [b for page in PAGES for b in blocks_of(page) if b.language in LANGUAGES]
RUN_PAGES = [p for p in PAGES if any(b.page == p and not b.not_run for b in BLOCKS)]

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder that looks like a checkout, with a model of the pages beside it."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    for name in ("digits.onnx", "digits.txt", "digit.png"):
        (tmp_path / name).symlink_to(ROOT / "models" / name)
    (tmp_path / "transformer_layer.onnx").write_bytes(model_bytes("transformer_layer"))
    (tmp_path / "model.onnx").write_bytes(model_bytes("residual_cnn"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("KN_CPU_ISA", raising=False)
    return tmp_path


def run_python(block: Block, names: dict[str, Any]) -> None:
    code = compile("\n" * block.line + block.text, str(block.page), "exec")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, names)


def run_command(command: Command, block: Block) -> None:
    words, target = command.words, None
    if " > " in words:
        words, target = words.split(" > ")
    program, *arguments = shlex.split(words)
    assert program == "kn", f"{block}: {program!r} is not run here; say why above the block"
    arguments = [os.path.expanduser(a) for a in arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    expected = re.search(r"exit code (\d+)", "\n".join(command.output))
    assert code == (int(expected[1]) if expected else 0), f"{block}: {words}\n{err.getvalue()}"
    if target is not None:
        Path(target.strip()).write_text(out.getvalue())
    if not block.output_varies:
        shown = [line for line in command.output if not line.startswith("exit code")]
        missing = differences(shown, out.getvalue() + err.getvalue())
        assert not missing, f"{block}: {words} does not print\n" + "\n".join(missing)


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda p: p.name)
def test_the_blocks_of_a_page_run(page: Path, workplace: Path) -> None:
    names: dict[str, Any] = {"__name__": f"page {page.name}"}
    sys.modules.pop("page", None)
    for block in (b for b in BLOCKS if b.page == page and not b.not_run):
        if block.language == "python":
            run_python(block, names)
        else:
            for command in commands_of(block):
                run_command(command, block)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.not_run], ids=str)
def test_a_block_that_is_not_run_says_why_and_is_no_nonsense(block: Block) -> None:
    assert len(block.not_run.split()) >= 3
    if block.language == "python":
        compile(block.text, str(block.page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("where", ["README.md", "docs/index.md", "mkdocs.yml"])
def test_every_page_is_found_from_the_front_pages(where: str) -> None:
    text = (ROOT / where).read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or page.name in text, f"{where} does not name {page.name}"


def test_the_page_on_the_command_tells_of_every_verb_and_option() -> None:
    from kn_runtime.cli.completion import words_of
    from kn_runtime.cli.main import build_parser

    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for verb, words in words_of(build_parser()).items():
        assert f"## kn {verb}" in page
        section = page.split(f"## kn {verb}\n")[1].split("\n## ")[0] + page.split("\n## ")[1]
        for w in words:
            long = [n for n in w.names if n.startswith("--")]
            assert not long or any(f"`{n}" in section for n in long) or long == ["--help"], (
                f"{verb} {long}"
            )
    assert set(re.findall(r"^## kn (\w+)$", page, re.MULTILINE)) == {*VERBS}


def test_the_page_on_stability_names_the_modules_of_the_snapshot() -> None:
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(kn_[\w.]+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(MODULES)


def test_the_page_on_errors_has_every_category() -> None:
    from kn_graph import errors

    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    kinds = [getattr(errors, n) for n in errors.__all__ if n.endswith("Error")]
    for kind in kinds:
        assert f"`{kind.__name__}`" in page, kind.__name__
        assert f"`{kind.category}`" in page, kind.category


def test_the_front_page_counts_the_operators_of_microsoft() -> None:
    listed = (ROOT / "docs" / "supported-operators.md").read_text(encoding="utf-8")
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| com\.microsoft:(\w+) \|", listed, re.MULTILINE))
    assert f" {len(names)} of `com.microsoft`" in front
