"""`jax._src.sharding_impls` for libraries: the sharding that an argument `out_sharding` means."""

from __future__ import annotations

from typing import Any

from jaxlite.devices import sharding as shardings


def canonicalize_sharding(sharding: Any, api_name: str, check_mesh_consistency: bool = True) -> Any:
    """A `NamedSharding` over a mesh without its devices, of one or of a `PartitionSpec`; None for None and for no mesh.

    Raises: TypeError for other values, ValueError for a `PartitionSpec` without a mesh in the context.
    """
    if sharding is None:
        return None
    if isinstance(sharding, shardings.PartitionSpec):
        sharding = shardings.named_sharding(
            sharding, "Using PartitionSpec when you are not under a mesh context is not allowed. Please pass a NamedSharding "
            f"instance or enter into a mesh context via `jax.set_mesh`. Got {sharding}", ValueError)
    if not isinstance(sharding, shardings.NamedSharding):
        raise TypeError(f"`out_sharding` argument of {api_name} only supports instances of `NamedSharding` or `PartitionSpec`. "
                        f"Got {sharding} of type: {type(sharding)}")
    return None if sharding.mesh.empty else sharding.update(mesh=sharding.mesh.abstract_mesh)


UNSPECIFIED = None  # in params and arguments: the program says where it is
UnspecifiedValue = type(None)
