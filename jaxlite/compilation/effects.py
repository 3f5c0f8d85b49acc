"""Effects at run time: host callbacks in running programs, ordered programs, and waiting for all of them.

A program with effects returns a token that is ready when it has run. A program with ordered effects starts after the
earlier ones have ended: XLA runs independent programs in any order. A host callback never waits for tokens, since one of
them may be that of its own program.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.aval import shaped_array
from jaxlite.core.filtering import filtered
from jaxlite.core.tracing import eager_execution
from lowering import platforms, report, xla

_LIMIT = 64  # tokens that are kept before the oldest is waited for
_pending: deque[Any] = deque()
_last_ordered: list[Any] = []  # the token of the last program with ordered effects


class _Here(threading.local):
    inside = False  # whether this thread is in a Python function that a program calls


_here = _Here()


# --- programs ----------------------------------------------------------------------------------------


def execute(loaded: Any, inputs: Sequence[Any], handlers: Sequence[Any], ordered: bool) -> list[Any]:
    """Run a program that has effects or calls Python; gives its results."""
    if ordered:
        wait_for_ordered()
    results = loaded.execute_sharded(inputs, with_tokens=True)
    token = results.consume_token()
    if ordered:
        _last_ordered[:] = [token]
    _pending.append(token)
    if len(_pending) > _LIMIT and not _here.inside:
        _finish()
    return results.consume_with_handlers(handlers)


def _finish() -> None:
    """Wait for the oldest program. If it failed, its results raise the error; here it is ignored."""
    with contextlib.suppress(IndexError, xla.XlaRuntimeError):  # another thread may have taken it
        _pending.popleft().block_until_ready()


def wait_for_ordered() -> None:
    """Wait until the ordered effects of all programs before have happened."""
    if _last_ordered and not _here.inside:
        with contextlib.suppress(xla.XlaRuntimeError):
            _last_ordered[0].block_until_ready()


def barrier() -> None:
    """Wait for all effects of running programs. Raises XLA's error of the first program that failed."""
    if _here.inside:
        return
    failure = None
    while _pending:
        try:
            _pending.popleft().block_until_ready()
        except IndexError:
            break
        except xla.XlaRuntimeError as error:
            failure = failure or error
    if failure is not None:
        raise failure


# --- Python inside programs --------------------------------------------------------------------------


@contextlib.contextmanager
def _inside_program() -> Iterator[None]:
    previous, _here.inside = _here.inside, True
    try:
        with eager_execution():
            yield
    finally:
        _here.inside = previous


class logging_failure:
    """Log the traceback of what the user's function raises inside: only its text goes through XLA to the caller."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception):
            import logging  # few programs fail

            logging.getLogger(f"{report.logger_name.partition('.')[0]}.callbacks").error(
                f"jax.{self.name} failed", exc_info=(type(error), error, filtered(traceback)))


def host_function(name: str, function: Callable[..., Sequence[Any]], result_avals: Sequence[Any],
                  ) -> Callable[..., tuple[Any, ...]]:
    """What a program calls: takes NumPy arrays that it lends, gives arrays of just the types that it expects. `name` is that
    of the function by which users asked for it."""

    def call(*values: Any) -> tuple[Any, ...]:
        with _inside_program():
            device = platforms.devices("cpu")[0]
            args = [arrays.put_array(value, device, False, copy=True, aval=shaped_array(value.shape, value.dtype, False))
                    for value in values]
            with logging_failure(name):
                results = function(*args)
            return tuple(checked_results(results, result_avals))

    return call


def checked_results(outs: Sequence[Any], result_avals: Sequence[Any]) -> list[np.ndarray]:
    """The results of a callback as NumPy arrays.

    Raises: ValueError or TypeError if they are not of the number, the shapes and the dtypes that were promised.
    """
    if len(outs) != len(result_avals):
        raise ValueError(f"the callback returned {len(outs)} arrays, result_shape_dtypes promises {len(result_avals)}")
    results = []
    for index, (out, aval) in enumerate(zip(outs, result_avals, strict=True)):
        array = np.asarray(out)
        if array.shape != aval.shape:
            raise ValueError(f"result {index} of the callback has shape {array.shape}, result_shape_dtypes promises "
                             f"{aval.shape}")
        if dtypes.canonicalize_dtype(array.dtype) != aval.dtype and array.dtype != aval.dtype:
            raise TypeError(f"result {index} of the callback has dtype {array.dtype}, result_shape_dtypes promises "
                            f"{aval.dtype}; convert it with astype")
        results.append(array.astype(aval.dtype, order="C", copy=False))
    return results
