"""Entry point of `kn`: arguments, errors and exit codes."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module

from kn_graph.errors import DeviceError, InternalError, KnError
from kn_runtime import __version__

__all__ = ["main"]

VERBS = {
    "info": "what a model file contains: inputs, outputs, operators, sizes",
    "run": "run a model on given inputs and print what comes out",
    "devices": "which devices can be used here, and why others cannot",
    "support": "which operators are supported",
}
"""Each verb is the module of its name in this package, with `add_arguments` and `execute`."""

OK, BAD_USE, DEVICE_FAILED, INTERNAL, INTERRUPTED = 0, 2, 3, 70, 130


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all verbs."""
    parser = argparse.ArgumentParser(
        prog="kn",
        description="Run, inspect and check ONNX models.",
        epilog="kn VERB --help shows examples. Exit codes: 0 ok, 1 the answer is no, 2 bad use or "
        "model, 3 the device is absent or fails, 70 internal error.",
    )
    parser.add_argument("--version", action="version", version=f"kn {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, text in VERBS.items():
        module = import_module(f"kn_runtime.cli.{name}")
        sub = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("--json", action="store_true", help="print one JSON object on stdout")
        sub.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr")
        module.add_arguments(sub)
        sub.set_defaults(execute=module.execute)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    args = build_parser().parse_args(argv)
    level = {0: logging.WARNING, 1: logging.INFO}.get(args.verbose, logging.DEBUG)
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        code: int = args.execute(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left: nothing more to say
        return OK
    except KnError as error:
        return _report(error, verbose=args.verbose)
    except Exception as error:
        wrapped = InternalError(f"{type(error).__name__}: {error}. Please report this.")
        wrapped.__cause__ = error
        return _report(wrapped, verbose=max(args.verbose, 1))
    return code


def _report(error: KnError, *, verbose: int) -> int:
    if verbose:
        logging.getLogger("kn").info("traceback", exc_info=error)
    text = " ".join(str(error).split())
    sys.stderr.write(f"error[{error.category}]: {text}\n")
    if isinstance(error, InternalError):
        return INTERNAL
    return DEVICE_FAILED if isinstance(error, DeviceError) else BAD_USE
