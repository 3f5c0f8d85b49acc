"""The functions of `jax.interpreters.pxla`: shardings of XLA as indices and specs, and the mesh of a `with mesh:` block."""

from collections import OrderedDict as ArrayMapping
from collections.abc import Hashable as MeshAxisName
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlite.core.aval import ShapedArray
from jaxlite.core.values import ArrayImpl
from jaxlite.devices.global_arrays import make_array_from_single_device_arrays
from jaxlite.devices.mesh import Mesh, empty_mesh, entered_context
from jaxlite.devices.sharding import P
from lowering.executable import compile_options as create_compile_options

__all__ = ["ArrayMapping", "Index", "MeshAxisName", "are_hlo_shardings_equal", "array_mapping_to_axis_resources",
           "create_compile_options",
           "global_result_handlers", "is_hlo_sharding_replicated", "op_sharding_to_indices", "thread_resources"]

Index = int | slice | tuple[int | slice, ...]


def array_mapping_to_axis_resources(array_mapping: Mapping[Any, int]) -> P:
    """The `PartitionSpec` that cuts along each mesh axis the array's axis that a mapping gives for it.

    >>> array_mapping_to_axis_resources({"x": 0, "y": 2, "z": 0})
    P(('x', 'z'), None, 'y')
    """
    entries: list[list[Any]] = [[] for _ in range(max(array_mapping.values(), default=-1) + 1)]
    for name, axis in array_mapping.items():
        entries[axis].append(name)
    return P(*[tuple(names) if len(names) > 1 else names[0] if names else None for names in entries])


def is_hlo_sharding_replicated(hc: Any) -> bool:
    """Whether an `HloSharding` puts the whole array on each device."""
    return bool(hc.is_replicated() or hc.num_devices() == 1)


def are_hlo_shardings_equal(hc1: Any, hc2: Any) -> bool:
    """Whether two `HloSharding`s cut arrays in the same way."""
    return hc1 is hc2 or hc1 == hc2 or is_hlo_sharding_replicated(hc1) and is_hlo_sharding_replicated(hc2)


def op_sharding_to_indices(op_sharding: Any, shape: Sequence[int], num_devices: int) -> tuple[tuple[slice, ...], ...]:
    """The part of an array of a shape that each device has under an `HloSharding`."""
    if is_hlo_sharding_replicated(op_sharding):
        return (tuple(slice(None) for _ in shape),) * num_devices
    cut = list(op_sharding.tile_assignment_dimensions())[:len(shape)]
    copies = num_devices
    for pieces in cut:
        copies //= pieces
    parts: dict[int, tuple[slice, ...]] = {}
    for place, device in enumerate(op_sharding.tile_assignment_devices()):
        number, index = place // copies, []
        for size, pieces in zip(reversed(shape), reversed(cut), strict=True):
            number, own = divmod(number, pieces)
            step = -(-size // pieces)
            index.append(slice(None) if pieces == 1 else slice(own * step, min((own + 1) * step, size)))
        parts[device] = tuple(reversed(index))
    return tuple(parts[device] for device in range(num_devices))


def _of_parts(aval: ShapedArray, sharding: Any, committed: bool) -> Any:
    """A function that makes an array of the buffers that an executable gives for its parts."""

    def make(buffers: Any) -> Any:
        if isinstance(buffers, ArrayImpl):
            return buffers
        if len(buffers) == 1 and not committed:
            return buffers[0]
        return make_array_from_single_device_arrays(aval.shape, sharding, list(buffers))

    return make


# What `global_sharded_result_handler` of a library's dtype makes the array behind its own from.
global_result_handlers: dict[type, Any] = {ShapedArray: _of_parts}


class _Environment:
    """The mesh of this thread: `physical_mesh`, the empty one outside all blocks."""

    __slots__ = ()

    @property
    def physical_mesh(self) -> Mesh:
        return entered_context.value or empty_mesh()


class _ThreadResources:
    """The mesh of this thread: `thread_resources.env.physical_mesh`."""

    __slots__ = ()
    env = _Environment()


thread_resources = _ThreadResources()
