"""Batching as `jax.interpreters.batching` names it: a view; what is here is defined in `traces` and `extend`."""

from jaxlite.extend.rule_tables import (
    axis_primitive_batchers,
    bdim_at_front,
    broadcast,
    defbroadcasting,
    defreducer,
    defvectorized,
    fancy_primitive_batchers,
    primitive_batchers,
)
from jaxlite.traces.batching import Axis as AxisData
from jaxlite.traces.batching import BatchTrace, BatchTracer
from jaxlite.traces.batching import move as moveaxis
from jaxlite.transforms.vmap import register_vmappable, unregister_vmappable

not_mapped = None  # the axis of an operand that has none

__all__ = [
    "AxisData", "BatchTrace", "BatchTracer", "axis_primitive_batchers", "bdim_at_front", "broadcast", "defbroadcasting",
    "defreducer", "defvectorized", "fancy_primitive_batchers", "moveaxis", "not_mapped", "primitive_batchers",
    "register_vmappable", "unregister_vmappable",
]
