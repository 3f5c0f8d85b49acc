"""The public functions for mutable arrays: `new_ref`, `get`, `set`, `swap`, `addupdate`, `freeze`, and `ref.at`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import AbstractRef
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import register_rule_modules
from jaxlite.core.refs import Ref
from jaxlite.core.tracing import Tracer, is_eager, ref_methods
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.shaping import broadcast_in_dim, convert
from jaxlite.numpy.creation import empty
from jaxlite.state import control_flow as control_flow  # its discharge rules
from jaxlite.state.indexing import NDIndexer, transformed_shape
from jaxlite.state.primitives import addupdate_p, freeze_p, get_p, new_ref_p, swap_p, write_cell
from jaxlite.state.views import RefBitcast, bitcast_shape, reshaped, transformed_dtype


@boundary
def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None, pin: bool = False) -> Any:
    """A mutable array with an initial value.

    Args: `init_val` an array or a scalar; the Ref has its shape and dtype. It is left alone by writes. `pin` asks for a buffer
    that stays in its place while a program runs; it changes no value, and here nothing else.
    Returns: a `Ref`: `ref[index]` reads, `ref[index] = value` writes, in traced functions too.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> ref = jaxlite.new_ref(jnp.zeros(3))
    >>> @jaxlite.jit
    ... def count(ref):
    ...     ref[1] += 1.0
    >>> count(ref); count(ref)
    >>> ref[...]
    Array([0., 2., 0.], dtype=float32)
    """
    if isinstance(init_val, Ref):
        raise TypeError(f"new_ref got a Ref of type {aval_of(init_val)!r}: the value of a mutable array is an array")
    try:
        aval_of(init_val)
    except TypeError:
        raise TypeError("Error interpreting argument to new_ref as a JAX value. The problematic value is of type "
                        f"{type(init_val)} and was passed to new_ref at position 0. It takes an array or a scalar.") from None
    return new_ref_p.bind(init_val, memory_space=memory_space, kind=kind)


def empty_ref(ty: Any, memory_space: Any = None, pin: bool = False) -> Any:
    """A mutable array with the type of an object with `shape` and `dtype`; its initial contents are undefined."""
    return new_ref(empty(ty.shape, ty.dtype), memory_space=memory_space, pin=pin)


@boundary
def freeze(ref: Any) -> Any:
    """The value of a Ref, which must not be used afterwards: in a traced function this needs no copy.

    >>> import jaxlite
    >>> jaxlite.freeze(jaxlite.new_ref(2.0))
    Array(2., dtype=float32)
    """
    _check_ref(ref, "freeze")
    return freeze_p.bind(ref)


def free_ref(ref: Any) -> None:
    """Free the memory of a Ref. It cannot be used afterwards."""
    _check_ref(ref, "free_ref")
    if type(ref) is Ref:
        ref.put(None)


def _check_ref(ref: Any, name: str) -> None:
    if not isinstance(ref, Ref) and not isinstance(ref, TransformedRef):
        raise TypeError(f"`{name}` works on a Ref, got {type(ref)}")


def _parts(ref: Any, index: Any) -> tuple[Any, list[Any], Any]:
    """A Ref, and the leaves and tree of the transforms to a part of it."""
    transforms: tuple[Any, ...] = ()
    if type(ref) is TransformedRef:
        ref, transforms = ref.ref, ref.transforms
    shape = transformed_shape(aval_of(ref).shape, transforms)
    if index is not None and (index is not Ellipsis or not transforms):
        transforms = (*transforms, NDIndexer.from_indices_shape(index, shape))
    leaves, tree = tree_flatten(transforms)
    return ref, leaves, tree


def _value_for(ref: Any, value: Any, leaves: Sequence[Any], tree: Any) -> Any:
    """A value in the dtype of the Ref if it is weakly typed, scalars and rows spread over the part, as in NumPy."""
    aval, given = aval_of(ref), aval_of(value)
    transforms = tree_unflatten(tree, [aval_of(leaf) for leaf in leaves])
    dtype = transformed_dtype(aval.dtype, transforms)
    if given.weak_type and given.dtype != dtype:
        if dtypes.lattice_result(dtype, False, given.dtype, True)[0] == dtype:
            value = convert(value, dtype, False)
    shape = transformed_shape(aval.shape, transforms)
    if given.shape != shape and not given.shape:
        value = broadcast_in_dim(value, shape, ())
    return value


@boundary
def get(ref: Any, idx: Any = None) -> Any:
    """The part of a Ref that an index selects, all of it without one: `ref[idx]`.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.ref.get(jaxlite.new_ref(jnp.arange(3)), 1)
    Array(1, dtype=int32)
    """
    _check_ref(ref, "get")
    ref, leaves, tree = _parts(ref, Ellipsis if idx is None else idx)
    return get_p.bind(ref, *leaves, tree=tree)


@boundary
def swap(ref: Any, idx: Any, value: Any) -> Any:
    """Write a value to the part of a Ref that an index selects; gives what was there.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> ref = jaxlite.new_ref(jnp.arange(3))
    >>> jaxlite.ref.swap(ref, 1, 7), ref
    (Array(1, dtype=int32), Ref([0, 7, 2], dtype=int32))
    """
    _check_ref(ref, "swap")
    ref, leaves, tree = _parts(ref, Ellipsis if idx is None else idx)
    return swap_p.bind(ref, _value_for(ref, value, leaves, tree), *leaves, tree=tree)


@boundary
def set(ref: Any, idx: Any, value: Any) -> None:
    """Write a value to the part of a Ref that an index selects: `ref[idx] = value`."""
    _check_ref(ref, "set")
    ref, leaves, tree = _parts(ref, Ellipsis if idx is None else idx)
    value = _value_for(ref, value, leaves, tree)
    if type(ref) is Ref and is_eager():
        write_cell(ref, value, leaves, tree)
    else:
        swap_p.bind(ref, value, *leaves, tree=tree)


@boundary
def addupdate(ref: Any, idx: Any, x: Any) -> None:
    """Add a value to the part of a Ref that an index selects; positions that occur several times count several times."""
    _check_ref(ref, "addupdate")
    ref, leaves, tree = _parts(ref, Ellipsis if idx is None else idx)
    addupdate_p.bind(ref, _value_for(ref, x, leaves, tree), *leaves, tree=tree)


# --- methods, in which the value comes first -------------------------------------------------------------------


def _get(self: Any, idx: Any = ()) -> Any:
    """The contents of a part: `ref[idx]`, or of all without an index."""
    return get(self, idx)


def _set(self: Any, value: Any, idx: Any = ()) -> None:
    """Write a value: `ref[idx] = value`."""
    set(self, idx, value)


def _swap(self: Any, value: Any, idx: Any = ()) -> Any:
    """Write a value, and give what was there."""
    return swap(self, idx, value)


def _addupdate(self: Any, x: Any, idx: Any = ()) -> None:
    """Add a value: positions that occur several times count several times."""
    addupdate(self, idx, x)


def _bitcast(self: Any, dtype: Any) -> Any:
    """The same bits as elements of another dtype; if its width differs, the axis before the last is longer or shorter."""
    return TransformedRef(self, ()).bitcast(dtype)


_METHODS: dict[str, Any] = {"get": _get, "set": _set, "swap": _swap, "addupdate": _addupdate, "bitcast": _bitcast}


def _of_traced_refs(name: str) -> property:
    """A method of tracers of Refs."""
    def method(self: Tracer) -> Any:
        if type(self.aval) is not AbstractRef:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return functools.partial(_METHODS[name], self)

    return property(method, doc=_METHODS[name].__doc__)


class TransformedRef:
    """A part of a Ref, `ref.at[index]`: it is read and written as a Ref is, and has parts in turn."""

    __slots__ = ("ref", "transforms")

    def __init__(self, ref: Any, transforms: tuple[Any, ...]):
        self.ref, self.transforms = ref, transforms

    @property
    def shape(self) -> tuple[int, ...]:
        return transformed_shape(aval_of(self.ref).shape, self.transforms)

    dtype = property(lambda self: transformed_dtype(aval_of(self.ref).dtype, self.transforms), doc="The dtype of the value.")
    ndim = property(lambda self: len(self.shape), doc="The number of axes.")
    at = property(lambda self: RefIndexer(self), doc="Parts of this part.")
    __getitem__ = get
    __setitem__ = set
    get, set, swap, addupdate = _get, _set, _swap, _addupdate

    def reshape(self, *shape: Any) -> TransformedRef:
        """The same elements in another shape."""
        return TransformedRef(self.ref, (*self.transforms, reshaped(self.shape, shape)))

    def bitcast(self, dtype: Any) -> TransformedRef:
        """The same bits as elements of another dtype; if its width differs, the axis before the last is longer or shorter."""
        target = dtypes.canonicalize_dtype(dtype)
        return TransformedRef(self.ref, (*self.transforms, RefBitcast(target, bitcast_shape(self.shape, self.dtype, target))))

    def __repr__(self) -> str:
        return f"TransformedRef(ref={self.ref!r}, transforms={self.transforms})"


class RefIndexer:
    """`ref.at`."""

    __slots__ = ("ref",)

    def __init__(self, ref: Any):
        self.ref = ref

    def __getitem__(self, index: Any) -> TransformedRef:
        whole, before = (self.ref.ref, self.ref.transforms) if type(self.ref) is TransformedRef else (self.ref, ())
        return TransformedRef(whole, (*before, NDIndexer.from_indices_shape(index, self.ref.shape)))


ref_methods.new, ref_methods.get, ref_methods.set, ref_methods.add, ref_methods.at = new_ref, get, set, addupdate, RefIndexer
ref_methods.freeze, ref_methods.reshape = freeze, lambda ref, shape: TransformedRef(ref, ()).reshape(*shape)
Ref.addupdate = _addupdate  # type: ignore[attr-defined]
for _name in _METHODS:
    setattr(Tracer, _name, _of_traced_refs(_name))
register_rule_modules("jaxlite.state.rules")
