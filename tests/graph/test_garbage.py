"""Collections of garbage while graphs are built."""

import gc

import pytest

from kn_graph.garbage import uncollected


@uncollected()
def collecting() -> bool:
    """Return whether the collector is on inside."""
    return gc.isenabled()


def test_nothing_is_collected_inside_and_everything_goes_on_afterwards():
    assert gc.isenabled()
    assert not collecting()
    assert gc.isenabled()


def test_an_error_switches_the_collector_on_again():
    with pytest.raises(ZeroDivisionError), uncollected():
        _ = 1 // 0
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with uncollected():
            assert not collecting()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_only_the_outermost_switches_it_on():
    with uncollected():
        assert not collecting()
        assert not gc.isenabled()
