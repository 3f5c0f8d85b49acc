"""Values and calls with names, for transformations that search a program for them.

`sow` is the identity of its first `count` operands, the leaves of a tree. Its other operands are ties: the results count as
computed from them. `nest` is a call, whose name is a prefix of the names inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.traces.batching import Axis, bring_to_front
from jaxlite.traces.call_rules import give_call_rules
from jaxlite.traces.transpose import is_linear

sow_p = Primitive("sow", multiple_results=True)
nest_p = Primitive("nest", multiple_results=True)


@sow_p.def_abstract_eval
def _sow_avals(*avals: Any, count: int, **params: Any) -> list[Any]:
    return list(avals[:count])


@sow_p.def_eager
def _sow_eager(*values: Any, count: int, **params: Any) -> list[Any]:
    return list(values[:count])


@sow_p.def_jvp
def _sow_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, count: int, **params: Any) -> tuple[list[Any], list[Any]]:
    return sow_p.bind(*primals, count=count, **params), list(tangents[:count])  # the tangent has no name


@sow_p.def_transpose
def _sow_transpose(cotangents: Sequence[Any], *operands: Any, count: int, **params: Any) -> list[Any]:
    given = [cotangent if is_linear(operand) else None for cotangent, operand in zip(cotangents, operands, strict=False)]
    return given + [None] * (len(operands) - count)


@sow_p.def_batching
def _sow_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, count: int,
               **params: Any) -> tuple[list[Any], list[int | None]]:
    if any(dim is not None for dim in dims[count:]):  # a value tied to a batch of keys is a batch
        args = [bring_to_front(arg, dim, axis.size) for arg, dim in zip(args, dims, strict=True)]
        dims = [0] * len(dims)
    return sow_p.bind(*args, count=count, **params), list(dims[:count])


@nest_p.def_effectful_abstract_eval
def _nest_avals(*avals: Any, jaxpr: ClosedJaxpr, name: str) -> Any:
    return jaxpr.out_avals, jaxpr.effects


@nest_p.def_eager
def _nest_eager(*args: Any, jaxpr: ClosedJaxpr, name: str) -> list[Any]:
    return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


give_call_rules(nest_p)
