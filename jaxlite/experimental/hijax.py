"""Primitives written as classes, and types of values that consist of arrays; `jax.experimental.hijax`."""

from jaxlite.core.aval import AbstractRef, AbstractValue, ShapedArray
from jaxlite.core.effects import control_flow_allowed_effects
from jaxlite.core.high import (
    AvalMutableQDD,
    AvalQDD,
    HiPspec,
    HiType,
    MutableHiType,
    aval_method,
    aval_property,
    register_hitype,
)
from jaxlite.core.high import cur_qdd as cur_qdd  # for `jax.experimental` itself
from jaxlite.extend.hi_primitives import HiPrimitive, VJPHiPrimitive
from jaxlite.state.api import TransformedRef
from jaxlite.traces.jvp import Zero
from jaxlite.traces.jvp import instantiate as instantiate_zeros
from jaxlite.traces.transpose import is_linear as is_undefined_primal

__all__ = [
    "AbstractRef", "AbstractValue", "AvalMutableQDD", "AvalQDD", "HiPrimitive", "HiPspec", "HiType", "MutableHiType",
    "ShapedArray", "TransformedRef", "VJPHiPrimitive", "Zero", "aval_method", "aval_property",
    "control_flow_allowed_effects", "instantiate_zeros", "is_undefined_primal", "register_hitype",
]
