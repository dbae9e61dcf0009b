"""What stands in pictures: boxes, arrows, labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph, load_graph_from_onnx_path
from kn_graph.errors import GraphError
from kn_graph.render.album import Options, album_of
from kn_graph.render.families import FAMILIES, HEAVY
from kn_graph.render.labels import type_text
from kn_graph.render.picture import Picture
from tests.render.models import control, layers

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load_graph_from_onnx_path(DIGITS)


def picture(graph: Graph, **options: Any) -> Picture:
    return album_of(graph, Options(**options), inner=False).picture


def titles(graph: Graph, **options: Any) -> list[str]:
    return [b.title for b in picture(graph, **options).boxes]


def lines(graph: Graph, title: str, **options: Any) -> list[str]:
    return next(b.lines for b in picture(graph, **options).boxes if b.title == title)


def test_a_picture_has_a_box_for_each_operation_and_none_for_constants(digits: Graph) -> None:
    found = titles(digits)
    assert found[0] == "image"
    assert found[-1] == "probabilities"
    assert found.count("Conv") == 3
    assert not any("Constant" in t or "Broadcast" in t for t in found)


def test_constants_are_lines_of_their_readers(digits: Graph) -> None:
    assert lines(digits, "Conv") == ["pad 1", "f32 8×1×3×3"]
    assert lines(digits, "Conv", hide_const=True) == ["pad 1"]


@pytest.mark.parametrize(
    ("build", "title", "expected"),
    [
        (lambda g, x: x - 2.0, "sub", ["2"]),
        (lambda g, x: 2.0 - x, "sub", ["(2, ·)"]),
        (lambda g, x: g.permute(x, (1, 0)), "Permute", ["axes 1,0"]),
        (lambda g, x: g.softmax(x, 1), "Softmax", ["axis 1"]),
        (lambda g, x: x * np.float32("inf"), "mul", ["inf"]),
        (lambda g, x: x[:, 1:3], "Slice", ["axis 1, start 1"]),
        (lambda g, x: g.relu(x), "relu", []),
    ],
)
def test_attributes_and_small_constants_are_written_short(
    build: Any, title: str, expected: list[str]
) -> None:
    g = Graph()
    g.output("y", build(g, g.input("x", "float32", [2, 4])))
    assert lines(g, title) == expected


def test_arrows_carry_types_and_join_boxes_that_exist(digits: Graph) -> None:
    found = picture(digits)
    places = range(len(found.boxes))
    assert all(a.source in places and a.target in places for a in found.arrows)
    assert found.arrows[0].label == "f32 batch×1×8×8"


def test_an_operation_that_reads_a_value_twice_has_two_arrows() -> None:
    g = Graph()
    x = g.input("x", "float32", [2])
    g.output("y", x * x)
    assert [(a.source, a.target) for a in picture(g).arrows] == [(0, 1), (0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ([], "f32 scalar"),
        ([1, 0], "f32 1×0"),
        (["batch", 3], "f32 batch×3"),
        (["p2o.DynamicDimension.0", 3], "f32 p2o.…ion.0×3"),
    ],
)
def test_types_are_written_short(shape: list[Any], text: str) -> None:
    g = Graph()
    assert type_text(g.input("x", "float32", shape).type) == text


def test_sizes_that_round_up_are_written_as_such() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 1, 64])
    n = x.shape[0]
    y = g.input("y", "bfloat16", [2 * ((n + 31) // 32), (n + 5) // 7])
    assert type_text(y.type) == "bf16 2*⌈n/32⌉×((n+5)//7)"


def test_ids_and_values() -> None:
    g = layers(1)
    assert any(t.startswith("%") for t in titles(g, show_ids=True))
    values = {"layer.0.act_out": np.array([0.25, np.nan, 0.5, -np.inf], np.float32)}
    assert "0.25 .. 0.5, 2 not finite" in lines(g, "relu", values=values)
    assert lines(g, "relu", values={"layer.0.act_out": np.array(["text"], object)}) == []


NAMES = ["layer.1.act_out", "/encoder/layer.1/mlp/act", "%node"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_near_a_node_is_what_it_needs_and_what_needs_it(name: str) -> None:
    g = layers(3)
    if name == "%node":
        name = f"%{g.find('layer.1.act_out').node.index}"
    found = picture(g, around=name, distance=2)
    assert [b.title for b in found.boxes if b.marked] == ["relu"]
    assert [b.title for b in found.boxes] == ["add", "MatMul", "relu", "MatMul", "mul"]


def test_what_else_a_near_result_is_computed_from_is_near() -> None:
    found = titles(layers(3), around="layer.0.scale_out", distance=1)
    assert found == ["x", "MatMul", "mul", "add"]


def test_an_unknown_node_is_an_error() -> None:
    with pytest.raises(GraphError, match="no value 'nothing'"):
        picture(layers(1), around="nothing")


def test_details_say_all_there_is(digits: Graph) -> None:
    box = next(b for b in picture(digits).boxes if b.title == "Conv")
    assert box.details[0].startswith("Conv(strides=(1, 1)")
    assert "reads float32[8, 1, 3, 3] constant" in box.details
    assert any(d.startswith("makes float32[batch, 8, ") for d in box.details)
    assert box.names


def test_every_colour_belongs_to_one_family() -> None:
    stems = [s for _, modules in FAMILIES.values() for s in modules]
    assert len(stems) == len(set(stems))
    assert len({colour for colour, _ in FAMILIES.values()}) == len(FAMILIES)
    assert set(HEAVY) <= set(FAMILIES)


def test_control_flow_opens_its_bodies() -> None:
    album = album_of(control())
    box = next(b for b in album.picture.boxes if b.title == "If")
    assert [album.pages[i].name for i in box.opens] == ["then", "else"]
    then = album.pages[box.opens[0]]
    assert [b.title for b in then.boxes] == ["x", "mul", "tanh", "y"]
    assert then.boxes[1].lines == ["2"]
