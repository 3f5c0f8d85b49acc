"""`ShapeDtypeStruct`: the type of an array as users write it, without data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import AbstractRef, ManualAxisType, ShapedArray, space_of_kind
from jaxlite.core.lazy import loader
from jaxlite.core.symbolic import as_size
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of, is_array_like
from lowering import xla

_state = loader("jaxlite.state")


class ShapeDtypeStruct:
    """A shape and a dtype, in place of an array: `eval_shape`, `jit(f).lower`, ...

    Args:
      shape: a sequence of ints.
      dtype: anything that names a dtype; kept as it is, so 64-bit types stay.
      sharding: where the array lives: None, a sharding, a `PartitionSpec` over the mesh of `set_mesh`, or a `Format`, which
        says the order of its elements in memory too.
      weak_type: whether the dtype yields in promotion, as that of a Python scalar does.
      manual_axis_type: in `shard_map`, along which mesh axes the array varies; for results of Pallas kernels, by default those
        along which the operands do.
      is_ref: whether it is the type of a `Ref`, whose value is such an array.
    Raises: ValueError without a dtype, TypeError for a dtype that does not exist.

    >>> import jaxlite
    >>> jaxlite.ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("shape", "dtype", "sharding", "weak_type", "manual_axis_type", "is_ref", "_layout")
    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    weak_type: bool
    manual_axis_type: ManualAxisType | None
    is_ref: bool
    _layout: Any

    def __init__(self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False,
                 manual_axis_type: ManualAxisType | None = None, is_ref: bool = False):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        dtype = dtype if isinstance(dtype, dtypes.ExtendedDType) else np.dtype(dtype)
        shape, layout = tuple(shape), None
        if sharding is not None:
            sharding, layout = resolve_place(sharding, shape)
        if manual_axis_type is not None and type(manual_axis_type) is not ManualAxisType:
            raise TypeError("`manual_axis_type` argument passed to ShapeDtypeStruct should be of type "
                            f"`jax.sharding.ManualAxisType`. Got type {type(manual_axis_type)}")
        for name, value in zip(ShapeDtypeStruct.__slots__, (
                shape, dtype, sharding, bool(weak_type), manual_axis_type, bool(is_ref), layout)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(ShapeDtypeStruct, name):  # of a subclass
            return object.__setattr__(self, name, value)
        raise RuntimeError(f"Cannot reassign attributes ({name}) of immutable ShapeDtypeStruct objects; "
                           "use .update to make a changed copy")

    def __delattr__(self, name: str) -> None:
        if not hasattr(ShapeDtypeStruct, name):
            return object.__delattr__(self, name)
        self.__setattr__(name, None)

    def __reduce__(self) -> Any:
        return _unpickled, self._fields()

    def __setstate__(self, state: Any) -> None:
        """Fill what a pickle of JAX makes: it holds slots by name."""
        slots = state[1]
        ShapeDtypeStruct.__init__(self, slots["shape"], slots["dtype"], sharding=slots.get("_sharding"),
                                  weak_type=slots.get("weak_type", False), is_ref=slots.get("is_ref", False))

    @staticmethod
    def like(x: Any) -> ShapeDtypeStruct:
        """The type of an array, a scalar, or another description, which keeps its sharding."""
        if isinstance(x, ShapeDtypeStruct):
            return x
        aval = aval_of(x)
        committed = not isinstance(x, Tracer) and getattr(x, "committed", False)
        sharding = getattr(x, "format", x.sharding) if committed else None
        return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)

    @property
    def format(self) -> Any:
        """Layout and sharding together: a `Format`."""
        return make_format(self._layout, self.sharding)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with some fields replaced."""
        names = ShapeDtypeStruct.__slots__[:-1]  # the layout is part of the place
        fields = {name: getattr(self, name) for name in names} | {"sharding": self._place()}
        unknown = sorted(changes.keys() - fields.keys())
        if unknown:
            raise ValueError(f"ShapeDtypeStruct has no field {', '.join(unknown)}; it has {', '.join(fields)}")
        return ShapeDtypeStruct(**(fields | changes))

    def __repr__(self) -> str:
        sharding = "" if self.sharding is None else f", sharding={self.sharding}"
        sharding += "" if self._layout is None else f", format={self._layout}"
        weak = ", weak_type=True" if self.weak_type else ""
        manual = "" if self.manual_axis_type is None else f", manual_axis_type={self.manual_axis_type}"
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak}{manual}{ref})"

    def _fields(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self._place(), self.weak_type, self.manual_axis_type, self.is_ref

    def _place(self) -> Any:
        return self.sharding if self._layout is None else self.format

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())


def _as_given(place: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    return place, None


# From what a user gave as the place of an array of a shape, its sharding and its layout in memory; and both together.
# `jaxlite.devices.placement` knows of places.
resolve_place: Callable[[Any, tuple[int, ...]], tuple[Any, Any]] = _as_given
make_format: Callable[[Any, Any], Any] = lambda layout, sharding: (layout, sharding)


def _unpickled(shape: Any, dtype: Any, sharding: Any, weak_type: bool, manual: Any = None,
               is_ref: bool = False) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=weak_type, manual_axis_type=manual, is_ref=is_ref)


def abstract(value: Any) -> Any:
    """The abstract value of an array, a scalar, or of anything with a shape and a dtype; 64 bits are 32 with x64 off."""
    if is_array_like(value) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return aval_of(value)
    dtype = value.dtype
    if not isinstance(dtype, dtypes.ExtendedDType):
        dtype = np.dtype(dtype)
        if isinstance(value, ShapeDtypeStruct) and xla.VERSION >= (0, 12):  # as JAX of the same jaxlib
            dtype = dtypes.check_user_dtype_supported(dtype, "ShapeDtypeStruct")
        else:
            dtype = dtypes.canonicalize_dtype(dtype)
    shape = tuple(map(as_size, value.shape))
    if any(isinstance(size, int) and size < 0 for size in shape):
        raise TypeError(f"shape {shape} has a negative size")
    sharding = getattr(value, "sharding", None)
    aval = ShapedArray(shape, dtype, bool(getattr(value, "weak_type", False)),
                       sharding=sharding if type(sharding) is xla.NamedSharding else None,
                       vma=getattr(getattr(value, "manual_axis_type", None), "varying", None),
                       memory_space=space_of_kind(getattr(sharding, "memory_kind", None)))
    if not getattr(value, "is_ref", False):
        return aval
    _state()  # its operations
    return AbstractRef(aval)


def typeof(x: Any) -> Any:
    """The type of an array, tracer, scalar or `ShapeDtypeStruct`: its shape, dtype and weak type.

    >>> import jaxlite, numpy as np
    >>> jaxlite.typeof(np.zeros((3, 2)))
    ShapedArray(float32[3,2])

    Raises: TypeError if the object is not a value."""
    return abstract(x) if isinstance(x, ShapeDtypeStruct) else aval_of(x)
