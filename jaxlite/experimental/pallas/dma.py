"""Semaphores, and copies that a kernel starts and waits for itself, within a device or to another one.

Interpreted, steps run one after the other: a copy is done when it starts, a semaphore is a counter, and waiting takes from it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlite.core.aval import AbstractRef, Ints, ShapedArray, shaped_array
from jaxlite.core.discharge import discharges
from jaxlite.core.dtypes import extended
from jaxlite.core.effects import REF
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import JaxprEqn
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas.helpers import run_scoped
from jaxlite.experimental.pallas.primitives import parts
from jaxlite.experimental.pallas.specs import SemaphoreDType, SemaphoreSpace
from jaxlite.lax import elementwise as ew
from jaxlite.lax import parallel
from jaxlite.lax.reductions import argmax, reduce_or, reduce_sum
from jaxlite.lax.shaping import broadcast_in_dim, convert
from jaxlite.lax.slicing import dynamic_index_in_dim
from jaxlite.state.api import TransformedRef
from jaxlite.state.indexing import read_through, transformed_shape, write_through

semaphore_signal_p = Primitive("semaphore_signal", multiple_results=True)
semaphore_wait_p = Primitive("semaphore_wait", multiple_results=True)
semaphore_read_p = Primitive("semaphore_read")
dma_start_p = Primitive("dma_start", multiple_results=True)
dma_wait_p = Primitive("dma_wait", multiple_results=True)
for _p in (semaphore_signal_p, semaphore_wait_p, semaphore_read_p, dma_start_p, dma_wait_p):
    _p.takes_refs = True
    _p.no_jvp("it moves data that kernels see through Refs alone")
    _p.no_transpose("it moves data that kernels see through Refs alone")
_REF = frozenset((REF,))
_i32 = np.dtype(np.int32)

# --- semaphores --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Semaphores:
    """A type of semaphores to allocate: their kind ("regular", "dma", "barrier") and how many."""

    kind: str
    shape: Ints = ()

    @property
    def dtype(self) -> SemaphoreDType:
        """The dtype of an array of them, which a kernel may have as a result."""
        return _DTYPES[self.kind]

    def get_ref_aval(self) -> AbstractRef:
        """The type of a Ref of them; interpreted they are counters."""
        return AbstractRef(ShapedArray(self.shape, _i32), SemaphoreSpace(self.kind))


class SemaphoreType(enum.Enum):
    """Kinds of semaphores; called with a shape it gives an array of them."""

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: Sequence[int] = ()) -> Semaphores:
        return Semaphores(self.value, tuple(shape))

    def get_ref_aval(self) -> AbstractRef:
        """The type of a Ref of one."""
        return self().get_ref_aval()


class semaphore(extended):
    """The type of semaphores that count; `pallas.tpu.SemaphoreType.REGULAR` allocates them."""


class dma_semaphore(extended):
    """The type of semaphores of copies; `pallas.tpu.SemaphoreType.DMA` allocates them."""


class barrier_semaphore(extended):
    """The type of semaphores by which devices meet."""


_DTYPES = {kind: SemaphoreDType(kind, scalar) for kind, scalar in (
    ("regular", semaphore), ("dma", dma_semaphore), ("barrier", barrier_semaphore))}


class DeviceIdType(enum.Enum):
    """How another device is named: by its place along the axes of the mesh, or by its number."""

    MESH = "mesh"
    LOGICAL = "logical"


def _device(device_id: Any, kind: DeviceIdType) -> Any:
    """The number of a device of the mesh around the kernel, as an int32; None means this one."""
    if device_id is None:
        return None
    axes = parallel.mesh_axes()
    sizes = [state.axis_sizes[name] for name in axes]
    if isinstance(device_id, Mapping):
        places = [device_id.get(name) for name in axes]
        places = [parallel.axis_index(name) if place is None else place for name, place in zip(axes, places, strict=True)]
    elif kind is DeviceIdType.MESH:
        places = list(device_id) if isinstance(device_id, (tuple, list)) else [device_id]
        if len(places) != len(axes):
            raise ValueError(f"device_id has {len(places)} places, the mesh around the kernel has the axes {axes}")
    else:
        return convert(device_id, _i32, False)
    number: Any = np.int32(0)
    for place, size in zip(places, sizes, strict=True):
        number = ew.add(ew.mul(number, np.int32(size)), convert(place, _i32, False))
    return number


@boundary
def semaphore_signal(sem_or_view: Any, inc: Any = 1, *, device_id: Any = None,
                     device_id_type: DeviceIdType | None = None, core_index: Any = None) -> None:
    """Add to a semaphore.

    Args: `sem_or_view` a Ref of a semaphore or `ref.at[i]`; `inc` an int32 scalar; `device_id` of the device whose semaphore is
    meant, `device_id_type` how it is named, by default `MESH`; `core_index` of one of several cores.
    """
    ref, transforms = parts(sem_or_view)
    device = _device(device_id, device_id_type or DeviceIdType.MESH)
    leaves, tree = tree_flatten((transforms, convert(inc, _i32, False), device, core_index))
    semaphore_signal_p.bind(ref, *leaves, args_tree=tree)


@boundary
def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Wait until a semaphore has a value, and take the value from it.

    Args: `sem_or_view` as for `semaphore_signal`; `decrement=False` leaves the semaphore as it is.
    """
    ref, transforms = parts(sem_or_view)
    leaves, tree = tree_flatten((transforms, convert(value, _i32, False)))
    semaphore_wait_p.bind(ref, *leaves, args_tree=tree, decrement=bool(decrement))


@boundary
def semaphore_read(sem_or_view: Any) -> Any:
    """The value of a semaphore, an int32 scalar."""
    ref, transforms = parts(sem_or_view)
    leaves, tree = tree_flatten((transforms,))
    return semaphore_read_p.bind(ref, *leaves, args_tree=tree)


def _check_semaphore(what: str, ref: Any, transforms: Sequence[Any]) -> None:
    if not isinstance(getattr(ref, "memory_space", None), SemaphoreSpace):
        raise ValueError(f"{what} works on a semaphore (pallas.tpu.SemaphoreType among scratch_shapes), got {ref}")
    if transformed_shape(ref.shape, transforms):
        raise ValueError(f"{what} works on one semaphore, got {transformed_shape(ref.shape, transforms)}: index it, sem.at[i]")


@semaphore_signal_p.def_effectful_abstract_eval
def _signal_aval(ref: Any, *leaves: Any, args_tree: Any) -> Any:
    _check_semaphore("semaphore_signal", ref, tree_unflatten(args_tree, leaves)[0])
    return [], _REF


@semaphore_wait_p.def_effectful_abstract_eval
def _wait_aval(ref: Any, *leaves: Any, args_tree: Any, decrement: bool) -> Any:
    _check_semaphore("semaphore_wait", ref, tree_unflatten(args_tree, leaves)[0])
    return [], _REF


@semaphore_read_p.def_effectful_abstract_eval
def _read_aval(ref: Any, *leaves: Any, args_tree: Any) -> Any:
    _check_semaphore("semaphore_read", ref, tree_unflatten(args_tree, leaves)[0])
    return shaped_array((), _i32, False), _REF


def _everywhere(x: Any) -> Any:
    return parallel.all_gather(x, parallel.mesh_axes())


def _own() -> Any:
    return parallel.axis_index(parallel.mesh_axes())


@discharges(semaphore_signal_p)
def _signal(eqn: JaxprEqn, values: list[Any]) -> Any:
    array, *leaves = values
    transforms, inc, device, _ = tree_unflatten(eqn.params["args_tree"], leaves)
    if device is not None and parallel.mesh_axes():
        for_me = ew.eq(_everywhere(device), _own())
        inc = reduce_sum(ew.mul(_everywhere(inc), convert(for_me, _i32, False)), (0,))
    return [], {0: write_through(array, transforms, inc, "add")}


@discharges(semaphore_wait_p)
def _wait(eqn: JaxprEqn, values: list[Any]) -> Any:
    array, *leaves = values
    transforms, value = tree_unflatten(eqn.params["args_tree"], leaves)
    return [], {0: write_through(array, transforms, ew.neg(value), "add")} if eqn.params["decrement"] else {}


@discharges(semaphore_read_p)
def _read(eqn: JaxprEqn, values: list[Any]) -> Any:
    (transforms,) = tree_unflatten(eqn.params["args_tree"], values[1:])
    return [read_through(values[0], transforms)], {}


get_barrier_semaphore_p = Primitive("get_barrier_semaphore")
get_barrier_semaphore_p.def_effectful_abstract_eval(lambda *, tag: (SemaphoreType.BARRIER.get_ref_aval(), _REF))
discharges(get_barrier_semaphore_p)(lambda eqn, values: ([np.int32(0)], {}))


def get_barrier_semaphore(tag: int | None = None) -> Any:
    """The semaphore by which kernels with one `collective_id` meet on all devices.

    Args: `tag`, the id, instead of `CompilerParams(collective_id=)`.
    """
    return get_barrier_semaphore_p.bind(tag=None if tag is None else int(tag))


# --- copies ------------------------------------------------------------------------------------------


class AsyncCopy:
    """A copy from a Ref to another that was described: `start` begins it, `wait` waits for its end.

    A copy to another device has two ends: `wait_send` waits until the source has been read, `wait_recv` until what another
    device sends here has come.
    """

    def __init__(self, source: Any, target: Any, semaphore: Any, send_semaphore: Any = None, device: Any = None):
        self._refs = [parts(each) for each in (source, target, semaphore)]
        if send_semaphore is not None:
            self._refs.append(parts(send_semaphore))
        self._device = device

    def _bind(self, primitive: Primitive, refs: Sequence[Any], device: Any = None, **params: Any) -> None:
        leaves, tree = tree_flatten(([transforms for _, transforms in refs], device))
        primitive.bind(*(ref for ref, _ in refs), *leaves, args_tree=tree, count=len(refs), **params)

    @boundary
    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Begin the copy; with `add` it adds to the target."""
        self._bind(dma_start_p, self._refs, self._device, priority=priority, add=add)

    @boundary
    def wait(self) -> None:
        """Wait for the end of the copy."""
        if len(self._refs) == 4:
            self.wait_send()
        self.wait_recv()

    @boundary
    def wait_recv(self) -> None:
        """Wait until the target has been written."""
        self._bind(dma_wait_p, self._refs[:3])

    @boundary
    def wait_send(self) -> None:
        """Wait until the source has been read, by a copy to another device."""
        source, _, _, send = self._refs
        self._bind(dma_wait_p, [source, source, send])


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopy:
    """The description of a copy from a Ref to another, or between parts of them; `sem` is a semaphore of the kind DMA."""
    return AsyncCopy(src_ref, dst_ref, sem)


def async_copy(src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False) -> AsyncCopy:
    """Begin a copy from a Ref to another; `wait()` of the result waits for its end."""
    made = make_async_copy(src_ref, dst_ref, sem)
    made.start(priority, add=add)
    return made


def make_async_remote_copy(src_ref: Any, dst_ref: Any, send_sem: Any, recv_sem: Any, device_id: Any,
                           device_id_type: DeviceIdType = DeviceIdType.MESH) -> AsyncCopy:
    """The description of a copy to a Ref of another device, inside `shard_map`.

    Args: `send_sem` of this device is signalled once the source is read, `recv_sem` of the other one once the target is
    written; `device_id` names the other device: its places along the mesh's axes, as a tuple or by name, or its number if
    `device_id_type` is LOGICAL.
    """
    return AsyncCopy(src_ref, dst_ref, recv_sem, send_sem, _device(device_id, device_id_type))


def async_remote_copy(src_ref: Any, dst_ref: Any, send_sem: Any, recv_sem: Any, device_id: Any,
                      device_id_type: DeviceIdType = DeviceIdType.MESH) -> AsyncCopy:
    """`make_async_remote_copy`, begun."""
    made = make_async_remote_copy(src_ref, dst_ref, send_sem, recv_sem, device_id, device_id_type)
    made.start()
    return made


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copy a tree of Refs to another one, and wait for the end."""
    def copy(source: Any, target: Any) -> None:
        run_scoped(lambda sem: async_copy(source, target, sem, add=add).wait(), SemaphoreType.DMA)

    tree_map(copy, src_ref, dst_ref, is_leaf=lambda each: type(each) is TransformedRef)


@dma_start_p.def_effectful_abstract_eval
def _start_aval(*avals: Any, args_tree: Any, count: int, priority: int, add: bool) -> Any:
    transforms, _ = tree_unflatten(args_tree, avals[count:])
    (source, target), shapes = avals[:2], [transformed_shape(ref.shape, each)
                                           for ref, each in zip(avals[:2], transforms[:2], strict=True)]
    if shapes[0] != shapes[1] or source.dtype != target.dtype:
        raise ValueError(f"a copy goes between parts of one shape and dtype, got {source.dtype}{list(shapes[0])} and "
                         f"{target.dtype}{list(shapes[1])}")
    for ref, each in zip(avals[2:count], transforms[2:], strict=True):
        _check_semaphore("a copy's semaphore: it", ref, each)
    return [], _REF


dma_wait_p.def_effectful_abstract_eval(lambda *avals, **params: ([], _REF))


@discharges(dma_start_p)
def _start(eqn: JaxprEqn, values: list[Any]) -> Any:
    (sources, targets, *_), device = tree_unflatten(eqn.params["args_tree"], values[eqn.params["count"]:])
    value, how = read_through(values[0], sources), "add" if eqn.params["add"] else "set"
    if device is None or not parallel.mesh_axes():
        return [], {1: write_through(values[1], targets, value, how)}
    for_me = ew.eq(_everywhere(device), _own())
    sender = argmax(for_me, 0, _i32)
    senders = lambda x: dynamic_index_in_dim(_everywhere(x), sender, keepdims=False)
    targets = tree_map(lambda leaf: senders(leaf) if hasattr(leaf, "dtype") else leaf, targets)  # where the sender wants it
    written = write_through(values[1], targets, senders(value), how)
    comes = broadcast_in_dim(reduce_or(for_me, (0,)), aval_of(written).shape, ())
    return [], {1: ew.select(comes, written, values[1])}


discharges(dma_wait_p)(lambda eqn, values: ([], {}))

