"""One engine in a process of its own: loads a model, runs it some times, prints what that took.

    python -m benchmarks.one_engine ours|onnxruntime MODEL RECORDING THREADS RUNS

Nothing of the other engine is imported, so that the peak of memory is that of the engine.
"""

import json
import sys
import time
from pathlib import Path

START = time.perf_counter()


def peak_kilobytes() -> int:
    """Return the largest resident memory of this process.

    Not `ru_maxrss`, which begins with what the parent had.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def main(engine: str, model: str, recording: str, threads: str, runs: str) -> None:
    """Run, and print seconds from the start of Python code to the first outputs, and the peak."""
    import numpy as np

    with np.load(recording) as content:
        feeds = {k.removeprefix("in:"): content[k] for k in content.files if k.startswith("in:")}
    if engine == "ours":
        import kn_runtime

        options = kn_runtime.PrepareOptions(threads=int(threads))
        ours = kn_runtime.load(model, "cpu", options=options)

        def run() -> object:
            return ours.eval(feeds)
    else:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = int(threads)
        theirs = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])

        def run() -> object:
            return theirs.run(None, feeds)

    run()
    seconds = time.perf_counter() - START
    for _ in range(int(runs) - 1):
        run()
    print(json.dumps({"seconds": seconds, "peak": peak_kilobytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
