"""Engines timed in turns: each loads a model in a process of its own and runs when told to.

So memory is each engine's own, threads that one leaves spinning find nothing to disturb, and
whatever else the machine does meanwhile falls on all of them alike. This library never imports
another runtime: the child is told the module's name, as in `kn_runtime.oracle`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kn_graph.errors import UsageError
from kn_runtime.oracle import child_environment, read_values, write_values

__all__ = ["ENGINES", "Laps", "Race", "is_installed", "race"]

PAUSE = 0.02
"""Seconds between turns, in which threads that spin for more work go to sleep."""

LEAST_CALLS = 3
"""Of a turn."""


@dataclass
class Laps:
    """What was measured of one engine.

    Attributes:
        engine: its name.
        version: of its package.
        load_ms: from the path of the file to an engine that is ready.
        first_ms: the first call.
        memory_bytes: the most that was in use, less what was before the engine was imported.
        turns: the milliseconds of each call, for each turn.
    """

    engine: str
    version: str
    load_ms: float
    first_ms: float
    memory_bytes: int = 0
    turns: list[list[float]] = field(default_factory=list)

    @property
    def calls(self) -> list[float]:
        """The milliseconds of all calls."""
        return [t for turn in self.turns for t in turn]

    @property
    def median_ms(self) -> float:
        """The median over all calls."""
        return statistics.median(self.calls)

    def quantile_ms(self, part: float) -> float:
        """Return the time that a part of the calls, from 0 to 1, do not exceed."""
        times = sorted(self.calls)
        return times[min(int(part * len(times)), len(times) - 1)]


@dataclass(frozen=True)
class Race:
    """All engines.

    Attributes:
        laps: of each, in the order asked for.
        outputs: of each one's first call.
    """

    laps: Sequence[Laps]
    outputs: Sequence[Mapping[str, Any]]

    def ratios(self, place: int) -> list[float]:
        """Return how many times as fast the first engine was as another one, for each turn."""
        pairs = zip(self.laps[0].turns, self.laps[place].turns, strict=True)
        return [statistics.median(other) / statistics.median(own) for own, other in pairs]


def is_installed(engine: str) -> bool:
    """Return whether an engine can be imported, without doing so."""
    return find_spec(engine.partition(".")[0]) is not None


def race(
    model: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    engines: Sequence[str],
    *,
    settings: Mapping[str, Any],
    turns: int = 10,
    seconds: float = 0.2,
    progress: Callable[[], None] = lambda: None,
) -> Race:
    """Time engines in turns.

    Args:
        model: path of the file.
        inputs: arrays by name.
        engines: names in `ENGINES`.
        settings: for all of them: `threads`; `device` and `dims` for this library.
        turns: how many each one has.
        seconds: how long a turn takes, at least; it has at least three calls.
        progress: called after every turn.

    Raises:
        UsageError: an engine is not known, not installed, or does not run the model.
    """
    with TemporaryDirectory(prefix="kn-race-") as name, ExitStack() as stack:
        folder = Path(name)
        write_values(folder / "in.npz", inputs)
        children = [
            stack.enter_context(_child(engine, os.fspath(model), folder, settings))
            for engine in engines
        ]
        laps = [Laps(e, **child.ask()) for e, child in zip(engines, children, strict=True)]
        for turn in range(turns):
            # whoever begins has the colder machine: it is each one's turn
            order = [(i + turn) % len(children) for i in range(len(children))]
            for place in order:
                time.sleep(PAUSE)
                laps[place].turns.append(children[place].ask(f"{seconds}")["times"])
                progress()
        for lap, child in zip(laps, children, strict=True):
            lap.memory_bytes = child.ask("end")["memory_bytes"]
        outputs = [read_values(folder / f"{e}.npz") for e in engines]
    return Race(laps, outputs)


class _Child:
    """A process that runs an engine."""

    def __init__(self, process: subprocess.Popen[str], what: str, log: Path) -> None:
        self._process, self._what, self._log = process, what, log

    def ask(self, line: str | None = None) -> Any:
        """Send a line, if one is given, and return the object that comes back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if line is not None and self._process.poll() is None:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        for answer in self._process.stdout:
            if answer.startswith("{"):  # other lines are of the engine
                return json.loads(answer)
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        raise UsageError(f"{self._what}: {lines[-1] if lines else f'it ended with code {code}'}")


@contextmanager
def _child(engine: str, model: str, folder: Path, settings: Mapping[str, Any]) -> Iterator[_Child]:
    if engine not in ENGINES:
        raise UsageError(f"no engine {engine!r} is known; there are {', '.join(ENGINES)}")
    if not is_installed(engine):
        raise UsageError(f"{engine} is not installed here: pip install {engine}")
    log, command = folder / f"{engine}.log", [sys.executable, "-P", "-m", "kn_runtime.cli.race"]
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            [*command, engine, model, str(folder), json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
            env=child_environment(),
        ) as process,
    ):
        try:
            yield _Child(process, f"{engine} does not run {model}", log)
        finally:
            process.kill()


# ---- the child ------------------------------------------------------------------------------

Call = Callable[[], dict[str, Any]]


def _kn(module: Any, model: str, inputs: dict[str, Any], settings: Mapping[str, Any]) -> Call:
    from kn_runtime.options import PrepareOptions

    options = PrepareOptions(threads=settings["threads"])
    prepared = module.load(
        model, settings["device"], dims=settings["dims"] or None, options=options
    )
    return lambda: prepared.eval(inputs)


def _onnxruntime(
    module: Any, model: str, inputs: dict[str, Any], settings: Mapping[str, Any]
) -> Call:
    options = module.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    options.log_severity_level = 3
    session = module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, inputs), strict=True))


ENGINES: Mapping[str, Callable[[Any, str, dict[str, Any], Mapping[str, Any]], Call]] = {
    "kn_runtime": _kn,
    "onnxruntime": _onnxruntime,
}
"""How an engine, by the module that it is imported from, is made ready to be called."""


def _main(arguments: Sequence[str]) -> int:
    engine, model, folder, settings = arguments
    inputs = read_values(Path(folder, "in.npz"))
    before = _resident("VmRSS")
    module = import_module(engine)
    start = time.perf_counter()
    call = ENGINES[engine](module, model, inputs, json.loads(settings))
    loaded = time.perf_counter()
    outputs = call()
    done = time.perf_counter()
    write_values(Path(folder, f"{engine}.npz"), outputs)
    facts = {"load_ms": (loaded - start) * 1e3, "first_ms": (done - loaded) * 1e3}
    _answer({"version": str(getattr(module, "__version__", "")), **facts})
    for line in sys.stdin:
        if line.strip() == "end":
            _answer({"memory_bytes": max(_resident("VmHWM") - before, 0)})
            break
        _answer({"times": _turn(call, float(line))})
    return 0


def _turn(call: Call, seconds: float) -> list[float]:
    """Return the milliseconds of the calls of one turn; one that comes first does not count."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _answer(facts: Mapping[str, Any]) -> None:
    sys.stdout.write("\n" + json.dumps(facts) + "\n")
    sys.stdout.flush()


def _resident(what: str) -> int:
    """Return a number of bytes of this process, or 0 where the system does not say.

    `getrusage` would count what the parent had in use when it started this process.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(s.split()[1]) * 1024 for s in lines if s.startswith(f"{what}:")), 0)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
