"""Functions with derivative rules of their own."""

from jaxlite.traces.custom_rules import custom_jvp_call_p, custom_vjp_call_p
from jaxlite.traces.remat_opt import remat_opt_p
from jaxlite.transforms.custom_derivatives import (
    CustomVJPPrimal,
    SymbolicZero,
    closure_convert,
    custom_jvp,
    custom_vjp,
    custom_vjp_primal_tree_values,
    zero_from_primal,
)
from jaxlite.transforms.custom_gradient import custom_gradient
from jaxlite.transforms.linear_calls import linear_call

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "remat_opt_p",
    "zero_from_primal",
]
