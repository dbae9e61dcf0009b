"""The pictures of docs/architecture.md say what is so."""

from __future__ import annotations

import html
import re

import pytest

from tests.docs.architecture import ARROWS, FOLDER, PARTS, pipeline_dot, stages_dot
from tests.docs.generated_kernel import PAGE, page_with, texts


def labels(dot: str) -> list[str]:
    return [line for label in re.findall(r'label="([^"]*)"', dot) for line in label.split("\\n")]


@pytest.mark.parametrize(("name", "dot"), [("pipeline", pipeline_dot()), ("stages", stages_dot())])
def test_the_pictures_are_up_to_date(name: str, dot: str) -> None:
    text = html.unescape((FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    hint = "run: python -m tests.docs.architecture --update"
    assert sorted(shown) == sorted(line for line in labels(dot) if line), hint


def test_every_arrow_of_the_pipeline_joins_parts() -> None:
    named = {part.strip() for arrow in ARROWS for part in arrow.split("->")}
    assert named == PARTS.keys()


def test_the_text_on_the_small_net_is_right() -> None:
    dot = stages_dot()
    plan = dot.split("cluster_plan")[1]
    steps = re.findall(r'label="(\d+: [^"\\]*)', plan)
    assert [s.split(": ")[1] for s in steps] == ["Conv +2", "reduce_mean", "MatMul +1", "Softmax"]
    places = dict(re.findall(r'label="(b\d+): [^"]*\\narena, from byte (\d+)"', plan))
    assert places["b7"] == places["b3"] == "0"


def test_the_generated_kernel_is_what_is_generated() -> None:
    page = PAGE.read_text(encoding="utf-8")
    hint = "run: python -m tests.docs.generated_kernel --update, and read what is said of it"
    assert page == page_with(page), hint


def test_what_is_said_of_the_kernel_is_about_its_lines() -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page.split("## One generated kernel")[1].split("\n## ")[0]
    named = re.findall(r"^- (?:The )?`(\w+)`", section, re.MULTILINE)
    assert len(named) >= 9
    for name in named:
        assert any(name in text for text in texts()), name
