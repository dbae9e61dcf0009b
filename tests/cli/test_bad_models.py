"""Bad files and inputs: one clear line, exit code 2, little time and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kn_graph import load_graph_from_onnx_bytes
from kn_graph.errors import UnsupportedModelError
from tests.cli.bad_models import BAD_MODELS, BadModel, call_bomb, shape_powers
from tests.cli.conftest import Kn
from tests.small_models import info, model, node

GREEDY = [name for name, bad in BAD_MODELS.items() if bad.category == "out_of_memory"]
UNFOLDING = ["functions that unfold to 4^20 nodes", "subgraphs 5,000 deep", "size squared 40 times"]
MAX_SECONDS = 10
"""Starting Python takes 0.4 of them; a machine under load is slow."""
MAX_BYTES = 200 * 2**20


def made(bad: BadModel, tmp_path: Path) -> list[str]:
    folder = tmp_path / "folder"
    folder.mkdir()
    bad.make(folder)
    arguments = [a.replace("{folder}", str(folder)) for a in bad.arguments]
    return ["run", str(folder / "model.onnx"), *arguments]


@pytest.mark.parametrize("name", BAD_MODELS)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_bad_model_is_one_clear_error(name: str, device: str, tmp_path: Path, kn: Kn) -> None:
    bad = BAD_MODELS[name]
    result = kn(*made(bad, tmp_path), "--device", device)
    text = result.error(2, bad.category)
    for part in bad.says:
        assert part in text
    assert len(text) < 600


# the peak of this process alone: what wait4 reports includes that of the parent before exec
MEASURED = """
import sys
from kn_runtime.cli import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(code)
"""


@pytest.mark.parametrize("name", [*GREEDY[:1], *GREEDY[-5:], *UNFOLDING])
def test_it_takes_little_time_and_memory(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEASURED, *made(BAD_MODELS[name], tmp_path)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert time.perf_counter() - start < MAX_SECONDS
    assert done.returncode == 2, done.stderr
    assert int(done.stdout.split()[-1]) * 1024 < MAX_BYTES


def test_all_unsupported_operators_come_with_the_error() -> None:
    nodes = [node("Foo", "x", "a", domain="own"), node("Bar", "a", "y", domain="own")]
    bad = model(nodes, opsets={"": 21, "own": 3})
    with pytest.raises(UnsupportedModelError) as caught:
        load_graph_from_onnx_bytes(bad.SerializeToString())
    found = [(o.operator, o.opset, o.count) for o in caught.value.operators]
    assert found == [("own:Foo", 3, 1), ("own:Bar", 3, 1)]


def test_models_that_only_look_bad_run(kn: Kn, tmp_path: Path) -> None:
    harmless = {
        "a power of a size that is 1": shape_powers(["n"]),
        "functions in functions": call_bomb(5),
        "an output listed twice": model([node("Relu", "x", "y")], outputs=[info("y"), info("y")]),
        "an output that is an input": model([], outputs=[info("x")]),
        "nodes in the wrong order": model([node("Relu", "a", "y"), node("Neg", "x", "a")]),
        "two nodes of a name": model([node("Relu", "x", "a", "n"), node("Neg", "a", "y", "n")]),
        "a result that nobody names": model([node("Relu", "x", "y"), node("Neg", "x", "")]),
    }
    for name, proto in harmless.items():
        path = tmp_path / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        result = kn("run", path, "--input", "random")
        assert (result.code, result.err) == (0, ""), name
