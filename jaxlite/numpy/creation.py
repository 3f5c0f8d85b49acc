"""Creating arrays: from data, filled, from ranges and grids; their dtypes and devices."""

from __future__ import annotations

import builtins
import math
from collections import deque
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import Ints
from jaxlite.core.filtering import boundary, hide_own_frames
from jaxlite.core.lazy import loader
from jaxlite.core.symbolic import is_symbolic, largest
from jaxlite.core.tracing import Tracer, is_eager, known_value
from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.core.values import AVAL_OF, ArrayImpl, aval_of, with_arrays
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, as_array, check_arrays, low, scalar, unwrapped
from lowering import platforms, xla

_finite = loader("jaxlite.compilation.finite")

# --- from data ---------------------------------------------------------------------------------------


@boundary
def array(object, dtype=None, copy: bool = True, order: str | None = "K", ndmin: int = 0, *, device=None,
          out_sharding=None):
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
    if dtype is not None:
        dtype = dtypes.check_user_dtype_supported(dtype, "array")
    elif type(object) is np.ndarray and object.dtype == dtypes.float0:
        return object
    object = low(object)
    if type(object) not in AVAL_OF and not isinstance(object, Tracer):
        object = unwrapped([object])[0] if isinstance(object, (int, float, complex)) else _from_other(object, dtype)
        copy = copy and isinstance(object, np.ndarray)  # what was joined from parts is new
    result = _place(object, dtype, copy, device)
    if ndmin > result.ndim:
        result = shaping.expand_dims(result, range(ndmin - result.ndim))
    return placement.laid_out(result, out_sharding)


def asarray(a, dtype=None, order: str | None = None, *, copy: bool | None = None, device=None, out_sharding=None):
    """`array`, without a copy where none is needed. NumPy arrays are always copied."""
    if type(a) is ArrayImpl and dtype is None and not copy and device is out_sharding is None and order in (None, "K", "C"):
        return a
    try:  # not `boundary`: most calls return above
        return array(a, dtype, bool(copy), order, device=device, out_sharding=out_sharding)
    except Exception as error:
        hide_own_frames(error)
        raise


def _from_other(object, dtype):
    """A NumPy array, or an array joined from parts, for lists and for objects of other kinds."""
    if isinstance(object, (list, tuple, range)):
        return _from_sequence(object, dtype)
    if isinstance(object, (int, float, complex)) and not isinstance(object, np.generic):  # IntEnum and other subclasses
        return int(object) if isinstance(object, int) else float(object) if isinstance(object, float) else complex(object)
    if object is None:
        raise ValueError("None is not a valid value for jnp.array")
    if hasattr(object, "__jax_array__"):
        return object.__jax_array__()
    if isinstance(object, (str, bytes)):
        return _parsed(object, object, dtype)
    if isinstance(object, (np.ndarray, np.generic)) or hasattr(object, "__array__") or hasattr(object, "__array_interface__"):
        if type(object) is not np.ndarray and isinstance(object, np.ndarray) and np.any(getattr(object, "mask", False)):
            aval_of(object)  # refuses masked arrays; where nothing is masked nothing is lost, and netCDF4 reads such arrays
        found = np.asarray(object)
    else:
        try:
            found = np.asarray(memoryview(object))
        except TypeError:
            found = _readable(object, dtype)
            if isinstance(found, list):
                return _from_sequence(found, dtype)
    if found.dtype == np.object_ or found.dtype.kind in "SUmM":
        raise _no_numbers(found)
    return found


def _parsed(object, text: str | bytes, dtype) -> np.ndarray:
    """The array that NumPy parses from text, or from a list with text, for an explicit dtype."""
    if dtype is None or isinstance(dtype, dtypes.ExtendedDType):
        raise _no_numbers(text)
    return np.array(object, dtype)


def _no_numbers(value: Any) -> TypeError:
    found = value if isinstance(value, np.ndarray) else np.array(value, None if isinstance(value, (str, bytes)) else object)
    return TypeError(f"Value '{value}' with dtype {found.dtype} is not a valid JAX array type. Only arrays of numeric types "
                     "are supported by JAX.")


def _is_row(x) -> bool:
    return isinstance(x, (list, tuple))


def _is_element(x) -> bool:
    return not _is_row(x)


def _from_sequence(object, dtype):
    first, depth = object, 0
    while _is_row(first) and first and depth <= 64:
        first, depth = first[0], depth + 1
    if depth > 64:  # as NumPy says it; jaxlib would not take back its count of a recursion that has no end
        raise ValueError("setting an array element with a sequence. The requested array would exceed the maximum number of "
                         "dimension of 64.")
    leaves = tree_leaves(object, is_leaf=_is_element)
    if not leaves:
        return np.array(object, dtypes.default_dtype(float) if dtype is None else dtype)
    kinds = set(map(type, leaves))
    foreign = {kind for kind in kinds if kind not in AVAL_OF and not issubclass(kind, _KNOWN)
               and not hasattr(kind, "__jax_array__")}
    if foreign:
        read = tree_map(lambda leaf: _readable(leaf, dtype) if type(leaf) in foreign else leaf, object, is_leaf=_is_element)
        return _from_sequence(read, dtype)
    if type(None) in kinds:
        raise ValueError("None is not a valid value for jnp.array; got a list that contains None")
    for leaf in leaves if any(issubclass(kind, (str, bytes)) for kind in kinds) else ():
        if isinstance(leaf, (str, bytes)):
            return _parsed(object, leaf, dtype)
    if dtype is None:
        # One element of each class is enough, except for arrays, which have dtypes of their own.
        samples = {kind: leaf for kind, leaf in zip(map(type, leaves), leaves, strict=True)}
        own = [leaf for leaf in leaves if hasattr(leaf, "dtype")] if any(
            hasattr(kind, "dtype") for kind in kinds) else []
        types = {_type_of_element(leaf) for leaf in (*samples.values(), *own)}
        dtype = dtypes.lattice_join(tuple(types))[0]
        if int in kinds and dtypes.kind(dtype) in "iu":
            for leaf in leaves:
                if type(leaf) is int:
                    aval_of(leaf)  # OverflowError for what does not fit
    if any(issubclass(kind, (Tracer, arrays.Array)) or hasattr(kind, "__jax_array__") for kind in kinds):
        parts, outer = _flat_parts(object, dtype)
        return _joined(*parts, outer=outer, dtype=dtype)
    return np.array(object, dtype)


_KNOWN = (Tracer, arrays.Array, np.ndarray, np.generic, int, float, complex, str, bytes, range, type(None))


def _readable(leaf, dtype) -> Any:
    """An object that is neither an array nor a number, as NumPy reads it: a list for a sequence (of arrays), else an array.

    Raises: TypeError if NumPy finds no numbers in it.
    """
    if isinstance(leaf, (list, tuple, deque)):
        return list(leaf)
    found = np.asarray(leaf)
    if found.dtype.kind in "OSUmM":
        if dtype is None or isinstance(dtype, dtypes.ExtendedDType):
            raise _no_numbers(leaf)
        found = np.asarray(leaf, dtype)  # by its __float__ or __int__, for which it has to be asked
    return found


def _type_of_element(leaf) -> tuple[Any, bool]:
    if isinstance(leaf, range):
        leaf = 0 if len(leaf) else 0.0
    aval = shaping.unchecked_aval(leaf)  # an int out of range may fit the dtype that comes out
    return aval.dtype, aval.weak_type


def _flat_parts(object, dtype) -> tuple[list[Any], Ints]:
    """The elements of nested sequences, and the shape that the nesting has."""
    if not isinstance(object, (list, tuple, range)):
        return [object.__jax_array__() if hasattr(object, "__jax_array__") else object], ()
    rows = [_flat_parts(row, dtype) for row in object]
    outer = rows[0][1] if rows else ()
    if any(each != outer for _, each in rows):  # lists beside arrays
        rows = [([_joined(*parts, outer=each, dtype=dtype)] if each else parts, ()) for parts, each in rows]
        outer = ()
    return [part for parts, _ in rows for part in parts], (len(rows), *outer)


@api
def _joined(*parts, outer: Ints, dtype: Any):
    """Arrays of one shape laid out on the axes `outer`."""
    shapes = {aval_of(part).shape for part in parts}
    if len(shapes) > 1:
        raise TypeError(f"jnp.array: the parts of a list have different shapes: {sorted(shapes)}")
    if len(outer) > 1 and len(parts) > _FEW:  # by rows: XLA takes few parts into one loop
        size = len(parts) // outer[0]
        parts = tuple(_row(parts[start:start + size], outer[1:], dtype) for start in range(0, len(parts), size))
        outer, shapes = outer[:1], {aval_of(parts[0]).shape}
    parts = tuple(shaping.convert(part, dtype, False) for part in parts)
    result = shaping.concatenate([shaping.expand_dims(part, (0,)) for part in parts], 0)
    return shaping.reshape(result, outer + shapes.pop())


_FEW = 8


def _row(parts: tuple[Any, ...], outer: Ints, dtype: Any):
    if any(isinstance(part, (Tracer, arrays.Array)) for part in parts):
        return _joined(*parts, outer=outer, dtype=dtype)
    return np.array(parts, dtype).reshape(outer + np.shape(parts[0]))


def _place(object, dtype, copy: bool, device):
    aval = aval_of(0 if dtype is not None and type(object) is int else object)
    weak = dtype is None and aval.weak_type
    target = aval.update(dtype=aval.dtype if dtype is None else dtype, weak_type=weak)
    if isinstance(object, Tracer) or type(object) is ArrayImpl or isinstance(aval.dtype, dtypes.ExtendedDType):
        if target.dtype != dtypes.bool_:
            shaping.warn_of_lost_parts(aval.dtype, target.dtype)
        if copy and (target is aval or isinstance(object, Tracer)):
            object = shaping.copy_p.bind(object) if isinstance(object, Tracer) else copy_array(object)
        object = shaping.convert(object, target.dtype, weak)
        if device is not None:
            return device_put(object, device)
        return placement.on_context(object) if copy else object
    if np.dtype(target.dtype) != aval.dtype or type(object) is int:
        object = np.asarray(object, target.dtype)
    if not is_eager():
        made = shaping.convert_element_type_p.bind(object, new_dtype=target.dtype, weak_type=weak)
        return made if device is None else device_put(made, device)
    if config.debug_nans.value or config.debug_infs.value:
        _finite().check_values("array", [object])
    if device is None:
        return placement.put_new(object, target)
    return placement.put(object, device, copy=True, aval=target)


def copy(a, order=None):
    """A new array of the same values."""
    check_arrays("copy", a)
    return array(a, copy=True, order=order)


def copy_array(x):
    """A copy in fresh memory on the same device."""
    return x.__copy__()


@boundary
def astype(x, dtype, /, *, copy: bool = False, device=None):
    """The values in another dtype. Complex to real takes the real part; float to int truncates.

    None means the default floating dtype.
    """
    check_arrays("astype", x)
    if dtype is None:
        dtype = dtypes.default_dtype(float)
    target = dtypes.check_user_dtype_supported(dtype, "astype")
    if type(x) is ArrayImpl and x.dtype == target and not x.weak_type:
        result = copy_array(x) if copy else x
    else:
        if dtypes.kind(target) not in "cb" and dtypes.kind(aval_of(x).dtype) == "c":
            source.warn("Casting from complex to real dtypes will soon raise a ValueError. Please first use jnp.real or "
                        "jnp.imag to take the real/imaginary component of your input.", DeprecationWarning)
        result = _convert(x, target)
    return result if device is None else device_put(result, device)


@api
def _convert(x, dtype: Any):
    return shaping.convert(as_array(x), dtype, False)


@api
def _bitcast(x, dtype: Any):
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(dtype)
    if x.dtype == dtypes.bool_:
        x = shaping.convert(x, np.uint8)
    elif dtypes.kind(x.dtype) == "c":
        part = dtypes.real_dtype(x.dtype)
        parts = shaping.concatenate([shaping.expand_dims(part_of(x), (x.ndim,)) for part_of in (lax.real, lax.imag)],
                                    x.ndim)
        x, old = shaping.reshape(parts, (*x.shape[:-1], x.shape[-1] * 2) if x.ndim else (2,)), old // 2
        if part == dtype:
            return x
    if dtype == dtypes.bool_:
        return _bitcast(x, np.dtype(np.uint8)) != np.uint8(0)
    if dtypes.kind(dtype) == "c":
        x = _bitcast(x, dtypes.real_dtype(dtype))
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


@boundary
def view(a, dtype=None, type=None):
    """The same bits under another dtype; the last axis shrinks or grows with the element size."""
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported.")
    if dtype is None:
        return a
    target = dtypes.check_user_dtype_supported(dtype, "view")
    old, new = dtypes.itemsize_bits(a.dtype), dtypes.itemsize_bits(target)
    if old != new:
        if not a.shape:
            raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
        if (a.shape[-1] * old) % new:
            raise ValueError("When changing to a larger dtype, its size must be a divisor of the total size in bytes of "
                             "the last axis of the array.")
    if a.dtype == target:
        return a
    if dtypes.bool_ in (a.dtype, target) and old != new:  # booleans are bytes
        if target == dtypes.bool_:
            return shaping.convert(view(a, np.uint8), target, False)
        a = shaping.convert(a, np.uint8, False)
    return _bitcast(a, target)


_DLPACK_PLATFORMS = {1: "cpu", 2: "gpu", 10: "gpu"}  # by the types of devices: the CPU, CUDA, ROCm


def from_dlpack(x, /, *, device=None, copy: bool | None = None):
    """An array over the memory of another library's array, which must not change any more.

    Args:
      device: where the array is put; default: the device that has the memory.
      copy: True for memory of its own; None copies where the memory is not aligned to 64 bytes, does not go by rows, or has
        a dtype that is switched off; False then raises a ValueError (a dtype is converted all the same).
    """
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise TypeError("The array passed to from_dlpack must have __dlpack__ and __dlpack_device__ methods.")
    kind, number = x.__dlpack_device__()
    if kind not in _DLPACK_PLATFORMS:
        raise ValueError(f"from_dlpack: the array lives on a device of DLPack type {kind}; only CPU and CUDA memory can be "
                         "taken over")
    devices = platforms.devices(_DLPACK_PLATFORMS[kind])
    where = owner = next((each for each in devices if kind != 1 and each.local_hardware_id == number), devices[0])
    if device is not None:
        where = placement.as_device(placement.as_target(device))
    if where != owner and copy is False:
        raise ValueError(f"from_dlpack: copy=False, but the array is on {owner}: to have it on {where} requires a copy")
    if where.platform != owner.platform:
        return placement.put(from_dlpack(x, device=owner), where)
    found = xla.from_dlpack(x, where, copy)
    converted = shaping.convert(found, dtypes.canonicalize_dtype(aval_of(found).dtype), False)
    by_rows = placement.layouts_module().is_laid_out(found, None)
    if converted is not found or by_rows and not copy:
        return converted
    if copy is False:
        raise ValueError("from_dlpack: copy=False, but the array does not go by rows in memory, so that it has to be copied")
    return arrays.put_array(np.array(arrays.host_value(found)), where, True, copy=True)


def frombuffer(buffer, dtype=float, count: int = -1, offset: int = 0):
    """A one-dimensional array from an object's bytes."""
    return asarray(np.frombuffer(buffer, dtype=dtypes.check_user_dtype_supported(dtype, "frombuffer"), count=count,
                                 offset=offset))


def fromfile(file, dtype=float, count: int = -1, sep: str = "", offset: int = 0):
    """An array from a binary or text file, read by NumPy."""
    return asarray(np.fromfile(file, dtype=dtypes.check_user_dtype_supported(dtype, "fromfile"), count=count, sep=sep,
                               offset=offset))


def fromstring(string: str, dtype=float, count: int = -1, *, sep: str):
    """An array from numbers in a text."""
    return asarray(np.fromstring(string, dtype=dtypes.check_user_dtype_supported(dtype, "fromstring"), count=count,
                                 sep=sep))


def fromiter(iterable, dtype, count: int = -1):
    """Not available: the number of elements is not known while tracing. Use `array(list(iterable))`."""
    raise NotImplementedError("jnp.fromiter() is not implemented because it may be non-pure and thus unsafe for use "
                              "with JIT and other JAX transformations. Use jnp.asarray(np.fromiter(...)) instead.")


@boundary
def load(file, *args, **kwargs):
    """Arrays from a `.npy` or `.npz` file, read by NumPy."""
    found = np.load(file, *args, **kwargs)
    if isinstance(found, np.ndarray) and found.dtype == np.dtype("V2"):  # NumPy's files have no word for bfloat16
        return asarray(found.view(dtypes.bfloat16))
    # Other types that NumPy's files have no word for come as bytes, in an array of NumPy's.
    return asarray(found) if isinstance(found, np.ndarray) and found.dtype.kind != "V" else found


# --- devices -----------------------------------------------------------------------------------------


def device_put(x, device):
    """An array on a device, committed to it; under a trace, the array itself."""
    device = placement.as_target(device)
    if isinstance(x, Tracer) or not is_eager():
        return placement.laid_out(as_array(x), device) if type(device) is xla.NamedSharding else as_array(x)
    return placement.put(x, device)


# --- from nothing ------------------------------------------------------------------------------------


def shape_of(shape, name: str = "shape") -> Ints:
    """A shape argument, an int or a sequence of them, as a tuple of ints.

    Raises: TypeError for sizes that are negative, not integers or traced; ValueError for more elements than can be
    addressed.
    """
    if not isinstance(shape, (tuple, list)):
        shape = tuple(shape) if getattr(shape, "ndim", 1) and hasattr(shape, "__iter__") else (shape,)
    return shaping.canonical_shape(shape, name)


def _on(result, device, out_sharding):
    return placement.laid_out(result if device is None else placement.put_filled(result, device), out_sharding)


def _dtype_of(dtype, name: str, shape=None):
    try:
        return dtypes.requested_dtype(dtype, name, float)
    except TypeError as error:
        if isinstance(shape, int) and isinstance(dtype, int):
            raise TypeError(f"{error}. The shape is one tuple: {name}(({shape}, {dtype}))") from None
        raise


@api
def _constant(value: int, shape: Ints, dtype: Any, weak: bool):
    if isinstance(dtype, dtypes.ExtendedDType):
        return shaping.full(shape, value, dtype)
    if dtype == dtypes.float0:  # has no device arrays
        return np.zeros(shape, dtype)
    return shaping.broadcast_in_dim(shaping.convert(value, dtype, weak), shape, ())


@boundary
def zeros(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of zeros; floating by default."""
    return _on(_constant(0, shape_of(shape), _dtype_of(dtype, "zeros", shape), False), device, out_sharding)


@boundary
def ones(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of ones; floating by default."""
    return _on(_constant(1, shape_of(shape), _dtype_of(dtype, "ones", shape), False), device, out_sharding)


def empty(shape, dtype=None, *, device=None, out_sharding=None):
    """An array whose values do not matter (zeros)."""
    return zeros(shape, dtype, device=device, out_sharding=out_sharding)


@api
def _full(fill_value, shape: Ints, dtype: Any, weak: bool):
    own = aval_of(fill_value).shape
    if own and shaping.broadcast_shapes(own, shape) != shape:
        raise ValueError(f"Incompatible shapes for broadcasting: fill_value of shape {own} and requested shape {shape}")
    return shaping.broadcast_to(shaping.convert(fill_value, dtype, weak), shape)


def _made_of_shards(device) -> bool:
    """Whether an array is made in its place: such arrays are strongly typed, as in `lax.full`."""
    return device is not None and is_eager()


@boundary
def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None):
    """An array of one value; an array as `fill_value` is broadcast."""
    check_arrays("full", fill_value)
    if dtype is None:
        aval = shaping.unchecked_aval(fill_value)
        dtype, weak = aval.dtype, aval.weak_type and not _made_of_shards(device)
    else:
        dtype, weak = dtypes.check_user_dtype_supported(dtype, "full"), False
    return _on(_filled("full", fill_value, shape_of(shape), dtype, weak), device, out_sharding)


def _filled(name: str, fill_value, shape: Ints, dtype, weak: bool):
    if isinstance(dtype, dtypes.ExtendedDType) and not aval_of(fill_value).shape:
        return shaping.full(shape, fill_value, dtype)
    fill_value = shaping.as_filling(name, fill_value, dtype)
    shaping.warn_of_lost_parts(aval_of(fill_value).dtype, dtype)
    return _full(fill_value, shape, dtype, weak)


def _like(name: str, a, dtype, shape, device) -> tuple[Any, tuple[Ints, Any, bool]]:
    """An array as an example; its shape, dtype and weak type, where the arguments do not say otherwise."""
    a = low(a)
    if type(a) is int:
        a = 0  # an example, whatever its size
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        a = (with_arrays([a]) or [a])[0]
        check_arrays(name, a)
    example = a if hasattr(a, "dtype") else aval_of(a)
    weak = dtype is None and not _made_of_shards(device) and getattr(example, "weak_type", False)
    if dtype is None:
        dtype = dtypes.canonicalize_dtype(example.dtype, allow_extended_dtype=True)
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, name)
    return a, (tuple(example.shape) if shape is None else shape_of(shape), dtype, weak)


@boundary
def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Zeros of the shape and dtype of another array."""
    a, kind = _like("zeros_like", a, dtype, shape, device)
    return _as(a, _constant(0, *kind), device, out_sharding)


@boundary
def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Ones of the shape and dtype of another array."""
    a, kind = _like("ones_like", a, dtype, shape, device)
    return _as(a, _constant(1, *kind), device, out_sharding)


def empty_like(prototype, dtype=None, shape=None, *, device=None):
    """An array of the shape and dtype of another, whose values do not matter (zeros)."""
    return zeros_like(prototype, dtype, shape, device=device)


@boundary
def full_like(a, fill_value, dtype=None, shape=None, *, device=None, out_sharding=None):
    """One value in the shape and dtype of another array."""
    check_arrays("full_like", fill_value)
    a, (shape, dtype, weak) = _like("full_like", a, dtype, shape, device)
    is_scalar = np.ndim(fill_value) == 0
    made = _filled("full_like", fill_value, shape, dtype, weak and is_scalar)
    return _as(a, made, device, out_sharding) if is_scalar else _on(made, device, out_sharding)


def _as(a, result, device, out_sharding):
    result = shaping.varying_as(result, a)
    if device is out_sharding is None:
        return placement.placed_as(result, a)
    return _on(result, device, out_sharding)


# --- ranges ------------------------------------------------------------------------------------------


@boundary
def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None):
    """Evenly spaced values in [start, stop): `arange(stop)`, `arange(start, stop)`, `arange(start, stop, step)`.

    The bounds are concrete scalars: they decide the shape. Without a dtype it is what they promote to.

    >>> from jaxlite import numpy as jnp
    >>> jnp.arange(1, 8, 3)
    Array([1, 4, 7], dtype=int32)
    """
    if start is None:
        raise TypeError("jnp.arange: start must be a number, got None")
    if any(map(is_symbolic, (start, stop, step))):
        return _on(_symbolic_range(start, stop, step, dtype), device, out_sharding)
    given = [value for value in (start, stop, step) if value is not None]
    check_arrays("arange", *given)
    given = [_bound(value) for value in given]
    target = dtypes.result_type(*given) if dtype is None else dtypes.check_user_dtype_supported(dtype, "arange")
    if dtypes.kind(target) not in "iufc":
        raise TypeError(f"jnp.arange does not accept dtype {target}. Accepted dtypes are subtypes of number.")
    values = [value.item() if hasattr(value, "item") else value for value in given]
    low = values[0] if stop is not None else 0
    high = values[1] if stop is not None else values[0]
    jump = values[-1] if step is not None else 1
    if jump == 0:
        raise ZeroDivisionError("jnp.arange: step is zero")
    size = shape_of(builtins.max(0, math.ceil((high - low) / jump)))
    if step is None and (low == 0 or not size[0]):
        return _on(_iota(target, size[0]), device, out_sharding)
    first = np.asarray(scalar(low, target))
    return _on(_ramp(first, size[0]) if step is None else _spaced(first, np.asarray(scalar(jump, target)), size[0]),
               device, out_sharding)


def _symbolic_range(start, stop, step, dtype):
    low, high = (0, start) if stop is None else (start, stop)
    by = 1 if step is None else step
    for name, value in (("start", low), ("stop", high), ("step", by)):
        if not is_symbolic(value) and not hasattr(value, "__index__"):
            raise ValueError(f"jnp.arange: with symbolic dimensions, {name} must be a dimension or an integer, got {value}")
    target = dtypes.requested_dtype(dtype, "arange", int)
    length, stride = (high - low, by) if by > 0 else (low - high, -by)
    steps = shaping.iota(target, (largest(length, 0) + (stride - 1)) // stride)
    if not (isinstance(by, int) and by == 1):
        steps = steps * shaping.broadcast_in_dim(asarray(by, dtype=target), steps.shape, ())
    if not (isinstance(low, int) and low == 0):
        steps = steps + shaping.broadcast_in_dim(asarray(low, dtype=target), steps.shape, ())
    return steps


def _bound(value):
    if type(value) is int or type(value) is float:
        return value
    value = known_value(value, "the arguments of jnp.arange decide the shape of its result, so they must be concrete; "
                               "mark them static, or use a fixed size with lax.iota")
    if np.shape(value):
        raise ValueError(f"jaxlite.numpy.arange: arguments must be scalars; got an array of shape {np.shape(value)}")
    if dtypes.kind(aval_of(value).dtype) == "c":
        raise ValueError("jnp.arange does not take complex arguments")
    return value if isinstance(value, bool) or hasattr(value, "item") else \
        int(value) if isinstance(value, int) else float(value)


@api
def _iota(dtype: Any, size: int):
    return shaping.iota(dtype, size)


@api
def _ramp(start, size: int):
    return start + shaping.iota(start.dtype, size)


@api
def _spaced(start, step, size: int):
    return start + step * shaping.iota(start.dtype, size)
