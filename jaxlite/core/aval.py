"""Abstract values: the type of a value in a traced program: shape, dtype, weak type; no data.

Inside `shard_map` a type also has the mesh axes along which the value may differ between devices: `vma`, the "varying
manual axes", printed as `f32[2]{V:x}`. Elsewhere it is empty and costs nothing.

Avals are interned: equal avals are one object, so a comparison is `is`, and the hash of a dict key is that of an address.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from jaxlite.core import config, dtypes
from jaxlite.core.symbolic import Dim
from lowering import xla

Ints = tuple[int, ...]  # a shape, axes, places in a list

_nowhere: frozenset[Any] = frozenset()


class UnreducedKind(enum.Enum):
    """How the parts of an unreduced value become the value: it is their sum, their maximum or their minimum."""

    sum = 1
    max = 2
    min = 3


def kind_of_parts(unreduced: frozenset[Any], kind: UnreducedKind | None) -> UnreducedKind | None:
    """The kind of what is unreduced along some axes: a sum unless another one is given; None without axes."""
    if kind is None:
        return UnreducedKind.sum if unreduced else None
    if type(kind) is not UnreducedKind:
        raise TypeError(f"Expected unreduced_kind to be of type `jax.sharding.UnreducedKind` but got {type(kind)}")
    if not unreduced:
        raise ValueError("`unreduced_kind` should be `None` when `unreduced` is an empty set. Got "
                         f"unreduced_kind={kind!r} and {unreduced=}")
    return kind


def require_sum(kind: UnreducedKind | None) -> None:
    """Raises ValueError for parts that are not those of a sum."""
    if kind is not None and kind is not UnreducedKind.sum:
        raise ValueError(f"Expected unreduced_kind=UnreducedKind.sum but got {kind}")


class ManualAxisType:
    """The part of a type about the manual mesh axes of a `shard_map`.

    Args:
      varying: the axes along which values may differ from device to device.
      unreduced: those along which they are still to be summed.
      reduced: those along which their cotangents will be.
      unreduced_kind: an `UnreducedKind`, for maxima or minima in place of sums.
    Raises: ValueError for an axis that varies and is one of the others.

    >>> ManualAxisType(varying={"x"}).varying
    frozenset({'x'})
    """

    __slots__ = ("varying", "unreduced", "reduced", "unreduced_kind")
    varying: frozenset[Any]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]
    unreduced_kind: UnreducedKind | None

    def __new__(cls, *, varying: Any = _nowhere, unreduced: Any = _nowhere, reduced: Any = _nowhere,
                unreduced_kind: UnreducedKind | None = None) -> ManualAxisType:
        self = object.__new__(cls)
        for name, axes in zip(self.__slots__, (varying, unreduced, reduced), strict=False):
            if not isinstance(axes, (set, frozenset)):
                raise TypeError(f"ManualAxisType: {name} must be a set of names of axes, got {axes!r}")
            object.__setattr__(self, name, frozenset(axes))
        for name in ("unreduced", "reduced"):
            if self.varying & getattr(self, name):
                raise ValueError(f"varying and {name} cannot have common mesh axes. Got varying={set(varying)} and "
                                 f"{name}={set(getattr(self, name))}")

        object.__setattr__(self, "unreduced_kind", kind_of_parts(self.unreduced, unreduced_kind))
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def _fields(self) -> tuple[Any, ...]:
        return self.varying, self.unreduced, self.reduced, self.unreduced_kind

    @property
    def vur(self) -> frozenset[Any]:
        """All axes that it names."""
        return self.varying | self.unreduced | self.reduced

    @property
    def empty(self) -> bool:
        """Whether it names no axis."""
        return not self.vur

    def update(self, **changes: Any) -> ManualAxisType:
        """A copy with some of the sets replaced."""
        own = dict(zip(self.__slots__, self._fields(), strict=True))
        if not changes.get("unreduced", self.unreduced):
            own["unreduced_kind"] = None
        return ManualAxisType(**own | changes)

    def to_ct_mat(self) -> ManualAxisType:
        """The type of cotangents: unreduced where this one is reduced, and vice versa."""
        require_sum(self.unreduced_kind)
        return ManualAxisType(varying=self.varying, unreduced=self.reduced, reduced=self.unreduced)

    def __eq__(self, other: Any) -> bool:
        return type(other) is ManualAxisType and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        kind = f", unreduced_kind={self.unreduced_kind}" if xla.VERSION >= (0, 12) else ""  # as JAX of the same jaxlib
        return f"ManualAxisType(varying={self.varying}, unreduced={self.unreduced}, reduced={self.reduced}{kind})"

    def __reduce__(self) -> Any:
        return _manual_axis_type, self._fields()


def _manual_axis_type(varying: Any, unreduced: Any, reduced: Any, kind: UnreducedKind | None = None) -> ManualAxisType:
    return ManualAxisType(varying=varying, unreduced=unreduced, reduced=reduced, unreduced_kind=kind)


class AbstractValue:
    """Base of all abstract values."""

    __slots__ = ("__weakref__",)
    vma: Any = _nowhere
    is_high = has_qdd = False  # whether its values are not arrays but made of them, and whether they change (`core/high.py`)

    def str_short(self, short_dtypes: bool = False, **options: Any) -> str:
        """The type as messages print it."""
        return str(self)

    def lo_ty(self) -> list[Any]:
        """The types of the arrays that a value consists of: an array is its own."""
        return [self]

    def lower_val(self, value: Any) -> list[Any]:
        """The arrays that a value consists of."""
        return [value]

    def raise_val(self, value: Any) -> Any:
        """The value of arrays."""
        return value


class _HighTypes:
    """Whether there are any high types yet: what looks for their values asks this first."""

    exist = False


high_types = _HighTypes()


class MemorySpace(enum.Enum):
    """A kind of memory, whatever its name is on the platform: part of types, a target of `device_put`; `jax.memory.Space`."""

    Device, Host, Any = range(1, 4)

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"


class _Spaces:
    """Whether values of any type are in another memory than the device's: what looks at that asks this first."""

    exist = False


spaces = _Spaces()
_DEVICE = MemorySpace.Device


class ShapedArray(AbstractValue):
    """An array's shape and dtype. `weak_type` marks values made from Python scalars, which yield in promotion.

    `layout` says how the array is on the explicit axes of a mesh: a `NamedSharding` over the mesh without its devices, with
    an entry for each axis. Most types have none: such an array is on no mesh with explicit axes, and goes with those that are.

    Args to the constructor: `shape` a tuple of ints, `dtype` a NumPy dtype or an extended dtype; `sharding` how the array is
    cut: of that, the type has what is said of explicit axes; `vma` the names of manual mesh axes along which it varies;
    `memory_space` the kind of memory that it is in; `layout` nothing but `Layout.AUTO`.
    """

    __slots__ = ("shape", "dtype", "weak_type", "vma", "layout", "memory_space")
    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    vma: frozenset[Any]
    layout: Any
    memory_space: MemorySpace

    def __new__(cls, shape: Any, dtype: Any, weak_type: bool = False, *, sharding: Any = None,
                vma: Any = None, memory_space: MemorySpace = _DEVICE,
                manual_axis_type: ManualAxisType | None = None, layout: Any = None) -> ShapedArray:
        if not getattr(layout, "is_auto", layout is None):
            raise ValueError(f"ShapedArray: types say nothing of an array's layout in memory, but `Layout.AUTO`; got {layout}")
        if manual_axis_type is not None:
            if manual_axis_type.unreduced or manual_axis_type.reduced:
                raise NotImplementedError(f"ShapedArray takes the axes along which values vary, got {manual_axis_type}")
            vma = manual_axis_type.varying
        if memory_space is not _DEVICE:
            return in_space(cls(shape, dtype, weak_type, sharding=sharding, vma=vma), memory_space)
        if sharding is not None:
            return with_layout(cls(shape, dtype, weak_type, vma=vma), layout_of(sharding, len(shape)))
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
               sharding: Any = None, vma: Any = None, memory_space: MemorySpace | None = None) -> ShapedArray:
        """A copy with some fields replaced. With another shape it has no layout unless `sharding` says it."""
        made = ShapedArray(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            sharding=sharding,
            vma=self.vma if vma is None else vma,
            memory_space=self.memory_space if memory_space is None else memory_space,
        )
        if self.layout is not None and sharding is None and made.shape == self.shape:
            return with_layout(made, self.layout)
        return made

    @property
    def manual_axis_type(self) -> ManualAxisType:
        """How the value varies along the manual axes of a `shard_map`."""
        if self.layout is None:
            return ManualAxisType(varying=self.vma)
        manual, spec = self.layout.mesh.manual_axes, self.layout.spec
        unreduced = spec.unreduced.intersection(manual)
        return ManualAxisType(varying=self.vma, unreduced=unreduced, reduced=spec.reduced.intersection(manual),
                              unreduced_kind=spec.unreduced_kind if unreduced else None)

    mat = manual_axis_type

    def strip_weak_type(self) -> ShapedArray:
        if not self.weak_type:
            return self
        return with_layout(shaped_like(self, self.shape, self.dtype, False), self.layout)

    def to_tangent_aval(self) -> ShapedArray:
        """The type of the tangents of values of this type: its own for inexact dtypes, float0 for the rest."""
        if dtypes.kind(self.dtype) in "fc":
            return self
        rules = dtypes.rules_of(self.dtype)
        dtype = dtypes.float0 if rules is None else rules.tangent_dtype(self.dtype)
        return with_layout(shaped_like(self, self.shape, dtype, False), self.layout)

    at_least_vspace = to_tangent_aval  # the name of libraries

    def to_ct_aval(self) -> ShapedArray:
        """The type of their cotangents: over a mesh axis, unreduced where these are reduced, and the other way round."""
        return dual(self.to_tangent_aval())

    def update_weak_type(self, weak_type: bool) -> ShapedArray:
        """The same type, weak or not."""
        return self.update(weak_type=weak_type)

    normalize = strip_weak_type

    def inc_rank(self, size: int, spec: int | None) -> ShapedArray:
        """The type of a batch with its new axis at `spec`; None: it is not a batch."""
        return self if spec is None else with_axis(self, spec, size)

    def dec_rank(self, size: int, spec: int | None) -> ShapedArray:
        """The type of one example of a batch with its axis at `spec`; None: it is not a batch."""
        return self if spec is None else without_axis(self, spec)

    def str_short(self, short_dtypes: bool = False, **options: Any) -> str:
        """`float32[2,3]`, or `f32[2,3]`, as jaxprs print it; `f32[8@x,4]` where the first axis is cut along the mesh axis x."""
        name = dtypes.short_name(self.dtype) if short_dtypes or self.dtype == dtypes.float0 else self.dtype.name
        if self.memory_space is not _DEVICE:
            name += f"<{self.memory_space.name.lower()}>"
        sizes = map(str, self.shape) if self.layout is None else map(_cut_size, self.shape, self.layout.spec)
        return f"{name}[{','.join(sizes)}]{_axes_text(self) if self.vma or self.layout is not None else ''}"

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def __str__(self) -> str:
        return ("~" if self.weak_type else "") + self.str_short()

    def __reduce__(self) -> Any:
        return _restore, (self.shape, self.dtype, self.weak_type, self.vma, self.layout, self.memory_space)


def _restore(shape: Any, dtype: Any, weak_type: Any, vma: Any, layout: Any = None, memory_space: MemorySpace = _DEVICE,
             ) -> ShapedArray:
    return with_layout(ShapedArray(shape, dtype, weak_type, vma=vma, memory_space=memory_space), layout)


def _cut_size(size: Any, entry: Any) -> str:
    if entry is None:
        return str(size)
    return f"{size}@({','.join(map(str, entry))})" if isinstance(entry, tuple) else f"{size}@{entry}"


def _axes_text(aval: ShapedArray) -> str:
    """`{V:x, U:(y,z)}`: the mesh axes along which a value varies, those over which it is still to be summed, and those over
    which its cotangent will be.
    """
    groups = {"V": aval.vma}
    if aval.layout is not None:
        spec = aval.layout.spec
        kind = "U" if spec.unreduced_kind in (None, UnreducedKind.sum) else f"U_{spec.unreduced_kind.name}"
        groups |= {kind: spec.unreduced, "R": spec.reduced}
    texts = []
    for letter, axes in groups.items():
        if axes:
            names = sorted(map(str, axes))
            texts.append(f"{letter}:{names[0] if len(names) == 1 else '(' + ','.join(names) + ')'}")
    return f"{{{', '.join(texts)}}}" if texts else ""


def _make_shaped_array(shape: tuple[int, ...], dtype: Any, weak_type: bool, vma: frozenset[Any] = _nowhere,
                       memory_space: MemorySpace = _DEVICE) -> ShapedArray:
    if type(shape) is not tuple or not isinstance(dtype, (np.dtype, dtypes.ExtendedDType)):
        raise TypeError
    if type(weak_type) is not bool or any(type(size) is not int and type(size) is not Dim for size in shape):  # type: ignore[comparison-overlap]
        raise TypeError
    aval = object.__new__(ShapedArray)
    aval.shape, aval.dtype, aval.weak_type, aval.vma, aval.layout = shape, dtype, weak_type, vma, None
    aval.memory_space = memory_space
    return aval


_interned = xla.weak_value_interner(_make_shaped_array)
shaped_array = _interned  # the constructor without its checks, for hot paths: exact types only


def shaped_like(aval: Any, shape: tuple[int, ...], dtype: Any, weak_type: bool) -> ShapedArray:
    """`shaped_array` of what varies along the axes along which values of another type do, in the same memory."""
    return _whole(shape, dtype, weak_type, aval.vma, aval.memory_space)


def _whole(shape: Any, dtype: Any, weak_type: bool, vma: frozenset[Any], memory_space: MemorySpace) -> ShapedArray:
    if memory_space is not _DEVICE:
        return _interned(shape, dtype, weak_type, vma, memory_space)
    return _interned(shape, dtype, weak_type, vma) if vma else _interned(shape, dtype, weak_type)


def in_space(aval: Any, memory_space: MemorySpace) -> Any:
    """A type of values in a kind of memory."""
    if type(aval) is not ShapedArray or aval.memory_space is memory_space:
        return aval
    spaces.exist = True
    return with_layout(_whole(aval.shape, aval.dtype, aval.weak_type, aval.vma, memory_space), aval.layout)


def space_of_kind(memory_kind: str | None) -> MemorySpace:
    """The kind of memory from its name: all but pinned memory of the host counts as that of the device."""
    return MemorySpace.Host if memory_kind == "pinned_host" else _DEVICE


def varying(aval: Any, vma: frozenset[Any]) -> Any:
    """A type that varies along these manual axes, and no others."""
    if aval.vma == vma:
        return aval
    if type(aval) is AbstractRef:
        return aval.update(inner_aval=varying(aval.inner_aval, vma))
    if type(aval) is not ShapedArray:
        return aval
    made = _whole(aval.shape, aval.dtype, aval.weak_type, vma, aval.memory_space)
    return made if aval.layout is None else with_layout(made, aval.layout)


def _make_with_layout(whole: ShapedArray, layout: Any) -> ShapedArray:
    aval = object.__new__(ShapedArray)
    aval.shape, aval.dtype, aval.weak_type, aval.vma, aval.layout = whole.shape, whole.dtype, whole.weak_type, whole.vma, layout
    aval.memory_space = whole.memory_space
    layouts.exist = True
    return aval


_interned_with_layout = xla.weak_value_interner(_make_with_layout)


class _Layouts:
    """Whether any type has a layout yet: what looks at layouts asks this first."""

    exist = False


layouts = _Layouts()


def with_layout(aval: Any, layout: Any) -> Any:
    """A type with another layout, or with none."""
    if aval.layout is layout:
        return aval
    whole = aval if aval.layout is None else shaped_like(aval, aval.shape, aval.dtype, aval.weak_type)
    return whole if layout is None else _interned_with_layout(whole, layout)


def plain(aval: Any) -> Any:
    """A type without its layout."""
    return with_layout(aval, None) if getattr(aval, "layout", None) is not None else aval


def layout_of(sharding: Any, ndim: int) -> Any:
    """What a sharding says of explicit axes; None if there are none.

    A sharding and its mesh are known here by their shape alone, as `lowering.partitioning` knows them.
    """
    mesh: Any = getattr(sharding, "mesh", None)
    types = getattr(mesh, "axis_types", None) or ()
    explicit = {name for name, kind in zip(mesh.axis_names if types else (), types, strict=True) if kind.name == "Explicit"}
    if explicit and config.remove_size_one_mesh_axis_from_type.value:
        explicit = {name for name in explicit if mesh.shape[name] > 1}
    spec = sharding.spec if explicit else None
    if spec is None:
        return None
    entries = [_kept(entry, explicit) for entry in spec]
    spec = spec.update(partitions=entries + [None] * (ndim - len(entries)), unreduced=spec.unreduced & explicit,
                       reduced=spec.reduced & explicit)
    return type(sharding)(mesh.abstract_mesh, spec)


def says_something(spec: Any) -> bool:
    """Whether a spec says more than that an array is whole everywhere."""
    return any(spec) or bool(spec.unreduced or spec.reduced)


def is_cut(aval: Any) -> bool:
    """Whether an array is more than whole everywhere on the explicit axes of a mesh."""
    layout = getattr(aval, "layout", None)  # Refs and tokens have none
    return layout is not None and says_something(layout.spec)


def kept_layout(layout: Any) -> Any:
    """A layout, or None where it says nothing: of what is whole on a mesh without explicit axes."""
    return layout if layout.mesh.explicit_axes or says_something(layout.spec) else None


def mesh_of_types() -> Any:
    """The mesh of the context without its devices, if it has explicit axes: what is made is whole on it."""
    mesh = config.context_abstract_mesh.value
    if mesh is None:
        mesh = config.context_mesh.value
        mesh = mesh and mesh.abstract_mesh
    return mesh if mesh is not None and mesh.explicit_axes else None


def has_states(aval: Any) -> bool:
    """Whether values of a type are unreduced or reduced along some mesh axes: such ones go with their like alone."""
    layout = getattr(aval, "layout", None)
    return layout is not None and bool(layout.spec.unreduced or layout.spec.reduced)


def states_of(aval: Any) -> tuple[frozenset[Any], frozenset[Any]]:
    """The mesh axes along which values of a type are unreduced, and those along which they are reduced."""
    spec = None if aval.layout is None else aval.layout.spec
    return (_nowhere, _nowhere) if spec is None else (spec.unreduced, spec.reduced)


def dual(aval: Any) -> Any:
    """The type of cotangents from that of tangents: the same sharding, but unreduced along the axes where those are reduced."""
    return with_layout(aval, aval.layout.update(spec=dual_spec(aval.layout.spec))) if has_states(aval) else aval


def dual_spec(spec: Any) -> Any:
    """The spec of cotangents from that of their primals. Raises: ValueError for what is no sum."""
    require_sum(spec.unreduced_kind)
    return spec.update(unreduced=spec.reduced, reduced=spec.unreduced) if spec.unreduced or spec.reduced else spec


def _kept(entry: Any, explicit: set[Any]) -> Any:
    if isinstance(entry, tuple):
        return tuple(name for name in entry if name in explicit)
    return entry if entry in explicit else None


class AbstractToken(AbstractValue):
    """The type of a token: a value without data that orders side effects."""

    __slots__ = ()

    def str_short(self, short_dtypes: bool = False, **options: Any) -> str:
        return "Tok"

    def __repr__(self) -> str:
        return "AbstractToken()"

    def strip_weak_type(self) -> AbstractToken:
        return self


abstract_token = AbstractToken()


MEMORY_SPACES: dict[str, Any] = {}  # of Refs, by the names they print as, from the modules that have them


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

    @property
    def sharding(self) -> Any:
        return self.inner_aval.sharding

    def update(self, inner_aval: Any = None, memory_space: Any = None, kind: Any = None, **inner: Any) -> AbstractRef:
        """A copy with some fields replaced; `shape` and `dtype` are those of the value."""
        value = self.inner_aval if inner_aval is None else inner_aval
        return AbstractRef(value.update(**inner) if inner else value, memory_space or self.memory_space, kind or self.kind)

    def strip_weak_type(self) -> AbstractRef:
        return self

    def str_short(self, short_dtypes: bool = False, **options: Any) -> str:
        space = "" if self.memory_space is None else f"<{self.memory_space}>"
        return f"Ref{space}{{{self.inner_aval.str_short(short_dtypes=short_dtypes)}}}"

    def __repr__(self) -> str:
        return self.str_short()

    def __reduce__(self) -> Any:
        return AbstractRef, (self.inner_aval, self.memory_space, self.kind)


def _make_abstract_ref(inner_aval: Any, memory_space: Any, kind: Any) -> AbstractRef:
    aval = object.__new__(AbstractRef)
    aval.inner_aval, aval.memory_space, aval.kind = inner_aval.strip_weak_type(), memory_space, kind
    return aval


_interned_refs = xla.weak_value_interner(_make_abstract_ref)


def refuse_ref(who: str, aval: Any, place: int | None = None) -> None:
    """Raises: TypeError for the type of a mutable array, where a function takes arrays."""
    if type(aval) is AbstractRef:
        where = "" if place is None else f" at position {place}"
        raise TypeError(f"{who} got a Ref of type {aval!r}{where}, but a Ref can't be passed where an array is expected. "
                        "Did you forget to read its value with `ref[...]`?")


def spec_of(aval: Any, dim: Any) -> Any:
    """Where the batched axes of values of a high type are; 0 says: in front."""
    return aval.leading_axis_spec() if type(dim) is int and dim == 0 else dim


def with_axis(aval: Any, dim: int, size: int, cut: Any = None) -> Any:
    """The type of a batch of values, or of a mutable array that holds one, with the batched axis at `dim`.

    Args: `cut` the layout of a batch of one axis, if it has one.
    """
    if aval.is_high:
        return aval.inc_rank(size, spec_of(aval, dim))
    shape = (*aval.shape[:dim], size, *aval.shape[dim:])
    if type(aval) is AbstractRef:
        return aval.update(shape=shape)
    made = shaped_like(aval, shape, aval.dtype, aval.weak_type)
    if cut is None and aval.layout is None:
        return made
    own = aval.layout or cut.update(spec=cut.spec.update(partitions=[None] * aval.ndim))
    entries = [*own.spec[:dim], None if cut is None else cut.spec[0], *own.spec[dim:]]
    return with_layout(made, own.update(spec=own.spec.update(partitions=entries)))


def without_axis(aval: Any, dim: int, size: int | None = None) -> Any:
    """The type of one value of a batch of a size whose axis is at `dim`."""
    if aval.is_high:
        return aval.dec_rank(size, spec_of(aval, dim))
    shape = aval.shape[:dim] + aval.shape[dim + 1:]
    if type(aval) is AbstractRef:
        return aval.update(shape=shape)
    made = shaped_like(aval, shape, aval.dtype, aval.weak_type)
    if aval.layout is None:
        return made
    entries = [*aval.layout.spec[:dim], *aval.layout.spec[dim + 1:]]
    spec = aval.layout.spec.update(partitions=entries)
    return with_layout(made, kept_layout(aval.layout.update(spec=spec)))


def _layouts_match(a: Any, b: Any) -> bool:
    return a.layout == b.layout or (a.layout is None or b.layout is None) and not (has_states(a) or has_states(b))


def typematch(a: Any, b: Any) -> bool:
    """Whether two avals are equal but for weak type; what is on no mesh goes with what is."""
    return a is b or (
        isinstance(a, ShapedArray) and isinstance(b, ShapedArray) and a.shape == b.shape and a.dtype == b.dtype
        and a.vma == b.vma and _layouts_match(a, b) and a.memory_space is b.memory_space
    ) or (a.is_high and bool(getattr(a, "aval", a) == getattr(b, "aval", b)))
