"""Eager operations on the host: a program of the CPU that has no executable yet is run by NumPy, if the bits are the same.

To compile one slice takes longer than to run it ten thousand times, and a session of single operations on new shapes is little
else. On the CPU an array's buffer is host memory, so the first calls of an eager operation need no executable. A signature that
comes again and again is compiled, and runs as fast as ever.

Each primitive here has a NumPy rule: a maker takes the equation, and gives a function of arrays, or None where NumPy's result
could differ from XLA's. What depends on values is decided at the call: a rule raises `_Differs`, and the program is compiled.
So results do not depend on who computed them. XLA flushes subnormal numbers to zero, leaves open which of several equal
positions is written last, and contracts products with sums: no program in which that could show runs here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes
from jaxlite.core.jaxpr import ClosedJaxpr, Literal
from lowering import platforms, xla

_CALLS = 64  # of one signature before it is compiled: as many cost about what a compile does
_LARGEST = 1 << 18  # bytes of all values of a program
_LONGEST = 40  # equations: a compiled program of many is faster by more
_MOVED = frozenset(map(np.dtype, (
    bool, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32,
    np.float64, np.complex64, np.complex128, dtypes.bfloat16)))
_ROUNDED = frozenset(map(np.dtype, (np.float16, np.float32, np.float64, dtypes.bfloat16)))
_WIDE = frozenset(map(np.dtype, (np.float32, np.float64)))

Run = Callable[..., Any]


class _Differs(Exception):
    """The values at hand could give NumPy another result than XLA."""


# --- what callers use --------------------------------------------------------------------------------


def eager_jit(fun: Callable[..., Any], **options: Any) -> Any:
    """`jit` for what is one operation to the user, whose first calls need not be compiled."""
    path = jit(fun, **options)
    path._jitted.on_host = run_on_host
    return path


def run_on_host(program: Any, leaves: Sequence[Any], device: Any, committed: bool) -> list[Any] | None:
    """The results of a call of a `Program`; None if it is to be compiled."""
    if not config.eager_on_host.value:
        return None
    plan = program.host_plan
    if plan is None:
        plan = program.host_plan = _make_plan(program.closed)
    if plan.calls_left <= 0 or program.executables or type(device) is not xla.Device \
            or config.debug_nans.value or config.debug_infs.value or config.dump_ir_to.value is not None \
            or platforms.platform_of(device) != "cpu":
        return None
    plan.calls_left -= 1
    try:
        with xla.unguarded(), np.errstate(all="ignore"):
            outs = plan.run([_host(leaf, aval) for leaf, aval in zip(leaves, program.closed.in_avals, strict=True)])
            return [arrays.put_array(np.ascontiguousarray(out).reshape(aval.shape), device, committed, True, aval)
                    for out, aval in zip(outs, program.closed.out_avals, strict=True)]
    except _Differs:
        plan.calls_left = 0
        return None


def _host(leaf: Any, aval: Any) -> np.ndarray:
    if type(leaf) is xla.ArrayImpl:
        if leaf.is_deleted() or arrays.is_spread(leaf):
            raise _Differs
        # Not `host_value`: what it keeps with the array would stand in the way of its donation.
        return xla.to_numpy(leaf) if leaf._npy_value is None else leaf._npy_value
    return arrays.as_host_value(leaf, aval)


# --- plans -------------------------------------------------------------------------------------------


class _Plan:
    """How NumPy runs a program: its steps, and for how many calls more it does."""

    __slots__ = ("calls_left", "_jaxpr", "_consts", "_steps")

    def __init__(self, jaxpr: Any, consts: Sequence[Any], steps: list[Any] | None):
        self.calls_left = 0 if steps is None else _CALLS
        self._jaxpr, self._consts, self._steps = jaxpr, consts, steps or []

    def run(self, args: Sequence[Any]) -> list[Any]:
        jaxpr = self._jaxpr
        env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
        for var, const in zip(jaxpr.constvars, self._consts, strict=True):
            env[var] = _host(const, var.aval)
        for operands, outvars, run, several in self._steps:
            outs = run(*[atom if type(atom) is np.ndarray else env[atom] for atom in operands])
            for var, out in zip(outvars, outs if several else (out for out in (outs,)), strict=True):
                shape = var.aval.shape
                out = np.asarray(out)
                if out.dtype != var.aval.dtype:
                    raise _Differs
                env[var] = out if out.shape == shape else np.broadcast_to(out, shape)
        return [_constant(atom) if type(atom) is Literal else env[atom] for atom in jaxpr.outvars]


def _constant(literal: Literal) -> np.ndarray:
    return np.asarray(literal.val).astype(literal.aval.dtype)


def _make_plan(closed: ClosedJaxpr) -> _Plan:
    jaxpr = closed.jaxpr
    steps = None if jaxpr.effects or not _is_small(jaxpr) or not _is_exact(jaxpr) else _steps_of(jaxpr)
    return _Plan(jaxpr, closed.consts, steps)


def _is_small(jaxpr: Any) -> bool:
    size = 0
    for var in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars, *[var for eqn in jaxpr.eqns for var in eqn.outvars]):
        if getattr(var.aval, "dtype", None) not in _MOVED:
            return False
        size += var.aval.size * var.aval.dtype.itemsize
    return size <= _LARGEST and len(jaxpr.eqns) <= _LONGEST


def _is_exact(jaxpr: Any) -> bool:
    """Whether no operation of floats meets another that XLA could merge it with, or a constant that it could simplify with."""
    rounded = conversions = narrow = 0
    varying = {*jaxpr.constvars, *jaxpr.invars}
    for eqn in jaxpr.eqns:
        varies = [type(atom) is not Literal and atom in varying for atom in eqn.invars]
        if any(varies):
            varying.update(eqn.outvars)
        dtype = eqn.outvars[0].aval.dtype
        given = eqn.invars[0].aval.dtype if eqn.invars else dtype
        if eqn.primitive.name == "convert_element_type" and given in _ROUNDED and dtype in _ROUNDED and given != dtype:
            conversions += 1
            rounded += dtype.itemsize < given.itemsize
            narrow += dtype not in _WIDE
        elif eqn.primitive.name in _ARITHMETIC and dtype in _ROUNDED:
            rounded += 1
            narrow += dtype not in _WIDE
            if not all(varies):
                return False
            if eqn.primitive.name == "div" and not (
                    eqn.invars[1] in jaxpr.invars and eqn.invars[1].aval.shape == eqn.outvars[0].aval.shape):
                return False  # by one value for all: XLA multiplies by its reciprocal
    return rounded <= 1 and not (narrow and rounded and conversions > (rounded == narrow == conversions))


def _steps_of(jaxpr: Any) -> list[Any] | None:
    steps = []
    for eqn in jaxpr.eqns:
        maker = _makers.get(eqn.primitive.name)
        run = None if maker is None else maker(eqn, *[atom.aval for atom in eqn.invars])
        if run is None:
            return None
        operands = [_constant(atom) if type(atom) is Literal else atom for atom in eqn.invars]
        steps.append((operands, eqn.outvars, run, eqn.primitive.multiple_results))
    return steps


_makers: dict[str, Callable[..., Run | None]] = {}


def _rule(*names: str) -> Callable[[Any], Any]:
    def register(maker: Any) -> Any:
        for name in names:
            _makers[name] = maker
        return maker

    return register


# --- guards of values --------------------------------------------------------------------------------


@functools.cache
def _tiny(dtype: Any) -> Any:
    return dtypes.finfo(dtype).tiny


def _check_normal(*values: Any) -> None:
    """No value is subnormal, or just not."""
    for value in values:
        if value.dtype in _ROUNDED:
            size = np.abs(value)
            if ((size <= _tiny(value.dtype)) & (size != 0)).any():
                raise _Differs


def _check_ordered(value: Any) -> None:
    """Comparison alone says which of two values is the greater, and equal ones are the same to the bit."""
    if value.dtype in _ROUNDED:
        _check_normal(value)
        if (np.isnan(value) | ((value == 0) & np.signbit(value))).any():
            raise _Differs


def _is_number(aval: Any) -> bool:
    return aval.dtype in _ROUNDED or dtypes.kind(aval.dtype) in "iub"


def _is_integer(aval: Any) -> bool:
    return dtypes.kind(aval.dtype) in "iu"


def _is_bits(aval: Any) -> bool:
    return dtypes.kind(aval.dtype) in "iub"


# --- elementwise -------------------------------------------------------------------------------------


def _guarded(run: Run) -> Run:
    def guarded(*values: Any) -> Any:
        _check_normal(*values)
        out = np.asarray(run(*values))
        _check_normal(out)
        return out

    return guarded


_ARITHMETIC: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


@_rule("add", "sub", "mul")
def _arithmetic(eqn: Any, x: Any, y: Any) -> Run | None:
    run = _ARITHMETIC[eqn.primitive.name]
    return _guarded(run) if x.dtype in _ROUNDED else run if _is_integer(x) else None


@_rule("div", "rem")
def _division(eqn: Any, x: Any, y: Any) -> Run | None:
    quotient = eqn.primitive.name == "div"
    if not _is_integer(x):
        return _guarded(np.divide) if quotient and x.dtype in _WIDE else None

    def run(a: Any, b: Any) -> Any:
        if not b.all() or (dtypes.kind(a.dtype) == "i" and (b == -1).any()):
            raise _Differs
        rest = np.fmod(a, b)
        return (a - rest) // b if quotient else rest

    return run


_COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                "ge": np.greater_equal}


@_rule(*_COMPARISONS)
def _comparison(eqn: Any, x: Any, y: Any) -> Run | None:
    run: Any = _COMPARISONS[eqn.primitive.name]
    return None if not _is_number(x) else _guarded(run) if x.dtype in _ROUNDED else run


@_rule("max", "min")
def _extremum(eqn: Any, x: Any, y: Any) -> Run | None:
    choose: Any = np.maximum if eqn.primitive.name == "max" else np.minimum

    def run(a: Any, b: Any) -> Any:
        _check_ordered(a)
        _check_ordered(b)
        return choose(a, b)

    return run if _is_number(x) else None


_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}


@_rule(*_BITS)
def _bits(eqn: Any, *avals: Any) -> Run | None:
    return _BITS[eqn.primitive.name] if _is_bits(avals[0]) else None


_SIGNS = {"neg": np.negative, "abs": np.abs, "sign": np.sign}


@_rule(*_SIGNS)
def _signs(eqn: Any, x: Any) -> Run | None:
    run: Any = _SIGNS[eqn.primitive.name]
    return run if _is_integer(x) else _guarded(run) if x.dtype in _WIDE and run is not np.sign else None


@_rule("floor", "ceil", "is_finite")
def _rounding(eqn: Any, x: Any) -> Run | None:
    run: Any = {"floor": np.floor, "ceil": np.ceil, "is_finite": np.isfinite}[eqn.primitive.name]
    return _guarded(run) if x.dtype in _WIDE else None


@_rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(eqn: Any, x: Any, y: Any) -> Run | None:
    signed = dtypes.kind(x.dtype) == "i"
    if not _is_integer(x) or eqn.primitive.name == ("shift_right_logical" if signed else "shift_right_arithmetic"):
        return None
    shift: Any = np.left_shift if eqn.primitive.name == "shift_left" else np.right_shift

    def run(a: Any, b: Any) -> Any:
        if ((b < 0) | (b >= 8 * a.dtype.itemsize)).any():
            raise _Differs
        return shift(a, b)

    return run


@_rule("convert_element_type")
def _convert(eqn: Any, x: Any) -> Run | None:
    dtype = eqn.outvars[0].aval.dtype
    if eqn.params.get("sharding") is not None:
        return None
    if x.dtype == dtype:
        return lambda a: a
    if x.dtype in _ROUNDED and dtype in _ROUNDED or x.dtype in _ROUNDED and dtypes.kind(dtype) == "b":
        return _guarded(lambda a: a.astype(dtype))
    if x.dtype == bool or _is_integer(x) and (_is_bits(eqn.outvars[0].aval) or dtype in _WIDE):
        return lambda a: a.astype(dtype)
    if x.dtype not in _WIDE or not _is_integer(eqn.outvars[0].aval):
        return None
    limits = np.iinfo(dtype)

    def run(a: Any) -> Any:
        if not ((a > float(limits.min)) & (a < float(limits.max))).all():
            raise _Differs
        return a.astype(dtype)

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


@_rule("reshape", "squeeze", "expand_dims")
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


@_rule("copy", "copy_p")
def _copy(eqn: Any, x: Any) -> Run:
    return lambda a: a


@_rule("iota")
def _iota(eqn: Any, *sizes: Any) -> Run | None:
    shape, dtype, axis = eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype, eqn.params["dimension"]
    # Small floats count in steps that they cannot hold.
    if sizes or not (_is_integer(eqn.outvars[0].aval) or dtype in _WIDE) or (
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


def _positions(shape: Sequence[int], indices: Any, index_map: Sequence[int], windows: Sequence[int]) -> tuple[Any, ...]:
    """An index array for each axis of an operand: batches first, then one axis for each window axis. Within bounds."""
    batch, rank = indices.shape[:-1], len(shape)
    found = []
    for axis, (size, window) in enumerate(zip(shape, windows, strict=True)):
        at = np.arange(window).reshape([1] * len(batch) + [window if i == axis else 1 for i in range(rank)])
        if axis in index_map:
            start = indices[..., index_map.index(axis)].astype(np.int64)
            if ((start < 0) | (start > size - window)).any():
                raise _Differs
            at = at + start.reshape(batch + (1,) * rank)
        found.append(at)
    return tuple(found)


@_rule("gather")
def _gather(eqn: Any, x: Any, indices: Any) -> Run | None:
    numbers, sizes, shape = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], eqn.outvars[0].aval.shape
    if numbers.operand_batching_dims or numbers.start_indices_batching_dims or indices.dtype == np.uint64:
        return None
    rank = len(indices.shape) - 1
    collapsed = tuple(rank + axis for axis in numbers.collapsed_slice_dims)

    def run(a: Any, where: Any) -> Any:
        found = a[_positions(a.shape, where, numbers.start_index_map, sizes)] if a.shape else a.reshape((1,) * rank)
        found = np.broadcast_to(found, where.shape[:-1] + tuple(sizes))
        found = found.squeeze(collapsed) if collapsed else found
        return np.moveaxis(found, range(rank, found.ndim), numbers.offset_dims).reshape(shape)

    return run


@_rule("scatter", "scatter-add")
def _scatter(eqn: Any, x: Any, indices: Any, updates: Any) -> Run | None:
    numbers, adds = eqn.params["dimension_numbers"], eqn.primitive.name == "scatter-add"
    if numbers.operand_batching_dims or numbers.scatter_indices_batching_dims or indices.dtype == np.uint64 \
            or adds and not _is_integer(x) or not x.shape or 0 in updates.shape:
        return None
    rank, axes = len(indices.shape) - 1, numbers.update_window_dims
    kept = [axis for axis in range(len(x.shape)) if axis not in numbers.inserted_window_dims]
    windows = [1] * len(x.shape)
    for axis, place in zip(kept, axes, strict=True):
        windows[axis] = updates.shape[place]

    def run(a: Any, where: Any, new: Any) -> Any:
        at = _positions(a.shape, where, numbers.scatter_dims_to_operand_dims, windows)
        new = np.moveaxis(new, axes, range(rank, new.ndim)).reshape((*where.shape[:-1], *windows))
        out = a.copy()
        if adds:
            np.add.at(out, at, new)
            return out
        count = int(np.prod(where.shape[:-1]))
        if count > 1 and len(np.unique(where.reshape(count, -1), axis=0)) < count or count > 1 and max(windows) > 1 and any(
                windows[axis] > 1 for axis in numbers.scatter_dims_to_operand_dims):
            raise _Differs  # who writes last?
        out[at] = new
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

    def run(a: Any) -> Any:
        _check_ordered(a)
        return ufunc.reduce(a, axis=tuple(axes), dtype=a.dtype) if axes else a

    return run


@_rule("argmax", "argmin")
def _arg_extremum(eqn: Any, x: Any) -> Run | None:
    (axis,), dtype = eqn.params["axes"], np.dtype(eqn.params["index_dtype"])
    find: Any = np.argmax if eqn.primitive.name == "argmax" else np.argmin

    def run(a: Any) -> Any:
        _check_ordered(a)
        return np.asarray(find(a, axis=axis)).astype(dtype)

    return run if _is_number(x) and x.shape[axis] and _is_integer(eqn.outvars[0].aval) else None


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


@_rule("cumsum", "cumprod")
def _cumulate(eqn: Any, x: Any) -> Run | None:
    axis = eqn.params["axis"]
    ufunc: Any = np.add if eqn.primitive.name == "cumsum" else np.multiply
    if not _is_integer(x) or eqn.params["reverse"]:
        return None
    return lambda a: ufunc.accumulate(a, axis=axis, dtype=a.dtype)


@_rule("jit")
def _call(eqn: Any, *avals: Any) -> Run | None:
    closed = eqn.params["jaxpr"]
    if not _is_small(closed.jaxpr) or any(each.primitive.name in _ARITHMETIC or each.primitive.name == "convert_element_type"
                                          for each in closed.jaxpr.eqns):
        return None  # what is in it could be merged with what is around it
    steps = _steps_of(closed.jaxpr)
    if steps is None:
        return None
    plan = _Plan(closed.jaxpr, closed.consts, steps)
    return lambda *args: plan.run(args)
