"""Pictures of graphs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from kn_graph import Graph, load_graph_from_onnx_path
from kn_graph.errors import GraphError, UsageError
from kn_graph.render import graph_to_dot, graph_to_mermaid, graph_to_svg
from kn_graph.render.families import FAMILIES
from kn_graph.render.picture import picture_of
from kn_runtime.cli import main

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load_graph_from_onnx_path(DIGITS)


def titles(graph: Graph, **options: object) -> list[str]:
    return [b.title for b in picture_of(graph, **options).boxes]  # type: ignore[arg-type]


def test_a_picture_has_a_box_for_each_operation_and_none_for_constants(digits: Graph) -> None:
    found = titles(digits)
    assert found[0] == "image"
    assert found[-1] == "probabilities"
    assert found.count("Conv") == 3
    assert not any("Constant" in t or "Broadcast" in t for t in found)


def test_constants_are_lines_of_their_readers(digits: Graph) -> None:
    first = next(b for b in picture_of(digits).boxes if b.title == "Conv")
    assert first.lines == ["float32[8, 1, 3, 3]"]
    hidden = next(b for b in picture_of(digits, hide_const=True).boxes if b.title == "Conv")
    assert hidden.lines == []


def test_arrows_carry_types_and_join_boxes_that_exist(digits: Graph) -> None:
    picture = picture_of(digits)
    keys = {b.key for b in picture.boxes}
    assert len(keys) == len(picture.boxes)
    assert all({a.source, a.target} <= keys for a in picture.arrows)
    assert picture.arrows[0].label == "float32 batch × 1 × 8 × 8"


def test_ids_values_and_neighbourhoods(digits: Graph) -> None:
    assert any(t.startswith("%") for t in titles(digits, show_ids=True))
    values = {"probabilities": np.array([0.25, 0.5], np.float32)}
    boxes = picture_of(digits, values=values).boxes
    assert any("0.25 .. 0.5" in b.lines for b in boxes)
    near = titles(digits, around="probabilities")
    assert "probabilities" in near
    assert len(near) < len(titles(digits))
    with pytest.raises(GraphError, match="no value 'nothing'"):
        picture_of(digits, around="nothing")


def test_repeated_parts_of_a_model_become_one_box_each() -> None:
    g = Graph("blocks")
    x = g.input("x", "float32", [2, 4])
    for i in range(3):
        for name in ("mul", "add"):
            with g.origin(f"/layer.{i}/mlp/{name}"):
                x = g.relu(x * float(i + 2) + 1.0)
    g.output("y", x)
    blocks = picture_of(g, level="blocks")
    assert [b.title for b in blocks.boxes] == ["x", "layer.0", "layer.1", "layer.2", "y"]
    assert "2 x relu" in blocks.boxes[1].lines


def test_every_colour_belongs_to_one_family() -> None:
    stems = [s for _, modules in FAMILIES.values() for s in modules]
    assert len(stems) == len(set(stems))
    assert len({colour for colour, _ in FAMILIES.values()}) == len(FAMILIES)


def test_text_formats_quote_what_names_may_contain() -> None:
    g = Graph('a"b')
    g.output('y"]', g.relu(g.input('x"[1]\\', "float32", [2])))
    assert '\\"' in graph_to_dot(g)
    mermaid = graph_to_mermaid(g)
    assert mermaid.startswith("flowchart TD")
    assert "#34;" in mermaid


def test_an_svg_is_well_formed_and_can_be_searched(digits: Graph, tmp_path: Path) -> None:
    graph_to_svg(digits, tmp_path / "digits.svg")
    text = (tmp_path / "digits.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert text.count('class="node') == len(picture_of(digits).boxes)
    assert "search names" in text


def test_without_graphviz_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, digits: Graph, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(UsageError, match="graphviz-pure"):
        graph_to_svg(digits, tmp_path / "x.svg")


@pytest.mark.parametrize("kind", ["dot", "mermaid"])
def test_the_command_prints_text_formats(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["svg", str(DIGITS), "--format", kind, "--optimized"]) == 0
    assert "Conv" in capsys.readouterr().out


def test_the_command_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.svg"
    assert main(["svg", str(DIGITS), "-o", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["boxes"] > 10
    assert file.stat().st_size > 1000


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["svg", str(DIGITS)]) == 2
    assert "-o model.svg" in capsys.readouterr().err


def test_optimize_prints_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(DIGITS), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["nodes_after"] <= report["nodes_before"]
    assert main(["optimize", str(DIGITS), "--report"]) == 0
    assert "nodes before" in capsys.readouterr().out
