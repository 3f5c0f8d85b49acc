"""StableHLO rules of the reductions, and the reducer regions that windows and scatters share with them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lowering import xla
from lowering.buffers import real_dtype
from lowering.monoids import COMBINERS, has_nan, identity
from lowering.passes.searches import Search
from lowering.rules import lowers


def combine(ctx: Any, monoid: str, x: Any, y: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Two values of one shape, combined by a monoid. Complex numbers are ordered by real, then imaginary part."""
    if dtype.kind == "c" and monoid in ("max", "min"):
        part = real_dtype(dtype)
        real_x, real_y, imag_x, imag_y = (
            ctx.value(f"stablehlo.{name}", [value], shape, part) for name in ("real", "imag") for value in (x, y))
        direction = "GT" if monoid == "max" else "LT"
        boolean = np.dtype(bool)
        first = ctx.value("stablehlo.select", [
            ctx.compare(real_x, real_y, "EQ"), ctx.compare(imag_x, imag_y, direction),
            ctx.compare(real_x, real_y, direction)], shape, boolean)
        return ctx.value("stablehlo.select", [first, x, y], shape, dtype)
    return ctx.value(f"stablehlo.{COMBINERS[monoid]}", [x, y], shape, dtype)


def monoid_region(ctx: Any, operation: Any, index: int, monoid: str, dtype: Any) -> None:
    """Fill a region with the combination of two scalars."""
    scalar = ctx.tensor_type((), dtype)
    if dtype.kind == "c":
        body = ctx.region(operation, index, [scalar, scalar])
        x, y = body.arguments
        body.op("stablehlo.return", [combine(body, monoid, x, y, (), dtype)], [])
        return
    # One operation, many times in a program: without a context of its own.
    create, loc = ctx.ir.Operation.create, ctx.loc
    block = operation.regions[index].blocks.append(scalar, scalar, arg_locs=(loc, loc))
    end = ctx.ir.InsertionPoint(block)
    result = create(f"stablehlo.{COMBINERS[monoid]}", (scalar,), tuple(block.arguments), None, None, 0, loc, end).result
    create("stablehlo.return", (), (result,), None, None, 0, loc, end)


def unrecognized_region(operation: Any, combiner: str) -> None:
    """Fill the region of a reduction with a reducer that gives what a combiner gives, but that no library of XLA has.

    A sum subtracts the negative, an extreme is the negative of the other one of the negatives.
    """
    ir = xla.ir
    with operation.location:
        scalar = ir.RankedTensorType.get([], ir.RankedTensorType(operation.results[0].type).element_type)
        block = operation.regions[0].blocks.append(scalar, scalar)
        before, element = block.arguments
        with ir.InsertionPoint(block):
            make = lambda name, *operands: ir.Operation.create(name, [scalar], operands).result
            negative = make("stablehlo.negate", element)
            if combiner == "stablehlo.add":
                result = make("stablehlo.subtract", before, negative)
            else:
                opposite = "stablehlo.minimum" if combiner == "stablehlo.maximum" else "stablehlo.maximum"
                result = make("stablehlo.negate", make(opposite, make("stablehlo.negate", before), negative))
            ir.Operation.create("stablehlo.return", [], [result])


def jaxpr_region(ctx: Any, operation: Any, index: int, jaxpr: Any) -> None:
    """Fill a region with a jaxpr of scalars."""
    body = ctx.region(operation, index, [ctx.type_of(var.aval) for var in jaxpr.invars])
    results = body.inline(jaxpr, body.arguments)
    body.op("stablehlo.return", results, [])


def reduce_by_monoid(ctx: Any, monoid: str, x: Any, shape: Sequence[int], dtype: Any, axes: Sequence[int],
                     is_finite: bool = False) -> Any:
    """Reduce a value of the given shape over some axes; `is_finite` says that no element is NaN."""
    out_shape = tuple(size for axis, size in enumerate(shape) if axis not in axes)

    def reduced(monoid: str, x: Any, dtype: Any) -> Any:
        def make() -> Any:
            operation = ctx.op("stablehlo.reduce", [x, ctx.constant(identity(monoid, dtype), dtype)],
                               [ctx.tensor_type(out_shape, dtype)], {"dimensions": ctx.i64s(axes)}, regions=1)
            monoid_region(ctx, operation, 0, monoid, dtype)
            return operation

        return ctx.repeated((monoid, tuple(shape), dtype, tuple(axes)), x, make).result

    layouts = [getattr(aval, "layout", None) for aval in (ctx.avals_in[0], ctx.aval_out)]
    is_left = any(layout is not None and layout.spec.unreduced for layout in layouts)  # and then no operand of comparisons
    if ctx.builder.is_split and not is_left and not is_finite:
        return over_devices(ctx, monoid, x, shape, out_shape, dtype, reduced, axes)
    if ctx.platform == "cpu" and dtype.kind == "c" and monoid in ("max", "min") and _is_fit_for_parts(shape, axes):
        return _in_two_parts(ctx, monoid, x, shape, out_shape, dtype, reduced, axes)
    return reduced(monoid, x, dtype)


def _is_fit_for_parts(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether XLA's library reduces floats of this shape fast: many of them, and not along short rows."""
    if not all(type(size) is int for size in shape) or math.prod(shape) < _LIBRARY_SIZE:
        return False
    kept = max((axis for axis in range(len(shape)) if axis not in axes), default=-1)
    return not 1 < math.prod(shape[kept + 1:]) < _LEAST_ROW


def _in_two_parts(ctx: Any, monoid: str, x: Any, shape: Sequence[int], out_shape: Sequence[int], dtype: Any,
                  reduce: Callable[[str, Any, Any], Any], axes: Sequence[int]) -> Any:
    """Complex numbers, reduced as the real and the imaginary parts, of which `reduce(monoid, x, dtype)` makes the results."""
    part, boolean = real_dtype(dtype), np.dtype(bool)
    real, imag = (ctx.value(f"stablehlo.{name}", [x], shape, part) for name in ("real", "imag"))
    first = reduce(monoid, real, part)
    if monoid in ("max", "min"):  # the extreme imaginary part beside the extreme real part
        others = [axis for axis in range(len(shape)) if axis not in axes]
        spread = ctx.value("stablehlo.broadcast_in_dim", [first], shape, part, broadcast_dimensions=ctx.i64s(others))
        beside = ctx.value("stablehlo.or", [ctx.compare(real, spread, "EQ"), ctx.compare(real, real, "NE")], shape, boolean)
        imag = ctx.value("stablehlo.select", [beside, imag, ctx.constant(identity(monoid, part), part, shape)], shape, part)
    return ctx.value("stablehlo.complex", [first, reduce(monoid, imag, part)], out_shape, dtype)


def over_devices(ctx: Any, monoid: str, x: Any, shape: Sequence[int], out_shape: Sequence[int], dtype: Any,
                 reduce: Callable[[str, Any, Any], Any], axes: Sequence[int] = ()) -> Any:
    """`reduce(monoid, x, dtype)` where XLA may reduce over devices, which it does not do well on the CPU.

    The sum of a complex constant ends the process, complex numbers have no maximum, and that of floats passes over NaN, so
    that there may be nothing left but -inf. So NaN is searched for; `passes.searches` leaves out what is for one device.

    Args: `axes` of the value that the result does not have; none where the operation itself is one over devices.
    """
    is_complex, is_extreme = dtype.kind == "c", monoid in ("max", "min")
    if ctx.platform != "cpu" or not (is_complex and monoid != "prod" or is_extreme and has_nan(dtype)):
        return reduce(monoid, x, dtype)
    if is_complex:
        return _in_two_parts(ctx, monoid, x, shape, out_shape, dtype, lambda monoid, x, part: over_devices(
            ctx, monoid, x, shape, out_shape, part, reduce, axes), axes)
    is_nan, extreme, nan = ctx.compare(x, x, "NE"), reduce(monoid, x, dtype), ctx.constant(math.nan, dtype, out_shape)
    if not axes:  # XLA makes one exchange of two extremes
        low, high = (ctx.constant(number, dtype, shape) for number in (1, 2))
        wins, loses = (high, low) if monoid == "max" else (low, high)
        marks = ctx.value("stablehlo.select", [is_nan, wins, loses], shape, dtype)
        found = ctx.compare(reduce(monoid, marks, dtype), wins, "EQ")
        return ctx.value("stablehlo.select", [found, nan, extreme], out_shape, dtype)
    found = reduce("or", is_nan, np.dtype(bool))
    result = ctx.value("stablehlo.select", [found, nan, extreme], out_shape, dtype)
    ctx.builder.searches.append(Search(is_nan, axes, found, extreme, result))
    return result


# XLA:CPU reduces integers and booleans level by level, a kernel for each; of floats it hands the whole to a library. So large
# arrays of booleans are reduced as floats, which count as far as this.
_FLOAT, _EXACT = np.dtype(np.float32), 1 << 24
_LIBRARY_SIZE, _LIBRARY_LENGTH = 1 << 12, 32
_LEAST_ROW = 30  # complex elements whose real parts it reduces faster than XLA the pairs, in loops that LLVM unrolls
_ROUNDED_LENGTH = 32  # elements from which on XLA does not sum them up where they are computed
_FEW_COLUMNS = range(2, 9)  # which the library adds up as slowly as many
_FEW_COLUMNS_IN_MEMORY = (*range(2, 16), *range(17, 24))  # of booleans that need not be computed, which LLVM adds up in vectors
_FUSED = ("stablehlo.multiply", "stablehlo.add", "stablehlo.subtract")  # into the library's sum
_OF_TRUTHS = {"sum": "sum", "or": "max", "and": "min"}
_MOST_TRUTHS = 1 << 16  # above it, the floats are much more memory than booleans that XLA would not even write


def _is_for_library(ctx: Any, monoid: str, aval: Any, axes: tuple[int, ...]) -> bool:
    """Whether booleans of this type are better reduced as floats: outside of loops, which XLA may compile in one piece."""
    if ctx.platform != "cpu" or type(aval.size) is not int or aval.size < _LIBRARY_SIZE or not _is_outermost(ctx.block):
        return False
    reduced = math.prod([aval.shape[axis] for axis in axes])
    if monoid != "sum" and reduced < aval.size:  # several results: a register holds many booleans
        return False
    if _columns(aval, axes) in _FEW_COLUMNS:
        return False
    return _LIBRARY_LENGTH <= reduced <= _EXACT


def _columns(aval: Any, axes: tuple[int, ...]) -> int:
    """How many elements beside each other are not reduced."""
    return math.prod(aval.shape[max(axes, default=-1) + 1:])


def _is_rounded(ctx: Any, aval: Any, axes: tuple[int, ...]) -> bool:
    """Whether XLA:CPU would round each step of a sum to the dtype, which takes ten times as long as the library's sum."""
    reduced = math.prod([aval.shape[axis] for axis in axes])
    return ctx.platform == "cpu" and aval.dtype == "bfloat16" and type(reduced) is int and reduced >= _ROUNDED_LENGTH


def _sum_as_floats(ctx: Any, x: Any, aval: Any, axes: tuple[int, ...]) -> Any:
    """The sum of rounded numbers."""
    wide = ctx.convert(x, aval.shape, _FLOAT)
    if getattr(x.owner, "name", "") in _FUSED:  # rounded as they are, else XLA writes both operands for the library
        wide = ctx.value("stablehlo.reduce_precision", [wide], aval.shape, _FLOAT, exponent_bits=ctx.i32(8),
                         mantissa_bits=ctx.i32(7))
    return _reduce_as_floats(ctx, "sum", wide, aval, axes)


def _is_compared_slowly(ctx: Any, monoid: str, aval: Any) -> bool:
    """Whether XLA:CPU would take extremes of bfloat16 by arithmetic, rounding each step, and not by its library."""
    is_extreme = ctx.platform == "cpu" and monoid in ("max", "min") and aval.dtype == "bfloat16"
    return is_extreme and type(aval.size) is int and aval.size < _LIBRARY_SIZE


def _reduce_as_floats(ctx: Any, monoid: str, wide: Any, aval: Any, axes: tuple[int, ...]) -> Any:
    """Rounded once, which an extreme of rounded numbers is anyway."""
    return ctx.convert(reduce_by_monoid(ctx, monoid, wide, aval.shape, _FLOAT, axes), ctx.aval_out.shape, aval.dtype)


def _is_outermost(block: Any) -> bool:
    owner = block.owner.operation  # the class of functions, where it is loaded, gives another `name`
    return owner.name == "func.func" and str(owner.attributes["sym_name"]) == '"main"'


def _truths(monoid: str, x: Any, aval: Any, axes: tuple[int, ...]) -> Any:
    """The booleans that are reduced, or that were converted to integers wide enough to count them; None if there are none.

    None also for those that XLA's loops count as fast.
    """
    if monoid != "sum":
        return x if aval.dtype == bool and aval.size <= _MOST_TRUTHS else None
    owner = x.owner
    if aval.dtype.kind not in "iu" or aval.dtype.itemsize < 4 or getattr(owner, "name", "") != "stablehlo.convert":
        return None
    (truths,) = owner.operands
    if isinstance(truths.owner, xla.ir.Block) and _columns(aval, axes) in _FEW_COLUMNS_IN_MEMORY:
        return None
    return truths if str(truths.type.element_type) == "i1" else None


def _reduce_truths(ctx: Any, monoid: str, x: Any, aval: Any, axes: tuple[int, ...]) -> Any:
    """The sum of booleans, or whether one or all of them are true."""
    out = ctx.aval_out
    numbers = ctx.convert(x, aval.shape, _FLOAT)
    result = reduce_by_monoid(ctx, _OF_TRUTHS[monoid], numbers, aval.shape, _FLOAT, axes, is_finite=True)
    if monoid == "sum":
        return ctx.convert(result, out.shape, out.dtype)
    return ctx.compare(result, ctx.constant(0, _FLOAT, out.shape), "NE")


def _sum_of_weighted(ctx: Any, x: Any, aval: Any, axes: tuple[int, ...]) -> Any:
    """A sum along an axis of an array whose parts, of several axes, are multiplied by a factor each; None for other sums.

    XLA's library takes such a product in, but computes it element by element: ten times as slowly as one whose parts have one
    axis. So the axes of a part are merged.
    """
    if ctx.platform != "cpu" or ctx.builder.is_split:  # merged axes cannot be cut as the array is
        return None
    if len(axes) != 1 or aval.dtype != _FLOAT or getattr(x.owner, "name", "") != "stablehlo.multiply":
        return None
    shape, first = aval.shape, axes[0] + 1
    if len(shape) < first + 2 or type(aval.size) is not int or aval.size < _LIBRARY_SIZE:
        return None
    for value, factor in (x.owner.operands, [*x.owner.operands][::-1]):
        if getattr(factor.owner, "name", "") != "stablehlo.broadcast_in_dim":
            continue
        weights = factor.owner.operands[0]
        own = tuple(weights.type.shape)
        if len(own) == len(shape) and set(own[first:]) == {1}:
            merged, one_each = (*shape[:first], math.prod(shape[first:])), (*own[:first], 1)
            value = ctx.value("stablehlo.reshape", [value], merged, _FLOAT)
            weights = ctx.broadcast(ctx.value("stablehlo.reshape", [weights], one_each, _FLOAT), one_each, merged, _FLOAT)
            product = ctx.value("stablehlo.multiply", [value, weights], merged, _FLOAT)
            total = reduce_by_monoid(ctx, "sum", product, merged, _FLOAT, axes)
            return ctx.value("stablehlo.reshape", [total], ctx.aval_out.shape, _FLOAT)
    return None


def _reduction(monoid: str) -> None:
    @lowers(f"reduce_{monoid}")
    def rule(ctx: Any, x: Any, *, axes: tuple[int, ...], **params: Any) -> Any:
        (aval,) = ctx.avals_in
        is_fit = monoid in _OF_TRUTHS and _is_for_library(ctx, monoid, aval, axes)
        truths = _truths(monoid, x, aval, axes) if is_fit else None
        if truths is not None:
            return _reduce_truths(ctx, monoid, truths, aval, axes)
        if monoid == "sum" and _is_rounded(ctx, aval, axes):
            return _sum_as_floats(ctx, x, aval, axes)
        if _is_compared_slowly(ctx, monoid, aval):
            return _reduce_as_floats(ctx, monoid, ctx.convert(x, aval.shape, _FLOAT), aval, axes)
        if monoid == "sum" and (weighted := _sum_of_weighted(ctx, x, aval, axes)) is not None:
            return weighted
        return reduce_by_monoid(ctx, monoid, x, aval.shape, aval.dtype, axes)


for _monoid in COMBINERS:
    _reduction(_monoid)


_MONOIDS = {"add": "sum", "max": "max", "min": "min"}


def _monoid_of(jaxpr: Any) -> str | None:
    """The monoid of a reducer that is one operation on its two arguments."""
    if len(jaxpr.eqns) != 1 or len(jaxpr.invars) != 2:
        return None
    (eqn,) = jaxpr.eqns
    known = list(eqn.outvars) == list(jaxpr.outvars) and {*map(id, eqn.invars)} == {*map(id, jaxpr.invars)}
    return _MONOIDS.get(eqn.primitive.name) if known else None


@lowers("reduce")
def _reduce(ctx: Any, *operands: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> list[Any]:
    aval, out = ctx.avals_in[0], ctx.aval_out
    monoid = _monoid_of(jaxpr.jaxpr) if ctx.builder.is_split else None
    if monoid is not None:
        result = reduce_by_monoid(ctx, monoid, operands[0], aval.shape, aval.dtype, dimensions)
        start = ctx.broadcast(operands[1], (), out.shape, aval.dtype)
        return [combine(ctx, monoid, start, result, out.shape, aval.dtype)]
    operation = ctx.op("stablehlo.reduce", operands, [ctx.type_of(aval) for aval in ctx.avals_out],
                       {"dimensions": ctx.i64s(dimensions)}, regions=1)
    jaxpr_region(ctx, operation, 0, jaxpr.jaxpr)
    return list(operation.results)


# Up to this many elements the form in pairs wins: it compiles in half the time, and the others save little. So it does for
# short rows, which LLVM unrolls (`lowering.passes.unrolling`). Two passes along rows write an array as large, which pays up to
# _NEAR. Integers, which no library reduces, gain from parts that XLA reduces in one kernel; for their extremes along another
# axis it needs three to five, which pay from _NEAR on. A loop searches many times: pairs of floats then lose much sooner, 7
# times for 24 x 24.
_SEARCHED, _SEARCHED_IN_LOOP, _PASSED, _NEAR = 1 << 15, 1 << 8, 24, 1 << 21
_PARTED, _PARTED_INTEGERS, _PART_OF_INTEGERS = 256, 1 << 18, 32


def takes_two_passes(aval: Any, axis: int, in_loop: bool) -> bool:
    """Whether on the CPU an index of the extreme along an axis is found by the extreme, of the whole axis or of its parts."""
    if type(aval.size) is not int or aval.shape[axis] < _PASSED or not _has_extremes(aval.dtype):
        return False
    if aval.size < _SEARCHED:
        return in_loop and aval.size >= _SEARCHED_IN_LOOP and aval.dtype.kind not in "iub"
    is_row = all(extent == 1 for extent in aval.shape[axis + 1:])
    if aval.dtype.kind in "iub":
        return _part(aval, axis) > 0 if is_row else aval.size > _NEAR
    return not is_row or aval.size <= _NEAR or _part(aval, axis) > 0


def _has_extremes(dtype: Any) -> bool:
    """Whether reductions give its extremes: not those of few bits, some of which have no infinity."""
    return dtype.kind in "fiub" or dtype.name == "bfloat16"


def _part(aval: Any, axis: int) -> int:
    """The elements of the parts of an axis of which the extremes are found first; 0 if that is not in parts."""
    if aval.shape[axis] < _PARTED or any(extent > 1 for extent in aval.shape[axis + 1:]):
        return 0
    wanted = math.isqrt(aval.shape[axis])
    if aval.dtype.kind not in "iub":
        return _divisor(aval.shape[axis], wanted)
    return _divisor(aval.shape[axis], min(wanted, _PART_OF_INTEGERS)) if aval.size >= _PARTED_INTEGERS else 0


@functools.cache
def _divisor(length: int, wanted: int) -> int:
    """The divisor of a length that is nearest to what is wanted, up to eight times as much; 0 if there is none."""
    found = [part for part in range(max(2, wanted // 8), 8 * wanted) if length % part == 0]
    return min(found, key=lambda part: abs(math.log(part / wanted)), default=0)


def _index_of_extreme(name: str, monoid: str, direction: str) -> None:
    @lowers(name)
    def rule(ctx: Any, x: Any, *, axes: tuple[int, ...], index_dtype: Any) -> Any:
        (aval,), out, (axis,) = ctx.avals_in, ctx.aval_out, axes
        # A narrow index would wrap, and break ties wrongly; that of pairs has its dtype, if it is wide, as nothing converts it.
        is_long = type(size := aval.shape[axis]) is int and size > np.iinfo(np.int32).max
        wide = np.dtype(np.int64 if is_long or index_dtype == np.int64 else np.int32)
        if ctx.platform != "cpu" or not takes_two_passes(aval, axis, ctx.in_loop):
            index = _pairs(ctx, x, iota(ctx, aval.shape, axis, wide), aval.shape, aval.dtype, axis, monoid, direction, wide)
        elif _part(aval, axis):
            index = _in_parts(ctx, x, aval, axis, monoid, direction, wide)
        else:
            index = _two_passes(ctx, x, aval, axis, monoid, wide)
        return index if wide == index_dtype else ctx.convert(index, out.shape, out.dtype)


def iota(ctx: Any, shape: tuple[int, ...], axis: int, dtype: Any) -> Any:
    """The positions along an axis."""
    return ctx.value("stablehlo.iota", [], shape, dtype, iota_dimension=ctx.i64(axis))


def _pairs(ctx: Any, x: Any, indices: Any, shape: tuple[int, ...], dtype: Any, axis: int, monoid: str, direction: str,
           wide: Any) -> Any:
    """A reduction of (value, index) pairs: NaN wins, then the extreme, then the lower index.

    It starts at index 0, which is right where no value beats the identity, and from which XLA sees that an extreme of the same
    array is the value of the pair.
    """
    if dtype.name in ("int2", "uint2"):  # XLA fails on pairs with them
        dtype = np.dtype(dtype.name.replace("2", "8"))
        x = ctx.convert(x, shape, dtype)
    out = (*shape[:axis], *shape[axis + 1:])
    operands = [x, indices, ctx.constant(identity(monoid, dtype), dtype), ctx.constant(0, wide)]
    operation = ctx.op("stablehlo.reduce", operands, [ctx.tensor_type(out, dtype), ctx.tensor_type(out, wide)],
                       {"dimensions": ctx.i64s([axis])}, regions=1)
    types = [ctx.tensor_type((), dtype), ctx.tensor_type((), wide)]
    body = ctx.region(operation, 0, types + types)
    value, index, other, other_index = body.arguments
    boolean = np.dtype(bool)

    def either(a: Any, b: Any) -> Any:
        return body.value("stablehlo.or", [a, b], (), boolean)

    better = either(body.compare(value, other, direction), body.compare(value, value, "NE"))
    tie = body.value("stablehlo.and", [body.compare(value, other, "EQ"), body.compare(index, other_index, "LT")],
                     (), boolean)
    body.op("stablehlo.return", [
        body.value("stablehlo.select", [better, value, other], (), dtype),
        body.value("stablehlo.select", [either(better, tie), index, other_index], (), wide)], [])
    return operation.results[1]


def _extremes(ctx: Any, monoid: str, x: Any, shape: tuple[int, ...], dtype: Any, axis: int) -> Any:
    """The extreme along an axis, and NaN where there is one, which the library's reductions pass over on some processors."""
    out = (*shape[:axis], *shape[axis + 1:])
    extreme = reduce_by_monoid(ctx, monoid, x, shape, dtype, [axis])
    if dtype.kind in "iub":
        return extreme
    # No other value makes a sum of squares NaN, and the library adds them up as fast as it finds the extreme.
    wide, kind = (x, dtype) if dtype.itemsize > 2 else (ctx.convert(x, shape, _FLOAT), _FLOAT)
    squares = ctx.value("stablehlo.multiply", [wide, wide], shape, kind)
    total = reduce_by_monoid(ctx, "sum", squares, shape, kind, [axis])
    found = ctx.compare(total, total, "NE")
    return ctx.value("stablehlo.select", [found, ctx.constant(np.nan, dtype, out), extreme], out, dtype)


def _in_parts(ctx: Any, x: Any, aval: Any, axis: int, monoid: str, direction: str, wide: Any) -> Any:
    """The first part of a row that holds its extreme, by the extreme of each part, and the first place in this part."""
    rows, dtype, length = aval.shape[:axis], aval.dtype, _part(aval, axis)
    count, leading = aval.shape[axis] // length, list(range(axis))
    x = ctx.value("stablehlo.reshape", [x], (*rows, count, length), dtype)
    extremes = _extremes(ctx, monoid, x, (*rows, count, length), dtype, axis + 1)
    place = _pairs(ctx, extremes, iota(ctx, (*rows, count), axis, wide), (*rows, count), dtype, axis, monoid, direction, wide)
    numbers = (f"#stablehlo.gather<offset_dims = [{axis}], collapsed_slice_dims = [{axis}], operand_batching_dims = {leading}, "
               f"start_indices_batching_dims = {leading}, start_index_map = [{axis}], index_vector_dim = {axis}>")
    part = ctx.value("stablehlo.gather", [x, place], (*rows, length), dtype, dimension_numbers=ctx.attribute(numbers),
                     slice_sizes=ctx.i64s([1] * (axis + 1) + [length]), indices_are_sorted=ctx.flag(False))
    start = ctx.value("stablehlo.multiply", [place, ctx.constant(length, wide, rows)], rows, wide)
    start = ctx.value("stablehlo.broadcast_in_dim", [start], (*rows, length), wide, broadcast_dimensions=ctx.i64s(leading))
    indices = ctx.value("stablehlo.add", [start, iota(ctx, (*rows, length), axis, wide)], (*rows, length), wide)
    index = _pairs(ctx, part, indices, (*rows, length), dtype, axis, monoid, direction, wide)
    return ctx.value("stablehlo.reshape", [index], ctx.aval_out.shape, wide)


def _two_passes(ctx: Any, x: Any, aval: Any, axis: int, monoid: str, wide: Any) -> Any:
    """The extreme, then the first index that holds it: two loops that XLA:CPU vectorises, unlike the pairs."""
    shape, dtype = aval.shape, aval.dtype
    extreme = _extremes(ctx, monoid, x, shape, dtype, axis)
    others = [dimension for dimension in range(len(shape)) if dimension != axis]
    extreme = ctx.value("stablehlo.broadcast_in_dim", [extreme], shape, dtype, broadcast_dimensions=ctx.i64s(others))
    hit = ctx.compare(x, extreme, "EQ")
    if dtype.kind not in "iub":
        hit = ctx.value("stablehlo.or", [hit, ctx.compare(x, x, "NE")], shape, np.dtype(bool))
    # The library that reduces floats does not take integers, but takes time beside the loops for them.
    counted = wide if dtype.kind in "iub" or shape[axis] > _EXACT else _FLOAT
    last = ctx.constant(shape[axis] - 1, counted, shape)
    index = ctx.value("stablehlo.select", [hit, iota(ctx, shape, axis, counted), last], shape, counted)
    index = reduce_by_monoid(ctx, "min", index, shape, counted, [axis])
    return index if counted is wide else ctx.convert(index, ctx.aval_out.shape, wide)


_index_of_extreme("argmax", "max", "GT")
_index_of_extreme("argmin", "min", "LT")
