"""Primitives written as classes, and types of values that consist of arrays; `jax.experimental.hijax`."""

from jaxlite.core.aval import AbstractRef, AbstractValue, ShapedArray
from jaxlite.core.effects import control_flow_allowed_effects
from jaxlite.core.high import (
    AvalMutableQDD,
    AvalQDD,
    HiPspec,
    HiType,
    MappingSpec,
    MutableHiType,
    aval_method,
    aval_property,
    register_hitype,
)
from jaxlite.core.high import cur_qdd as cur_qdd  # for `jax.experimental` itself
from jaxlite.extend.hi_primitives import HiPrimitive, VJPHiPrimitive
from jaxlite.extend.hi_prims import (
    HiPrim,
    bdims_at_front,
    jvp_from_lin,
    linearize_from_jvp,
    unmap_avals,
    vjp_from_jvp,
    vjp_from_lin,
    vmap_rule,
)
from jaxlite.state.api import TransformedRef
from jaxlite.traces.jvp import Zero
from jaxlite.traces.jvp import instantiate as instantiate_zeros
from jaxlite.traces.transpose import is_linear as is_undefined_primal
from jaxlite.transforms.accumulators import GradAccum, NullAccum, RefAccum, ValAccum

__all__ = [
    "AbstractRef", "AbstractValue", "AvalMutableQDD", "AvalQDD", "GradAccum", "HiPrim", "HiPrimitive", "HiPspec", "HiType",
    "MappingSpec", "MutableHiType", "NullAccum", "RefAccum", "ShapedArray", "TransformedRef", "VJPHiPrimitive", "ValAccum",
    "Zero", "aval_method", "aval_property", "bdims_at_front", "control_flow_allowed_effects", "instantiate_zeros",
    "is_undefined_primal", "jvp_from_lin", "linearize_from_jvp", "register_hitype", "unmap_avals", "vjp_from_jvp",
    "vjp_from_lin", "vmap_rule",
]
