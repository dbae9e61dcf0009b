"""Verbs, usage errors, exit codes, messages."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

import kn_runtime
from kn_graph import errors
from kn_graph.errors import DeviceUnavailableError, KnWarning, OutOfMemoryError
from kn_runtime import Device
from kn_runtime.cli import main as entry
from kn_runtime.cli.main import VERBS
from tests.cli.conftest import MODELS, Kn


def test_version(kn: Kn) -> None:
    result = kn("--version")
    assert (result.code, result.out) == (0, f"kn {kn_runtime.__version__}\n")


def test_help_names_every_verb(kn: Kn) -> None:
    result = kn("--help")
    assert result.code == 0
    assert all(f"\n    {verb} " in result.out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_has_examples_that_parse(verb: str, kn: Kn) -> None:
    from kn_runtime.cli.main import build_parser

    result = kn(verb, "--help")
    assert result.code == 0
    examples = [line.split(">")[0].split() for line in result.out.splitlines() if "  kn " in line]
    assert examples
    for _, *arguments in examples:
        build_parser().parse_args(arguments)


def test_no_verb_shows_the_help_and_is_an_error(kn: Kn) -> None:
    result = kn()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("usage: kn")
    last = result.err.splitlines()[-1]
    assert last.startswith("error[usage]: no verb given; the verbs are info, run")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["walk"], "'walk'"),
        (["run"], "MODEL"),
        (["info", "a.onnx", "b.onnx"], "b.onnx"),
        (["run", "a.onnx", "--fast"], "--fast"),
        (["run", "a.onnx", "--lab", "x"], "--lab"),
        (["run", "a.onnx", "--seed", "x"], "--seed"),
        (["run", "a.onnx", "--mean", "1,b"], "--mean: expected numbers"),
        (["run", "a.onnx", "--dim", "n"], "--dim is given as NAME=VALUE"),
        (["run", "a.onnx", "--dim", "n=-1"], "--dim n: expected a whole number"),
        (["run", "a.onnx", "--dim", "n=2.5"], "--dim n: expected a whole number"),
        (["run", "a.onnx", "--dim", "n=²"], "--dim n: expected a whole number"),
        (["run", "a.onnx", "--dim", "n=1", "--dim", "n=2"], "--dim n is given twice: 1 and 2"),
        (["run", "a.onnx", "--device", "gpu"], "unknown device 'gpu'; expected best"),
        (["run", "a.onnx", "--device", "cuda:x"], "unknown device 'cuda:x'"),
        (["support", "--markdown", "--check", "x"], "not allowed with"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], says: str, kn: Kn) -> None:
    assert says in kn(*arguments).error(2, "usage")


def test_a_known_device_that_is_absent_has_its_own_code(kn: Kn) -> None:
    with pytest.raises(DeviceUnavailableError) as absent:
        Device.cuda()
    text = kn("run", MODELS / "digits.onnx", "--device", "cuda").error(3, "device_unavailable")
    assert text.startswith("device cuda:0 is not available: ")
    assert absent.value.reasons
    assert all(reason in text for reason in absent.value.reasons)
    assert "cpu" in text


def replace_verb(monkeypatch: pytest.MonkeyPatch, execute: Any) -> None:
    from kn_runtime.cli import devices

    monkeypatch.setattr(devices, "execute", execute)


def raising(error: BaseException) -> Any:
    def execute(args: Any) -> int:
        raise error

    return execute


CODES = {
    "device_unavailable": 3,
    "unsupported_on_device": 3,
    "compile_failed": 3,
    "internal": 70,
}


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n.endswith("Error")])
def test_every_category_has_its_exit_code(
    name: str, kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = getattr(errors, name)
    replace_verb(monkeypatch, raising(kind("first line\nsecond\tline")))
    text = kn("devices").error(CODES.get(kind.category, 2), kind.category)
    assert text == "first line second line"


def test_an_unexpected_exception_asks_for_a_report(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_verb(monkeypatch, raising(TypeError("oh")))
    text = kn("devices").error(70, "internal")
    assert text == "TypeError: oh. Please report this, with what -v prints."
    shown = kn("devices", "-v").err
    assert "Traceback" in shown
    assert shown.splitlines()[-1].startswith("error[internal]: TypeError")


def test_a_missing_attribute_of_the_library_is_internal(
    kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_verb(monkeypatch, lambda args: SimpleNamespace().nothing)
    kn("devices").error(70, "internal")


def test_numpys_memory_error_is_out_of_memory(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_verb(monkeypatch, raising(MemoryError("Unable to allocate 8 TiB")))
    assert "8 TiB" in kn("devices").error(2, OutOfMemoryError.category)


def test_an_interrupt_is_silent(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_verb(monkeypatch, raising(KeyboardInterrupt()))
    result = kn("devices")
    assert (result.code, result.out, result.err) == (130, "", "")


def test_answers_of_no_are_1(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_verb(monkeypatch, lambda args: 1)
    assert kn("devices").code == 1


def test_warnings_of_the_library_are_lines_on_stderr(
    kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(args: Any) -> int:
        for _ in range(2):
            warnings.warn("mind\nthe gap", KnWarning, stacklevel=1)
        return 0

    replace_verb(monkeypatch, execute)
    assert kn("devices").err == "warning: mind the gap\n" * 2


def test_logging_is_as_before_afterwards(kn: Kn) -> None:
    import logging

    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    kn("devices", "-vv")
    assert (root.level, list(root.handlers)) == before


def run_module(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kn_runtime", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, **options})


def test_the_module_exits_with_the_code() -> None:
    process = run_module("run", "absent.onnx")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("error[malformed_model]: absent.onnx: there is no such file")


def test_a_reader_that_leaves_is_no_error() -> None:
    with run_module("support", "--markdown") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    code = (
        "import sys, time; from kn_runtime.cli import devices, main;"
        "devices.execute = lambda args: (print('ready', flush=True), time.sleep(60));"
        "sys.exit(main(['devices']))"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")


def test_main_returns_the_code_instead_of_exiting() -> None:
    assert isinstance(entry(["--version"]), int)
