"""Graphviz and Mermaid text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from kn_graph import Graph
from kn_graph.render import graph_to_dot, graph_to_mermaid
from kn_graph.render.engine import layout_svg
from tests.render.models import chain, layers

NASTY = [
    'say "hi"',
    "<b>not bold</b>",
    "a\\nb\\",
    "tab\tand\x00zero\x1b",
    "größe × 数 🦆",
    "&lt; & &amp;",
    "<>",
    "[x]{y}|z;#35;",
    "`code` *x* _y_",
    "end",
    "\ud800",
]


def named(name: str) -> Graph:
    g = Graph(name)
    x = g.input(name, "float32", [2])
    with g.origin(f"/layer.0/{name}"):
        y = g.relu(x)
    g.output(name, y)
    return g


def shown(name: str) -> str:
    return re.sub("[\x00-\x1f\ud800]", "\ufffd", name)


@pytest.mark.parametrize("name", NASTY)
def test_graphviz_shows_names_as_they_are(name: str) -> None:
    root = ElementTree.fromstring(layout_svg(graph_to_dot(named(name))))
    texts = {t.text for t in root.iter("{http://www.w3.org/2000/svg}text")}
    assert shown(name) in texts
    hints = [a.get("{http://www.w3.org/1999/xlink}title") or "" for a in root.iter()]
    assert any(shown(f"/layer.0/{name}") in hint.split("\n") for hint in hints)


LINE = re.compile(
    r'flowchart TD|  b\d+(\(\["[^"\n]*"\]\)|\["[^"\n]*"\])|  b\d+ -->(\|"[^"\n]*"\|)? b\d+'
    r"|  classDef f\d+ fill:#[0-9a-f]{6},stroke:#[0-9a-f]{6},color:#000|  class b\d+(,b\d+)* f\d+"
)


@pytest.mark.parametrize("name", NASTY)
def test_mermaid_text_keeps_to_the_grammar(name: str) -> None:
    text = graph_to_mermaid(named(name))
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []
    labels = re.findall(r'\["([^"]*)"\]', text)
    plain = [re.sub(r"#(\d+);", lambda m: chr(int(m[1])), label) for label in labels]
    assert any(label.startswith(shown(name)) for label in plain)
    assert not any(re.search(r"[<>](?!br/>)", label.replace("<br/>", "")) for label in labels)


def test_mermaid_text_of_a_small_graph() -> None:
    assert graph_to_mermaid(named("x")) == (
        "flowchart TD\n"
        '  b0(["x<br/>f32 2"])\n'
        '  b1["relu"]\n'
        '  b2(["x<br/>f32 2"])\n'
        '  b0 -->|"f32 2"| b1\n'
        "  b1 --> b2\n"
        "  classDef f0 fill:#dcdcdc,stroke:#7a7a7a,color:#000\n"
        "  class b0,b2 f0\n"
        "  classDef f2 fill:#cfe6ff,stroke:#7a7a7a,color:#000\n"
        "  class b1 f2\n"
    )


def test_parts_of_the_model_are_framed() -> None:
    text = graph_to_dot(layers(2))
    assert 'label="encoder/layer.0"' in text
    assert text.count("subgraph") == 2


@pytest.mark.parametrize("write", [graph_to_dot, graph_to_mermaid])
@pytest.mark.parametrize("level", ["ops", "blocks"])
def test_fifty_thousand_operations(
    write: Callable[..., str], level: str, long_chain: Graph
) -> None:
    text = write(long_chain, level=level)
    assert text.count("\n") > (100_000 if level == "ops" else 1_000)


@pytest.fixture(scope="module")
def long_chain() -> Graph:
    return chain(50_000)


def test_graphviz_accepts_what_is_laid_out_quickly() -> None:
    text = graph_to_dot(chain(900))
    assert "nslimit" in text
    assert layout_svg(text).count('class="node') == 902
