"""`kn run` on folders of inputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import MODELS, Kn
from tests.small_models import info, model, node

DIGITS = (MODELS / "digits.onnx", "--labels", MODELS / "digits.txt")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder of two pictures, and a file that is none of them."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("one.png", "two.png"):
        shutil.copy(MODELS / "digit.png", folder / name)
    (folder / "notes.md").write_text("no input")
    return folder


def test_each_file_is_a_run(pictures: Path, tmp_path: Path, kn: Kn) -> None:
    result = kn("run", *DIGITS, "--input", f"image={pictures}", "--output", tmp_path / "out")
    assert (result.code, result.err) == (0, "")
    rows = [line.split() for line in result.lines]
    assert [row[:2] for row in rows[1:3]] == [["one.png", "three"], ["two.png", "three"]]
    assert any(line.startswith("files    2 files in") for line in result.lines)
    report = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [f["name"] for f in report["files"]] == ["one", "two"]
    alone = kn("run", *DIGITS, "--input", f"image={MODELS / 'digit.png'}", "--json").json()
    for file in report["files"]:
        assert file["outputs"] == alone["outputs"]
        saved = np.load(tmp_path / "out" / file["name"] / "probabilities.npy")
        assert saved.shape == (1, 10)


def test_one_that_fails_is_named_and_the_rest_goes_on(pictures: Path, kn: Kn) -> None:
    (pictures / "damaged.png").write_text("no picture")
    result = kn("run", *DIGITS, "--input", f"image={pictures}", "--json")
    assert result.code == 1
    report = result.json()
    assert report["failed"] == 1
    assert ["error" in f for f in report["files"]] == [True, False, False]
    assert "is no picture" in report["files"][0]["error"]
    shown = kn("run", *DIGITS, "--input", f"image={pictures}")
    assert shown.code == 1
    assert "2 files" not in shown.out
    assert "3 files in" in shown.out
    assert "damaged.png is no picture that Pillow reads" in " ".join(shown.out.split())


def test_files_of_two_folders_belong_together_by_name(tmp_path: Path, kn: Kn) -> None:
    path = tmp_path / "sub.onnx"
    proto = model([node("Sub", "a b", "y")], [info("a", [2]), info("b", [2])])
    path.write_bytes(proto.SerializeToString())
    for name, factor in (("a", 10), ("b", 1)):
        (tmp_path / name).mkdir()
        for k in (1, 2):
            np.save(tmp_path / name / f"{k}.npy", np.full(2, factor * k, np.float32))
    given = ("--input", f"a={tmp_path / 'a'}", "--input", f"b={tmp_path / 'b'}")
    files = kn("run", path, *given, "--json").json()["files"]
    assert [f["outputs"]["y"]["first"] for f in files] == [[9, 9], [18, 18]]
    (tmp_path / "b" / "1.npy").unlink()
    text = kn("run", path, *given).error(2, "usage")
    assert text.startswith("the folders for 'a' and 'b' hold different files: '1'")


def test_other_inputs_are_the_same_for_all_files(tmp_path: Path, kn: Kn) -> None:
    path = tmp_path / "sub.onnx"
    proto = model([node("Sub", "a b", "y")], [info("a", [2]), info("b", [2])])
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "x.npy", np.zeros(2, np.float32))
    np.save(tmp_path / "b.npy", np.array([1, 2], np.float32))
    given = ("--input", f"a={tmp_path / 'a'}", "--input", f"b={tmp_path / 'b.npy'}")
    (file,) = kn("run", path, *given, "--json").json()["files"]
    assert file["outputs"]["y"]["first"] == [-1, -2]


def test_folders_that_cannot_be_used(tmp_path: Path, kn: Kn) -> None:
    (tmp_path / "empty").mkdir()
    text = kn("run", *DIGITS, "--input", f"image={tmp_path / 'empty'}").error(2, "usage")
    assert "holds no file with one of the suffixes .npy" in text
    for suffix in ("npy", "txt"):
        (tmp_path / "empty" / f"same.{suffix}").touch()
    text = kn("run", *DIGITS, "--input", f"image={tmp_path / 'empty'}").error(2, "usage")
    assert "has two files called 'same'" in text
