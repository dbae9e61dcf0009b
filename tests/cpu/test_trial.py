"""Short runs find out how many threads they take."""

from __future__ import annotations

from kn_cpu.trial import SHORT, ThreadTrial


def decided(most: int, seconds: dict[int, float], cold: float = 1.0) -> tuple[int, int]:
    """Return what is decided for runs that take these times, and after how many runs."""
    trial, runs = ThreadTrial(most), 0
    while trial.open:
        trial.note(cold if runs == 0 else seconds[trial.threads])
        runs += 1
        assert runs < 100
    return trial.threads, runs


def test_one_thread_where_waking_another_takes_longer() -> None:
    assert decided(4, {1: 10e-6, 4: 20e-6})[0] == 1


def test_all_threads_where_they_are_faster() -> None:
    assert decided(4, {1: 90e-6, 4: 50e-6})[0] == 4


def test_long_runs_are_not_tried_on_one_thread() -> None:
    assert decided(2, {1: 0.0, 2: 2 * SHORT}) == (2, 2)


def test_nothing_is_tried_where_there_is_one_thread() -> None:
    assert not ThreadTrial(1).open


def test_the_first_run_does_not_count() -> None:
    assert decided(2, {1: 30e-6, 2: 20e-6}, cold=1e-9)[0] == 2
