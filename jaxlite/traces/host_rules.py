"""How NumPy computes each operation with the same bits as XLA.

A rule takes an equation and the types of its operands, and returns a function of arrays, or None if NumPy's result could
differ. Conditions on values are checked at the call: the function raises `Differs`, and the program is compiled.

Possible differences: XLA:CPU flushes subnormal numbers to zero, in operands and results of arithmetic and comparisons; it
does not define which of several equal positions is written last, nor the order in which they are added; it has its own
order of zeros and NaN in minima and sorts. The bits of a NaN computed from NaNs depend on the machine, so such operations
are compiled. Rules that move elements keep all bits, including those of NaN and subnormal numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from lowering.rules import registers_in

MOVED = frozenset(map(np.dtype, (
    bool, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32,
    np.float64, np.complex64, np.complex128, dtypes.bfloat16)))
ROUNDED = frozenset(map(np.dtype, (np.float16, np.float32, np.float64, dtypes.bfloat16)))
WIDE = frozenset(map(np.dtype, (np.float32, np.float64)))
# Of floats: what rounds, and what chooses among values or changes a sign. XLA could merge the first with either.
ROUNDINGS = frozenset(("add", "sub", "mul", "div", "sqrt", "square", "integer_pow",
                       "scatter-add", "scatter-sub", "scatter-mul"))
CHOICES = frozenset(("neg", "abs", "sign", "floor", "ceil", "round", "max", "min", "clamp", "rem", "scatter-max", "scatter-min",
                     "reduce_max", "reduce_min", "cummax", "cummin"))
# What reads no more than it writes, or nothing at all.
VIEWS = frozenset(("slice", "dynamic_slice", "squeeze", "reshape", "transpose", "split", "unstack", "rev", "real", "imag",
                   "broadcast_in_dim", "copy", "bitcast_convert_type"))

Run = Callable[..., Any]
MAKERS: dict[str, Callable[..., Run | None]] = {}


class Differs(Exception):
    """The values at hand could give NumPy another result than XLA."""


_rule = registers_in(MAKERS)


# --- guards of values --------------------------------------------------------------------------------


@functools.cache
def _tiny(dtype: Any) -> Any:
    return dtypes.finfo(dtype).tiny


def _check_normal(*values: Any) -> None:
    """No value is subnormal, or just not."""
    for value in values:
        if value.dtype in ROUNDED:
            size = np.abs(value)
            if ((size <= _tiny(value.dtype)) & (size != 0)).any():
                raise Differs


def check_no_nan(value: Any) -> None:
    """No value is NaN."""
    if value.dtype in ROUNDED and np.isnan(value).any():
        raise Differs


def _check_ordered(value: Any) -> None:
    """Comparison alone says which of two values is the greater, and equal ones are the same to the bit."""
    if value.dtype in ROUNDED:
        _check_normal(value)
        if (np.isnan(value) | ((value == 0) & np.signbit(value))).any():
            raise Differs


def _guarded(run: Run) -> Run:
    """A rule for floats without subnormal numbers, whose result is no NaN."""
    def guarded(*values: Any) -> Any:
        _check_normal(*values)
        out = np.asarray(run(*values))
        _check_normal(out)
        check_no_nan(out)
        return out

    return guarded


def _ordered(run: Run) -> Run:
    """A rule for operands that `_check_ordered` lets pass."""
    def ordered(*values: Any) -> Any:
        for value in values:
            _check_ordered(value)
        return run(*values)

    return ordered


def _is_integer(aval: Any) -> bool:
    return dtypes.kind(aval.dtype) in "iu"


def _is_bits(aval: Any) -> bool:
    return dtypes.kind(aval.dtype) in "iub"


def _is_number(aval: Any) -> bool:
    return aval.dtype in ROUNDED or _is_bits(aval)


# --- elementwise -------------------------------------------------------------------------------------

_ARITHMETIC: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@_rule(*_ARITHMETIC)
def _arithmetic(eqn: Any, x: Any, y: Any) -> Run | None:
    run = _ARITHMETIC[eqn.primitive.name]
    return _guarded(run) if x.dtype in ROUNDED else run if _is_integer(x) else None


@_rule("div", "rem")
def _division(eqn: Any, x: Any, y: Any) -> Run | None:
    quotient = eqn.primitive.name == "div"
    if not _is_integer(x):
        return _guarded(np.divide if quotient else np.fmod) if x.dtype in WIDE else None

    def run(a: Any, b: Any) -> Any:
        if not b.all() or (dtypes.kind(a.dtype) == "i" and (b == -1).any()):
            raise Differs
        rest = np.fmod(a, b)
        return (a - rest) // b if quotient else rest

    return run


@_rule("div by few")
def _division_by_few(eqn: Any, x: Any, y: Any) -> Run | None:
    def run(a: Any, b: Any) -> Any:
        inverse = b.dtype.type(1) / b
        _check_normal(inverse)
        return a * inverse

    return _guarded(run) if x.dtype in WIDE else None


@_rule("square", "integer_pow")
def _power(eqn: Any, x: Any) -> Run | None:
    exponent = eqn.params.get("y", 2)
    if x.dtype in ROUNDED:
        inverse = exponent == -1 and x.dtype in WIDE
        return _guarded(np.square) if exponent == 2 else _guarded(lambda a: a.dtype.type(1) / a) if inverse else None
    return (lambda a: a ** a.dtype.type(exponent)) if _is_integer(x) and 1 <= exponent < 64 else None


@_rule("sqrt")
def _root(eqn: Any, x: Any) -> Run | None:
    return _guarded(np.sqrt) if x.dtype in WIDE and eqn.params.get("accuracy") is None else None


_COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                "ge": np.greater_equal}


@_rule(*_COMPARISONS)
def _comparison(eqn: Any, x: Any, y: Any) -> Run | None:
    run: Any = _COMPARISONS[eqn.primitive.name]
    return None if not _is_number(x) else _guarded(run) if x.dtype in ROUNDED else run


@_rule("max", "min", "clamp")
def _extremum(eqn: Any, x: Any, *others: Any) -> Run | None:
    run: Any = {"max": np.maximum, "min": np.minimum,
                "clamp": lambda low, a, high: np.minimum(np.maximum(a, low), high)}[eqn.primitive.name]
    return None if not _is_number(x) else _ordered(run) if x.dtype in ROUNDED else run


_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}


@_rule(*_BITS)
def _bits(eqn: Any, *avals: Any) -> Run | None:
    return _BITS[eqn.primitive.name] if _is_bits(avals[0]) else None


_OF_ONE = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
           "is_finite": np.isfinite}


@_rule("neg", "abs", "sign")
def _signs(eqn: Any, x: Any) -> Run | None:
    run: Any = _OF_ONE[eqn.primitive.name]
    if x.dtype in WIDE and run is np.sign:
        return _guarded(lambda a: np.where(a == 0, a, np.sign(a)))  # of a negative zero: that zero
    return run if _is_integer(x) else _guarded(run) if x.dtype in WIDE else None


@_rule("floor", "ceil", "round", "is_finite")
def _rounding(eqn: Any, x: Any) -> Run | None:
    if x.dtype not in WIDE or int(eqn.params.get("rounding_method", 1)) != 1:
        return None
    run: Any = _OF_ONE[eqn.primitive.name]
    return run if run is np.isfinite else _guarded(run)


@_rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(eqn: Any, x: Any, y: Any) -> Run | None:
    signed = dtypes.kind(x.dtype) == "i"
    if not _is_integer(x) or eqn.primitive.name == ("shift_right_logical" if signed else "shift_right_arithmetic"):
        return None
    shift: Any = np.left_shift if eqn.primitive.name == "shift_left" else np.right_shift

    def run(a: Any, b: Any) -> Any:
        if ((b < 0) | (b >= 8 * a.dtype.itemsize)).any():
            raise Differs
        return shift(a, b)

    return run


@_rule("convert_element_type")
def _convert(eqn: Any, x: Any) -> Run | None:
    out = eqn.outvars[0].aval
    dtype = out.dtype
    if eqn.params.get("sharding") is not None:
        return None
    if x.dtype == dtype:
        return lambda a: a
    if x.dtype in ROUNDED and (dtype in ROUNDED or dtypes.kind(dtype) == "b"):
        return _guarded(lambda a: a.astype(dtype))
    if x.dtype == bool or _is_integer(x) and (_is_bits(out) or dtype in WIDE):
        return lambda a: a.astype(dtype)
    if x.dtype not in WIDE or not _is_integer(out):
        return None
    limits = np.iinfo(dtype)

    def run(a: Any) -> Any:
        if not ((a > float(limits.min)) & (a < float(limits.max))).all():
            raise Differs
        return a.astype(dtype)

    return run


@_rule("bitcast_convert_type")
def _bitcast(eqn: Any, x: Any) -> Run | None:
    dtype = eqn.outvars[0].aval.dtype
    if x.dtype.itemsize != dtype.itemsize or bool in (x.dtype, dtype):
        return None

    def run(a: Any) -> Any:
        if a.dtype == dtypes.bfloat16:
            check_no_nan(a)
        return a.view(dtype)

    return run


@_rule("real", "imag")
def _part(eqn: Any, x: Any) -> Run:
    return (lambda a: a.real) if eqn.primitive.name == "real" else lambda a: a.imag


@_rule("complex")
def _complex(eqn: Any, x: Any, y: Any) -> Run:
    shape, dtype = eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype

    def run(a: Any, b: Any) -> Any:
        out = np.empty(shape, dtype)
        out.real, out.imag = a, b
        return out

    return run


@_rule("select_n")
def _select(eqn: Any, which: Any, *cases: Any) -> Run | None:
    if which.dtype != bool or len(cases) != 2:
        return None
    return lambda choice, off, on: np.where(choice, on, off)


# --- movement ----------------------------------------------------------------------------------------


@_rule("broadcast_in_dim")
def _broadcast(eqn: Any, x: Any, *sizes: Any) -> Run | None:
    shape, places = eqn.outvars[0].aval.shape, eqn.params["broadcast_dimensions"]
    if sizes:
        return None
    full = [1] * len(shape)
    for place, size in zip(places, x.shape, strict=True):
        full[place] = size
    return lambda a: np.broadcast_to(a.reshape(full), shape)


@_rule("reshape", "squeeze")
def _reshape(eqn: Any, x: Any, *sizes: Any) -> Run | None:
    shape = eqn.outvars[0].aval.shape
    if sizes or (eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None):
        return None
    return lambda a: a.reshape(shape)


@_rule("transpose")
def _transpose(eqn: Any, x: Any) -> Run:
    order = eqn.params["permutation"]
    return lambda a: a.transpose(order)


@_rule("rev")
def _reverse(eqn: Any, x: Any) -> Run:
    return lambda a: np.flip(a, eqn.params["dimensions"])


@_rule("concatenate")
def _concatenate(eqn: Any, *avals: Any) -> Run:
    return lambda *parts: np.concatenate(parts, eqn.params["dimension"])


@_rule("stack")
def _stack(eqn: Any, *avals: Any) -> Run:
    return lambda *parts: np.stack(parts, eqn.params["axis"])


@_rule("unstack")
def _unstack(eqn: Any, x: Any) -> Run:
    return lambda a: list(np.moveaxis(a, eqn.params["axis"], 0))


@_rule("split")
def _split(eqn: Any, x: Any) -> Run:
    ends = np.cumsum(eqn.params["sizes"])[:-1]
    return lambda a: np.split(a, ends, eqn.params["axis"])


@_rule("slice")
def _slice(eqn: Any, x: Any) -> Run:
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    box = tuple(map(slice, starts, limits, eqn.params["strides"] or (1,) * len(starts)))
    return lambda a: a[box]


@_rule("pad")
def _pad(eqn: Any, x: Any, value: Any) -> Run | None:
    config, shape = eqn.params["padding_config"], eqn.outvars[0].aval.shape
    if any(low < 0 or high < 0 for low, high, _ in config):
        return None
    box = tuple(slice(low, low + max(0, size + (size - 1) * inner), inner + 1)
                for (low, _, inner), size in zip(config, x.shape, strict=True))

    def run(a: Any, filling: Any) -> Any:
        out = np.full(shape, filling, a.dtype)
        out[box] = a
        return out

    return run


@_rule("tile")
def _tile(eqn: Any, x: Any) -> Run:
    return lambda a: np.tile(a, eqn.params["reps"])


@_rule("copy")
def _copy(eqn: Any, x: Any) -> Run:
    return lambda a: a


@_rule("iota")
def _iota(eqn: Any, *sizes: Any) -> Run | None:
    shape, dtype, axis = eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype, eqn.params["dimension"]
    # Small floats count in steps that they cannot hold.
    if sizes or not (_is_integer(eqn.outvars[0].aval) or dtype in WIDE) or (
            _is_integer(eqn.outvars[0].aval) and shape[axis] > np.iinfo(dtype).max):
        return None
    return lambda: np.broadcast_to(
        np.arange(shape[axis]).astype(dtype).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def _box(a: Any, starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    box = []
    for size, start, length in zip(a.shape, starts, sizes, strict=True):
        first = min(max(int(start), 0), size - length)
        box.append(slice(first, first + length))
    return tuple(box)


@_rule("dynamic_slice")
def _dynamic_slice(eqn: Any, x: Any, *starts: Any) -> Run | None:
    sizes = eqn.params["slice_sizes"]
    return (lambda a, *where: a[_box(a, where, sizes)]) if len(starts) == len(x.shape) else None


@_rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Any, x: Any, update: Any, *starts: Any) -> Run:
    def run(a: Any, new: Any, *where: Any) -> Any:
        out = a.copy()
        out[_box(a, where, new.shape)] = new
        return out

    return run


# --- boxes at many positions -------------------------------------------------------------------------


class _Boxes:
    """Where a gather or scatter finds its boxes: an index array for each axis, over the positions and then each axis.

    Attributes: `rank` of the positions; `at` the index arrays; `inside` for each position whether its box is within bounds.
    """

    def __init__(self, shape: Sequence[int], indices: Any, index_map: Sequence[int], batching: Sequence[int],
                 index_batching: Sequence[int], windows: Sequence[int], mode: Any):
        batch, whole = indices.shape[:-1], len(shape)
        self.rank, self.at = len(batch), []
        self.inside = np.ones(batch, bool)
        for axis, (size, window) in enumerate(zip(shape, windows, strict=True)):
            at = np.arange(window).reshape([1] * self.rank + [window if i == axis else 1 for i in range(whole)])
            start = None
            if axis in index_map:
                start = indices[..., index_map.index(axis)].astype(np.int64)
                within = (start >= 0) & (start <= size - window)
                if not within.all():
                    if mode.name not in ("CLIP", "FILL_OR_DROP"):
                        raise Differs
                    start = start.clip(0, size - window)
                    if mode.name != "CLIP":
                        self.inside &= within
            elif axis in batching:
                place = index_batching[batching.index(axis)]
                start = np.arange(size).reshape([-1 if i == place else 1 for i in range(self.rank)])
            self.at.append(at if start is None else at + start.reshape(start.shape + (1,) * whole))


@_rule("gather")
def _gather(eqn: Any, x: Any, indices: Any) -> Run | None:
    numbers, sizes, out = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], eqn.outvars[0].aval
    if indices.dtype == np.uint64 or not x.shape or 0 in x.shape:
        return None
    rank, filling = len(indices.shape) - 1, eqn.params["fill_value"]
    gone = tuple(rank + axis for axis in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims))

    def run(a: Any, where: Any) -> Any:
        boxes = _Boxes(a.shape, where, numbers.start_index_map, numbers.operand_batching_dims,
                       numbers.start_indices_batching_dims, sizes, eqn.params["mode"])
        found = np.broadcast_to(a[tuple(boxes.at)], where.shape[:-1] + tuple(sizes))
        if not boxes.inside.all():
            if dtypes.kind(a.dtype) == "c":
                raise Differs
            inside = boxes.inside.reshape(boxes.inside.shape + (1,) * a.ndim)
            found = np.where(inside, found, np.asarray(filling).astype(a.dtype))
        found = found.squeeze(gone) if gone else found
        return np.moveaxis(found, range(rank, found.ndim), numbers.offset_dims).reshape(out.shape)

    return run


_SCATTERS: dict[str, Any] = {"scatter": None, "scatter-add": np.add, "scatter-sub": np.subtract, "scatter-mul": np.multiply,
                             "scatter-max": np.maximum, "scatter-min": np.minimum}


@_rule(*_SCATTERS)
def _scatter(eqn: Any, x: Any, indices: Any, updates: Any) -> Run | None:
    numbers, combine = eqn.params["dimension_numbers"], _SCATTERS[eqn.primitive.name]
    if indices.dtype == np.uint64 or 0 in x.shape or 0 in updates.shape or not x.shape or combine is not None and not (
            x.dtype in WIDE or _is_integer(x)) or combine is None and eqn.params["update_jaxpr"] is not None:
        return None
    window_axes, batching = numbers.update_window_dims, numbers.operand_batching_dims
    kept = [axis for axis in range(len(x.shape)) if axis not in numbers.inserted_window_dims and axis not in batching]
    windows = [1] * len(x.shape)
    for axis, place in zip(kept, window_axes, strict=True):
        windows[axis] = updates.shape[place]
    chooses = combine in (np.maximum, np.minimum)

    def run(a: Any, where: Any, new: Any) -> Any:
        boxes = _Boxes(a.shape, where, numbers.scatter_dims_to_operand_dims, batching, numbers.scatter_indices_batching_dims,
                       windows, eqn.params["mode"])
        shape = (*where.shape[:-1], *windows)
        new = np.moveaxis(new, window_axes, range(boxes.rank, new.ndim)).reshape(shape)
        at = np.broadcast_to(np.ravel_multi_index(tuple(boxes.at), a.shape), shape)[boxes.inside].ravel()
        new = new[boxes.inside].ravel()
        out = a.copy()
        flat = out.reshape(-1)
        if combine is not None and a.dtype not in ROUNDED:
            combine.at(flat, at, new)
            return out
        if boxes.inside.size > 1:
            written = np.zeros(flat.shape, bool)
            written[at] = True
            if np.count_nonzero(written) < len(at):
                raise Differs  # who writes last, or adds first?
        flat[at] = new if combine is None else (_ordered if chooses else _guarded)(combine)(flat[at], new)
        return out

    return run


# --- reductions, sorting -----------------------------------------------------------------------------

_REDUCTIONS = {"reduce_sum": np.add, "reduce_prod": np.multiply, "reduce_max": np.maximum, "reduce_min": np.minimum,
               "reduce_and": np.bitwise_and, "reduce_or": np.bitwise_or, "reduce_xor": np.bitwise_xor}


@_rule(*_REDUCTIONS)
def _reduce(eqn: Any, x: Any) -> Run | None:
    axes, name = eqn.params["axes"], eqn.primitive.name
    ufunc: Any = _REDUCTIONS[name]
    chooses = name in ("reduce_max", "reduce_min")
    if chooses and 0 in x.shape or not (_is_bits(x) or chooses and _is_number(x)) \
            or x.dtype == bool and name in ("reduce_sum", "reduce_prod"):
        return None
    return _ordered(lambda a: ufunc.reduce(a, axis=tuple(axes), dtype=a.dtype) if axes else a)


@_rule("argmax", "argmin")
def _arg_extremum(eqn: Any, x: Any) -> Run | None:
    (axis,), dtype = eqn.params["axes"], np.dtype(eqn.params["index_dtype"])
    find: Any = np.argmax if eqn.primitive.name == "argmax" else np.argmin
    if not _is_number(x) or not x.shape[axis] or not _is_integer(eqn.outvars[0].aval):
        return None
    return _ordered(lambda a: np.asarray(find(a, axis=axis)).astype(dtype))


@_rule("sort")
def _sort(eqn: Any, *avals: Any) -> Run | None:
    axis = eqn.params["dimension"]
    if eqn.params["num_keys"] != 1 or not _is_number(avals[0]) or not (eqn.params["is_stable"] or len(avals) == 1):
        return None

    def run(key: Any, *others: Any) -> Any:
        _check_ordered(key)
        if not others:
            return [np.sort(key, axis=axis, kind="stable")]
        order = np.argsort(key, axis=axis, kind="stable")
        return [np.take_along_axis(each, order, axis) for each in (key, *others)]

    return run


_CUMULATIONS = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


@_rule(*_CUMULATIONS)
def _cumulate(eqn: Any, x: Any) -> Run | None:
    axis, ufunc = eqn.params["axis"], _CUMULATIONS[eqn.primitive.name]
    if not (_is_integer(x) or x.dtype in ROUNDED and eqn.primitive.name in ("cummax", "cummin")):
        return None
    turned: Run = (lambda a: np.flip(a, axis)) if eqn.params["reverse"] else lambda a: a
    return _ordered(lambda a: turned(ufunc.accumulate(turned(a), axis=axis, dtype=a.dtype)))
