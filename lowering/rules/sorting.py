"""StableHLO rules of sorting and of the largest k elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.rules import lowers

_boolean = np.dtype(bool)


def _canonical_float(ctx: Any, x: Any, dtype: Any) -> Any:
    """A scalar float such that its total order is the order of sorting: one zero, one NaN, and that is last."""
    zero = ctx.constant(0, dtype)
    x = ctx.value("stablehlo.select", [ctx.compare(x, zero, "EQ"), zero, x], (), dtype)
    nan = ctx.constant(np.nan, dtype)
    return ctx.value("stablehlo.select", [ctx.compare(x, x, "NE"), nan, x], (), dtype)


def _sort_keys(ctx: Any, x: Any, dtype: Any) -> list[tuple[Any, str | None]]:
    """What to compare of one scalar, most important first: values, and how they compare."""
    if dtype.kind == "c":
        part = np.dtype(dtype.type(0).real.dtype)
        return [(_canonical_float(ctx, ctx.value(f"stablehlo.{name}", [x], (), part), part), "TOTALORDER")
                for name in ("real", "imag")]
    if dtype.kind == "b" or "int" in dtype.name:
        return [(x, None)]
    return [(_canonical_float(ctx, x, dtype), "TOTALORDER")]


def _is_before(ctx: Any, pairs: list[tuple[Any, Any, Any]]) -> Any:
    """Whether the first of two rows sorts before the second, lexicographically over `(x, y, dtype)`."""
    keys = [(x, y, kind) for left, right, dtype in pairs
            for (x, kind), (y, _) in zip(_sort_keys(ctx, left, dtype), _sort_keys(ctx, right, dtype), strict=True)]
    result = None
    for x, y, kind in reversed(keys):
        less = ctx.compare(x, y, "LT", kind)
        if result is not None:
            tied = ctx.value("stablehlo.and", [ctx.compare(x, y, "EQ", kind), result], (), _boolean)
            less = ctx.value("stablehlo.or", [less, tied], (), _boolean)
        result = less
    return result


@lowers("sort")
def _sort(ctx: Any, *operands: Any, dimension: int, is_stable: bool, num_keys: int) -> list[Any]:
    avals = ctx.avals_in
    operation = ctx.op("stablehlo.sort", operands, [ctx.type_of(aval) for aval in avals],
                       {"dimension": ctx.i64(dimension), "is_stable": ctx.flag(is_stable)}, regions=1)
    types = [ctx.tensor_type((), aval.dtype) for aval in avals for _ in range(2)]
    body = ctx.region(operation, 0, types, isolated=True)
    arguments = list(operation.regions[0].blocks[0].arguments)
    pairs = [(arguments[2 * i], arguments[2 * i + 1], avals[i].dtype) for i in range(num_keys)]
    body.op("stablehlo.return", [_is_before(body, pairs)], [])
    return list(operation.results)


def _largest(ctx: Any, x: Any, shape: tuple[int, ...], dtype: Any, k: int, axis: int) -> list[Any]:
    """The k largest elements along an axis, and their int32 indices."""
    order = [dimension for dimension in range(len(shape)) if dimension != axis] + [axis]
    moved = axis != len(shape) - 1
    if moved:
        x = _transpose(ctx, x, shape, order, dtype)
    out_shape = [*(shape[dimension] for dimension in order[:-1]), k]
    dtypes = (dtype, np.dtype(np.int32))
    results = ctx.op("chlo.top_k", [x], [ctx.tensor_type(out_shape, each) for each in dtypes],
                     {"k": ctx.i64(k)}).results
    if not moved:
        return list(results)
    back = [order.index(dimension) for dimension in range(len(shape))]
    return [_transpose(ctx, result, out_shape, back, each) for result, each in zip(results, dtypes, strict=True)]


def _transpose(ctx: Any, x: Any, shape: Sequence[int], permutation: list[int], dtype: Any) -> Any:
    return ctx.value("stablehlo.transpose", [x], [shape[dimension] for dimension in permutation], dtype,
                     permutation=ctx.i64s(permutation))


@lowers("top_k")
def _top_k(ctx: Any, x: Any, *, k: int, axis: int) -> list[Any]:
    (aval,) = ctx.avals_in
    return _largest(ctx, x, aval.shape, aval.dtype, k, axis)


@lowers("approx_top_k")
def _approx_top_k(ctx: Any, x: Any, *, reduction_dimension: int, is_max_k: bool, **params: Any) -> list[Any]:
    (aval,) = ctx.avals_in
    axis = reduction_dimension % len(aval.shape)

    def negated(value: Any, shape: tuple[int, ...]) -> Any:
        return value if is_max_k else ctx.value("stablehlo.negate", [value], shape, aval.dtype)

    out = ctx.avals_out[0]
    values, indices = _largest(ctx, negated(x, aval.shape), aval.shape, aval.dtype, out.shape[axis], axis)
    return [negated(values, out.shape), indices]
