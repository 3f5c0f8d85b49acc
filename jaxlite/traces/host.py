"""Eager operations on the host: NumPy runs an operation on the CPU that has no executable yet, if the bits are the same.

Compiling one slice takes longer than running it a thousand times, and an interactive session consists of single operations
on new shapes. On the CPU, an array's buffer is host memory, so the first calls of an eager operation need no executable. A
signature that is called often is compiled.

This module decides which calls run in NumPy; `jaxlite.traces.host_plan` decides which programs can.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.jit import jit
from jaxlite.core import array as arrays
from jaxlite.core import config
from jaxlite.core.aval import MemorySpace, spaces
from jaxlite.core.lazy import loader
from lowering import platforms, xla

_PATIENCE = 0.03  # seconds to wait for operands that are still being computed: about what a compile takes

_plans = loader("jaxlite.traces.host_plan")  # with all rules: not before something is computed

# Called with (program, leaves, device, committed, results) after each call that NumPy answered.
watchers: list[Callable[..., None]] = []


def eager_jit(fun: Callable[..., Any], **options: Any) -> Any:
    """`jit` for what is one operation to the user, whose first calls need not be compiled."""
    path = jit(fun, **options)
    path._jitted.on_host = run_on_host
    return path


def run_on_host(program: Any, leaves: Sequence[Any], device: Any, committed: bool) -> list[Any] | None:
    """The results of a call of a `Program`; None if it is to be compiled."""
    if not config.eager_on_host.value or type(device) is not xla.Device or platforms.platform_of(device) != "cpu" \
            or config.debug_nans.value or config.debug_infs.value or config.dump_ir_to.value is not None or xla.is_guarded():
        return None
    if spaces.exist and any(
            [getattr(aval, "memory_space", None) is MemorySpace.Host for aval in program.closed.in_avals]):
        return None
    plan = program.host_plan
    if plan is None:
        plan = program.host_plan = _plans().make_plan(program.closed)
    if plan.calls_left <= 0 or not _are_ready(leaves):
        return None
    plan.calls_left -= 1
    try:
        found = plan.answer(leaves)
    except Exception:  # values that it must not compute with, or cannot; if there is anything wrong, XLA says what
        plan.calls_left = 0
        return None
    # Copies: neither an operand nor what NumPy keeps may share memory with a result, which can be donated.
    outs = [arrays.put_array(out, device, committed, True, aval)
            for out, aval in zip(found, program.closed.out_avals, strict=True)]
    for watch in watchers:
        watch(program, leaves, device, committed, outs)
    return outs


def _are_ready(leaves: Sequence[Any]) -> bool:
    """Whether the operands are computed, or are so soon: the call of an executable would not wait for them."""
    patience, pause = 0.0, 2e-5
    for leaf in leaves:
        if type(leaf) is xla.ArrayImpl:
            while not leaf.is_deleted() and not leaf.is_ready():
                patience = patience or time.perf_counter() + _PATIENCE
                if time.perf_counter() > patience:
                    return False
                time.sleep(pause)
                pause *= 1.1  # a computation that takes longer is asked about less often
    return True
