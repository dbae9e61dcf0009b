"""Entry point of `kn`: arguments, errors and exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from textwrap import fill
from typing import NoReturn, TextIO

from kn_graph.errors import InternalError, KnError, KnWarning, OutOfMemoryError, UsageError
from kn_runtime import __version__

__all__ = ["main"]

VERBS = {
    "info": "what a model file contains: inputs, outputs, operators",
    "run": "run a model on given inputs, or on a folder of them",
    "bench": "how fast a model runs, in turns with onnxruntime",
    "profile": "how long each step takes, beside what is possible",
    "compare": "whether devices give what the reference gives",
    "check": "whether a model loads, plans and fits, without running it",
    "plan": "the steps that a model becomes, their memory and least cost",
    "optimize": "what the optimizer makes of a model, also as a file",
    "svg": "draw a model as a picture to look through in a browser",
    "devices": "which devices can be used, and why others cannot",
    "doctor": "what is installed, whether it works, and what to do",
    "support": "which operators are supported",
    "completion": "a script that completes verbs and options in a shell",
}
"""Each verb is the module of its name in this package, with `add_arguments` and `execute`."""

VERB_INDENT = 4
"""Of verbs in the help, which argparse forgets."""

OK, BAD_USE, DEVICE_FAILED, INTERNAL, INTERRUPTED = 0, 2, 3, 70, 130

EXIT_CODES = {
    "device_unavailable": DEVICE_FAILED,
    "unsupported_on_device": DEVICE_FAILED,
    "compile_failed": DEVICE_FAILED,
    "internal": INTERNAL,
}
"""By category of the error; all others are the fault of the use, the model or the inputs."""

EPILOG = """exit codes: 0 ok, 1 the answer is no, 2 bad use, model or input, 3 the device is
absent or fails, 70 internal error, 130 interrupted. kn VERB --help shows examples.
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help for the width of the terminal; what is indented, as examples are, stays as it is."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)
        self._action_max_length = max(map(len, VERBS)) + VERB_INDENT

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(p if "\n  " in p else fill(" ".join(p.split()), width) for p in parts)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors as all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({self.prog} --help shows how it is used)")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser with all verbs.

    Args:
        only: the verb that is called: the others get no arguments, so that their modules need not
            be imported.
    """
    parser = _Parser(
        prog="kn",
        description="Run, inspect and check ONNX models.",
        epilog=EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kn {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, text in VERBS.items():
        if only is not None and name != only:
            verbs.add_parser(name, help=text)
            continue
        module = import_module(f"kn_runtime.cli.{name}")
        sub = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=module.EXAMPLES,
            formatter_class=_Help,
            allow_abbrev=False,
        )
        sub.add_argument("--json", action="store_true", help="print one JSON object on stdout")
        sub.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr")
        module.add_arguments(sub)
        sub.set_defaults(execute=module.execute)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    verbose = 0
    try:
        args = _parsed(argv)
        verbose = args.verbose
        with _messages_on_stderr(verbose):
            code: int = args.execute(args)
        sys.stdout.flush()
    except SystemExit as done:  # --help and --version
        return int(done.code or OK)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left. Python flushes stdout once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KnError as error:
        return _report(error, error, verbose)
    except MemoryError as error:
        text = str(error) or "not enough memory"
        return _report(OutOfMemoryError(text), error, verbose)
    except Exception as error:
        text = f"{type(error).__name__}: {error}. Please report this, with what -v prints."
        return _report(InternalError(text), error, verbose)
    return code


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if argv is None else argv)
    called = next((word for word in given if not word.startswith("-")), "")
    parser = build_parser(called)
    args = parser.parse_args(given)
    if args.verb is None:
        sys.stderr.write(parser.format_help() + "\n")
        parser.error(f"no verb given; the verbs are {', '.join(VERBS)}")
    return args


@contextmanager
def _messages_on_stderr(verbose: int) -> Iterator[None]:
    """Print log records (with -v, -vv) and warnings of this library as single lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", KnWarning)
            warnings.showwarning = _show_warning
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, KnWarning):
        sys.stderr.write(f"warning: {_one_line(message)}\n")


def _report(error: KnError, cause: BaseException, verbose: int) -> int:
    if verbose:
        import traceback

        sys.stderr.writelines(traceback.format_exception(cause))
    sys.stderr.write(f"error[{error.category}]: {_one_line(error)}\n")
    return EXIT_CODES.get(error.category, BAD_USE)


def _one_line(message: object) -> str:
    text = " ".join(str(message).split())
    return text.encode("utf-8", "backslashreplace").decode()
