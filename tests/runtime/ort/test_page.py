"""docs/onnxruntime.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import onnxruntime

import kn_runtime.ort
from kn_runtime.ort.errors import EXCEPTIONS
from kn_runtime.ort.install import MODULES
from kn_runtime.ort.options import HONOURED
from tests.packages.rows import PACKAGES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "onnxruntime.md").read_text()


def test_it_names_the_options_that_change_something() -> None:
    assert all(f"{name}`" in PAGE for name in HONOURED)


def test_it_has_a_row_for_every_package() -> None:
    assert [p.name for p in PACKAGES] == re.findall(
        r"^\| ([a-z-]+) \d[\w.]+ \|", PAGE, re.MULTILINE
    )


def test_what_it_says_is_missing_is_missing_here_and_there_in_onnxruntime() -> None:
    section = PAGE.partition("## What is not there")[2]
    names = re.findall(r"`([A-Z]\w+)`", section)
    assert len(names) >= 4
    for name in names:
        assert hasattr(onnxruntime, name)
        assert not hasattr(kn_runtime.ort, name)
    modules = [f"onnxruntime{m}" for m in re.findall(r"`(?:onnxruntime)?(\.\w+)`", section)]
    assert len(modules) >= 6
    assert not set(modules) & set(MODULES)


def test_all_exceptions_of_onnxruntime_but_one_of_gpus_are_there() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    theirs = {
        name
        for name, value in vars(state).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert theirs - {kind.__name__ for kind in EXCEPTIONS} == {"DeviceReset"}
