"""The build of the native libraries, and runs of steps through them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from kn_cpu import native
from kn_cpu.native import STEP, NativeLibrary
from kn_cpu.native.build import SOURCES, BuildError, Isa, build, find_compiler, isas, library_name
from kn_graph.errors import DeviceUnavailableError, InternalError, OutOfMemoryError

COMPILER = find_compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
needs_library = pytest.mark.skipif(not native.available(), reason=str(native.unavailable_reason()))


@needs_compiler
def test_where_there_is_a_compiler_there_are_libraries() -> None:
    assert "base" in native.available(), native.unavailable_reason()
    assert native.unavailable_reason() is None


# --- the build ---------------------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "one.h").write_text("enum { ONE = 1 };\n")
    (folder / "one.c").write_text('#include "one.h"\nint one(void) { return ONE; }\n')
    (folder / "two.c").write_text("int two(void) { return 2; }\n")
    return folder


def call(path: Path, name: str) -> int:
    code = f"import ctypes; print(ctypes.CDLL({str(path)!r}).{name}())"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout)


@needs_compiler
def test_only_what_is_out_of_date_is_compiled(sources: Path, tmp_path: Path) -> None:
    assert COMPILER is not None
    target, work, base = tmp_path / "lib", tmp_path / "work", isas()[:1]
    library = target / library_name("base")

    def made(*extra: str) -> list[str]:
        time.sleep(0.01)  # the clock of files may tick slowly
        paths = build(COMPILER, target, work, sources=sources, only=base, extra=extra)
        return [p.name for p in paths]

    assert made() == ["one.o", "two.o"]
    assert call(library, "one") == 1
    assert made() == []
    (sources / "two.c").write_text("int two(void) { return 22; }\n")
    assert made() == ["two.o"]
    assert call(library, "two") == 22
    (sources / "one.h").write_text("enum { ONE = 11 };\n")
    assert made() == ["one.o"]
    assert call(library, "one") == 11
    assert made("-DFLAG") == ["one.o", "two.o"]
    (sources / "two.c").unlink()
    assert made("-DFLAG") == []
    assert "two" not in library.read_bytes().decode("latin1")


@needs_compiler
def test_an_instruction_set_like_another_compiles_its_own_files_alone(
    sources: Path, tmp_path: Path
) -> None:
    assert COMPILER is not None
    base = isas()[0]
    alike = Isa("alike", ("-DALIKE",), ("one",), base.name)
    (sources / "one.c").write_text(
        "#ifdef ALIKE\nint one(void) { return 11; }\n#else\nint one(void) { return 1; }\n#endif\n"
    )
    unknown = Isa("unknown", ("-mno-processor-has-this",), ("one",), base.name)
    chosen = (base, alike, unknown)
    made = build(COMPILER, tmp_path, tmp_path / "work", sources=sources, only=chosen)
    assert sorted(f"{p.parent.name}/{p.name}" for p in made) == [
        "alike/one.o", f"{base.name}/one.o", f"{base.name}/two.o",
    ]  # fmt: skip
    for isa, number in ((base, 1), (alike, 11)):
        assert call(tmp_path / library_name(isa.name), "one") == number
        assert call(tmp_path / library_name(isa.name), "two") == 2
    assert not (tmp_path / library_name("unknown")).exists()


@needs_compiler
def test_what_the_compiler_refuses_is_an_error_again_and_again(
    sources: Path, tmp_path: Path
) -> None:
    assert COMPILER is not None
    (sources / "bad.c").write_text("int bad(void) { return wrong; }\n")
    for _ in range(2):
        with pytest.raises(BuildError, match="wrong"):
            build(COMPILER, tmp_path, tmp_path / "work", sources=sources, only=isas()[:1])
    assert not (tmp_path / library_name("base")).exists()


def test_the_compiler_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -O")
    assert find_compiler() == [sys.executable, "-O"]
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert find_compiler() is None
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_compiler() is None


@pytest.mark.slow
@needs_compiler
def test_sources_compile_without_warnings(tmp_path: Path) -> None:
    assert COMPILER is not None
    build(COMPILER, tmp_path, tmp_path / "work", extra=["-Werror"])


# --- the libraries -----------------------------------------------------------------------------


def in_new_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"from kn_cpu import native\n{code}"],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
        cwd=SOURCES.parents[1],
    )  # fmt: skip
    return done.stdout.strip()


def test_without_libraries_there_is_a_reason(tmp_path: Path) -> None:
    text = in_new_python(
        "print(native.library(), native.unavailable_reason())", KN_CPU_NATIVE=str(tmp_path)
    )
    assert text.startswith("None no native kernels: the package was installed without a C compiler")
    (tmp_path / library_name("base")).write_text("nonsense")
    assert "does not load" in in_new_python(
        "print(native.unavailable_reason())", KN_CPU_NATIVE=str(tmp_path)
    )


@needs_library
def test_environment_forces_an_instruction_set() -> None:
    for isa in native.available():
        assert in_new_python("print(native.library().isa)", KN_CPU_ISA=isa) == isa
    with pytest.raises(DeviceUnavailableError, match=r"no native kernels for 'mmx'.* base"):
        native.load("mmx")


@needs_library
def test_unknown_kernels_are_named() -> None:
    lib = native.load("base")
    with pytest.raises(InternalError, match="no table of kernels 'frobnicate'"):
        lib.kernel("frobnicate", "x")


# --- runs --------------------------------------------------------------------------------------

UNITS, STEPS = 64, 20

KERNELS = """
#include <stdint.h>
#include <string.h>
void add_reversed(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    int64_t *out = (int64_t *)p[0], *own = (int64_t *)scratch;
    const int64_t *in = (const int64_t *)p[1];
    for (int64_t u = begin; u < end; u++) {
        for (int64_t i = 0; i < n[0]; i++) own[i] = in[(n[1] - 1 - u) * n[0] + i] + 1;
        memcpy(out + u * n[0], own, n[0] * sizeof *own);
    }
}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> int:
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(KERNELS)
    command = [*COMPILER, "-shared", "-fPIC", "-O2", "kernels.c", "-o", "kernels.so"]
    subprocess.run(command, cwd=folder, check=True)
    function = ctypes.CDLL(str(folder / "kernels.so")).add_reversed
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def count_up(lib: NativeLibrary, kernel: int, threads: int, grain: int, length: int = 5) -> bool:
    """Run steps that each add one to all elements, in reverse; whether all was done."""
    arrays = np.zeros((2, UNITS * length), np.int64)
    a, b = (x.ctypes.data for x in arrays)
    pointers, numbers = np.array([b, a, a, b], np.int64), np.array([length, UNITS], np.int64)
    steps = np.array([(kernel, 0, i % 2 * 2, UNITS, grain, 8 * length) for i in range(STEPS)], STEP)
    lib.run(steps, numbers, pointers, threads)
    return bool((arrays[STEPS % 2] == STEPS).all())


@needs_library
@pytest.mark.parametrize("isa", native.available())
def test_steps_see_all_that_earlier_steps_wrote(isa: str, kernel: int) -> None:
    lib = native.load(isa)
    for threads in (1, 2, 3, 9):
        for grain in (0, 1, 7, UNITS):
            assert count_up(lib, kernel, threads, grain)


@needs_library
def test_python_threads_may_run_at_once(kernel: int) -> None:
    lib = native.load(native.available()[-1])
    wrong: list[int] = []

    def work(number: int) -> None:
        wrong.extend(i for i in range(50) if not count_up(lib, kernel, 1 + (number + i) % 4, 1))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_library
def test_helpers_sleep_when_a_run_is_over(kernel: int) -> None:
    lib = native.load(native.available()[-1])
    assert count_up(lib, kernel, 3, 1)
    used = []
    for _ in range(5):  # other threads of this process may have something to do
        assert count_up(lib, kernel, 3, 1)
        before = time.process_time()
        time.sleep(0.05)
        used.append(time.process_time() - before)
    assert min(used) < 0.002


@needs_library
def test_empty_steps_are_skipped_and_impossible_scratch_is_an_error(kernel: int) -> None:
    lib = native.load("base")
    lib.run(np.zeros(0, STEP), np.zeros(0, np.int64), np.zeros(0, np.int64), 2)
    nothing = np.array([(0, 0, 0, 0, 1, 2**62)], STEP)
    lib.run(nothing, np.zeros(1, np.int64), np.zeros(2, np.int64))
    with pytest.raises(OutOfMemoryError, match="4611686018427387904 bytes of scratch"):
        lib.run(
            np.array([(kernel, 0, 0, 1, 1, 2**62)], STEP),
            np.zeros(2, np.int64),
            np.zeros(2, np.int64),
        )


def test_sources_and_headers_are_what_make_looks_at() -> None:
    text = (SOURCES.parents[1] / "Makefile").read_text()
    assert "$(wildcard kn_cpu/native/*.[ch])" in text
    assert not [p.name for p in SOURCES.iterdir() if p.suffix not in (".c", ".h", ".py", "")]
    assert shutil.which("make") is None or os.path.exists(SOURCES / "abi.h")
