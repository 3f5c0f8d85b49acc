"""Derivative and batching rules of the special functions that are series: incomplete gamma and beta functions, Bessel.

Letters as in `special_rules`.
"""

from __future__ import annotations

from jaxlite.lax import elementwise as e
from jaxlite.lax import special as s
from jaxlite.lax import special_series as t
from jaxlite.lax.elementwise_rules import const, stretch
from jaxlite.lax.special_rules import batch_elementwise, refuse
from jaxlite.traces.batching import def_elementwise
from jaxlite.traces.decompose import rules_by_parts
from jaxlite.traces.jvp import def_jvp

# --- incomplete gamma --------------------------------------------------------------------------------


def _gamma_density(a, x):
    return e.exp(e.sub(e.sub(e.mul(e.sub(a, const(1, a)), e.log(x)), x), s.lgamma(a)))


def_jvp(t.igamma_p, lambda g, ans, a, x: e.mul(stretch(g, ans), t.igamma_grad_a(a, x)),
        lambda g, ans, a, x: e.mul(stretch(g, ans), _gamma_density(a, x)))
def_jvp(t.igammac_p, lambda g, ans, a, x: e.mul(stretch(g, ans), e.neg(t.igamma_grad_a(a, x))),
        lambda g, ans, a, x: e.mul(stretch(g, ans), e.neg(_gamma_density(a, x))))
t.igamma_grad_a_p.no_jvp("its derivatives are not among the known functions; igamma is differentiable once in a")
rules_by_parts(t.random_gamma_grad_p)
def_elementwise(t.random_gamma_grad_p)  # of a batch it stays one equation

# --- incomplete beta ---------------------------------------------------------------------------------


def _beta_density(a, b, x):
    """x^(a-1) (1-x)^(b-1) over the beta function."""
    one = const(1, x)
    power = e.add(e.mul(e.sub(a, one), e.log(x)), e.mul(e.sub(b, one), e.log1p(e.neg(x))))
    return e.exp(e.sub(power, e.sub(e.add(s.lgamma(a), s.lgamma(b)), s.lgamma(e.add(a, b)))))


_no_shape = refuse("Betainc gradient with respect to a and b not supported.")
def_jvp(t.regularized_incomplete_beta_p, _no_shape, _no_shape,
        lambda g, ans, a, b, x: e.mul(stretch(g, ans), _beta_density(a, b, x)))

# --- Bessel ------------------------------------------------------------------------------------------

def_jvp(t.bessel_i0e_p, lambda g, ans, x: e.mul(g, e.sub(s.bessel_i1e(x), e.mul(e.sign(x), ans))))

batch_elementwise(t)
