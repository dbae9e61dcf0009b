"""`kn completion`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kn_runtime.cli.completion import SHELLS, words_of
from kn_runtime.cli.main import VERBS, build_parser
from tests.cli.conftest import Kn

WORDS = words_of(build_parser())

DRIVER = """
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
_kn
echo "${{COMPREPLY[*]}}"
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_hold_every_verb_and_option(shell: str, kn: Kn) -> None:
    result = kn("completion", shell)
    assert (result.code, result.err) == (0, "")
    for verb, words in WORDS.items():
        assert verb in result.out
        for w in words:
            for name in w.names:
                shown = name.lstrip("-") if shell == "fish" else name
                assert shown in result.out, (verb, name)
    assert kn("completion", shell, "--json").json()["script"] == result.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("kn pl", "plan"),
        ("kn comple", "completion"),
        ("kn completion ''", "bash zsh fish"),
        ("kn run --dev", "--device"),
        ("kn run --device c", "cpu cuda cuda:0"),
        ("kn plan --device n", "neutral"),
        ("kn svg model.onnx --level ''", "ops blocks"),
        ("kn info some", "some.onnx"),
        ("kn run some.onnx --input x = so", "some.onnx"),
        ("kn walk --", ""),
    ],
)
def test_what_bash_completes(words: str, found: str, tmp_path: Path, kn: Kn) -> None:
    script = tmp_path / "kn.bash"
    script.write_text(kn("completion", "bash").out)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "some.onnx").touch()
    text = DRIVER.format(script=script, words=words)
    done = subprocess.run(
        ["bash", "--norc", "-c", text], cwd=folder, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == (found, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_are_read_by_them(shell: str, tmp_path: Path, kn: Kn) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    script = tmp_path / "script"
    script.write_text(kn("completion", shell).out)
    subprocess.run([shell, "-n", str(script)], check=True)


def test_only_the_verb_that_is_called_is_imported() -> None:
    parser = build_parser("devices")
    assert parser.parse_args(["devices", "--json"]).json
    assert words_of(parser)["devices"]
    assert not any(w.takes for w in words_of(parser)["run"])
    assert list(words_of(parser)) == list(VERBS)
