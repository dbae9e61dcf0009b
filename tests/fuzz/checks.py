"""What has to hold for every program."""

from __future__ import annotations

import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kn_graph import Graph, KnError, cpu_eval_graph
from kn_graph.compare import Band, bisect, compare_outputs, model_band, to_float64
from kn_graph.errors import InternalError
from kn_graph.optimizer import OptimizerSettings, optimize_graph, optimize_graph_report
from kn_graph.transform import clone_graph
from kn_runtime import Device
from tests.fuzz.program import Program

__all__ = ["CHECKS", "ENDLESS", "SECONDS", "Failure", "run_check"]

SAMPLES = 4
ENDLESS = "does not end"
SECONDS = 20.0
"""A check of one program takes a few hundredths of that."""


@dataclass(frozen=True)
class Failure:
    """What went wrong.

    Attributes:
        check: the name of the check.
        kind: a few words; shrinking keeps them.
        text: everything there is to say.
    """

    check: str
    kind: str
    text: str


class WrongError(Exception):
    """A check found something.

    Args:
        kind: a few words.
        text: the details.
    """

    def __init__(self, kind: str, text: str = "") -> None:
        super().__init__(kind)
        self.kind, self.text = kind, text


def run_check(name: str, program: Program, seconds: float = SECONDS) -> Failure | None:
    """Run a check on a program.

    Args:
        name: one of `CHECKS`.
        program: what to check.
        seconds: how long it may take.

    Returns:
        What went wrong; nothing where the program itself is not valid, such as one whose indices
        do not exist.
    """
    try:
        graph = program.build()
        if name != "reference":
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the check `reference` is about them
                cpu_eval_graph(graph, program.inputs())
    except Exception as error:
        if name != "reference" or not _is_bug(error):
            return None
    try:
        with warnings.catch_warnings(), _deadline(seconds):
            warnings.simplefilter("error" if name == "reference" else "ignore")
            CHECKS[name](program)
    except WrongError as wrong:
        return Failure(name, wrong.kind, wrong.text)
    except Exception as error:
        if name == "reference" and not _is_bug(error):
            return None
        place = traceback.extract_tb(error.__traceback__)[-1].name
        return Failure(name, f"{type(error).__name__} in {place}", traceback.format_exc(limit=-4))
    return None


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Interrupt what never ends."""

    def stop(*_: Any) -> None:
        raise WrongError(ENDLESS, f"after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_bug(error: Exception) -> bool:
    return isinstance(error, InternalError) or not isinstance(error, KnError)


def _differs(kind: str, actual: Mapping[str, Any], band: Band) -> None:
    """Raise where outputs are outside of a band; nothing is said of undecided ones."""
    bad = [v for v in compare_outputs(actual, band).verdicts if not v.ok and v.why != "undecided"]
    if bad:
        why = bad[0].why.partition(":")[0]
        raise WrongError(f"{kind}: {why}", "\n".join(v.describe() for v in bad))


def _band(program: Program) -> Band:
    return _band_of(program.build(), program.inputs())


def _band_of(graph: Graph, inputs: dict[str, Any]) -> Band:
    return model_band(graph, inputs, samples=SAMPLES)


def check_reference(program: Program) -> None:
    """The reference does not crash and does not warn."""
    cpu_eval_graph(program.build(), program.inputs())


def check_verify(program: Program) -> None:
    """The graph keeps its invariants, and copies of it compute the same."""
    graph = program.build()
    graph.verify()
    assert str(graph)
    inputs = program.inputs()
    expected = Band(cpu_eval_graph(graph, inputs))
    copy = clone_graph(graph)
    copy.verify()
    _differs("clone", cpu_eval_graph(copy, inputs), expected)
    to_float64(graph).verify()


def check_optimize(program: Program) -> None:
    """The optimizer changes no result, no name and no type, and has nothing left to do after."""
    graph = program.build()
    before = _interface(graph)
    optimized, _ = optimize_graph_report(graph)
    optimized.verify()
    if _interface(optimized) != before:
        raise WrongError("interface", f"before {before}\nafter {_interface(optimized)}")
    try:
        outputs = cpu_eval_graph(optimized, program.inputs())
    except Exception as error:
        raise WrongError(f"optimized graph fails: {type(error).__name__}", str(error)) from error
    try:
        _optimized_differs("optimized", program, outputs, _band(program))
    except WrongError as wrong:
        raise WrongError(wrong.kind, f"{wrong.text}\n{optimized}") from None
    _, report = optimize_graph_report(optimized)
    if report.fired:
        raise WrongError(f"not idempotent: {min(report.fired)}", f"{report}\n{optimized}")


def _optimized_differs(kind: str, program: Program, outputs: Mapping[str, Any], band: Band) -> None:
    """Raise where outputs of an optimized graph are outside of a band.

    What overflows on the way, as a softmax written out does, may become finite: fused forms do not
    overflow, and `OptimizerSettings` says so. Without them all has to be equal.
    """
    try:
        _differs(kind, outputs, band)
    except WrongError:
        if not _overflows_less(program, outputs, band):
            raise


def _overflows_less(program: Program, outputs: Mapping[str, Any], band: Band) -> bool:
    tolerance = dict(band.tolerance)
    for name, x in band.expected.items():
        if name in tolerance and outputs[name].shape == x.shape:
            wide, now = x.astype(np.float64), outputs[name].astype(np.float64)
            tolerance[name] = np.where(
                np.isfinite(now) & ~np.isfinite(wide), np.inf, tolerance[name]
            )
    strict = optimize_graph(
        program.build(), OptimizerSettings(fuse_softmax=False, fuse_activation=False)
    )
    try:
        _differs("", outputs, replace(band, tolerance=tolerance))
        _differs("", cpu_eval_graph(strict, program.inputs()), band)
    except WrongError:
        return False
    return True


def _interface(graph: Graph) -> list[tuple[str, str]]:
    """Names of inputs and outputs, with types of which sizes may be written in another way."""
    inputs = [(v.name, str(v.type)) for v in graph.inputs]
    return inputs + [(n, f"{v.dtype} of rank {v.rank}") for n, v in graph.outputs.items()]


def check_specialize(program: Program) -> None:
    """Numbers in place of symbols change no result, before and after the optimizer."""
    graph, inputs = program.build(), program.inputs()
    for kind, g in (("specialized", graph), ("optimized then specialized", optimize_graph(graph))):
        special = g.specialize({n: k for n, k in program.sizes if n in g.symbols})
        special.verify()
        _differs(kind, cpu_eval_graph(special, inputs), _band_of(g, inputs))


def check_bands(program: Program) -> None:
    """Each node alone is inside of its band, and the reference inside of the model's."""
    graph, inputs = program.build(), program.inputs()
    _differs("reference", cpu_eval_graph(graph, inputs), _band(program))
    found = bisect(graph, inputs, cpu_eval_graph)
    if found is not None:
        raise WrongError("bisect", found.describe())


def check_devices(program: Program) -> None:
    """Every device that is here agrees, with and without the optimizer."""
    band = _band(program)
    for device in Device.available():
        for optimize in (False, True):
            with device.prepare(program.build(), optimize=optimize) as prepared:
                outputs = prepared.eval(program.inputs())
            if optimize:
                _optimized_differs(f"{device} optimized", program, outputs, band)
            else:
                _differs(str(device), outputs, band)


CHECKS: dict[str, Callable[[Program], None]] = {
    "reference": check_reference,
    "verify": check_verify,
    "optimize": check_optimize,
    "specialize": check_specialize,
    "bands": check_bands,
    "devices": check_devices,
}
