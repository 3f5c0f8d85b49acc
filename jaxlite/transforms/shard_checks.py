"""Finds the operation of a `shard_map` that produced a NaN or an infinity: runs the program again, with a flag for each
equation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.compilation.finite import called
from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.jaxpr import Jaxpr, JaxprEqn, Literal
from jaxlite.core.values import aval_of
from jaxlite.devices.sharding import P
from jaxlite.lax import elementwise, parallel, reductions, shaping
from jaxlite.transforms.shard_map import shard_map


def _flag(outs: list[Any], kind: str) -> Any:
    """Whether one of the values holds what is looked for."""
    found: Any = np.False_
    for out in outs:
        if dtypes.issubdtype(aval_of(out).dtype, np.inexact):
            bad = elementwise.ne(out, out) if kind == "nan" else elementwise.eq(elementwise.abs(out), np.inf)
            found = elementwise.bitwise_or(found, reductions.reduce_or(bad, range(aval_of(out).ndim)))
    return found


def first_bad(eqn: JaxprEqn, values: list[Any], kind: str) -> tuple[JaxprEqn, str] | None:
    """The first equation in a `shard_map` that gives a NaN, or an infinity (`kind`), and on which devices, as a text."""
    params = eqn.params
    mesh, program = params["mesh"], params["jaxpr"].jaxpr
    axes = tuple(name for name in mesh.axis_names if name in params["newly_manual_axes"])
    seen: list[JaxprEqn] = []

    def run(jaxpr: Jaxpr, args: list[Any], flags: list[Any]) -> list[Any]:
        env = dict(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if type(atom) is Literal else env[atom]

        for each in jaxpr.eqns:
            operands = [read(atom) for atom in each.invars]
            call = called(each)
            if call is not None:
                outs = run(call, operands, flags)
            else:
                outs = each.primitive.bind(*operands, **each.params)
                outs = list(outs) if each.primitive.multiple_results else [outs]
                seen.append(each)
                flags.append(shaping.reshape(parallel.vary(_flag(outs, kind), axes), (1,)))
            env.update(zip(each.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def flagged(*parts: Any) -> Any:
        seen.clear()
        flags: list[Any] = []
        run(program, list(parts), flags)
        return shaping.expand_dims(shaping.concatenate(flags, 0), (0,))

    searched = shard_map(flagged, mesh=mesh, in_specs=tuple(params["in_specs"]), out_specs=P(axes), axis_names=set(axes),
                         check_vma=params["check_vma"])
    by_device = np.asarray(arrays.host_value(searched(*values)))
    bad = np.flatnonzero(by_device.any(0))
    if not bad.size:
        return None
    parts = np.flatnonzero(by_device[:, bad[0]])
    which = "every part" if len(parts) == len(by_device) else f"part {', '.join(map(str, parts))}"
    return seen[bad[0]], f", inside of shard_map over {', '.join(map(str, axes))}, on {which}"
