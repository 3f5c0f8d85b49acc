"""Abstract values: what a traced program knows of a value: shape, dtype, weak type; never its data.

Inside `shard_map` a type also says along which axes of the mesh the value may differ from device to device: `vma`, the
"varying manual axes", printed as `f32[2]{V:x}`. Elsewhere it is empty, and costs nothing.

Avals are interned: two equal ones are one object, so comparing is `is` and a dict key costs one hash of
an address.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.symbolic import Dim
from lowering import xla

_nowhere: frozenset[Any] = frozenset()


class AbstractValue:
    """Base of all abstract values."""

    __slots__ = ("__weakref__",)
    vma: Any = _nowhere


class ShapedArray(AbstractValue):
    """An array's shape and dtype. `weak_type` marks values made from Python scalars, which yield in promotion.

    Args to the constructor: `shape` a tuple of ints, `dtype` a NumPy dtype or an extended dtype; `sharding` one that says
    nothing of the array, as `sharding` of another aval; `vma` the names of manual mesh axes along which it varies.
    """

    __slots__ = ("shape", "dtype", "weak_type", "vma")
    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    vma: frozenset[Any]

    def __new__(cls, shape: Any, dtype: Any, weak_type: bool = False, *, sharding: Any = None,
                vma: Any = None) -> ShapedArray:
        if sharding is not None:
            _check_says_nothing(sharding)
        if vma:
            return varying(cls(shape, dtype, weak_type), frozenset(vma))
        try:
            return _interned(shape, dtype, weak_type)
        except TypeError:  # a list as shape, a string as dtype: the slow way in
            pass
        if not isinstance(dtype, dtypes.ExtendedDType):
            dtype = np.dtype(dtype)
        return _interned(tuple(size if type(size) is Dim else int(size) for size in shape), dtype, bool(weak_type))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    def update(self, shape: Any = None, dtype: Any = None, weak_type: bool | None = None, *,
               sharding: Any = None, vma: Any = None) -> ShapedArray:
        """A copy with some fields replaced."""
        if sharding is not None:
            _check_says_nothing(sharding)
        return ShapedArray(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            vma=self.vma if vma is None else vma,
        )

    def strip_weak_type(self) -> ShapedArray:
        return shaped_like(self, self.shape, self.dtype, False) if self.weak_type else self

    def to_tangent_aval(self) -> ShapedArray:
        """The type of the tangents of values of this type: its own for inexact dtypes, float0 for the rest."""
        if dtypes.kind(self.dtype) in "fc":
            return self.strip_weak_type()
        return shaped_like(self, self.shape, dtypes.float0, False)

    def str_short(self, short_dtypes: bool = True) -> str:
        """`f32[2,3]`, as jaxprs print it, or `float32[2,3]`."""
        name = dtypes.short_name(self.dtype) if short_dtypes else self.dtype.name
        return f"{name}[{','.join(map(str, self.shape))}]{_vma_text(self.vma) if self.vma else ''}"

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short(short_dtypes=False)}{weak})"

    def __str__(self) -> str:
        return ("~" if self.weak_type else "") + self.str_short()

    def __reduce__(self) -> Any:
        return _restore, (self.shape, self.dtype, self.weak_type, self.vma)


def _restore(shape: Any, dtype: Any, weak_type: Any, vma: Any) -> ShapedArray:
    return ShapedArray(shape, dtype, weak_type, vma=vma)


def _vma_text(vma: frozenset[Any]) -> str:
    names = sorted(map(str, vma))
    return f"{{V:{names[0] if len(names) == 1 else '(' + ','.join(names) + ')'}}}"


def _check_says_nothing(sharding: Any) -> None:
    mesh = getattr(sharding, "mesh", None)
    if any(getattr(kind, "name", "") == "Explicit" for kind in getattr(mesh, "axis_types", None) or ()):
        raise NotImplementedError(f"a type with the sharding {sharding}: types do not say how arrays lie on explicit axes")


def _make_shaped_array(shape: tuple[int, ...], dtype: Any, weak_type: bool, vma: frozenset[Any] = _nowhere) -> ShapedArray:
    if type(shape) is not tuple or not isinstance(dtype, (np.dtype, dtypes.ExtendedDType)):
        raise TypeError
    if type(weak_type) is not bool or any(type(size) is not int and type(size) is not Dim for size in shape):  # type: ignore[comparison-overlap]
        raise TypeError
    aval = object.__new__(ShapedArray)
    aval.shape, aval.dtype, aval.weak_type, aval.vma = shape, dtype, weak_type, vma
    return aval


_interned = xla.weak_value_interner(_make_shaped_array)
shaped_array = _interned  # the constructor without its checks, for hot paths: exact types only


def shaped_like(aval: Any, shape: tuple[int, ...], dtype: Any, weak_type: bool) -> ShapedArray:
    """`shaped_array` of what varies along the axes along which values of another type do."""
    return _interned(shape, dtype, weak_type, aval.vma) if aval.vma else _interned(shape, dtype, weak_type)


def varying(aval: Any, vma: frozenset[Any]) -> Any:
    """A type that varies along these manual axes, and no others."""
    if aval.vma == vma:
        return aval
    if type(aval) is AbstractRef:
        return aval.update(inner_aval=varying(aval.inner_aval, vma))
    if type(aval) is not ShapedArray:
        return aval
    return _interned(aval.shape, aval.dtype, aval.weak_type, vma) if vma else _interned(
        aval.shape, aval.dtype, aval.weak_type)


class AbstractToken(AbstractValue):
    """The type of a token: a value without data that orders side effects."""

    __slots__ = ()

    def str_short(self, short_dtypes: bool = True) -> str:
        return "Token"

    __str__ = __repr__ = str_short

    def strip_weak_type(self) -> AbstractToken:
        return self


abstract_token = AbstractToken()


class AbstractRef(AbstractValue):
    """The type of a mutable array: that of the arrays it holds, and the memory it lives in where that is not the usual one.

    Equal ones are one object, as with `ShapedArray`. Args: `inner_aval` the type of its value; `memory_space` anything
    hashable, printed as `Ref<vmem>{f32[8]}`; `kind` a word for what it is used for.
    """

    __slots__ = ("inner_aval", "memory_space", "kind")
    inner_aval: Any
    memory_space: Any
    kind: Any
    weak_type = False

    def __new__(cls, inner_aval: Any, memory_space: Any = None, kind: Any = None) -> AbstractRef:
        return _interned_refs(inner_aval, memory_space, kind)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.inner_aval.shape)

    @property
    def size(self) -> int:
        return self.inner_aval.size

    @property
    def vma(self) -> frozenset[Any]:  # type: ignore[override]
        return self.inner_aval.vma

    def update(self, inner_aval: Any = None, memory_space: Any = None, kind: Any = None, **inner: Any) -> AbstractRef:
        """A copy with some fields replaced; `shape` and `dtype` are those of the value."""
        value = self.inner_aval if inner_aval is None else inner_aval
        return AbstractRef(value.update(**inner) if inner else value, memory_space or self.memory_space, kind or self.kind)

    def strip_weak_type(self) -> AbstractRef:
        return self

    def str_short(self, short_dtypes: bool = True) -> str:
        space = "" if self.memory_space is None else f"<{self.memory_space}>"
        return f"Ref{space}{{{self.inner_aval.str_short(short_dtypes)}}}"

    def __repr__(self) -> str:
        return self.str_short(short_dtypes=False)

    def __str__(self) -> str:
        return self.str_short()

    def __reduce__(self) -> Any:
        return AbstractRef, (self.inner_aval, self.memory_space, self.kind)


def _make_abstract_ref(inner_aval: Any, memory_space: Any, kind: Any) -> AbstractRef:
    aval = object.__new__(AbstractRef)
    aval.inner_aval, aval.memory_space, aval.kind = inner_aval.strip_weak_type(), memory_space, kind
    return aval


_interned_refs = xla.weak_value_interner(_make_abstract_ref)


def with_axis(aval: Any, dim: int, size: int) -> Any:
    """The type of a batch of values, or of a mutable array that holds one, with the batched axis at `dim`."""
    shape = (*aval.shape[:dim], size, *aval.shape[dim:])
    return aval.update(shape=shape) if type(aval) is AbstractRef else shaped_like(aval, shape, aval.dtype, aval.weak_type)


def without_axis(aval: Any, dim: int) -> Any:
    """The type of one value of a batch whose axis is at `dim`."""
    shape = aval.shape[:dim] + aval.shape[dim + 1:]
    return aval.update(shape=shape) if type(aval) is AbstractRef else shaped_like(aval, shape, aval.dtype, aval.weak_type)


def typematch(a: Any, b: Any) -> bool:
    """Whether two avals are equal but for weak type."""
    return a is b or (
        isinstance(a, ShapedArray) and isinstance(b, ShapedArray) and a.shape == b.shape and a.dtype == b.dtype
        and a.vma == b.vma
    )
