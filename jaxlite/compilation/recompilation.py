"""A warning, once per function, if it is compiled many times, which is usually a mistake.

Functions are counted by their source line: a lambda that is created for each call counts as one function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jaxlite.core import config, source
from lowering import report

_SLOW_COMPILES, _SLOW_SECONDS = 4, 20.0  # or this often, if so much time went into it

_lock = threading.Lock()
_compiles: dict[str, list[float]] = {}  # location -> [number, seconds]
_silent: set[str] = set()


class RecompilationWarning(UserWarning):
    """A function was compiled many times."""


as_log = False  # set by jaxlite.as_jax: programs written for JAX may turn warnings that they do not know into errors


def tell(message: str) -> None:
    """Show a message to the user, as a warning or in the log."""
    if as_log:
        report.logger().warning(message)
    else:
        source.warn(message, RecompilationWarning)


def note(location: str, seconds: float, why: Callable[[], str]) -> str:
    """Count a compile. Gives a message if it is time to warn, '' otherwise.

    Args: `location` is `name at file:line`, what is not of the user has no line; `why` gives the reason of this compile.
    """
    limit = config.recompilation_limit.value
    if not limit or " at " not in location:
        return ""
    with _lock:
        count = _compiles.setdefault(location, [0, 0.0])
        count[0] += 1
        count[1] += seconds
        often, spent = int(count[0]), count[1]
        if location in _silent or often < limit and (often < _SLOW_COMPILES or spent < _SLOW_SECONDS):
            return ""
        _silent.add(location)
    return (f"{location} was compiled {often} times, which took {spent:.1f} s. Why, the last time:\n  {why()}\n"
            "JAXLITE_EXPLAIN=1 tells the reason of each compile, jaxlite.compile_report() lists them. If this is meant, "
            "jaxlite.debug.expect_recompilations(f) or JAXLITE_RECOMPILATION_LIMIT=0 silences this warning.")


def expect_recompilations(fun: Any) -> Any:
    """Disable the warning about many compiles for a function. Returns the function.

    >>> import jaxlite
    >>> @jaxlite.jit
    ... @jaxlite.debug.expect_recompilations
    ... def f(x):
    ...     return x
    """
    with _lock:
        _silent.add(source.function_location(fun))
    return fun
