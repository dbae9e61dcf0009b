"""Parts of models: by name, by structure, and how pictures fold them."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import Graph
from kn_graph.render.album import Options, album_of
from kn_graph.render.repeats import Repeat, find_repeat, repeated_paths
from tests.render.models import chain, layers


def folded(graph: Graph) -> list[str]:
    return [b.title for b in album_of(graph, Options(level="blocks")).picture.boxes]


def test_parts_with_numbered_names_are_folded() -> None:
    assert folded(layers(3)) == ["x", "layer.0", "layer.1", "layer.2", "Softmax", "y"]


def test_parts_are_found_without_names() -> None:
    assert folded(layers(3, names=False)) == [
        *("x", "block A1", "block A2", "block A3", "Softmax", "y")
    ]


@pytest.mark.parametrize("names", [True, False])
def test_equal_blocks_share_a_picture_that_knows_all_their_names(names: bool) -> None:
    album = album_of(layers(3, names=names), Options(level="blocks"))
    blocks = [b for b in album.picture.boxes if b.shape == "block"]
    assert len({tuple(b.opens) for b in blocks}) == 1
    inside = album.pages[blocks[0].opens[0]]
    assert [b.title for b in inside.boxes] == [
        *("MatMul", "relu", "MatMul", "mul", "add", "input", "output")
    ]
    relu = next(b for b in inside.boxes if b.title == "relu")
    assert {f"layer.{i}.act_out" for i in range(3)} <= set(relu.names)


def test_blocks_that_differ_have_pictures_of_their_own() -> None:
    g = layers(2)
    with g.origin("/encoder/layer.7/mlp/a"):
        x = g.outputs["y"]
        for i in range(5):
            x = g.tanh(x) + float(i)
    g.output("z", x)
    blocks = [b for b in album_of(g, Options(level="blocks")).picture.boxes if b.opens]
    assert [b.title for b in blocks] == ["layer.0", "layer.1", "layer.7"]
    assert blocks[0].opens == blocks[1].opens != blocks[2].opens


def test_the_boxes_of_blocks_count_what_is_inside() -> None:
    box = album_of(layers(3), Options(level="blocks")).picture.boxes[1]
    assert box.lines == ["2 × MatMul", "relu", "mul", "add"]
    assert box.details[0] == "layer.0: 5 operations"


def test_every_operation_is_in_one_picture_of_each_level() -> None:
    g = layers(3)
    album = album_of(g)
    assert album.other is not None
    assert len(album.picture.boxes) == 5 * 3 + 3
    flat = {n for b in album.picture.boxes for n in b.names}
    inside = {n for page in album.pages[:-1] for b in page.boxes for n in b.names}
    assert {n for n in flat if n.startswith("/encoder")} <= inside


def test_what_follows_one_operation_only_shares_its_box_where_blocks_are_folded() -> None:
    g = layers(3)
    g.output("z", g.tanh(g.matmul(g.outputs["y"], g.constant(np.eye(8, dtype=np.float32)))))
    picture = album_of(g, Options(level="blocks")).picture
    box = next(b for b in picture.boxes if b.title == "MatMul")
    assert box.lines == ["f32 8×8", "+ tanh"]
    assert [a.label for a in picture.arrows][-2:] == ["", ""]
    assert "MatMul" in [b.title for b in album_of(g).picture.boxes]


def test_what_others_read_as_well_keeps_its_own_box() -> None:
    g = layers(3)
    with g.origin("/tail/a"):
        x = g.matmul(g.outputs["y"], g.constant(np.eye(8, dtype=np.float32)))
        g.output("z", g.tanh(x))
        g.output("w", g.relu(x))
    assert {"MatMul", "tanh", "relu"} <= set(folded(g))


def test_arrows_between_blocks_are_values_and_go_forward() -> None:
    picture = album_of(layers(3), Options(level="blocks")).picture
    assert [(a.source, a.target) for a in picture.arrows] == [(i, i + 1) for i in range(5)]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("abcdeabcde", Repeat(0, 5, 2)),
        ("xyabcdeabcdeabcdez", Repeat(2, 5, 3)),
        ("abcabcabc", None),  # too short to be blocks
        ("abcdefghij", None),
        ("", None),
        ("aaaaaaaaaaaa", Repeat(0, 6, 2)),
    ],
)
def test_repeats(sequence: str, expected: Repeat | None) -> None:
    assert find_repeat(np.array([ord(c) for c in sequence], np.int64)) == expected


def test_repeats_of_several_kinds_get_letters() -> None:
    paths = repeated_paths("abcdeabcde" + "-" + "vwxyzvwxyzvwxyz")
    assert paths[0] == ("block A1",)
    assert paths[5] == ("block A2",)
    assert paths[10] == ()
    assert paths[-1] == ("block B3",)


def test_long_blocks_are_searched_for_repeats_inside() -> None:
    long = "".join(map(chr, range(200, 240))) + "abcdefgh" * 3 + "!"
    paths = repeated_paths(long * 2)
    assert paths[40] == ("block A1", "block A1")
    assert paths[len(long) + 55] == ("block A2", "block A2")


def test_long_chains_need_no_recursion() -> None:
    album = album_of(chain(3_000), Options(level="blocks"), inner=False)
    assert len(album.picture.boxes) < 1_000
