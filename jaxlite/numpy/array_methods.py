"""Operators and methods of arrays: functions of this API, added to concrete arrays and to tracers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.aval import AbstractRef
from jaxlite.core.filtering import boundary, hide_own_frames
from jaxlite.core.lazy import loader
from jaxlite.core.tracing import Tracer, ref_methods, state
from jaxlite.core.values import AVAL_OF, ArrayImpl
from jaxlite.lax import shaping
from jaxlite.numpy import (
    arithmetic,
    choosing,
    creation,
    indexing,
    linear,
    manipulation,
    reductions,
    searching,
    sorting,
    ufuncs,
)  # fmt: skip
from jaxlite.numpy.array_at import at_property
from jaxlite.numpy.ufunc_object import ufunc
from jaxlite.traces.eager import eager_trace

# --- operators ---------------------------------------------------------------------------------------


_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "divmod": "divmod()", "pow": "**",
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def _operand(other, name: str, reflected: bool):
    """An operand of a type that is not ours: as an array or scalar, or NotImplemented to give it its own chance.

    Lists and tuples are not operands, but subclasses of them may have the reflected operator.
    Raises: TypeError for lists and tuples without it, which would compare as unequal otherwise.
    """
    if hasattr(other, "__jax_array__"):
        return other.__jax_array__()
    if isinstance(other, (np.ndarray, np.generic, int, float, complex)):
        return other
    if isinstance(other, (list, tuple)):
        if _reflects(type(other), name):
            return NotImplemented
        kinds = "'ArrayImpl' and " + repr(type(other).__name__)
        if reflected:
            kinds = repr(type(other).__name__) + " and 'ArrayImpl'"
        raise TypeError(f"unsupported operand type(s) for {_SYMBOLS[name]}: {kinds}. "
                        "Convert lists and tuples with jnp.array first.")
    return NotImplemented


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _reflects(kind: type, name: str) -> bool:
    """Whether a class of sequences has an operator of its own for when it stands on the other side."""
    base: Any = list if issubclass(kind, list) else tuple
    method = f"__{_MIRRORED.get(name, 'r' + name)}__"
    return getattr(kind, method, None) is not getattr(base, method, None)


def _operator(name: str, function: Callable, reflected: bool = False) -> Callable:
    accepted = AVAL_OF
    if isinstance(function, ufunc):
        function = function.call

    def method(self, other):
        if not isinstance(other, Tracer) and type(other) not in accepted:
            other = _operand(other, name, reflected)
            if other is NotImplemented:
                return other
        try:
            return function(other, self) if reflected else function(self, other)
        except Exception as error:
            hide_own_frames(error)
            raise

    return method


_BINARY = {
    "add": arithmetic.add, "sub": arithmetic.subtract, "mul": arithmetic.multiply, "truediv": arithmetic.true_divide,
    "floordiv": arithmetic.floor_divide, "mod": arithmetic.remainder, "divmod": arithmetic.divmod,
    "pow": arithmetic.power, "matmul": linear.matmul, "and": arithmetic.bitwise_and, "or": arithmetic.bitwise_or,
    "xor": arithmetic.bitwise_xor, "lshift": arithmetic.left_shift, "rshift": arithmetic.right_shift,
}  # fmt: skip
_COMPARISONS = {
    "eq": arithmetic.equal, "ne": arithmetic.not_equal, "lt": arithmetic.less, "le": arithmetic.less_equal,
    "gt": arithmetic.greater, "ge": arithmetic.greater_equal,
}  # fmt: skip
_UNARY = {"neg": arithmetic.negative, "pos": arithmetic.positive, "abs": arithmetic.absolute,
          "invert": arithmetic.bitwise_not}


# --- methods whose signature differs from the function's ---------------------------------------------


@boundary
def _reshape(self, *shape, order: str = "C", copy: bool | None = None, out_sharding=None):
    """The same elements under another shape; one size may be -1."""
    if type(self) is not ArrayImpl and type(self.aval) is AbstractRef:
        return ref_methods.reshape(self, shape)
    return manipulation.reshape(self, shape[0] if len(shape) == 1 else shape, order=order, copy=copy,
                               out_sharding=out_sharding)


def _transpose(self, *axes):
    """Reorder the axes; reverse them without arguments."""
    if not axes:
        return self if len(self.shape) < 2 else manipulation.transpose(self)
    return manipulation.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


@boundary
def _astype(self, dtype, copy: bool = False, device=None):
    """The values in another dtype."""
    return creation.astype(self, dtype, copy=copy, device=device)


def _flatten(self, order: str = "C", *, out_sharding=None):
    """All elements in one axis."""
    return manipulation.ravel(self, order, out_sharding=out_sharding)


def _compress(self, condition, axis: int | None = None, *, out: None = None, size: int | None = None, fill_value=0):
    """The slices of an axis at which a condition holds."""
    return choosing.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


@boundary
def _view(self, dtype=None, type=None):
    """The same bits under another dtype."""
    return creation.view(self, dtype, type)


def _copy(self, order=None):
    """A new array of the same values."""
    return creation.copy(self)


def _function(function: Callable) -> Callable:
    if getattr(function, "is_boundary", False):
        return function

    @boundary
    def method(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = function.__name__
    method.__doc__ = function.__doc__
    method.__wrapped__ = function  # type: ignore[attr-defined]  # whose parameters help and notebooks show
    return method


_METHODS: dict[str, Callable] = {
    "reshape": _reshape, "transpose": _transpose, "astype": _astype, "flatten": _flatten, "compress": _compress,
    "view": _view, "copy": _copy, "ravel": manipulation.ravel,
    **{name: _function(getattr(module, name)) for module, names in (
        (reductions, "all any sum prod max min mean var std ptp cumsum cumprod"),
        (searching, "argmax argmin nonzero searchsorted"),
        (sorting, "sort argsort argpartition"),
        (manipulation, "repeat squeeze swapaxes diagonal"),
        (choosing, "choose"),
        (linear, "dot trace"),
        (indexing, "take"),
        (ufuncs, "clip round conj conjugate"),
    ) for name in names.split()},
}  # fmt: skip


_SMALL_ROW = 1 << 14  # bytes


@boundary
def _iterate(self):
    if not self.shape:
        raise TypeError("iteration over a 0-d array")
    return _rows(self) if state.trace is eager_trace else iter(shaping.unstack(self))


def _rows(x):
    """The rows of an array or of keys outside of a trace, when they are asked for. Of many, a hundred small ones come from one
    program."""
    size = x.shape[0]
    try:
        if len(x.sharding.device_set) > 1 and x.is_fully_addressable and not x.is_fully_replicated:
            yield from _rows_on_host(x)
        elif size <= 32:
            yield from shaping.unstack(x)
        elif len(x.sharding.device_set) > 1 or x.nbytes > size * _SMALL_ROW:
            yield from (x[index] for index in range(size))
        else:
            for start in range(0, size, 100):
                yield from shaping.unstack(x[start:start + 100])
    except Exception as error:
        hide_own_frames(error)
        raise


def _rows_on_host(x):
    """The rows of what is cut between devices, each on one device: along explicit axes no program could give them."""
    if isinstance(x.dtype, dtypes.ExtendedDType):
        return map(x.dtype.wrap, _rows_on_host(x._base_array))
    return map(arrays.make_array, arrays.host_value(x))


def _contains(self, item):
    if len(self.shape) != 1:
        raise ValueError(f"Array.__contains__: search array must be one-dimensional, got arr.shape={self.shape}.")
    if isinstance(item, (list, tuple)):
        raise TypeError(f"Array.__contains__ requires ndarray or scalar arguments, got {type(item)} at position 0.")
    if np.shape(item):
        raise ValueError(f"Array.__contains__: query value must be a scalar, got query.shape={np.shape(item)}")
    return arithmetic.equal(self, item).any()


def _array_module(self, types):
    import jaxlite.numpy

    return jaxlite.numpy


def _namespace(self, *, api_version: str | None = None):
    from jaxlite.numpy import array_api

    newest = array_api.__array_api_version__
    if api_version is not None and not (api_version in ("2021.12", "2022.12", "2023.12", "2024.12") or api_version == newest):
        raise ValueError(f"api_version={api_version!r} is not available; available are {newest} and before")
    return _array_module(self, ())


def _numpy_round(self, ndigits: int | None = None):
    result = ufuncs.round(self, ndigits or 0)
    return creation.astype(result, int) if ndigits is None else result  # Python's round gives an int then


def _to_device(self, device, *, stream=None) -> Any:
    """A copy on another device, or with another sharding or format."""
    return _devices().device_put(self, device)


_devices = loader("jaxlite.devices.api")  # imports functions of arrays


def attach(cls) -> None:
    """Give a class of arrays its operators and methods."""
    for name, function in _BINARY.items():
        setattr(cls, f"__{name}__", _operator(name, function))
        setattr(cls, f"__r{name}__", _operator(name, function, reflected=True))
    for name, function in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _operator(name, function))
    for name, function in _UNARY.items():
        setattr(cls, f"__{name}__", getattr(function, "call", function))
    for name, function in _METHODS.items():
        setattr(cls, name, function)
    cls.__getitem__ = indexing.getitem
    cls.__iter__ = _iterate
    cls.__contains__ = _contains
    cls.__round__ = _numpy_round
    cls.__array_module__ = _array_module
    cls.__array_namespace__ = _namespace
    cls.to_device = _to_device
    cls.byteswap = _byteswap
    cls.at = property(at_property, doc="Functional updates: x.at[index].set(value) and the like.")
    cls.T = property(_transpose, doc="The array with its axes reversed.")
    cls.mT = property(lambda self: manipulation.matrix_transpose(self), doc="The last two axes exchanged.")
    cls.real = property(ufuncs.real, doc="The real part.")
    cls.imag = property(ufuncs.imag, doc="The imaginary part.")
    cls.flat = property(_no_flat)


def _no_flat(self):
    raise NotImplementedError("JAX Arrays do not implement the arr.flat property: consider arr.flatten() instead.")


def _byteswap(self):
    """The bytes of each element in reverse order."""
    itemsize = self.dtype.itemsize
    if itemsize == 1:
        return self
    bytes_of = creation.view(manipulation.reshape(self, (*self.shape, 1)), np.uint8)
    part = itemsize // 2 if self.dtype.kind == "c" else itemsize  # the parts of complex numbers stay in order
    parts = manipulation.flip(manipulation.reshape(bytes_of, (*self.shape, itemsize // part, part)), -1)
    swapped = creation.view(manipulation.reshape(parts, (*self.shape, itemsize)), self.dtype)
    return manipulation.reshape(swapped, self.shape)


def _attach_to_base() -> None:
    """The methods as attributes of the public class, `jaxlite.Array.sum`; arrays have their own, which are faster."""
    for name, function in _METHODS.items():
        setattr(arrays.Array, name, function)
    operators = [f"__{name}__" for name in (*_BINARY, *(f"r{name}" for name in _BINARY), *_UNARY, "getitem", "contains")]
    for name in (*dir(ArrayImpl), *operators):
        if name in operators or name[0] != "_" and name not in vars(arrays.Array):
            setattr(arrays.Array, name, getattr(ArrayImpl, name))


def attach_all() -> None:
    """Attach to concrete arrays and to tracers."""
    attach(ArrayImpl)
    attach(Tracer)
    _attach_to_base()
