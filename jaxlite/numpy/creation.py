"""Making arrays: from data, from nothing, from ranges and grids; and their dtypes and devices."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import tree_leaves
from jaxlite.core.values import AVAL_OF, ArrayImpl, aval_of
from jaxlite.interpreters import execution
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, as_array, check_arrays, promote_dtypes, unsupported
from lowering import xla

# --- from data ---------------------------------------------------------------------------------------


def array(object: Any, dtype: Any = None, copy: bool = True, order: str | None = "K", ndmin: int = 0, *,
          device: Any = None, out_sharding: Any = None) -> Any:
    """An array from data: a scalar, a NumPy array, an array or tracer, or nested lists and tuples of those.

    Args:
      dtype: default: the data's own, promoted over all elements, 32 bits wide unless x64 is on. Python scalars
        give weakly typed arrays.
      copy: whether to copy memory that could be shared.
      order: 'K' or 'C'; arrays are row-major.
      ndmin: the least number of axes; leading ones are added.
      device: where to put it.

    >>> from jaxlite import numpy as jnp
    >>> jnp.array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if order not in (None, "K", "C"):
        raise NotImplementedError(f"Only implemented for order='K' and 'C', got {order!r}: arrays are row-major.")
    if object is None:
        raise TypeError("None is not a valid value for jnp.array")
    dtype = dtypes.check_user_dtype_supported(dtype, "array") if dtype is not None else None
    kind = type(object)
    if kind not in AVAL_OF and not isinstance(object, Tracer):
        object = _from_other(object, dtype)
    result = _place(object, dtype, copy, device)
    if ndmin > result.ndim:
        result = shaping.expand_dims(result, range(ndmin - result.ndim))
    return result


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, device: Any = None,
            out_sharding: Any = None) -> Any:
    """`array`, without a copy where none is needed. With copy=False a needed copy is a ValueError."""
    if type(a) is ArrayImpl and dtype is None and copy is not True and device is None:
        return a
    if copy is False and not isinstance(a, (ArrayImpl, Tracer)):
        raise ValueError("jnp.asarray: cannot convert object of type "
                         f"{type(a)} to an Array without a copy. Consider copy=None or copy=True instead.")
    return array(a, dtype=dtype, copy=bool(copy), order=order, device=device)


def _from_other(object: Any, dtype: Any) -> Any:
    """A NumPy array, or an array stacked from parts, for lists and for objects of other kinds."""
    if isinstance(object, (list, tuple)):
        leaves = tree_leaves(object, is_leaf=lambda leaf: leaf is None)
        kinds = set(map(type, leaves))
        for leaf in leaves if type(None) in kinds else ():
            if leaf is None:
                raise TypeError("None is not a valid value for jnp.array; got a list that contains None")
        if any(issubclass(kind, Tracer) or kind is ArrayImpl or hasattr(kind, "__jax_array__") for kind in kinds):
            return _stack_nested(object, dtype)
        if any(issubclass(kind, (str, bytes)) for kind in kinds):
            raise TypeError("JAX arrays hold numbers and booleans; got a list that contains text")
        if not leaves:
            return np.array(object, dtype if dtype is not None else dtypes.default_dtype(float))
        samples = [next(leaf for leaf in leaves if type(leaf) is kind) for kind in kinds]
        if kinds & {np.ndarray}:
            samples = leaves
        avals = {(aval.dtype, aval.weak_type) for aval in map(_aval_of_sample, samples)}
        target = dtype if dtype is not None else dtypes.lattice_join(tuple(avals))[0]
        if kinds == {int} or kinds == {bool, int}:
            for leaf in (builtins.min(leaves), builtins.max(leaves)):
                if dtype is None:
                    aval_of(leaf)  # OverflowError for what does not fit
        return np.array(object, dtype=target)
    if hasattr(object, "__jax_array__"):
        return object.__jax_array__()
    if isinstance(object, (str, bytes)) or object is None:
        raise TypeError(f"JAX arrays hold numbers and booleans; got {object!r}")
    if isinstance(object, (np.ndarray, np.generic)) or hasattr(object, "__array__"):
        found = np.asarray(object)
    else:
        try:
            found = np.asarray(memoryview(object))
        except TypeError:
            raise TypeError(f"Unexpected input type for array: {type(object)}") from None
    if found.dtype == np.object_ or found.dtype.kind in "SUmM":
        raise TypeError(f"Unexpected input type for array: {type(object)} of dtype {found.dtype}")
    return found


def _aval_of_sample(leaf: Any) -> Any:
    if isinstance(leaf, int) and not isinstance(leaf, builtins.bool):
        return aval_of(0)  # the value may be out of range for the type that promotion gives in the end
    return aval_of(leaf)


def _stack_nested(object: Any, dtype: Any) -> Any:
    if not isinstance(object, (list, tuple)):
        return as_array(object) if dtype is None else shaping.convert(as_array(object), dtype, False)
    parts = [_stack_nested(part, dtype) for part in object]
    if not parts:
        return np.zeros((0,), dtypes.default_dtype(float))
    shapes = {aval_of(part).shape for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"jnp.array: the parts of a list have different shapes: {sorted(shapes)}")
    parts = [shaping.convert(part, None, False) for part in promote_dtypes(*parts)]
    return _stack(*parts)


@api()
def _stack(*parts: Any) -> Any:
    return shaping.concatenate([shaping.expand_dims(part, (0,)) for part in parts], 0)


def _place(object: Any, dtype: Any, copy: bool, device: Any) -> Any:
    aval = aval_of(object)
    weak = dtype is None and aval.weak_type
    target = aval.update(dtype=aval.dtype if dtype is None else dtype, weak_type=weak)
    if isinstance(object, Tracer) or not is_eager():
        if target is not aval or not isinstance(object, (Tracer, ArrayImpl)):
            return shaping.convert_element_type_p.bind(object, new_dtype=target.dtype, weak_type=weak)
        return object
    where = execution.as_device(device) if device is not None else None
    if type(object) is ArrayImpl:
        if target is not aval:
            object = shaping.convert(object, target.dtype, weak)
        elif copy:
            object = copy_array(object)
        return object if where is None else device_put(object, where)
    if np.dtype(target.dtype) != aval.dtype:
        object = _checked_cast(object, target.dtype)
    return arrays.put_array(object, where or execution.default_device(), where is not None, copy=True, aval=target)


def _checked_cast(object: Any, dtype: Any) -> np.ndarray:
    source = np.asarray(object)
    with np.errstate(all="ignore"):
        if source.dtype.kind == "c" and dtypes.kind(dtype) != "c":
            source = source.real
        return source.astype(dtype)


def copy(a: Any, order: Any = None) -> Any:
    """A new array of the same values."""
    return array(a, copy=True, order=order)


def copy_array(x: Any) -> Any:
    """A copy in fresh memory on the same device."""
    return arrays._copy_of(x) if type(x) is ArrayImpl else x


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """The values in another dtype. Complex to real takes the real part; float to int truncates.

    None stands for the default floating dtype.
    """
    check_arrays("astype", x)
    if dtype is None:
        dtype = dtypes.default_dtype(float)
    target = dtypes.check_user_dtype_supported(dtype, "astype")
    if target == dtypes.bool_ or not copy:
        result = _convert(x, target)
    else:
        result = _convert(x, target)
        result = copy_array(result) if result is x else result
    return result if device is None else device_put(result, device)


@api("dtype")
def _convert(x: Any, dtype: Any) -> Any:
    return shaping.convert(as_array(x), dtype, False)


@api("dtype")
def _bitcast(x: Any, dtype: Any) -> Any:
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(dtype)
    if x.dtype == dtypes.bool_:
        x = shaping.convert(x, np.uint8)
    elif dtypes.kind(x.dtype) == "c":
        part = {64: dtypes.float32, 128: dtypes.float64}[old]
        parts = shaping.concatenate([shaping.expand_dims(part_of(x), (x.ndim,)) for part_of in (lax.real, lax.imag)],
                                    x.ndim)
        x, old = shaping.reshape(parts, (*x.shape[:-1], x.shape[-1] * 2) if x.ndim else (2,)), old // 2
        if part == dtype:
            return x
    if dtype == dtypes.bool_:
        return lax.ne(shaping.bitcast_convert_type(x, np.uint8), np.uint8(0))
    if dtypes.kind(dtype) == "c":
        part = {64: dtypes.float32, 128: dtypes.float64}[new]
        x = _bitcast(x, part)
        pairs = shaping.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
        first, second = shaping.split(pairs, (1, 1), pairs.ndim - 1)
        return lax.complex(shaping.squeeze(first, (pairs.ndim - 1,)), shaping.squeeze(second, (pairs.ndim - 1,)))
    if old == new:
        return shaping.bitcast_convert_type(x, dtype)
    if old < new:
        factor = new // old
        return shaping.bitcast_convert_type(shaping.reshape(x, (*x.shape[:-1], x.shape[-1] // factor, factor)), dtype)
    wide = shaping.bitcast_convert_type(x, dtype)
    return shaping.reshape(wide, (*x.shape[:-1], x.shape[-1] * (old // new)))


def view(a: Any, dtype: Any = None, type: Any = None) -> Any:
    """The same bits under another dtype; the last axis shrinks or grows with the element size."""
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported.")
    if dtype is None:
        return a
    target = dtypes.check_user_dtype_supported(dtype, "view")
    old, new = dtypes.itemsize_bits(a.dtype), dtypes.itemsize_bits(target)
    if old != new:
        if not a.shape:
            raise ValueError("view() cannot change the itemsize of a 0d array.")
        if (a.shape[-1] * old) % new:
            raise ValueError("When changing to a larger dtype, its size must be a divisor of the total size in bytes of "
                             "the last axis of the array.")
    if a.dtype == target:
        return a
    return _bitcast(a, target)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array over the memory of another library's array; copied where the memory is not aligned."""
    if not hasattr(x, "__dlpack__"):
        raise TypeError("The array passed to from_dlpack must have __dlpack__ and __dlpack_device__ methods.")
    where = execution.as_device(device) if device is not None else execution.default_device()
    if x.__dlpack_device__()[0] not in (1, 2):
        raise ValueError(f"from_dlpack: the array lives on a device of DLPack type {x.__dlpack_device__()[0]}; only CPU "
                         "and CUDA memory can be taken over")
    found = xla.from_dlpack(x.__dlpack__(), where)
    aval = aval_of(found)
    wanted = dtypes.canonicalize_dtype(aval.dtype)
    contiguous = shaping.convert(found, wanted, False)
    if contiguous is found:
        # The buffer may have a foreign layout; the copy is row-major, and no longer shares memory.
        contiguous = arrays.put_array(np.array(arrays.host_value(found)), where, False, copy=True)
    return contiguous


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """A one-dimensional array from an object's bytes."""
    return asarray(np.frombuffer(buffer, dtype=dtypes.check_user_dtype_supported(dtype, "frombuffer"), count=count,
                                 offset=offset))


def fromfile(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0) -> Any:
    """An array from a binary or text file, read by NumPy."""
    return asarray(np.fromfile(file, dtype=dtypes.check_user_dtype_supported(dtype, "fromfile"), count=count, sep=sep,
                               offset=offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """An array from numbers in a text."""
    return asarray(np.fromstring(string, dtype=dtypes.check_user_dtype_supported(dtype, "fromstring"), count=count,
                                 sep=sep))


def fromiter(iterable: Any, dtype: Any, count: int = -1) -> Any:
    """Not available: the number of elements is not known while tracing. Use `array(list(iterable))`."""
    raise NotImplementedError("jnp.fromiter() is not implemented because it may be non-pure and thus unsafe for use "
                              "with JIT and other JAX transformations. Use jnp.asarray(np.fromiter(...)) instead.")


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Arrays from a `.npy` or `.npz` file, read by NumPy."""
    found = np.load(file, *args, **kwargs)
    return asarray(found) if isinstance(found, np.ndarray) else found


# --- devices -----------------------------------------------------------------------------------------


def device_put(x: Any, device: Any) -> Any:
    """An array on a device, committed to it; under a trace, the array itself."""
    if isinstance(x, Tracer) or not is_eager():
        return as_array(x)
    return arrays.put_array(x, execution.as_device(device), True)


# --- from nothing ------------------------------------------------------------------------------------


def shape_of(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """A shape argument, an int or a sequence of them, as a tuple of ints.

    Raises: TypeError for sizes that are negative, not integers or traced; ValueError for more elements than can be
    addressed.
    """
    if not isinstance(shape, (tuple, list)):
        shape = tuple(shape) if getattr(shape, "ndim", 1) and hasattr(shape, "__iter__") else (shape,)
    for size in shape:
        if isinstance(size, (int, np.integer)) and size < 0:
            raise TypeError(f"{name} must have non-negative sizes, got {tuple(shape)}")
    return shaping.canonical_shape(shape, name)


def _on(result: Any, device: Any) -> Any:
    return result if device is None else device_put(result, device)


def _dtype_of(dtype: Any, name: str) -> Any:
    return dtypes.check_user_dtype_supported(float if dtype is None else dtype, name)


@api("shape", "dtype")
def _filled(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return shaping.full(shape, value, dtype)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of zeros; floating by default."""
    return _on(_filled(0, shape_of(shape), _dtype_of(dtype, "zeros")), device)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of ones; floating by default."""
    return _on(_filled(1, shape_of(shape), _dtype_of(dtype, "ones")), device)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array whose values do not matter (zeros)."""
    return zeros(shape, dtype, device=device)


@api("shape", "dtype")
def _full(fill_value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    aval = aval_of(fill_value)
    if not aval.shape:
        return shaping.full(shape, fill_value, dtype)
    value = shaping.convert(fill_value, dtype, False if dtype is not None else None)
    rank = len(shape)
    return shaping.broadcast_in_dim(value, shape, range(rank - len(aval.shape), rank))


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """An array of one value; an array as `fill_value` is broadcast."""
    check_arrays("full", fill_value)
    dtype = None if dtype is None else dtypes.check_user_dtype_supported(dtype, "full")
    return _on(_full(fill_value, shape_of(shape), dtype), device)


def _like(a: Any, dtype: Any, shape: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        check_arrays(name, a)
    aval = a if hasattr(a, "shape") and hasattr(a, "dtype") else aval_of(a)
    dtype = dtypes.canonicalize_dtype(aval.dtype) if dtype is None else dtypes.check_user_dtype_supported(dtype, name)
    return dtype, tuple(aval.shape) if shape is None else shape_of(shape)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Zeros of the shape and dtype of another array."""
    dtype, shape = _like(a, dtype, shape, "zeros_like")
    return _on(_filled(0, shape, dtype), device)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Ones of the shape and dtype of another array."""
    dtype, shape = _like(a, dtype, shape, "ones_like")
    return _on(_filled(1, shape, dtype), device)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """An array of the shape and dtype of another, whose values do not matter (zeros)."""
    return zeros_like(prototype, dtype, shape, device=device)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """One value in the shape and dtype of another array."""
    check_arrays("full_like", fill_value)
    dtype, shape = _like(a, dtype, shape, "full_like")
    return _on(_full(fill_value, shape, dtype), device)


# --- ranges ------------------------------------------------------------------------------------------


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None,
           out_sharding: Any = None) -> Any:
    """Evenly spaced values in [start, stop): `arange(stop)`, `arange(start, stop)`, `arange(start, stop, step)`.

    The bounds are concrete scalars: they decide the shape.
    """
    for name, value in (("start", start), ("stop", stop), ("step", step)):
        if value is not None:
            if isinstance(value, Tracer):
                _need_concrete(value)
            if np.ndim(value):
                raise TypeError(f"jnp.arange requires scalar arguments, got {name} of shape {np.shape(value)}")
            if not isinstance(value, (builtins.bool, int, float, complex_type, np.generic, np.ndarray, ArrayImpl)):
                raise TypeError(f"jnp.arange: {name} must be a number, got {value!r}")
    values = [value.item() if isinstance(value, (ArrayImpl, np.ndarray)) else value
              for value in (start, stop, step) if value is not None]
    if any(isinstance(value, (builtins.complex, np.complexfloating)) for value in values):
        raise ValueError("jnp.arange does not take complex arguments")
    if dtype is not None:
        result_dtype = dtypes.check_user_dtype_supported(dtype, "arange")
    else:
        given = [value for value in (start, stop, step) if value is not None]
        result_dtype = dtypes.result_type(*[value if hasattr(value, "dtype") else type(value) for value in given])
    if stop is None and step is None and dtypes.kind(result_dtype) in "iu" and isinstance(start, (int, np.integer)):
        return _on(_iota(result_dtype, builtins.max(operator.index(start), 0)), device)
    if stop is None and step is not None:
        raise TypeError("jnp.arange: step given without stop")
    low, high = (0, values[0]) if stop is None else (values[0], values[1])
    jump = 1 if step is None else values[-1]
    if jump == 0:
        raise ZeroDivisionError("jnp.arange: step is zero")
    size = builtins.max(0, math.ceil((high - low) / jump))
    if dtypes.kind(result_dtype) in "iu" and all(isinstance(v, (int, np.integer)) for v in (low, jump)):
        return _on(_ramp(int(low), int(jump), size, result_dtype), device)
    return array(np.arange(low, high, jump).astype(result_dtype), device=device)


complex_type = builtins.complex


def _need_concrete(value: Any) -> None:
    from jaxlite.core.errors import ConcretizationTypeError

    raise ConcretizationTypeError(value, "the arguments of jnp.arange decide the shape of its result, so they must be "
                                         "concrete; mark them static, or use a fixed size with lax.iota")


@api("dtype", "size")
def _iota(dtype: Any, size: int) -> Any:
    return shaping.iota(dtype, size)


@api("size", "dtype")
def _ramp(start: Any, step: Any, size: int, dtype: Any) -> Any:
    ramp = shaping.iota(dtype, size)
    return lax.add(lax.mul(ramp, shaping.convert(step, dtype, False)), shaping.convert(start, dtype, False))
