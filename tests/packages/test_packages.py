"""Real packages run unmodified on this library, with the answers that they have on onnxruntime."""

from __future__ import annotations

import os

import pytest

from tests.packages.rows import PACKAGES, Package
from tests.packages.running import PYTHON, differences, run


@pytest.mark.packages
@pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} is not set: make test-packages")
@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_package_gives_the_same_answers(package: Package) -> None:
    if package.name == "openwakeword" and "OPENWAKEWORD_MODELS" not in os.environ:
        pytest.skip("OPENWAKEWORD_MODELS does not say where its models are: make test-packages")
    answers = run(package)
    assert answers.ours["served_by"].startswith("kn-engine")
    assert not answers.theirs["served_by"].startswith("kn-engine")
    assert answers.ours["version"] == answers.theirs["version"]
    wrong = list(differences(answers.theirs["answer"], answers.ours["answer"], package.tolerance))
    assert not wrong, "\n".join(wrong[:10])
    if package.key:
        assert answers.ours["answer"][package.key] is True


def test_differences_are_found() -> None:
    theirs = {"a": [1.0, "x"], "b": 2}
    assert not list(differences(theirs, {"a": [1.000001, "x"], "b": 2}, 1e-5))
    assert list(differences(theirs, {"a": [1.0001, "x"], "b": 2}, 1e-5)) == [
        ".a[0]: 1.0 there, 1.0001 here"
    ]
    for other in ({"a": [1.0, "y"], "b": 2}, {"a": [1.0], "b": 2}, {"a": [1.0, "x"]}, None):
        assert list(differences(theirs, other, 1e-5))
    assert list(differences(1.0, float("nan"), 1e-5))
