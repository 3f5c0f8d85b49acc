"""Derivative and batching rules of the special functions.

They have derivatives in every argument in which one is known in terms of the functions here. Letters: g a tangent, ans
the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as e
from jaxlite.lax import special as s
from jaxlite.lax import special_series as t
from jaxlite.lax.elementwise_rules import const, filled, stretch
from jaxlite.traces.batching import def_elementwise
from jaxlite.traces.jvp import def_jvp


def _refuse(message: str, error: type[Exception] = ValueError) -> Callable[..., Any]:
    """The share of an argument that has no derivative."""

    def rule(g, ans, *primals):
        raise error(message)

    return rule


# --- error functions ---------------------------------------------------------------------------------


def _gaussian(x, scale: float):
    return e.mul(const(scale, x), e.exp(e.neg(e.square(x))))


def_jvp(s.erf_p, lambda g, ans, x: e.mul(g, _gaussian(x, 2 / math.sqrt(math.pi))))
def_jvp(s.erfc_p, lambda g, ans, x: e.mul(g, _gaussian(x, -2 / math.sqrt(math.pi))))
def_jvp(s.erf_inv_p, lambda g, ans, x: e.mul(g, e.mul(const(math.sqrt(math.pi) / 2, x), e.exp(e.square(ans)))))

# --- gamma and zeta ----------------------------------------------------------------------------------

def_jvp(s.lgamma_p, lambda g, ans, x: e.mul(g, s.digamma(x)))
def_jvp(s.digamma_p, lambda g, ans, x: e.mul(g, s.polygamma(const(1, x), x)))
def_jvp(s.polygamma_p, _refuse("polygamma gradient with respect to m is not supported"),
        lambda g, ans, m, x: e.mul(stretch(g, ans), s.polygamma(e.add(m, const(1, m)), x)))
def_jvp(s.zeta_p, _refuse("Differentiation rule for 'zeta' not implemented with respect to x", NotImplementedError),
        lambda g, ans, x, q: e.mul(stretch(g, ans), e.mul(e.neg(x), s.zeta(e.add(x, const(1, x)), q))))


def _gamma_density(a, x):
    return e.exp(e.sub(e.sub(e.mul(e.sub(a, const(1, a)), e.log(x)), x), s.lgamma(a)))


def_jvp(t.igamma_p, lambda g, ans, a, x: e.mul(stretch(g, ans), t.igamma_grad_a(a, x)),
        lambda g, ans, a, x: e.mul(stretch(g, ans), _gamma_density(a, x)))
def_jvp(t.igammac_p, lambda g, ans, a, x: e.mul(stretch(g, ans), e.neg(t.igamma_grad_a(a, x))),
        lambda g, ans, a, x: e.mul(stretch(g, ans), e.neg(_gamma_density(a, x))))
t.igamma_grad_a_p.no_jvp("its derivatives are not among the known functions; igamma is differentiable once in a")
t.random_gamma_grad_p.no_jvp("its derivatives are not among the known functions; samples are differentiable once in a")

# --- incomplete beta ---------------------------------------------------------------------------------


def _beta_density(a, b, x):
    """x^(a-1) (1-x)^(b-1) over the beta function."""
    one = const(1, x)
    power = e.add(e.mul(e.sub(a, one), e.log(x)), e.mul(e.sub(b, one), e.log1p(e.neg(x))))
    return e.exp(e.sub(power, e.sub(e.add(s.lgamma(a), s.lgamma(b)), s.lgamma(e.add(a, b)))))


_no_shape = _refuse("Betainc gradient with respect to a and b not supported.")
def_jvp(t.regularized_incomplete_beta_p, _no_shape, _no_shape,
        lambda g, ans, a, b, x: e.mul(stretch(g, ans), _beta_density(a, b, x)))

# --- Bessel ------------------------------------------------------------------------------------------

def_jvp(t.bessel_i0e_p, lambda g, ans, x: e.mul(g, e.sub(s.bessel_i1e(x), e.mul(e.sign(x), ans))))


def _i1e_slope(ans, x):
    """I1'(x) = I0(x) - I1(x) / x, which is 1/2 at 0; times e.exp(-|x|), whose slope counts too."""
    epsilon = const(dtypes.finfo(aval_of(x).dtype).eps, x)
    away = e.gt(e.abs(x), epsilon)
    safe = e.select_n(away, filled(epsilon, x), x)
    slope = e.sub(t.bessel_i0e(safe), e.mul(ans, e.add(e.sign(safe), e.integer_pow(safe, -1))))
    return e.select_n(away, filled(np.float32(0.5), x), slope)


def_jvp(s.bessel_i1e_p, lambda g, ans, x: e.mul(g, _i1e_slope(ans, x)))

for _module in (s, t):
    for _name, _p in list(vars(_module).items()):
        if _name.endswith("_p") and _p.batching is None:
            def_elementwise(_p)
