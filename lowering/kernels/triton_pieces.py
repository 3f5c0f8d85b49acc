"""Triton rules of operations that split and join blocks. Each step halves or doubles an axis, so sizes stay powers of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.kernels.triton import Kernel, Value, lowers, scalar_text, type_text
from lowering.kernels.triton_math import compare
from lowering.kernels.triton_rules import select, transposed
from lowering.module import LoweringError


def _to_last(k: Kernel, x: Value, axis: int) -> Value:
    return transposed(k, x, [*(each for each in range(len(x.shape)) if each != axis), axis])


def _from_last(k: Kernel, x: Value, axis: int) -> Value:
    order = list(range(len(x.shape) - 1))
    order.insert(axis, len(x.shape) - 1)
    return transposed(k, x, order)


def halves(k: Kernel, x: Value, axis: int) -> list[Value]:
    """The two halves of a block along an axis."""
    shape = x.shape
    half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1:])
    pairs = _to_last(k, k.reshape(x, (*shape[:axis], 2, *half[axis:])), axis)
    target = type_text(half, scalar_text(x.dtype))
    first, second = k.fresh(), k.fresh()
    k.line(f"{first}, {second} = tt.split {pairs.name} : {k.type(pairs)} -> {target}")
    return [Value(first, half, x.dtype), Value(second, half, x.dtype)]


def paired(k: Kernel, x: Value, y: Value, axis: int) -> Value:
    """Two blocks of one shape along a new axis."""
    shape = (*x.shape, 2)
    if x.shape.count(1) == len(x.shape):  # Triton ends the process for joined blocks of one element
        last = len(x.shape)
        number = k.along(k.range(2), (last,), shape)
        is_first = compare(k, "eq", number, k.constant(0, np.int32, shape))
        first, second = (k.broadcast(k.expand(each, last), shape) for each in (x, y))
        return _from_last(k, select(k, is_first, first, second), axis)
    out = k.op(f"tt.join {x.name}, {y.name} : {k.type(x)} -> {type_text(shape, scalar_text(x.dtype))}", shape, x.dtype)
    return _from_last(k, out, axis)


def joined(k: Kernel, xs: Sequence[Value], axis: int) -> Value:
    """Blocks of one shape one after the other along an axis; there is a power of two of them."""
    if len(xs) == 1:
        return xs[0]
    half = len(xs) // 2
    x, y = joined(k, xs[:half], axis), joined(k, xs[half:], axis)
    return k.reshape(paired(k, x, y, axis), (*x.shape[:axis], 2 * x.shape[axis], *x.shape[axis + 1:]))


def _check_equal(name: str, sizes: Sequence[int]) -> None:
    if len(set(sizes)) > 1 or len(sizes) & (len(sizes) - 1):
        raise LoweringError(f"{name} in the Pallas Triton lowering is one of a power of two of equal parts, got sizes "
                            f"{tuple(sizes)}")


@lowers("split")
def _split(k: Kernel, eqn: Any, x: Value, *, sizes: Sequence[int], axis: int) -> Any:
    _check_equal("split", sizes)
    parts = [x]
    while len(parts) < len(sizes):
        parts = [half for part in parts for half in halves(k, part, axis)]
    return parts


@lowers("concatenate")
def _concatenate(k: Kernel, eqn: Any, *xs: Value, dimension: int) -> Any:
    _check_equal("concatenate", [x.shape[dimension] for x in xs])
    return joined(k, xs, dimension)


@lowers("stack")
def _stack(k: Kernel, eqn: Any, *xs: Value, axis: int, **params: Any) -> Any:
    _check_equal("stack", [1] * len(xs))
    if len(xs) == 1:
        return k.reshape(xs[0], eqn.outvars[0].aval.shape)
    if not xs[0].shape:
        xs = tuple(k.reshape(x, (1,)) for x in xs)
        return joined(k, xs, 0)
    return joined(k, [k.expand(x, axis) for x in xs], axis)


@lowers("unstack")
def _unstack(k: Kernel, eqn: Any, x: Value, *, axis: int, **params: Any) -> Any:
    _check_equal("unstack", [1] * x.shape[axis])
    parts = [x]
    while parts[0].shape[axis] > 1:
        parts = [half for part in parts for half in halves(k, part, axis)]
    return [k.reshape(part, var.aval.shape) for part, var in zip(parts, eqn.outvars, strict=True)]


@lowers("slice")
def _slice(k: Kernel, eqn: Any, x: Value, *, start_indices: Sequence[int], limit_indices: Sequence[int],
           strides: Sequence[int] | None) -> Any:
    """Parts of axes that repeated halving leads to."""
    for axis, (start, stop) in enumerate(zip(start_indices, limit_indices, strict=True)):
        size = stop - start
        if size & (size - 1) or start % size or strides is not None and strides[axis] != 1:
            raise LoweringError("slice in the Pallas Triton lowering takes a half of an axis, a quarter and so on; got "
                                f"[{start}:{stop}] of {x.shape[axis]}. Read a part of the Ref instead")
        while x.shape[axis] > size:
            half = x.shape[axis] // 2
            x = halves(k, x, axis)[start >= half]
            start %= half
    return x


@lowers("tile")
def _tile(k: Kernel, eqn: Any, x: Value, *, reps: Sequence[int], **params: Any) -> Any:
    for axis, count in enumerate(reps):
        if count != 1:
            wide = (*x.shape[:axis], count, *x.shape[axis:])
            x = k.reshape(k.broadcast(k.expand(x, axis), wide), (*x.shape[:axis], count * x.shape[axis], *x.shape[axis + 1:]))
    return x
