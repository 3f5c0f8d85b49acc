"""The options `debug_nans` and `debug_infs`: results are looked at, and the operation that went wrong is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.program import Program
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes
from jaxlite.core.jaxpr import DropVar, eval_jaxpr
from lowering import xla


def check_finite(program: Program, outs: Sequence[Any], leaves: Sequence[Any],
                 compiled: Callable[[Callable], Callable]) -> None:
    """Raises FloatingPointError if a result holds what an option forbids, with the first operation that made it.

    `compiled` is `jit` without options.
    """
    checked = [name for name, option in (("nan", config.debug_nans), ("inf", config.debug_infs)) if option.value]
    kind = next((name for out in outs for name in checked if _FORBIDDEN[name](out)), None)
    if kind is None:
        return
    jaxpr, consts = program.closed.jaxpr, program.closed.consts
    if not any(type(leaf) is xla.ArrayImpl and leaf.is_deleted() for leaf in leaves):
        steps = [(eqn, var) for eqn in jaxpr.eqns for var in eqn.outvars if type(var) is not DropVar]
        spread = jaxpr.replace(outvars=[var for _, var in steps])
        with config.debug_nans(False), config.debug_infs(False):
            values = compiled(lambda *args: eval_jaxpr(spread, consts, *args))(*leaves)
        for (eqn, _), value in zip(steps, values, strict=True):
            if _FORBIDDEN[kind](value):
                what = eqn.params.get("name", eqn.primitive.name)
                raise FloatingPointError(f"invalid value ({kind}) encountered in {what} at {eqn.source_line}; found in "
                                         f"the result of {program.name}")
    raise FloatingPointError(f"invalid value ({kind}) encountered in {program.name}")


def _has_nan(array: Any) -> bool:
    if not dtypes.issubdtype(array.dtype, np.inexact):
        return False
    value = arrays.host_value(array)
    return bool((value != value).any())


def _has_inf(array: Any) -> bool:
    return dtypes.issubdtype(array.dtype, np.inexact) and bool(np.isinf(arrays.host_value(array)).any())


_FORBIDDEN = {"nan": _has_nan, "inf": _has_inf}
