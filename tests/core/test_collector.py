"""Tracing keeps the garbage collector from searching again and again, and leaves it as it was."""

import gc
import threading

import pytest

import jaxlite as jax
from jaxlite.core.collector import seldom_collecting


@pytest.fixture
def threshold():
    before = gc.get_threshold()
    gc.unfreeze()  # what tests/conftest.py froze: programs start without
    yield before
    gc.set_threshold(*before)
    gc.freeze()


def seen_while_tracing(fails=False):
    seen = []

    def f(x):
        seen.append(gc.get_threshold())
        return 1 / 0 if fails else x

    if fails:
        with pytest.raises(ZeroDivisionError):
            jax.jit(f).trace(1.0)
    else:
        jax.jit(f).trace(1.0)
    return seen[0]


@pytest.mark.parametrize("fails", [False, True])
def test_a_trace_collects_seldom_and_what_it_made_is_old(threshold, fails):
    gc.set_threshold(701, 11, 12)
    assert seen_while_tracing(fails)[0] > 10_000
    assert gc.get_threshold() == (701, 11, 12)
    assert gc.isenabled() and gc.get_freeze_count() < 1_000
    made = []
    with seldom_collecting:
        made.extend([] for _ in range(50_000))
    assert any(each is made[0] for each in gc.get_objects(2))


def test_what_the_user_has_set_stays(threshold):
    gc.set_threshold(0)
    assert seen_while_tracing()[0] == 0 == gc.get_threshold()[0]
    gc.set_threshold(*threshold)
    jax.jit(lambda x: gc.set_threshold(702, 3, 3) or x).trace(1.0)
    assert gc.get_threshold() == (702, 3, 3)
    gc.freeze()
    try:
        jax.jit(lambda x: x + 1).trace(1.0)
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()


def test_the_last_of_several_threads_restores(threshold):
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with seldom_collecting:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(10)
    with seldom_collecting, seldom_collecting:
        pass
    assert gc.get_threshold() != threshold
    leave.set()
    thread.join()
    assert gc.get_threshold() == threshold
