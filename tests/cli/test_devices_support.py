"""`kn devices` and `kn support`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kn_graph.onnx.coverage import coverage_markdown
from kn_runtime import Device
from tests.cli.conftest import Kn


def test_devices_as_json(kn: Kn) -> None:
    rows = kn("devices", "--json").json()["devices"]
    by_name = {r["device"]: r for r in rows}
    assert [str(d) for d in Device.available()] == [r["device"] for r in rows if r["usable"]]
    assert [r["device"] for r in rows if r["best"]] == [str(Device.best())]
    assert by_name["reference"]["usable"]
    assert all(r["reason"] for r in rows)
    assert not any("asked for" in r["reason"] for r in rows)


def test_devices_as_text(kn: Kn) -> None:
    lines = kn("devices").lines
    assert lines[0].split() == ["device", "usable", "remarks"]
    assert lines[1].split()[:2] == [str(Device.best()), "best"]
    assert any(line.startswith("cuda") for line in lines)


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_devices_fit_the_terminal(columns: int, kn: Kn) -> None:
    assert max(map(len, kn("devices", columns=columns).lines)) <= columns


def test_support_lists_operators(kn: Kn) -> None:
    lines = kn("support", columns=80).lines
    assert lines[0].split() == ["operator", "opset", "versions", "how"]
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["Relu"][-1] == "converter"
    assert max(map(len, lines)) <= 80


def test_support_as_json(kn: Kn) -> None:
    rows = kn("support", "--json").json()["operators"]
    assert {"operator": "Relu", "versions": "1 6 13 14", "how": "converter"} in rows


def test_the_page_can_be_written_and_checked(tmp_path: Path, kn: Kn) -> None:
    page = tmp_path / "page.md"
    page.write_text(kn("support", "--markdown").out, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == coverage_markdown()
    assert kn("support", "--check", page).code == 0
    page.write_text("# Supported operators\n")
    stale = kn("support", "--check", page)
    assert (stale.code, stale.out) == (1, "")
    assert f"run kn support --markdown > {page}" in stale.err
    stale = kn("support", "--check", page, "--json")
    assert (stale.code, stale.json()) == (1, {"file": str(page), "stale": True})


def test_a_page_that_cannot_be_read_is_an_error(tmp_path: Path, kn: Kn) -> None:
    assert "No such file" in kn("support", "--check", tmp_path / "absent.md").error(2, "usage")
