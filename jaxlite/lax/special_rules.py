"""Derivative and batching rules of the special functions.

They have derivatives in every argument in which one is known in terms of the functions here. Letters: g a tangent, ans
the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.lazy import loader
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as e
from jaxlite.lax import special as s
from jaxlite.lax.elementwise_rules import const, factor, filled, stretch
from jaxlite.traces.batching import def_elementwise
from jaxlite.traces.jvp import def_jvp
from lowering.xla import VERSION

_series = loader("jaxlite.lax.special_series")  # with loops, for the one rule that needs it


def refuse(message: str, error: type[Exception] = ValueError) -> Callable[..., Any]:
    """The share of an argument that has no derivative."""

    def rule(g, ans, *primals):
        raise error(message)

    return rule


# --- error functions ---------------------------------------------------------------------------------


def _gaussian(x, scale: float):  # strong or not as JAX of the same jaxlib
    return e.mul(const(scale, x, strong=True) if VERSION >= (0, 12) else factor(scale, x), e.exp(e.neg(e.square(x))))


def_jvp(s.erf_p, lambda g, ans, x: e.mul(g, _gaussian(x, 2 / math.sqrt(math.pi))))
def_jvp(s.erfc_p, lambda g, ans, x, **accuracy: e.mul(g, _gaussian(x, -2 / math.sqrt(math.pi))))
def_jvp(s.erf_inv_p, lambda g, ans, x: e.mul(g, e.mul(factor(math.sqrt(math.pi) / 2, x), e.exp(e.square(ans)))))

# --- gamma and zeta ----------------------------------------------------------------------------------

def_jvp(s.lgamma_p, lambda g, ans, x: e.mul(g, s.digamma(x)))
def_jvp(s.digamma_p, lambda g, ans, x: e.mul(g, s.polygamma(factor(1, x), x)))
def_jvp(s.polygamma_p, refuse("polygamma gradient with respect to m is not supported"),
        lambda g, ans, m, x: e.mul(stretch(g, ans), s.polygamma(e.add(m, const(1, m)), x)))
def_jvp(s.zeta_p, refuse("Differentiation rule for 'zeta' not implemented with respect to x", NotImplementedError),
        lambda g, ans, x, q: e.mul(stretch(g, ans), e.mul(e.neg(x), s.zeta(e.add(x, const(1, x, strong=True)), q))))


# --- Bessel ------------------------------------------------------------------------------------------

def _i1e_slope(ans, x):
    """I1'(x) = I0(x) - I1(x) / x, which is 1/2 at 0; times e.exp(-|x|), whose slope counts too."""
    epsilon = const(dtypes.finfo(aval_of(x).dtype).eps, x)
    away = e.gt(e.abs(x), epsilon)
    safe = e.select_n(away, filled(epsilon, x), x)
    slope = e.sub(_series().bessel_i0e(safe), e.mul(ans, e.add(e.sign(safe), e.integer_pow(safe, -1))))
    return e.select_n(away, filled(np.float32(0.5), x), slope)


def_jvp(s.bessel_i1e_p, lambda g, ans, x: e.mul(g, _i1e_slope(ans, x)))


def batch_elementwise(module: ModuleType) -> None:
    """Give the primitives of a module the batching rule of operations on elements, if they have none."""
    for name, primitive in list(vars(module).items()):
        if name.endswith("_p") and primitive.batching is None:
            def_elementwise(primitive)


batch_elementwise(s)
