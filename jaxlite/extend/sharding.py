"""XLA's shardings to and from bytes; `jax.extend.sharding`."""

from __future__ import annotations

from typing import Any

from lowering import xla

__all__ = ["GSPMDSharding", "get_hlo_sharding_from_serialized_proto", "get_op_sharding_from_serialized_proto",
           "get_serialized_proto_from_hlo_sharding"]
__dir__ = lambda: __all__

GSPMDSharding = xla.GSPMDSharding


def get_op_sharding_from_serialized_proto(sharding: bytes) -> Any:
    """The `OpSharding` that was serialized to these bytes.

    >>> whole = get_serialized_proto_from_hlo_sharding(xla.HloSharding.replicate())
    >>> get_hlo_sharding_from_serialized_proto(whole).is_replicated()
    True
    """
    return xla.op_sharding(sharding)


def get_hlo_sharding_from_serialized_proto(sharding: bytes) -> Any:
    """The `HloSharding` that was serialized to these bytes."""
    return xla.HloSharding.from_proto(xla.op_sharding(sharding))


def get_serialized_proto_from_hlo_sharding(sharding: Any) -> bytes:
    """An `HloSharding`, serialized to bytes."""
    return sharding.to_proto().SerializeToString()
