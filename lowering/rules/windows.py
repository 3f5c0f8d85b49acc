"""StableHLO rules of windowed and cumulative reductions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lowering import xla
from lowering.monoids import identity, slides
from lowering.padding import is_symbolic, pad
from lowering.rules import lowers
from lowering.rules.reductions import combine, jaxpr_region, monoid_region


def _window_operation(ctx: Any, operands: Sequence[Any], types: Sequence[Any], *, window_dimensions: Sequence[int],
                      window_strides: Sequence[int], padding: Any, base_dilation: Sequence[int],
                      window_dilation: Sequence[int]) -> Any:
    """`stablehlo.reduce_window` with an empty region. `operands`: arrays, then their initial values."""
    if is_symbolic(padding):  # `stablehlo.pad` can have such a padding
        half, shape = len(operands) // 2, ctx.avals_in[0].shape
        arrays = [pad(ctx, x, init, shape, padding, aval.dtype)
                  for x, init, aval in zip(operands[:half], operands[half:], ctx.avals_in, strict=False)]
        operands, padding = [*arrays, *operands[half:]], [(0, 0)] * len(shape)
    return ctx.op("stablehlo.reduce_window", operands, types, {
        "window_dimensions": ctx.i64s(window_dimensions), "window_strides": ctx.i64s(window_strides),
        "padding": ctx.dense_i64(np.reshape(padding, (-1, 2))), "base_dilations": ctx.i64s(base_dilation),
        "window_dilations": ctx.i64s(window_dilation)}, regions=1)


def _window_reduction(monoid: str) -> None:
    @lowers(f"reduce_window_{monoid}")
    def rule(ctx: Any, x: Any, **window: Any) -> Any:
        (aval,), out = ctx.avals_in, ctx.aval_out
        if not aval.shape:
            return x
        start = ctx.constant(identity(monoid, aval.dtype), aval.dtype)
        operation = _window_operation(ctx, [x, start], [ctx.type_of(out)], **window)
        monoid_region(ctx, operation, 0, monoid, aval.dtype)
        return operation.result


for _monoid in ("sum", "max", "min"):
    _window_reduction(_monoid)


@lowers("reduce_window")
def _reduce_window(ctx: Any, *operands: Any, jaxpr: Any, **window: Any) -> list[Any]:
    operation = _window_operation(ctx, operands, [ctx.type_of(aval) for aval in ctx.avals_out], **window)
    jaxpr_region(ctx, operation, 0, jaxpr.jaxpr)
    return list(operation.results)


# --- a window's pick ---------------------------------------------------------------------------------

_DIRECTIONS = {"ge": ("GE", "max"), "le": ("LE", "min")}  # of a selecting primitive, with the monoid of its choice


def _scatter_operation(ctx: Any, operand: Any, source: Any, init: Any, padded_shape: Sequence[int], dtype: Any,
                       window_dimensions: Sequence[int], window_strides: Sequence[int]) -> Any:
    """`stablehlo.select_and_scatter` with empty regions. Its own padding is not used: it has no value."""
    return ctx.op("stablehlo.select_and_scatter", [operand, source, init], [ctx.tensor_type(padded_shape, dtype)], {
        "window_dimensions": ctx.i64s(window_dimensions), "window_strides": ctx.i64s(window_strides)}, regions=2)


def _padded(shape: Sequence[int], padding: Any) -> list[int]:
    return [size + low + high for size, (low, high) in zip(shape, padding, strict=True)]


@lowers("select_and_scatter")
def _select_and_scatter(ctx: Any, operand: Any, source: Any, init: Any, *, select_jaxpr: Any, scatter_jaxpr: Any,
                        padding: Any, **window: Any) -> Any:
    out = ctx.aval_out
    shape = _padded(out.shape, padding)
    operand = pad(ctx, operand, init, out.shape, padding, out.dtype)
    operation = _scatter_operation(ctx, operand, source, init, shape, out.dtype, **window)
    jaxpr_region(ctx, operation, 0, select_jaxpr.jaxpr)
    jaxpr_region(ctx, operation, 1, scatter_jaxpr.jaxpr)
    return pad(ctx, operation.result, init, shape, padding, out.dtype, -1)


@lowers("select_and_scatter_add")
def _select_and_scatter_add(ctx: Any, source: Any, operand: Any, *, select_prim: Any, padding: Any,
                            **window: Any) -> Any:
    out = ctx.aval_out
    dtype, shape = out.dtype, _padded(out.shape, padding)
    direction, monoid = _DIRECTIONS[select_prim.name]
    zero = ctx.constant(0, dtype)
    operand = pad(ctx, operand, ctx.constant(identity(monoid, dtype), dtype), out.shape, padding, dtype)
    operation = _scatter_operation(ctx, operand, source, zero, shape, dtype, **window)
    scalar = ctx.tensor_type((), dtype)
    body = ctx.region(operation, 0, [scalar, scalar])
    body.op("stablehlo.return", [body.compare(*body.arguments, direction)], [])
    monoid_region(ctx, operation, 1, "sum", dtype)
    return pad(ctx, operation.result, zero, shape, padding, dtype, -1)


@lowers("select_and_gather_add")
def _select_and_gather_add(ctx: Any, tangents: Any, operand: Any, *, select_prim: Any, **window: Any) -> Any:
    out = ctx.aval_out
    dtype = out.dtype
    direction, monoid = _DIRECTIONS[select_prim.name]
    inits = [ctx.constant(identity(monoid, dtype), dtype), ctx.constant(0, dtype)]
    operation = _window_operation(ctx, [operand, tangents, *inits], [ctx.type_of(out)] * 2, **window)
    body = ctx.region(operation, 0, [ctx.tensor_type((), dtype)] * 4)
    value, tangent, other, other_tangent = body.arguments
    first = body.compare(value, other, direction)
    body.op("stablehlo.return", [body.value("stablehlo.select", [first, *pair], (), dtype)
                                 for pair in ((value, other), (tangent, other_tangent))], [])
    return operation.results[1]


# --- cumulative reductions ---------------------------------------------------------------------------

Combine = Callable[[Any, Any, Any, tuple[int, ...], Any], Any]


def _log_add_exp(ctx: Any, x: Any, y: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """log(exp(x) + exp(y)), where equal infinities, whose difference is NaN, give their sum."""
    def emit(name: str, *values: Any) -> Any:
        return ctx.value(f"stablehlo.{name}", values, shape, dtype)

    difference = emit("subtract", x, y)
    equal_infinities = ctx.compare(difference, difference, "NE")
    if dtype.kind == "c":
        # The term of greater real part in front keeps the exponential below 1.
        high = combine(ctx, "max", x, y, shape, dtype)
        low = combine(ctx, "min", x, y, shape, dtype)
        tail = emit("log_plus_one", emit("exponential", emit("subtract", low, high)))
    else:
        high = emit("maximum", x, y)
        tail = emit("log_plus_one", emit("exponential", emit("negate", emit("abs", difference))))
    return emit("select", equal_infinities, emit("add", x, y), emit("add", high, tail))


def _monoid_combine(monoid: str) -> Combine:
    return lambda ctx, x, y, shape, dtype: combine(ctx, monoid, x, y, shape, dtype)


_WIDER = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64, "complex64": np.complex128}
_SEGMENTS = 8  # of a long axis that are added up side by side
_LONG, _LONGER = 4096, 16384  # elements of one row from which on that pays for another loop, and of each of several
_WIDTH = 4  # elements of a row that an iteration of the loop adds up
# Rows for which that pays. Before jaxlib 0.11 a loop inside of a loop is one function only if it reads and writes few bytes.
_SHORT, _SMALL, _LARGE = 12, 32, 400
# Elements along the last axis up to which totals are selected, and those with factors; along another one up to which the latter
# are joined. Elements in all from which on totals are selected.
_SELECTED, _SELECTED_WITH_FACTORS, _JOINED, _MANY = 12, 8, 6, 1 << 14
_BLOCK = 8  # elements, of several rows, that are added to their totals side by side
# Of memory: bytes of a line of the cache and of a page; lines that the cache has for each of the places in a page, and pages,
# up to which elements that are added up at the same time are near; bytes that are near enough to read each line several times.
_LINE, _PAGE, _WAYS, _PAGES, _REREAD = 64, 4096, 12, 512, 1 << 19
_I32 = np.dtype(np.int32)


def _wider(dtype: Any) -> Any:
    """A dtype in which the product of several elements is in range, if there is one: infinity times 0 is NaN."""
    return np.dtype(_WIDER.get(dtype.name, dtype))


def _accumulator(name: str, dtype: Any) -> Any:
    """The dtype of running totals. A wider one costs a loop nothing and keeps long sums exact; products and
    log-sum-exps lose little by rounding, unless the dtype is narrow."""
    if name == "cumsum" or dtype.name in ("float16", "bfloat16") and name in ("cumprod", "cumlogsumexp"):
        return _wider(dtype)
    return dtype


# XLA:CPU compiles a loop of small slices to one kernel, in a fraction of the time that its rewrite of a long window
# takes, and it runs faster too, but for those that `slides` names.
def _cumulative(name: str, monoid: str, combination: Combine) -> None:
    @lowers(name)
    def rule(ctx: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        aval = ctx.aval_out
        size, shape, dtype = aval.shape[axis], aval.shape, aval.dtype
        is_static = type(aval.size) is int
        if is_static and (aval.size == 0 or size == 1):
            return x
        start = identity(monoid, dtype)
        if is_static and ctx.platform == "gpu" and name != "cumlogsumexp" and xla.HAS_SCANS and not ctx.builder.is_portable:
            return _by_scan(ctx, x, _Run(axis, reverse, combination, start, dtype, dtype), shape)
        rows = aval.size // size if is_static else 0
        is_last = axis == len(shape) - 1
        is_few = is_static and is_last and size <= _SELECTED and aval.size >= _MANY
        if is_few and _needs_no_loop(ctx) and _is_cheap(name, dtype):
            return _by_elements(ctx, x, shape, _Run(axis, reverse, combination, start, dtype, dtype))
        if is_static and (ctx.platform != "cpu" or slides(name, aval, axis)):
            return _by_window(ctx, x, aval, axis, reverse, combination, start)
        if dtype.name.startswith(xla.WIDENED):
            working = wide = np.dtype(np.float32)
        else:
            working, wide = dtype, _accumulator(name, dtype)
        run = _Run(axis, reverse, combination, start, working, wide)
        is_long = is_static and rows < _SEGMENTS and _pays_in_segments(shape, axis, working.itemsize)
        given = x
        if ctx.builder.is_split:  # or elements would be sent around at each step of the loop
            x = ctx.builder.meshes.whole_along(ctx, x, axis)
        x = _cast(ctx, x, shape, dtype, working)
        if rows == 1 and ctx.in_loop and name != "cumlogsumexp" and _pays_in_loop(size):
            totals = _several_per_iteration(ctx, x, shape, run._replace(wide=_wider(working)) if name == "cumprod" else run)
        elif is_long:
            totals = _in_segments(ctx, x, shape, run)
        elif is_static and ctx.builder.is_split and is_last and _are_far(rows, size * working.itemsize):
            totals = _by_loop_transposed(ctx, x, shape, run)
        elif is_static and not ctx.builder.is_split and _pays_in_blocks(shape, axis, working.itemsize):
            totals = _in_blocks(ctx, x, shape, run)
        else:
            totals = _by_loop(ctx, x, shape, run)[1]
        totals = _cast(ctx, totals, shape, working, dtype)
        return ctx.builder.meshes.split_like(ctx, given, totals, axis) if ctx.builder.is_split else totals


class _Run(NamedTuple):
    """A loop over an axis: its direction, how two values are combined, what a total starts with, the dtype of the
    values and that of totals."""

    axis: int
    reverse: bool
    combination: Combine
    start: Any
    dtype: Any
    wide: Any

    def total(self, ctx: Any, before: Any, elements: Sequence[Any], part: tuple[int, ...]) -> Any:
        """The total after an element: the total before it is multiplied by a factor if there is one."""
        element, *factors = elements
        for factor in factors:
            before = ctx.value("stablehlo.multiply", [before, factor], part, self.wide)
        return self.combination(ctx, before, element, part, self.wide)


def _by_scan(ctx: Any, x: Any, run: _Run, shape: tuple[int, ...]) -> Any:
    """The running totals by XLA's own operation, which is a call of a library on a GPU."""
    rest = shape[:run.axis] + shape[run.axis + 1:]
    row = ctx.tensor_type(rest, run.dtype)
    one_each = ctx.attribute("array<i32: 1, 1>")
    scan = ctx.op("chlo.scan", [x, ctx.constant(run.start, run.dtype, rest)], [ctx.tensor_type(shape, run.dtype), row], {
        "dimension": ctx.i64(run.axis), "is_associative": ctx.flag(True), "is_reverse": ctx.flag(run.reverse),
        "operandSegmentSizes": one_each, "resultSegmentSizes": one_each}, regions=1)
    body = ctx.region(scan, 0, [row, row])
    element, total = body.arguments
    total = run.combination(body, element, total, rest, run.dtype)
    body.op("stablehlo.return", [total, total], [])
    return scan.results[0]


def _in_segments(ctx: Any, x: Any, shape: tuple[int, ...], run: _Run) -> Any:
    """The running totals along a long axis: those of its segments side by side, as each waits for the total before it. One
    loop gives the totals of whole segments, with which another one starts."""
    axis, size = run.axis, shape[run.axis]
    length = -(-size // _SEGMENTS)
    padding = [(0, length * _SEGMENTS - size if dimension == axis else 0) for dimension in range(len(shape))]
    full = (*shape[:axis], length * _SEGMENTS, *shape[axis + 1:])
    split = (*shape[:axis], _SEGMENTS, length, *shape[axis + 1:])
    neutral = ctx.constant(run.start, run.dtype)
    x = ctx.value("stablehlo.reshape", [pad(ctx, x, neutral, shape, padding, run.dtype)], split, run.dtype)
    run = run._replace(axis=axis + 1)
    wide = _wider(run.dtype)
    totals, _ = _by_loop(ctx, x, split, run._replace(wide=wide), is_kept=False)
    one = (*shape[:axis], 1, 1, *shape[axis + 1:])
    before = [ctx.constant(run.start.astype(wide), wide, one)]  # what comes before each segment
    for segment in range(_SEGMENTS - 1, 0, -1) if run.reverse else range(_SEGMENTS - 1):
        starts = [segment if dimension == axis else 0 for dimension in range(len(one))]
        ends = [start + extent for start, extent in zip(starts, one, strict=True)]
        total = ctx.value("stablehlo.slice", [totals], one, wide, start_indices=ctx.i64s(starts), limit_indices=ctx.i64s(ends),
                          strides=ctx.i64s([1] * len(one)))
        before.append(run.combination(ctx, before[-1], total, one, wide))
    starts_shape = (*shape[:axis], _SEGMENTS, 1, *shape[axis + 1:])
    starts = ctx.value("stablehlo.concatenate", before[::-1] if run.reverse else before, starts_shape, wide,
                       dimension=ctx.i64(axis))
    _, values = _by_loop(ctx, x, split, run, _cast(ctx, starts, starts_shape, wide, run.wide))
    values = ctx.value("stablehlo.reshape", [values], full, run.dtype)
    return pad(ctx, values, neutral, full, padding, run.dtype, -1)


def _pays_in_segments(shape: Sequence[int], axis: int, itemsize: int) -> bool:
    """Whether an axis is long enough for two loops. Neighbours in memory that are added up together are fast in one."""
    rows, size = math.prod(shape[:axis]), shape[axis]
    if rows > 1 and size < _LONGER or size < _LONG or math.prod(shape[axis + 1:]) > 1:
        return False
    return not _are_far(rows * _SEGMENTS, size // _SEGMENTS * itemsize)


def _pays_in_loop(size: int) -> bool:
    """Whether an iteration adds up several elements of one row, inside of another loop: elsewhere compiling costs more."""
    return size >= _SHORT and not (xla.HAS_OLDER_EMITTER and _SMALL < size < _LARGE)


def _needs_no_loop(ctx: Any) -> bool:
    """Whether totals may be an elementwise computation: in a loop, it would not be compiled with what is around it."""
    return ctx.platform == "cpu" and not ctx.in_loop and not ctx.builder.is_split


def _is_cheap(name: str, dtype: Any) -> bool:
    """Whether a step takes so little that it may be done again for each element of a row."""
    return name != "cumlogsumexp" and dtype.name != "bfloat16" and not dtype.name.startswith(xla.WIDENED)


def _by_elements(ctx: Any, x: Any, shape: tuple[int, ...], run: _Run, factors: Sequence[Any] = ()) -> Any:
    """The running totals of a few elements, without a loop: an elementwise computation of slices.

    Along the last axis each element of a row selects its total, as LLVM makes vectors of selections, but not of the branches
    of a concatenation.
    """
    axis, size = run.axis, shape[run.axis]
    part = (*shape[:axis], 1, *shape[axis + 1:])
    run = run._replace(wide=_wider(run.dtype) if run.dtype.itemsize < 4 else run.dtype)

    def element(values: Any, place: int) -> Any:
        starts = [place if dimension == axis else 0 for dimension in range(len(shape))]
        ends = [start + extent for start, extent in zip(starts, part, strict=True)]
        values = ctx.value("stablehlo.slice", [values], part, run.dtype, start_indices=ctx.i64s(starts),
                           limit_indices=ctx.i64s(ends), strides=ctx.i64s([1] * len(shape)))
        return _cast(ctx, values, part, run.dtype, run.wide)

    places = range(size - 1, -1, -1) if run.reverse else range(size)
    totals = {places[0]: element(x, places[0])}
    for before, place in itertools.pairwise(places):
        totals[place] = run.total(ctx, totals[before], [element(values, place) for values in (x, *factors)], part)
    totals = {place: _cast(ctx, totals[place], part, run.wide, run.dtype) for place in range(size)}
    if axis < len(shape) - 1:
        return ctx.value("stablehlo.concatenate", list(totals.values()), shape, run.dtype, dimension=ctx.i64(axis))
    position = ctx.value("stablehlo.iota", [], shape, _I32, iota_dimension=ctx.i64(axis))
    rows = [ctx.broadcast(total, part, shape, run.dtype) for total in totals.values()]
    result = rows.pop()
    for place in range(size - 2, -1, -1):
        is_here = ctx.compare(position, ctx.constant(place, _I32, shape), "EQ")
        result = ctx.value("stablehlo.select", [is_here, rows.pop(), result], shape, run.dtype)
    return ctx.value("stablehlo.optimization_barrier", [result], shape, run.dtype)  # each reader would select them again


def _several_per_iteration(ctx: Any, x: Any, shape: tuple[int, ...], run: _Run) -> Any:
    """The running totals of one row, a few elements per iteration, of whose additions one waits for the iteration before."""
    neutral, one = ctx.constant(run.start, run.dtype), (1,) * len(shape)
    padding = [(0, -size % _WIDTH) if dimension == run.axis else (0, 0) for dimension, size in enumerate(shape)]
    padded = tuple(size + high for size, (_, high) in zip(shape, padding, strict=True))

    def step(body: Any, iteration: Any, state: Sequence[Any]) -> list[Any]:
        before, values, totals = state
        first, part, total = body.value("stablehlo.multiply", [iteration, body.constant(_WIDTH, _I32)], (), _I32), None, before
        for offset in range(_WIDTH):
            number = body.value("stablehlo.add", [first, body.constant(offset, _I32)], (), _I32)
            where = [body.constant(0, _I32)] * len(shape)
            where[run.axis] = _position(body, number, padded[run.axis], run)
            element = _read(body, values, where, one, run)
            part = element if part is None else run.combination(body, part, element, one, run.wide)
            total = run.combination(body, before, part, one, run.wide)
            totals = _write(body, totals, total, where, padded, one, run)
        return [total, values, totals]

    row = ctx.tensor_type(padded, run.dtype)
    state = [ctx.constant(run.start.astype(run.wide), run.wide, one), pad(ctx, x, neutral, shape, padding, run.dtype),
             ctx.constant(run.start, run.dtype, padded)]  # XLA copies an array that is read after it was written to
    *_, totals = _iterate(ctx, padded[run.axis] // _WIDTH, state, [ctx.tensor_type(one, run.wide), row, row], step)
    return pad(ctx, totals, neutral, padded, padding, run.dtype, -1)


def _are_far(rows: int, stride: int) -> bool:
    """Whether elements of as many rows, so many bytes from each other, are in too many pages, or compete for few places of the
    cache, which they do if the stride has a power of two in it."""
    shared = math.gcd(stride, _PAGE)
    return min(rows, rows * stride // _PAGE) > _PAGES or shared > _LINE and rows > _WAYS * _PAGE // shared


def _by_loop_transposed(ctx: Any, x: Any, shape: tuple[int, ...], run: _Run) -> Any:
    """The running totals along the last axis, the first one meanwhile: two kernels more, but rows are not moved."""
    last = len(shape) - 1
    moved = (shape[last], *shape[:last])
    x = ctx.transposed(x, shape, [last, *range(last)], run.dtype)
    return ctx.transposed(_by_loop(ctx, x, moved, run._replace(axis=0))[1], moved, [*range(1, last + 1), 0], run.dtype)


def _pays_in_blocks(shape: Sequence[int], axis: int, itemsize: int) -> bool:
    """Whether the totals of a few rows are made at a time. With jaxlib 0.10 they are, as a loop over a few elements is compiled
    as one function, in half the time."""
    rows, each, rest = math.prod(shape[:axis]), math.prod(shape[axis:]), math.prod(shape[axis + 1:])
    if rows <= _rows_of_a_block(shape, axis):
        return False
    if xla.HAS_OLDER_EMITTER:
        return rest <= 2 * _BLOCK
    return _are_far(rows, each * itemsize) or rest * itemsize < _LINE and rows * each * itemsize > _REREAD


def _rows_of_a_block(shape: Sequence[int], axis: int) -> int:
    """How many rows, each of all that follows the axis, a block has."""
    return max(1, _BLOCK // math.prod(shape[axis + 1:]))


def _in_blocks(ctx: Any, x: Any, shape: tuple[int, ...], run: _Run, factors: Sequence[Any] = ()) -> Any:
    """The running totals of a few rows after those of a few others. The last block, if it is not full, does some rows again."""
    rows, size, rest = math.prod(shape[:run.axis]), shape[run.axis], tuple(shape[run.axis + 1:])
    count, begun = _rows_of_a_block(shape, run.axis), len(factors)
    flat, block = (rows, size, *rest), (count, 1, *rest)
    whole, wide = ctx.tensor_type(flat, run.dtype), ctx.tensor_type(block, run.wide)

    def rows_step(body: Any, iteration: Any, state: Sequence[Any]) -> list[Any]:
        first = body.value("stablehlo.multiply", [iteration, body.constant(count, _I32)], (), _I32)
        first = body.value("stablehlo.minimum", [first, body.constant(rows - count, _I32)], (), _I32)

        def where(inner: Any, first: Any, iteration: Any) -> list[Any]:
            return [first, _position(inner, iteration, size, run), *[inner.constant(0, _I32)] * len(rest)]

        def step(inner: Any, iteration: Any, state: Sequence[Any]) -> list[Any]:
            total, first, totals, *arrays = state
            place = where(inner, first, _after(inner, iteration, begun))
            total = run.total(inner, total, [_read(inner, values, place, block, run) for values in arrays], block)
            return [total, first, _write(inner, totals, total, place, flat, block, run), *arrays]

        if begun:
            place = where(body, first, body.constant(0, _I32))
            start = _read(body, state[1], place, block, run)
            state = [_write(body, state[0], start, place, flat, block, run), *state[1:]]
        else:
            start = body.constant(run.start.astype(run.wide), run.wide, block)
        types = [wide, body.tensor_type((), _I32), *[whole] * len(state)]
        return _iterate(body, size - begun, [start, first, *state], types, step)[2:]

    arrays = [ctx.value("stablehlo.reshape", [values], flat, run.dtype) for values in (x, *factors)]
    state = [ctx.constant(run.start, run.dtype, flat), *arrays]
    totals, *_ = _iterate(ctx, -(-rows // count), state, [whole] * len(state), rows_step)
    return ctx.value("stablehlo.reshape", [totals], shape, run.dtype)


def _by_loop(ctx: Any, x: Any, shape: tuple[int, ...], run: _Run, total: Any = None, is_kept: bool = True,
             factors: Sequence[Any] = ()) -> tuple[Any, Any]:
    """The totals and the running totals, element after element, in place.

    Args:
      total: what the totals start with, if not with the identity.
      is_kept: whether the running totals are wanted.
      factors: an array, if there is one, by which the total before each element is multiplied. That of the first counts for
        nothing, infinite or not: the first element is the first total.
    """
    part = tuple(1 if dimension == run.axis else extent for dimension, extent in enumerate(shape))
    begun = len(factors)

    def where(body: Any, iteration: Any) -> list[Any]:
        place = [body.constant(0, _I32)] * len(shape)
        place[run.axis] = _position(body, iteration, shape[run.axis], run)
        return place

    def step(body: Any, iteration: Any, state: Sequence[Any]) -> list[Any]:
        total, *arrays = state
        place = where(body, _after(body, iteration, begun))
        total = run.total(body, total, [_read(body, values, place, part, run) for values in arrays], part)
        if is_kept:
            arrays[0] = _write(body, arrays[0], total, place, shape, part, run)
        return [total, *arrays]

    if begun:
        total = _read(ctx, x, where(ctx, ctx.constant(0, _I32)), part, run)
    elif total is None:
        total = ctx.constant(run.start.astype(run.wide), run.wide, part)
    types = [ctx.tensor_type(part, run.wide), *[ctx.tensor_type(shape, run.dtype)] * (1 + begun)]
    total, values, *_ = _iterate(ctx, shape[run.axis] - begun, [total, x, *factors], types, step)
    return total, values


def _after(body: Any, iteration: Any, begun: int) -> Any:
    """The number of an iteration, after those of elements that are there already."""
    return body.value("stablehlo.add", [iteration, body.constant(begun, _I32)], (), _I32) if begun else iteration


def _iterate(ctx: Any, count: Any, state: Sequence[Any], types: Sequence[Any],
           step: Callable[[Any, Any, Sequence[Any]], list[Any]]) -> list[Any]:
    """The final state of a loop: in each iteration `step` gets a context, the number of the iteration and the state."""
    types = [ctx.tensor_type((), _I32), *types]
    loop = ctx.op("stablehlo.while", [ctx.constant(0, _I32), *state], types, regions=2)
    test = ctx.region(loop, 0, types)
    test.op("stablehlo.return", [test.compare(test.arguments[0], test.count(count, _I32), "LT")], [])
    body = ctx.region(loop, 1, types)
    iteration, *state = body.arguments
    state = step(body, iteration, state)
    iteration = body.value("stablehlo.add", [iteration, body.constant(1, _I32)], (), _I32)
    body.op("stablehlo.return", [iteration, *state], [])
    return list(loop.results)[1:]


def _position(body: Any, iteration: Any, size: Any, run: _Run) -> Any:
    """Where along the axis the elements of an iteration are."""
    return body.value("stablehlo.subtract", [body.count(size - 1, _I32), iteration], (), _I32) if run.reverse else iteration


def _read(body: Any, values: Any, where: Sequence[Any], part: tuple[int, ...], run: _Run) -> Any:
    element = body.value("stablehlo.dynamic_slice", [values, *where], part, run.dtype, slice_sizes=body.i64s(part))
    return _cast(body, element, part, run.dtype, run.wide)


def _write(body: Any, values: Any, total: Any, where: Sequence[Any], shape: Sequence[int], part: tuple[int, ...],
           run: _Run) -> Any:
    total = _cast(body, total, part, run.wide, run.dtype)
    return body.value("stablehlo.dynamic_update_slice", [values, total, *where], shape, run.dtype)


def _cast(ctx: Any, x: Any, shape: tuple[int, ...], dtype: Any, to: Any) -> Any:
    return x if dtype == to else ctx.convert(x, shape, to)


def _by_window(ctx: Any, x: Any, aval: Any, axis: int, reverse: bool, combination: Combine, start: Any) -> Any:
    """A window as long as the axis that slides in over padding. XLA turns it into a parallel scan."""
    shape, dtype = aval.shape, aval.dtype
    ones, size = (1,) * len(shape), shape[axis]
    pads = [[0, 0] for _ in shape]
    pads[axis][int(reverse)] = size - 1
    operation = _window_operation(
        ctx, [x, ctx.constant(start, dtype)], [ctx.type_of(aval)], padding=pads, window_strides=ones,
        window_dimensions=[size if dimension == axis else 1 for dimension in range(len(shape))],
        base_dilation=ones, window_dilation=ones)
    scalar = ctx.tensor_type((), dtype)
    body = ctx.region(operation, 0, [scalar, scalar])
    y, z = body.arguments
    body.op("stablehlo.return", [combination(body, y, z, (), dtype)], [])
    return operation.result


for _name in ("sum", "prod", "max", "min"):
    _cumulative(f"cum{_name}", _name, _monoid_combine(_name))
_cumulative("cumlogsumexp", "max", _log_add_exp)


@lowers("linear_recurrence")
def _linear_recurrence(ctx: Any, factors: Any, terms: Any, *, axis: int, reverse: bool) -> Any:
    aval = ctx.aval_out
    shape, dtype = aval.shape, aval.dtype
    is_static = type(aval.size) is int
    if is_static and (ctx.platform != "cpu" or ctx.builder.is_split):
        return NotImplemented
    if is_static and (aval.size == 0 or shape[axis] == 1):
        return terms
    working = np.dtype(np.float32) if dtype.name.startswith(xla.WIDENED) else dtype
    run = _Run(axis, reverse, _monoid_combine("sum"), identity("sum", working), working, _wider(working))
    factors, terms = (_cast(ctx, each, shape, dtype, working) for each in (factors, terms))
    most = _SELECTED_WITH_FACTORS if axis == len(shape) - 1 else _JOINED
    if is_static and shape[axis] <= most and _needs_no_loop(ctx):
        totals = _by_elements(ctx, terms, shape, run, [factors])
    elif is_static and _pays_in_blocks(shape, axis, working.itemsize):
        totals = _in_blocks(ctx, terms, shape, run, [factors])
    else:
        totals = _by_loop(ctx, terms, shape, run, factors=[factors])[1]
    return _cast(ctx, totals, shape, working, dtype)
