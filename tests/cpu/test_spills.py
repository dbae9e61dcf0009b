"""The micro-kernels keep their sums in registers: compilers that do not say nothing about it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kn_cpu.native import available, load
from kn_cpu.product import REGISTERS

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 machine code"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump"),
]

TITLE = re.compile(r"^[0-9a-f]+ <((?:dot_\w+_)?(?:wide|narrow)_\d+|rows_\d+_\d+)>:$")
STACK = r"(?:\(%rsp\)|-0x[0-9a-f]+\(%rbp\))"  # rbp may as well be a pointer to data
SPILL = re.compile(rf"%[xyz]mm\d+,.*{STACK}|{STACK},%[xyz]mm\d+")
VECTOR = re.compile(
    r"\b(?:v?movap[sd]|v?movup[sd]|v?fmadd\w*|v?mulps|v?addps|v?movdq\w+|v?padd\w|v?pmadd\w+|vpdp\w+)\b"
)


def spills(library: Path) -> Counter[str]:
    """Return how many vectors each micro-kernel stores to the stack, or reads from there."""
    run = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: Counter[str] = Counter()
    current = ""
    for line in run.stdout.splitlines():
        title = TITLE.match(line)
        if title or line.endswith(">:"):
            current = title[1] if title else ""
            if current:
                found[current] += 0
        elif current and VECTOR.search(line) and SPILL.search(line):
            found[current] += 1
    return found


@pytest.mark.parametrize("isa", available())
def test_micro_kernels_do_not_spill(isa: str) -> None:
    found = spills(load(isa).path)
    rows = range(3, REGISTERS[isa].rows + 1)
    dots = ["dot_16_", *(["dot_s8_", "dot_u8_"] if REGISTERS[isa].quads else [])]
    expected = {
        f"{stem}{kind}_{n}" for stem in ("", *dots) for kind in ("wide", "narrow") for n in rows
    }
    most = {"base": 2, "avx2": 3, "avxvnni": 3, "avx512": 6}[isa]  # KN_ROWS of kn_recurrent.h
    expected |= {f"rows_{n}_{m}" for n in range(1, most + 1) for m in range(1, 5)}
    if not found:
        pytest.skip("the library has no symbols")
    assert expected <= set(found)
    assert {name: found[name] for name in expected if found[name]} == {}
