"""Derivative and batching rules of matrix products.

The cotangent of an operand is a product of the output's cotangent and the other operand. Of its two orders, the rule
chooses the one whose result has the operand's axis order, so most products need no transpose; if both have, ct is first, so
that a batch axis is in front. A matrix times a batch of vectors is the batch times the matrix for the same reason: with the
batch at the end, gradients and Hessians of each vector take up to twice as long. Letters: ct a cotangent.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jaxlite.core.aval import Ints, layouts
from jaxlite.core.axes import other_axes
from jaxlite.core.lazy import loader
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.lax.dot import DotAlgorithm, dot_general_p
from jaxlite.traces.batching import Axis
from jaxlite.traces.transpose import def_bilinear

_sharding = loader("jaxlite.devices.sharding")  # only for products over explicit axes of a mesh

# --- dot_general -------------------------------------------------------------------------------------


def _outer(rank: int, contract: Sequence[int], batch: Sequence[int]) -> list[int]:
    return other_axes(rank, (*contract, *batch))


def _exchanged(precision):
    """The precision for the operands in the other order."""
    if isinstance(precision, DotAlgorithm):
        return precision._replace(
            lhs_precision_type=precision.rhs_precision_type, rhs_precision_type=precision.lhs_precision_type,
            lhs_component_count=precision.rhs_component_count, rhs_component_count=precision.lhs_component_count)
    return precision[::-1] if isinstance(precision, tuple) else precision


def _operand_cotangent(ct, aval, other, *, first: bool, dimension_numbers, precision, **params):
    """The cotangent of the first or second operand."""
    numbers, swapped, order = _cotangent_plan(len(aval.shape), len(aval_of(other).shape), first, dimension_numbers)
    left, right = (other, ct) if swapped else (ct, other)
    if layouts.exist:
        params["out_sharding"] = _unreduced_like(aval, left, right, numbers[0])
    # ct takes the place of the operand itself in the precisions
    out = dot_general_p.bind(left, right, dimension_numbers=numbers,
                             precision=_exchanged(precision) if swapped == first else precision, **params)
    if order is not None:
        out = shaping.transpose(out, order)
    return out if aval_of(out).dtype == aval.dtype else shaping.convert(out, aval.dtype, False)


@functools.lru_cache(4096)
def _cotangent_plan(rank: int, other_rank: int, first: bool, dimension_numbers: Any) -> tuple[Any, bool, Ints | None]:
    """The dimension numbers of an operand's cotangent, whether the other operand comes first, and the order of its axes."""
    contract, batch = dimension_numbers
    own, theirs = (0, 1) if first else (1, 0)
    own_outer = _outer(rank, contract[own], batch[own])
    other_outer = _outer(other_rank, contract[theirs], batch[theirs])
    start = len(batch[0]) + (len(own_outer) if first else 0)
    of_other = tuple(range(start, start + len(other_outer)))  # where the other operand's outer axes are in ct
    leading = tuple(range(len(batch[0])))
    # The product's axes, named by those of the operand: batch, then each factor's outer ones.
    by_other = [own_axis for _, own_axis in sorted(zip(contract[theirs], contract[own], strict=True))]
    ct_first = [*batch[own], *own_outer, *by_other]
    other_first = [*batch[own], *by_other, *own_outer]
    if ct_first != sorted(ct_first) and (other_first == sorted(other_first) or not first):
        axes, swapped = other_first, True
    else:
        axes, swapped = ct_first, False
    if swapped:
        numbers = ((tuple(other_outer), of_other), (batch[theirs], leading))
    else:
        numbers = ((of_other, tuple(other_outer)), (leading, batch[theirs]))
    return numbers, swapped, None if axes == sorted(axes) else tuple(sorted(range(rank), key=axes.__getitem__))


def _unreduced_like(aval, left, right, contract):
    """The `out_sharding` of the cotangent of a reduced operand, if the axes over which it is to be summed are contracted."""
    wanted = None if aval.layout is None else aval.layout.spec.reduced
    layouts_of = [aval_of(each).layout for each in (left, right)]
    if not wanted or None in layouts_of:
        return None
    cut = [[layout.spec[axis] for axis in axes] for layout, axes in zip(layouts_of, contract, strict=True)]
    if cut[0] != cut[1] or wanted != {name for entry in cut[0] for name in _sharding().axes_of(entry)}:
        return None
    return aval.layout.update(spec=_sharding().PartitionSpec(*[None] * aval.ndim, unreduced=wanted))


def_bilinear(dot_general_p,
             lambda ct, x, y, **params: _operand_cotangent(ct, x, y, first=True, **params),
             lambda ct, x, y, **params: _operand_cotangent(ct, y, x, first=False, **params))


@dot_general_p.def_batching
def _dot_general_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, dimension_numbers,
                       **params) -> tuple[Any, int]:
    """A batch on one side is one more outer axis of it, on both sides one more batch axis."""
    (x, y), (x_dim, y_dim) = args, dims
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers

    def moved(axes: Sequence[int], dim: int | None) -> tuple[int, ...]:
        return tuple(axes) if dim is None else tuple(each + (each >= dim) for each in axes)

    contract = moved(x_contract, x_dim), moved(y_contract, y_dim)
    batch = moved(x_batch, x_dim), moved(y_batch, y_dim)
    if x_dim is not None and y_dim is not None:
        numbers = (contract, ((x_dim, *batch[0]), (y_dim, *batch[1])))
        return dot_general_p.bind(x, y, dimension_numbers=numbers, **params), 0
    x_outer = _outer(aval_of(x).ndim, contract[0], batch[0])
    y_outer = _outer(aval_of(y).ndim, contract[1], batch[1])
    if x_dim is None and y_outer == [y_dim] and params["out_sharding"] is None:  # a batch of vectors: its axis in front
        params["precision"] = _exchanged(params["precision"])
        return dot_general_p.bind(y, x, dimension_numbers=(contract[::-1], batch[::-1]), **params), len(y_batch)
    outer = x_outer.index(x_dim) if x_dim is not None else len(x_outer) + y_outer.index(y_dim)  # type: ignore[arg-type]
    return dot_general_p.bind(x, y, dimension_numbers=(contract, batch), **params), len(x_batch) + outer
