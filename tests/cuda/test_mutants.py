"""The texts that `mutants.py` changes; it takes too long to run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from kn_cuda import source
from tests.cuda import mutants
from tests.cuda.equivalents import EQUIVALENTS
from tests.cuda.mutants import FAMILIES, OPERATORS, SHARED_TESTS, TESTS, mutants_of, stale


def test_every_kernel_is_mutated_and_has_tests() -> None:
    files = {f.stem for f in source.FOLDER.iterdir()}
    assert files == set(TESTS)
    for names in (*TESTS.values(), SHARED_TESTS):
        assert all(Path(mutants.__file__).with_name(f"{n}.py").is_file() for n in names)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mutant_is_one_changed_line(family: str) -> None:
    honest = source.kernel_text(mutants.file_of(family)).splitlines()
    made = list(mutants_of(family))
    assert len(made) >= 3
    for m in made:
        lines = m.text.splitlines()
        assert [
            i for i, pair in enumerate(zip(honest, lines, strict=True)) if len(set(pair)) > 1
        ] == [m.line - 1]


def test_every_operator_finds_something() -> None:
    assert {m.kind for f in FAMILIES for m in mutants_of(f)} == set(OPERATORS)


def test_what_is_known_to_change_nothing_is_a_mutant_of_today() -> None:
    assert stale() == []
    assert len({(e.family, e.before, e.after) for e in EQUIVALENTS}) == len(EQUIVALENTS)
