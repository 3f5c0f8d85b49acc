"""Hypergeometric functions of real arguments, by their series and the transformations that make it converge fast.

Sums run until no element changes any more, so derivatives are written out: along x by raising parameters, along
parameters by the derivative of each term, which is summed beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import in_working_precision, of_lists
from jaxlite.scipy.special.gammas import gammasgn
from jaxlite.transforms.custom_derivatives import custom_jvp

_LIMIT = 20000


def _sum(upper: Sequence[Any], lower: Sequence[Any], x, slopes: bool = False) -> list[Any]:
    """The sum of x^k / k! times rising factorials of `upper` over those of `lower`; with its slopes along these."""
    parameters = [*upper, *lower]
    epsilon = float(np.finfo(aval_of(x).dtype).eps)
    one, zero = jnp.ones_like(x), jnp.zeros_like(x)
    # Of each parameter: the derivative of the term's logarithm, unless a factor of zero ends the series.
    moved = parameters if slopes else []

    def unfinished(state):
        k, active, *_ = state
        return jnp.any(active) & (k < _LIMIT)

    def step(state):
        k, active, term, result, term_slopes, result_slopes = state
        factor = x / (k + 1)
        for a in upper:
            factor = factor * (a + k)
        for b in lower:
            factor = factor / (b + k)
        new_slopes = []
        for position, parameter in enumerate(moved):
            sign = 1 if position < len(upper) else -1
            gap = parameter + k
            # d(term * factor): factors of zero are left out of the product rather than divided by.
            if sign > 0:
                rest = x / (k + 1)
                for which, a in enumerate(upper):
                    rest = rest if which == position else rest * (a + k)
                for b in lower:
                    rest = rest / (b + k)
            else:
                rest = -factor / gap
            new_slopes.append(term_slopes[position] * factor + term * rest)
        term = term * factor
        totals = [total + each for total, each in zip(result_slopes, new_slopes, strict=True)]
        goes_on = jnp.abs(term) > epsilon * jnp.abs(result)
        for each, total in zip(new_slopes, totals, strict=True):
            goes_on = goes_on | (jnp.abs(each) > epsilon * jnp.abs(total))
        result = jnp.where(active, result + term, result)
        totals = [jnp.where(active, new, old) for new, old in zip(totals, result_slopes, strict=True)]
        # Early terms may be small by chance: none of the first ones ends the sum.
        return k + 1, active & (goes_on | (k < 3)), term, result, new_slopes, totals

    active = jnp.isfinite(x)
    state = (zero.dtype.type(0), active, one, one, [zero] * len(moved), [zero] * len(moved))
    _, _, _, result, _, totals = lax.while_loop(unfinished, step, state)
    return [jnp.where(active, result, jnp.nan), *totals]



# --- 1F1 ---------------------------------------------------------------------------------------------


@custom_jvp
def _hyp1f1(a, b, x):
    is_negative = x < 0  # DLMF 13.2.39: then terms alternate, unless they are few
    ends = (a <= 0) & (a == jnp.floor(a))
    turns = is_negative & ~ends
    (value,) = _sum([jnp.where(turns, b - a, a)], [b], jnp.where(turns, -x, x))
    return jnp.where(turns, jnp.exp(jnp.where(turns, x, 0)) * value, value)


@_hyp1f1.defjvp
def _hyp1f1_jvp(primals, tangents):
    (a, b, x), (da, db, dx) = primals, tangents
    turns = x < 0
    scale = jnp.where(turns, jnp.exp(jnp.minimum(x, 0)), 1)
    first = jnp.where(turns, b - a, a)
    _, along_first, along_b = _sum([first], [b], jnp.abs(x), slopes=True)
    along_a = jnp.where(turns, -along_first, along_first) * scale
    along_b = jnp.where(turns, along_first + along_b, along_b) * scale
    along_x = a / b * _hyp1f1(a + 1, b + 1, x)
    return _hyp1f1(a, b, x), da * along_a + db * along_b + dx * along_x


@float_api
@of_lists
@in_working_precision
def hyp1f1(a, b, x):
    """Kummer's confluent hypergeometric function 1F1(a; b; x), of real arguments.

    >>> from jaxlite.scipy.special import hyp1f1
    >>> print(hyp1f1(1.0, 1.0, 0.0))
    1.0
    """
    return _hyp1f1(*jnp.broadcast_arrays(a, b, x))


# --- 2F1 ---------------------------------------------------------------------------------------------


def _gamma_quotient(upper: Sequence[Any], lower: Sequence[Any]):
    """A quotient of products of gamma functions; zero where one below has a pole."""
    log = sum(lax.lgamma(x) for x in upper) - sum(lax.lgamma(x) for x in lower)
    sign: Any = 1
    has_pole: Any = False
    for x in (*upper, *lower):
        sign = sign * jnp.where(jnp.isnan(gammasgn(x)), 1, gammasgn(x))
    for x in lower:
        has_pole = has_pole | _is_pole(x)
    return jnp.where(has_pole, 0, sign * jnp.exp(log))


@custom_jvp
def _hyp2f1(a, b, c, x):
    is_one = x == 1
    is_inside = x < 1
    safe = jnp.where(is_inside, x, 0)
    # DLMF 15.8.1: a negative x goes to [0, 1); 15.8.1 again, so that terms near 1 fall off.
    is_negative = safe < 0
    near = jnp.where(is_negative, safe / (safe - 1), safe)
    second = jnp.where(is_negative, c - b, b)
    excess = c - a - second
    is_slow = (excess < 0) & (near > 0.5)
    first = jnp.where(is_slow, c - a, a)
    (value,) = _sum([first, jnp.where(is_slow, c - second, second)], [c], near)
    value = value * jnp.where(is_slow, (1 - near) ** excess, 1) * jnp.where(is_negative, (1 - safe) ** -a, 1)
    at_one = jnp.where(c - a - b > 0, _gamma_quotient([c, jnp.where(c - a - b > 0, c - a - b, 1)], [c - a, c - b]), jnp.inf)
    has_pole = _is_pole(c) & ~(_is_pole(a) & (a > c)) & ~(_is_pole(b) & (b > c))  # else the series ends before it
    return jnp.where(is_one, at_one, jnp.where(is_inside, jnp.where(has_pole & (x != 0), jnp.inf, value), jnp.nan))


def _is_pole(x):
    """Whether the gamma function is infinite: at 0, -1, -2, ..."""
    return (x <= 0) & (x == jnp.floor(x))


@_hyp2f1.defjvp
def _hyp2f1_jvp(primals, tangents):
    (a, b, c, x), (da, db, dc, dx) = primals, tangents
    is_negative = x < 0
    safe = jnp.where(x < 1, x, 0)
    near = jnp.where(is_negative, safe / (safe - 1), safe)
    scale = jnp.where(is_negative, (1 - safe) ** -a, 1)
    value, along_a, along_second, along_c = _sum([a, jnp.where(is_negative, c - b, b)], [c], near, slopes=True)
    along_a = along_a - jnp.where(is_negative, jnp.log1p(-safe) * value, 0)
    along_b = jnp.where(is_negative, -along_second, along_second)
    along_c = along_c + jnp.where(is_negative, along_second, 0)
    along_x = a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x)
    return _hyp2f1(a, b, c, x), scale * (da * along_a + db * along_b + dc * along_c) + dx * along_x


@float_api
@of_lists
@in_working_precision
def hyp2f1(a, b, c, x):
    """Gauss' hypergeometric function 2F1(a, b; c; x), of real arguments with x <= 1; NaN beyond.

    The series takes many terms as x comes near 1, where it loses accuracy.
    """
    return _hyp2f1(*jnp.broadcast_arrays(a, b, c, x))
