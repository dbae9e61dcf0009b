"""Collections of garbage while graphs are built."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from kn_graph import garbage
from kn_graph.garbage import EVERY, uncollected


class Cycle:
    """An object that only the collector frees."""

    def __init__(self) -> None:
        self.me = self


@uncollected
def collecting() -> bool:
    """Return whether the collector is on inside."""
    return gc.isenabled()


@uncollected
def cycles(count: int) -> list[Cycle]:
    """Return garbage to be."""
    return [Cycle() for _ in range(count)]


@pytest.fixture
def switched_off() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def nothing_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_aside", garbage._Aside())


def test_nothing_is_collected_inside_and_everything_goes_on_afterwards():
    assert gc.isenabled()
    assert not collecting()
    assert gc.isenabled()


def test_an_error_switches_the_collector_on_again():
    with pytest.raises(ZeroDivisionError):
        uncollected(lambda: 1 // 0)()
    assert gc.isenabled()


def test_an_interrupt_behind_the_work_switches_the_collector_on_again(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(garbage._aside, "put_young", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            collecting()
        assert gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.usefixtures("switched_off")
def test_a_collector_that_is_off_stays_off():
    assert not collecting()
    assert not gc.isenabled()


def test_only_the_outermost_switches_it_on():
    @uncollected
    def outer() -> bool:
        collecting()
        return gc.isenabled()

    assert not outer()
    assert gc.isenabled()


@pytest.mark.usefixtures("nothing_aside")
def test_what_was_built_is_old_at_once():
    made = cycles(1000)
    old = set(map(id, gc.get_objects(generation=2)))
    assert all(id(c) in old for c in made)


@pytest.mark.usefixtures("nothing_aside")
def test_garbage_that_was_set_aside_is_collected_when_it_has_become_much(monkeypatch):
    monkeypatch.setattr(garbage, "LEAST", 1000)
    monkeypatch.setattr(garbage._aside, "_most", 1000)
    first = weakref.ref(cycles(1)[0])
    assert first() is not None
    for _ in range(4 + len(gc.get_objects()) // 4000):
        cycles(1000)
    assert first() is None


@pytest.mark.usefixtures("nothing_aside")
def test_objects_that_somebody_froze_stay_frozen():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        cycles(10)
        assert gc.get_freeze_count() >= frozen - 10
    finally:
        gc.unfreeze()


@pytest.mark.usefixtures("nothing_aside")
def test_garbage_that_was_set_aside_is_collected_when_the_process_has_grown(monkeypatch):
    first = weakref.ref(cycles(1)[0])
    cycles(1)
    assert first() is not None
    monkeypatch.setattr(garbage, "_resident", lambda: 1 << 50)
    for _ in range(EVERY):
        cycles(1)
    assert first() is None
