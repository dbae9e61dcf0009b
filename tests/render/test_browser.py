"""The script of a picture, run by a browser without a window."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kn_graph import Graph
from kn_graph.render.album import Options, album_of
from kn_graph.render.svg import svg_text
from tests.render.models import control, layers

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")

HELPERS = """
const root = document.documentElement, said = [];
const nodes = () => [...document.querySelectorAll('.page:not([display]) .node')];
const title = (n) => n.querySelector('text').textContent;
const titles = (list) => list.map(title);
const node = (t) => nodes().find((n) => title(n) === t);
const fire = (e, kind, more) => e.dispatchEvent(
  new (kind === 'click' ? MouseEvent : kind === 'keydown' ? KeyboardEvent : Event)(
    kind, { bubbles: true, ...more }));
const click = (t) => fire(node(t), 'click');
const buttons = () => [...document.querySelectorAll('button')];
const press = (t) => fire(buttons().find((b) => b.textContent === t), 'click');
const input = document.querySelector('input');
const key = (k) => fire(input, 'keydown', { key: k });
const look_for = (t) => { input.value = t; fire(input, 'input'); };
const marked = (c) => titles(nodes().filter((n) => n.classList.contains(c)));
const text = () => document.querySelectorAll('foreignObject')[1].textContent;
const bar = () => document.querySelectorAll('foreignObject')[0].textContent;
const say = (x) => said.push(x);
"""


def browse(graph: Graph, steps: str, folder: Path, **options: Any) -> Any:
    """Return what steps in a picture say."""
    script = f"{HELPERS}{steps}\nroot.setAttribute('data-said', JSON.stringify(said));"
    text = svg_text(album_of(graph, Options(**options)))
    file = folder / "x.svg"
    file.write_text(text.replace("</svg>", f"<script><![CDATA[{script}]]></script></svg>"))
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--dump-dom", f"file://{file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said = re.search(r'data-said="([^"]*)"', done.stdout)
    assert said is not None, done.stdout[-2000:]
    return json.loads(html.unescape(said[1]))


def test_a_click_on_a_block_opens_it_and_the_path_leads_back(tmp_path: Path) -> None:
    steps = """
    click('layer.1'); say(titles(nodes()).sort()); say(bar());
    press('model'); say(titles(nodes()));
    """
    inside, bar, outside = browse(layers(3), steps, tmp_path, level="blocks")
    assert inside == ["MatMul", "MatMul", "add", "input", "mul", "output", "relu"]
    assert bar.endswith("model \u203a layer.1")
    assert outside == ["x", "layer.0", "layer.1", "layer.2", "Softmax", "y"]


def test_all_operations_can_be_folded_and_unfolded(tmp_path: Path) -> None:
    steps = "press('fold blocks'); say(nodes().length); press('unfold all'); say(nodes().length);"
    assert browse(layers(3), steps, tmp_path) == [6, 18]


def test_a_click_tells_about_an_operation_and_marks_its_neighbours(tmp_path: Path) -> None:
    steps = """
    click('relu'); say(marked('picked')); say(marked('faded').length);
    say(document.querySelectorAll('.edge.near').length); say(text());
    click('relu'); say(marked('faded'));
    """
    picked, faded, near, text, later = browse(layers(1), steps, tmp_path)
    assert (picked, faded, near, later) == (["relu"], 8 - 3, 2, [])
    for part in ("reads float32[batch, 8]", "/encoder/layer.0/mlp/act", "layer.0.act_out"):
        assert part in text


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("layer.2.act_out", ["relu"]),  # a tensor
        ("layer.0/mlp/ACT", ["relu"]),  # a node of the file
        ("relu", ["relu"] * 3),  # an operation
        ("no such thing", []),
    ],
)
def test_search_finds_names_and_kinds(wanted: str, found: list[str], tmp_path: Path) -> None:
    steps = f"look_for('{wanted}'); say(marked('found')); say(marked('faded').length > 0);"
    assert browse(layers(3), steps, tmp_path) == [found, bool(found)]


def test_enter_goes_to_what_is_found_inside_of_blocks(tmp_path: Path) -> None:
    steps = "look_for('layer.2.act_out'); say(nodes().length); key('Enter'); say(marked('picked'));"
    assert browse(layers(3), steps, tmp_path, level="blocks") == [6, ["relu"]]


def test_control_flow_offers_each_of_its_bodies(tmp_path: Path) -> None:
    steps = "click('If'); press('open else'); say(titles(nodes())); key('Escape'); say(bar());"
    inside, bar = browse(control(), steps, tmp_path)
    assert inside == ["x", "mul", "tanh", "y"]
    assert bar.endswith("model")
