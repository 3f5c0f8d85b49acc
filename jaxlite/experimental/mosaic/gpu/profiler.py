"""How long a function's kernels run on a GPU, from XLA's profiler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jaxlite.compilation.jit import jit
from jaxlite.compilation.stages import Compiled, Wrapped
from jaxlite.devices.api import block_until_ready
from lowering import platforms, xla

__all__ = ["Cupti", "measure"]
__dir__ = lambda: __all__


class Cupti:
    """A profiler of kernels. XLA's ends with each measurement, whatever `finalize` says."""

    def __init__(self, finalize: bool = True):
        self.finalize = finalize

    def measure(self, f: Callable, *, aggregate: bool = True, iterations: int = 1) -> Callable:
        """See `measure`."""
        return measure(f, aggregate=aggregate, iterations=iterations)


def measure(f: Callable, *, aggregate: bool = True, iterations: int = 1) -> Callable:
    """A function that gives the result of `f`, compiled, and the milliseconds that its kernels ran.

    Args:
      aggregate: the sum of all kernels; else a list of pairs (kernel, milliseconds).
      iterations: the calls that are measured, after one that is not. With more than one, the times are a list of them.

    The times are None if no kernel ran. Raises: ValueError for no iterations; calling it, RuntimeError without a GPU.
    """
    if iterations < 1:
        raise ValueError(f"{iterations=} must be positive")
    run = f if isinstance(f, (Wrapped, Compiled)) else jit(f)

    @functools.wraps(f)
    def measured(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if platforms.devices()[0].platform not in ("gpu", "cuda", "rocm"):
            raise RuntimeError("CUPTI profiling is not supported on this platform")
        block_until_ready(run(*args, **kwargs))
        profiling, out, times = xla.load_profiler(), None, []
        for _ in range(iterations):
            session = profiling.ProfilerSession()
            try:
                out = block_until_ready(run(*args, **kwargs))
            finally:
                raw = session.stop()
            times.append(kernels(xla.load_profile_data().ProfileData.from_serialized_xspace(raw)))
        if not any(times):
            return out, None
        shown = [sum(each for _, each in found) for found in times] if aggregate else times
        return out, shown[0] if iterations == 1 else shown

    return measured


def kernels(profile: Any) -> list[tuple[str, float]]:
    """The kernels of a profile in order of their start, with milliseconds: what ran on streams of GPUs, without copies."""
    found = [event for plane in profile.planes if plane.name.startswith("/device:GPU") for line in plane.lines
             if line.name.startswith("Stream") for event in line.events if not event.name.startswith(("Memcpy", "Memset"))]
    return [(event.name, event.duration_ns / 1e6) for event in sorted(found, key=lambda event: event.start_ns)]
