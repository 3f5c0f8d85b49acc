"""`device_put` inside a program: an equation that moves values to a memory, or to a sharding over a mesh.

Outside a trace, `jaxlite.devices.api` moves arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.aval import MemorySpace, in_space, layout_of, space_of_kind, with_layout
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.values import aval_of
from jaxlite.devices import global_arrays, placement
from jaxlite.devices import sharding as shardings
from jaxlite.traces.jvp import Zero, instantiate
from lowering import xla

device_put_p = Primitive("device_put", multiple_results=True)
device_put_p.knows_spaces = True
_devices = loader("jaxlite.devices.api")  # what stands higher


@device_put_p.def_abstract_eval
def _types(*avals, devices=None, **params) -> list[Any]:
    return [moved_type(aval, place) for aval, place in zip(avals, devices or _nowhere(avals), strict=True)]


def _nowhere(values) -> tuple[None, ...]:
    """The places of values that libraries put without a place."""
    return (None,) * len(values)


def moved_type(aval, place) -> Any:
    """The type of a value that was put in a place. Raises: ValueError for a sharding that it cannot have."""
    if isinstance(place, MemorySpace):
        return in_space(aval, place)
    sharding = place.sharding if isinstance(place, shardings.Format) else place
    if not isinstance(sharding, xla.Sharding):
        return aval
    if isinstance(sharding, xla.NamedSharding):
        shardings.check_no_manual(sharding)
    shardings.check_shape(sharding, aval.shape, "One of device_put args")
    return with_layout(in_space(aval, space_of_kind(sharding.memory_kind)), layout_of(sharding, aval.ndim))


@device_put_p.def_eager
def _put_now(*args, devices=None, **params) -> list[Any]:
    return [_devices().device_put(x, place) for x, place in zip(args, devices or _nowhere(args), strict=True)]


@device_put_p.def_jvp
def _jvp(primals, tangents, **params) -> tuple[list[Any], list[Any]]:
    outs = device_put_p.bind(*primals, **params)
    if all(type(tangent) is Zero for tangent in tangents):
        return outs, list(tangents)
    return outs, device_put_p.bind(*map(instantiate, tangents), **params)


@device_put_p.def_transpose
def _transpose(cotangents, *operands, devices=None, srcs=None, **params) -> list[Any]:
    """Cotangents go back to where the values came from."""
    devices, srcs = devices or _nowhere(operands), srcs or _nowhere(operands)
    found: list[Any] = [None] * len(operands)
    for index, (cotangent, operand, place, source) in enumerate(zip(cotangents, operands, devices, srcs, strict=True)):
        if type(cotangent) is not Zero:
            space = operand.aval.memory_space
            if source is None and aval_of(cotangent).memory_space is not space:
                source = space
            found[index] = put(cotangent, source, xla.ArrayCopySemantics.ALWAYS_COPY, place)
    return found


@device_put_p.def_batching
def _batch(axis, args, dims, *, devices=None, **params) -> tuple[list[Any], list[Any]]:
    places = [place if dim is None else _of_batch(place, dim) for place, dim in zip(
        devices or _nowhere(args), dims, strict=True)]
    return device_put_p.bind(*args, devices=tuple(places), **params), list(dims)


def _of_batch(place, dim: int) -> Any:
    """The place of a batch, whose own axis is not cut."""
    if isinstance(place, shardings.Format):
        return _of_batch(place.sharding, dim)
    if type(place) is not shardings.NamedSharding:
        return place
    entries = [*place.spec, *[None] * (dim - len(place.spec))]
    entries.insert(dim, None)
    return place.update(spec=place.spec.update(partitions=entries))


def put(x, place, semantics: Any = xla.ArrayCopySemantics.REUSE_INPUT, source: Any = None) -> Any:
    """One value of a trace in a place."""
    return device_put_p.bind(x, devices=(place,), srcs=(source,), copy_semantics=(semantics,))[0]


def into(x, space) -> Any:
    """One value in a kind of memory; an array stays as free to be moved as it is."""
    if isinstance(x, Tracer) or not is_eager():
        return put(x, space)
    return global_arrays.place(x, placement.in_memory(x, space), getattr(x, "committed", False))


def put_all(values: Sequence[Any], places: Sequence[Any], sources: Sequence[Any], semantics: Sequence[Any]) -> list[Any]:
    """Values of a trace in places, all at once."""
    return device_put_p.bind(*values, devices=tuple(places), srcs=tuple(sources), copy_semantics=tuple(semantics))
