"""Threads at a fork and at the end of the process.

A child process has none of its parent's threads, so XLA's thread pools would never finish their work there: a fork gives a
warning, and compiling or running a program in the child raises an error. At the end of the interpreter, threads inside XLA
would abort the process: the main thread waits for running compiles and prevents new ones.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import warnings

from jaxlite.core import config
from lowering import platforms

_WAIT = 60.0  # seconds
_SETTLE = 0.02  # for what runs on jaxlib's call path, unseen
_DEAF = 1.0  # an interrupt often comes twice (`timeout -s INT` sends two)
FORKED, _CLOSING = "forked", "closing"  # values of `no_execution`, which is part of the key of each call: all calls miss
_inside: set[int] = set()  # threads that trace, compile or run a program past jaxlib's call path
_closing = False
_gate = threading.Lock()  # held from the beginning of the end on


def enter() -> bool:
    """Note that this thread is about to trace, compile or run; say whether to call `leave` afterwards."""
    thread = threading.get_ident()
    if thread in _inside:
        return False
    _stop_if_closing()
    _inside.add(thread)
    return True


def leave() -> None:
    """Note that this thread is done."""
    _inside.discard(threading.get_ident())
    _stop_if_closing()


def _stop_if_closing() -> None:
    """At the interpreter's end, stop this thread for good. It waits where it is: Python ends threads that ask for its lock by
    unwinding them, which aborts the process in those that jaxlib's C++ has called, and so it could on the way out of there."""
    if _closing and threading.current_thread().daemon:
        _gate.acquire()


def check_may_run(name: str) -> None:
    """Raises RuntimeError where the option `no_execution` is on, or in the child of a fork."""
    if config.no_execution.value == FORKED:
        raise RuntimeError(f"{name} cannot run in this process: it is the child of os.fork(), and the threads that compile and "
                           "run programs stayed in its parent. Use multiprocessing with the start method 'spawn' or "
                           "'forkserver', or fork before the first computation")
    if config.no_execution.value not in (False, _CLOSING):
        raise RuntimeError(f"JAX tried to execute function {name}, but the no_execution config option is set")


def _at_exit() -> None:
    global _closing
    _gate.acquire()
    _closing = True
    own = threading.get_ident()
    if not platforms.clients or all(thread.ident == own for thread in threading.enumerate()):
        return
    config.no_execution.state.set_global(_CLOSING)
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if callable(handler):  # what it raises would end the wait, and XLA the process
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(_SETTLE)
    start = time.monotonic()
    while _inside - {own} and time.monotonic() < start + _WAIT:
        if callable(handler) and time.monotonic() > start + _DEAF:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever insists ends it at once
        time.sleep(0.002)
    time.sleep(_SETTLE)  # for those that just left, until they wait at the gate
    if callable(handler):
        signal.signal(signal.SIGINT, handler)


def _before_fork() -> None:
    if platforms.has_threads():
        warnings.warn("os.fork() was called. os.fork() is incompatible with multithreaded code, and JAX is multithreaded, so "
                      "this will likely lead to a deadlock: the child can compute nothing with jaxlite.", RuntimeWarning,
                      stacklevel=2)


def _after_fork() -> None:
    _inside.clear()
    if platforms.has_threads():
        config.no_execution.state.set_global(FORKED)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
