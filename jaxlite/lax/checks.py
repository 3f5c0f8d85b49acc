"""Checks of traced programs: the primitive behind `checkify.check`, and the messages of failed checks.

A check is an effect, so it is not dead code. Programs with checks cannot be compiled; `checkify` turns checks into values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core.primitive import Primitive
from jaxlite.lax.shaping import broadcast_in_dim
from jaxlite.traces.batching import Axis, bring_to_front

check_p = Primitive("check", multiple_results=True)
_failing = frozenset({"check"})


class Site(NamedTuple):
    """A place where a check may fail, and the error.

    Fields: `kind`, one of "user", "nan", "div", "oob"; `text`, for "user" with fields to format; `tree`, that of the (args,
    kwargs) it is formatted with, whose leaves have the types `avals`; `location`, the user's line; `mapped`, in how many
    `shard_map`s it lies: `avals` ends with as many indices of devices.
    """

    kind: str
    text: str
    tree: Any
    avals: tuple[Any, ...]
    location: str
    mapped: int = 0


@check_p.def_effectful_abstract_eval
def _check_avals(ok, code, *payload, sites: tuple[Site, ...], debug: bool) -> tuple[list[Any], Any]:
    return [], _failing


@check_p.def_jvp
def _check_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[list[Any], list[Any]]:
    check_p.bind(*primals, **params)
    return [], []


@check_p.def_batching
def _check_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params) -> tuple[list[Any], list[Any]]:
    check_p.bind(*[bring_to_front(arg, dim, axis.size) for arg, dim in zip(args, dims, strict=True)], **params)
    return [], []


check_p.no_transpose("nothing comes of it that could depend on its operands linearly")


def zeros_of(aval):
    """A value for the place of one that no failed check has given."""
    return broadcast_in_dim(np.zeros((), aval.dtype)[()], aval.shape, ())
