"""Special functions written in terms of other primitives: incomplete gamma and beta functions, Bessel I0.

Each is one primitive in a jaxpr and becomes a series, a continued fraction or an asymptotic expansion when it is
compiled. The formulas are those of the NIST Digital Library of Mathematical Functions (DLMF, dlmf.nist.gov),
named where they are used; loops stop when every element has converged, and an element that has converged keeps
its value whatever its neighbours do.

Both incomplete functions are the product of a power factor and a slowly varying rest. The factor is computed from
log1p(u) - u and the logarithm of the scaled gamma function, gamma(a) / (sqrt(2 pi / a) (a/e)^a): its terms do not
cancel, as those of a log(x) - x - lgamma(a) would.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import register_rule_modules
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as ew
from jaxlite.lax import special
from jaxlite.lax.control_flow.while_loop import while_loop
from jaxlite.lax.elementwise import FLOATS, nary, unary
from jaxlite.lax.reductions import reduce_or
from jaxlite.lax.shaping import convert, convert_element_type, full_like
from jaxlite.traces.decompose import decomposes

igamma_p = nary("igamma", FLOATS)
igammac_p = nary("igammac", FLOATS)
igamma_grad_a_p = nary("igamma_grad_a", FLOATS)
random_gamma_grad_p = nary("random_gamma_grad", FLOATS)
regularized_incomplete_beta_p = nary("regularized_incomplete_beta", FLOATS, arity=3)
bessel_i0e_p = unary("bessel_i0e", FLOATS)


@boundary
def igamma(a, x):
    """The regularized lower incomplete gamma function P(a, x), from 0 at x = 0 to 1 at infinity.

    NaN for a < 0, x < 0 and P(0, 0).
    """
    return igamma_p.bind(a, x)


@boundary
def igammac(a, x):
    """The regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), accurate where it is small."""
    return igammac_p.bind(a, x)


@boundary
def igamma_grad_a(a, x):
    """The derivative of `igamma(a, x)` with respect to a. NaN unless a > 0 and x >= 0."""
    return igamma_grad_a_p.bind(a, x)


@boundary
def random_gamma_grad(a, x):
    """How a sample x of the gamma distribution moves with its shape parameter a, at a fixed probability.

    This is -igamma_grad_a(a, x) over the density at x, computed without dividing small numbers. Its own derivatives are
    those of the series, in forward mode.
    """
    if aval_of(a).shape:  # strong, as in JAX
        a = convert(a, None, False)
    return random_gamma_grad_p.bind(a, x)


@boundary
def betainc(a, b, x):
    """The regularized incomplete beta function I_x(a, b), from 0 at x = 0 to 1 at x = 1.

    NaN for x outside [0, 1], negative a or b, and where both are 0 or both infinite.
    """
    return regularized_incomplete_beta_p.bind(a, b, x)


@boundary
def bessel_i0e(x):
    """exp(-|x|) times the modified Bessel function of the first kind of order 0."""
    return bessel_i0e_p.bind(x)


# --- formulas read as formulas -----------------------------------------------------------------------


class Formula:
    """An array with operators. A number beside it takes its dtype."""

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def _with(self, operation: Callable, other, swapped: bool = False) -> Formula:
        y = other.array if isinstance(other, Formula) else np.dtype(aval_of(self.array).dtype).type(other)
        return Formula(operation(y, self.array) if swapped else operation(self.array, y))

    def __add__(self, other) -> Formula:
        return self._with(ew.add, other)

    def __sub__(self, other) -> Formula:
        return self._with(ew.sub, other)

    def __mul__(self, other) -> Formula:
        return self._with(ew.mul, other)

    def __truediv__(self, other) -> Formula:
        return self._with(ew.div, other)

    def __radd__(self, other) -> Formula:
        return self._with(ew.add, other)

    def __rsub__(self, other) -> Formula:
        return self._with(ew.sub, other, swapped=True)

    def __rmul__(self, other) -> Formula:
        return self._with(ew.mul, other)

    def __rtruediv__(self, other) -> Formula:
        return self._with(ew.div, other, swapped=True)

    def __neg__(self) -> Formula:
        return Formula(ew.neg(self.array))

    def __abs__(self) -> Formula:
        return Formula(ew.abs(self.array))

    def __lt__(self, other) -> Formula:
        return self._with(ew.lt, other)

    def __le__(self, other) -> Formula:
        return self._with(ew.le, other)

    def __gt__(self, other) -> Formula:
        return self._with(ew.gt, other)

    def __ge__(self, other) -> Formula:
        return self._with(ew.ge, other)

    def equals(self, other) -> Formula:
        return self._with(ew.eq, other)

    def __and__(self, other: Formula) -> Formula:
        return Formula(ew.bitwise_and(self.array, other.array))

    def __or__(self, other: Formula) -> Formula:
        return Formula(ew.bitwise_or(self.array, other.array))

    def __invert__(self) -> Formula:
        return Formula(ew.bitwise_not(self.array))


def _lifted(function: Callable) -> Callable[[Formula], Formula]:
    return lambda x: Formula(function(x.array))


_exp, _log, _log1p, _expm1 = _lifted(ew.exp), _lifted(ew.log), _lifted(ew.log1p), _lifted(ew.expm1)
_sqrt, _rsqrt = _lifted(ew.sqrt), _lifted(ew.rsqrt)
_lgamma, _digamma, _erfc = _lifted(special.lgamma), _lifted(special.digamma), _lifted(special.erfc)


def _is_nan(x: Formula) -> Formula:
    return Formula(ew.ne(x.array, x.array))


def _like(x: Formula, value: float) -> Formula:
    return Formula(full_like(x.array, value))


def _where(condition: Formula, x: Formula | float, y: Formula | float) -> Formula:
    """x where the condition holds, else y; numbers are stretched to the shape of the other one."""
    if not isinstance(x, Formula):
        assert isinstance(y, Formula)
        x = _like(y, x)
    elif not isinstance(y, Formula):
        y = _like(x, y)
    return Formula(ew.select(condition.array, x.array, y.array))


def _cases(*cases: tuple[Formula, Formula | float], otherwise: Formula) -> Formula:
    """The value beside the first condition that holds."""
    for condition, value in reversed(cases):
        otherwise = _where(condition, value, otherwise)
    return otherwise


def _polynomial(coefficients: Sequence[float], x: Formula) -> Formula:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    result: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result if isinstance(result, Formula) else _like(x, result)


def _epsilon(x: Formula) -> float:
    return float(np.finfo(aval_of(x.array).dtype).eps)


def _is_double(x: Formula) -> bool:
    return aval_of(x.array).dtype == np.float64


_ITERATION_LIMIT = 20000  # never met by the regions used below; a bound on what odd arguments can cost


def _iterate(step: Callable[..., tuple[Formula, tuple[Formula, ...]]], active: Formula,
             initial: Sequence[Formula]) -> list[Formula]:
    """Apply `step(n, *state) -> (continues, new state)` for n = 1, 2, ... to each element until it has converged."""
    axes = range(aval_of(active.array).ndim)

    def condition(carry: tuple[Any, ...]):
        n, active, *_ = carry
        return ew.bitwise_and(reduce_or(active, axes), ew.le(n, type(one)(_ITERATION_LIMIT)))

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        n, active, *state = carry
        goes_on, new = step(Formula(n), *map(Formula, state))
        kept = [ew.select(active, each.array, old) for each, old in zip(new, state, strict=True)]
        return (ew.add(n, one), ew.bitwise_and(active, goes_on.array), *kept)

    one = np.dtype(aval_of(initial[0].array).dtype).type(1)
    _, _, *state = while_loop(condition, body, (one, active.array, *[each.array for each in initial]))
    return list(map(Formula, state))


def _in_working_precision(function: Callable[..., Formula]) -> Callable[..., Any]:
    """From a function of formulas of one shape in float32 or float64 to one of arrays of any floating dtype."""

    @functools.wraps(function)
    def wrapped(*operands):
        avals = [aval_of(operand) for operand in operands]
        dtype = avals[0].dtype
        working = dtype if dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
        shape = ew.broadcast_shape(function.__name__, [aval.shape for aval in avals])
        wide = []
        for operand, aval in zip(operands, avals, strict=True):
            operand = convert_element_type(operand, working) if dtype != working else operand
            if aval.shape != shape:
                operand = ew.add(operand, full_like(operand, -0.0, shape=shape))
            wide.append(Formula(operand))
        result = function(*wide).array
        return convert_element_type(result, dtype) if dtype != working else result

    return wrapped


# --- the factors that both incomplete functions share ------------------------------------------------


def _by_atanh(u: Formula) -> tuple[Formula, Formula]:
    """s = u / (2 + u) and t with log(1 + u) = 2 atanh(s) = 2 s + s^3 t, for |u| <= 1/2."""
    s = u / (u + 2.0)
    return s, _polynomial([2.0 / (2 * k + 3) for k in range(17 if _is_double(u) else 8)], s * s)


def _log_minus(ratio: Formula, u: Formula) -> Formula:
    """log(ratio) - u for u = ratio - 1 without cancellation."""
    s, tail = _by_atanh(u)
    square = s * s
    far = _where(u < math.inf, _log(ratio) - u, -math.inf)
    return _where(abs(u) <= 0.5, s * square * tail - u * s, far)


# The coefficients of a^-1, a^-3, ... in the logarithm of the scaled gamma function (DLMF 5.11.1).
_STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400]


def _log_scaled_gamma(a: Formula) -> Formula:
    """log(gamma(a)) - (a - 1/2) log(a) + a - log(2 pi)/2, for a > 0."""
    threshold, count = (10.0, 8) if _is_double(a) else (3.0, 6)
    reciprocal = 1.0 / a
    large = reciprocal * _polynomial(_STIRLING[:count], reciprocal * reciprocal)
    small = _lgamma(a) - (a - 0.5) * _log(a) + a - math.log(2 * math.pi) / 2
    return _where(a >= threshold, large, small)


# --- incomplete gamma functions ----------------------------------------------------------------------


class _GammaTerms:
    """The terms that the functions of this family share at one (a, x).

    The power factor is D = x^a e^-x / gamma(a). Three regions: the power series where x is below a or 1, Temme's
    expansion around x = a for large a, the continued fraction elsewhere.
    """

    def __init__(self, a: Formula, x: Formula):
        self.a, self.x = a, x
        self.invalid = _is_nan(a) | _is_nan(x) | (a < 0.0) | (x < 0.0)
        regular = ~self.invalid & (a > 0.0) & (x > 0.0) & (a < math.inf) & (x < math.inf)
        self.distance = (x - a) / a
        self.log_ratio = _log_minus(x / a, self.distance)
        self.log_scale = _log_scaled_gamma(a)
        self.factor = _sqrt(a / (2 * math.pi)) * _exp(a * self.log_ratio - self.log_scale)
        self.near = regular & (a > (200.0 if _is_double(a) else 20.0)) & (abs(self.distance) < 0.3)
        self.below = regular & ~self.near & ((x <= 1.0) | (x <= a))
        self.above = regular & ~self.near & ~self.below

    def series(self, slope: bool = False) -> list[Formula]:
        """The sum S of x^n / ((a+1) ... (a+n)), P = D S / a (DLMF 8.11.4), and dS/da if asked for."""
        a, x, epsilon = self.a, self.x, _epsilon(self.a)

        def step(n: Formula, term: Formula, total: Formula, *slopes: Formula):
            ratio = x / (a + n)
            term = term * ratio
            total = total + term
            if not slope:
                return term > epsilon * total, (term, total)
            term_slope = slopes[0] * ratio - term / (a + n)
            total_slope = slopes[1] + term_slope
            goes_on = (term > epsilon * total) | (abs(term_slope) > epsilon * abs(total_slope))
            return goes_on, (term, total, term_slope, total_slope)

        one, zero = _like(a, 1.0), _like(a, 0.0)
        return _iterate(step, self.below, [one, one, zero, zero] if slope else [one, one])[1::2]

    def fraction(self, slope: bool = False) -> list[Formula]:
        """The continued fraction F with Q = D F (DLMF 8.9.2, even part), by Lentz's method; and dF/da / F."""
        a, x, epsilon = self.a, self.x, _epsilon(self.a)
        start = x + 1.0 - a  # above 0 in the region of use, as are all the denominators below

        def step(n: Formula, upper: Formula, lower: Formula, total: Formula, *slopes: Formula):
            partial = start + 2.0 * n
            numerator = n * (a - n)
            inverse = 1.0 / (partial + numerator * lower)
            new_upper = partial + numerator * upper
            change = new_upper * inverse
            goes_on = abs(change - 1.0) > epsilon
            new = (1.0 / new_upper, inverse, total * change)
            if not slope:
                return goes_on, new
            upper_slope, lower_slope, log_slope = slopes
            lower_slope = -(inverse * inverse) * (n * lower + numerator * lower_slope - 1.0)
            upper_slope = n * upper - numerator * upper_slope * upper * upper - 1.0
            log_change = upper_slope / new_upper + lower_slope / inverse
            goes_on = goes_on | (abs(log_change) > epsilon * abs(log_slope))
            return goes_on, (*new, upper_slope, lower_slope, log_slope + log_change)

        tiny = float(np.finfo(aval_of(a.array).dtype).tiny)
        first = _where(abs(start) < tiny, tiny, start)
        inverse = 1.0 / first
        state = [_like(a, 0.0), inverse, inverse]  # 1 / C, where C starts at infinity, and D
        if slope:
            state += [_like(a, 0.0), inverse * inverse, inverse]
        return _iterate(step, self.above, state)[2::3]

    def expansion(self) -> tuple[Formula, Formula, Formula]:
        """eta, the sum of c_k(eta) a^-k in DLMF 8.12.7, and its derivative along a at fixed x."""
        a, quotient = self.a, self.eta_over_distance()
        eta = self.distance * quotient
        eta_slope = -1.0 / (quotient * a)
        total = slope = _like(a, 0.0)
        inverse = 1.0 / a
        rows = _temme_coefficients()
        lengths = (18, 15, 13, 11, 9, 7, 5) if _is_double(a) else (9, 6, 4, 3)
        for k, length in reversed(list(enumerate(lengths))):
            row = rows[k][:length]
            slope_row = [n * value for n, value in enumerate(row)][1:]
            value = _polynomial(row, eta)
            slope = slope * inverse + (_polynomial(slope_row, eta) * eta_slope - value * (k * inverse))
            total = total * inverse + value
        return eta, total, slope

    def eta_over_distance(self) -> Formula:
        """eta / mu near x = a, where both vanish: eta^2 / 2 = mu - log(1 + mu)."""
        s, tail = _by_atanh(self.distance)
        reciprocal = 1.0 / (self.distance + 2.0)
        return _sqrt(2.0 * reciprocal * (1.0 - s * reciprocal * tail))

    def near_parts(self) -> tuple[Formula, Formula]:
        """(argument of erfc/2, rest) of Q; P has both with the other sign (DLMF 8.12.3, 8.12.4)."""
        a = self.a
        eta, total, _ = self.expansion()
        return eta * _sqrt(a / 2.0), _exp(a * self.log_ratio) / _sqrt(2 * math.pi * a) * total


@functools.cache
def _temme_coefficients() -> list[list[float]]:
    """d[k][n], the coefficients of eta^n in the c_k(eta) of Temme's expansion, from DLMF 8.12.9 to 8.12.11."""
    from fractions import Fraction

    count, orders = 32, 7
    # mu(eta) = eta + eta^2/3 + ... solves mu mu' = eta (1 + mu)
    zero = Fraction(0)
    mu = [zero, Fraction(1)]
    for n in range(2, count + 2):
        known = sum((mu[i] * mu[n + 1 - i] for i in range(2, n)), zero)
        mu.append(mu[n - 1] / (n + 1) - known / 2)
    # 1/mu = 1/eta + c_0(eta)
    reciprocal = [Fraction(1)]
    for n in range(1, count):
        reciprocal.append(-sum((mu[i + 1] * reciprocal[n - i] for i in range(1, n + 1)), zero))
    rows = [reciprocal[1:]]
    # the scaled gamma function as 1 + g_1/a + g_2/a^2 + ...
    logarithm = {1: Fraction(1, 12), 3: Fraction(-1, 360), 5: Fraction(1, 1260)}
    gamma = [Fraction(1)]
    for k in range(1, orders):
        gamma.append(sum((j * s * gamma[k - j] for j, s in logarithm.items() if j <= k), zero) / k)
    for k in range(1, orders):
        previous = rows[-1]
        rows.append([(n + 2) * previous[n + 2] + (-1) ** k * gamma[k] * rows[0][n] for n in range(len(previous) - 2)])
    return [[float(value) for value in row] for row in rows]


def _gamma_boundary(terms: _GammaTerms, upper: bool, value: Formula) -> Formula:
    """P, or Q if `upper`, with its limits at the edges of the domain."""
    a, x = terms.a, terms.x
    zero, one = (1.0, 0.0) if upper else (0.0, 1.0)
    undefined = terms.invalid | (a.equals(0.0) & x.equals(0.0)) | (a.equals(math.inf) & x.equals(math.inf))
    return _cases((undefined, math.nan), (x.equals(0.0) | a.equals(math.inf), zero),
                  (x.equals(math.inf) | a.equals(0.0), one), otherwise=value)


@decomposes(igamma_p)
@_in_working_precision
def _igamma(a: Formula, x: Formula) -> Formula:
    terms = _GammaTerms(a, x)
    (total,), (fraction,) = terms.series(), terms.fraction()
    z, rest = terms.near_parts()
    return _gamma_boundary(terms, False, _cases(
        (terms.below, terms.factor / a * total), (terms.near, 0.5 * _erfc(-z) - rest),
        otherwise=1.0 - terms.factor * fraction))


@decomposes(igammac_p)
@_in_working_precision
def _igammac(a: Formula, x: Formula) -> Formula:
    terms = _GammaTerms(a, x)
    (total,), (fraction,) = terms.series(), terms.fraction()
    z, rest = terms.near_parts()
    return _gamma_boundary(terms, True, _cases(
        (terms.below & (a < 0.5), _igammac_small(a, x, terms.below & (a < 0.5))),
        (terms.below, 1.0 - terms.factor / a * total), (terms.near, 0.5 * _erfc(z) + rest),
        otherwise=terms.factor * fraction))


def _igammac_small(a: Formula, x: Formula, active: Formula) -> Formula:
    """Q for a < 1/2 and x <= 1, where P is near 1: DLMF 8.7.3 with its leading 1 taken out of the sum."""
    # log gamma(1 + a) without cancellation: DLMF 5.7.3
    log_gamma = a * _polynomial([1 - _EULER, *[(-1) ** k * _zeta_minus_one(k) / k
                                               for k in range(2, 30 if _is_double(a) else 14)]], a) - _log1p(a)
    exponent = a * _log(x) - log_gamma  # x^a / gamma(1 + a)
    count = 20 if _is_double(a) else 12
    total = power = None
    for n in range(1, count):
        power = -1.0 * x if power is None else power * x * (-1.0 / n)
        total = power / (a + n) if total is None else total + power / (a + n)
    assert total is not None
    return -1.0 * _expm1(exponent) - _exp(exponent) * a * total


_EULER = 0.57721566490153286061


def _zeta_minus_one(s: int) -> float:
    """The sum of k^-s over k = 2, 3, ...: twenty terms, the tail by Euler and Maclaurin's formula."""
    n = 20
    tail = n ** (1.0 - s) / (s - 1) - 0.5 * n ** float(-s) + s * n ** (-s - 1.0) / 12
    tail -= s * (s + 1) * (s + 2) * n ** (-s - 3.0) / 720
    tail += s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * n ** (-s - 5.0) / 30240
    return math.fsum([*[k ** float(-s) for k in range(2, n + 1)], tail])


def _gamma_slope(terms: _GammaTerms) -> Formula:
    """-dP/da / D, in each of the regions."""
    a, x = terms.a, terms.x
    log_x = _log(x)
    total, total_slope = terms.series(slope=True)
    below = -1.0 * ((log_x - _digamma(a + 1.0)) * total + total_slope) / a
    fraction, log_slope = terms.fraction(slope=True)
    above = fraction * (log_x - _digamma(a) + log_slope)
    eta, rest, rest_slope = terms.expansion()
    near = 1.0 / terms.eta_over_distance() - eta / 2.0 + rest * (_log1p(terms.distance) - 0.5 / a) + rest_slope
    return _cases((terms.below, below), (terms.near, near * _exp(terms.log_scale) / a), otherwise=above)


def _slope_boundary(terms: _GammaTerms, value: Formula) -> Formula:
    """A slope with its limits at the edges of the domain."""
    a, x = terms.a, terms.x
    undefined = terms.invalid | (a <= 0.0) | x.equals(math.inf)
    return _cases((undefined, math.nan), (x.equals(0.0), 0.0), otherwise=value)


@decomposes(igamma_grad_a_p)
@_in_working_precision
def _igamma_grad_a(a: Formula, x: Formula) -> Formula:
    terms = _GammaTerms(a, x)
    vanishes = terms.factor.equals(0.0)
    slope = _where(vanishes, 0.0, -1.0 * _gamma_slope(terms) * terms.factor)
    return _slope_boundary(terms, slope)


@decomposes(random_gamma_grad_p)
@_in_working_precision
def _random_gamma_grad(a: Formula, x: Formula) -> Formula:
    terms = _GammaTerms(a, x)
    return _slope_boundary(terms, x * _gamma_slope(terms))


# --- the incomplete beta function --------------------------------------------------------------------


def _beta_fraction(a: Formula, b: Formula, x: Formula, y: Formula, offset: Formula, active: Formula) -> Formula:
    """The rest of I_x(a, b) for x = 1 - y below the mean, where offset = a y - b x is positive.

    The even part of the continued fraction of DLMF 8.17.22, whose terms are then free of cancellation (DiDonato and
    Morris, ACM Transactions on Mathematical Software 18, 1992), by Lentz's method.
    """
    epsilon = _epsilon(a)

    def step(n: Formula, upper: Formula, lower: Formula, total: Formula):
        before, behind = a + (2.0 * n - 1.0), a + (2.0 * n + 1.0)
        weight = n * (b - n) * x / before
        numerator = (a + (n - 1.0)) / before * (a + b + (n - 1.0)) * x * weight
        partial = n + weight + (a + n) / behind * (offset + 1.0 + n * (y + 1.0))
        upper, lower = partial + numerator / upper, 1.0 / (partial + numerator * lower)
        change = upper * lower
        return abs(change - 1.0) > epsilon, (upper, lower, total * change)

    first = (a + 1.0) / (a * (offset + 1.0))
    return _iterate(step, active, [_like(a, math.inf), first, first])[2]


@decomposes(regularized_incomplete_beta_p)
@_in_working_precision
def _regularized_incomplete_beta(a: Formula, b: Formula, x: Formula) -> Formula:
    infinite_a, infinite_b = a.equals(math.inf), b.equals(math.inf)
    undefined = (_is_nan(a) | _is_nan(b) | _is_nan(x) | (a < 0.0) | (b < 0.0) | (x < 0.0) | (x > 1.0)
                 | (a.equals(0.0) & b.equals(0.0)) | (infinite_a & infinite_b))
    is_zero = x.equals(0.0) | b.equals(0.0) | infinite_a
    is_one = x.equals(1.0) | a.equals(0.0) | infinite_b
    regular = ~(undefined | is_zero | is_one)
    y = 1.0 - x
    swapped = a * y < b * x  # beyond the mean: then by I_x(a, b) = 1 - I_y(b, a)
    p, q = _where(swapped, b, a), _where(swapped, a, b)
    u, v = _where(swapped, y, x), _where(swapped, x, y)
    offset, both = p * v - q * u, p + q
    # u^p v^q gamma(p+q) / (gamma(p) gamma(q)); both logarithms are negative
    power = p * _log_minus(u * (both / p), -1.0 * offset / p) + q * _log_minus(v * (both / q), offset / q)
    scale = _log_scaled_gamma(both) - _log_scaled_gamma(p) - _log_scaled_gamma(q)
    factor = _sqrt(q / both * (p / (2 * math.pi))) * _exp(power + scale)
    part = factor * _beta_fraction(p, q, u, v, offset, regular)
    return _cases((undefined, math.nan), (x.equals(0.0), 0.0), (x.equals(1.0), 1.0), (is_zero, 0.0), (is_one, 1.0),
                  otherwise=_where(swapped, 1.0 - part, part))


# --- Bessel I0 ---------------------------------------------------------------------------------------


# For single precision: a quotient of polynomials of x / 6 up to 6; beyond, a polynomial of 6 / x that is sqrt(x) times the
# function. Both are fitted to values of 60 digits.
_I0E_NEAR = ([1.0000000163, 0.527453733, 7.6317477, 3.50968788, 8.9272164, 1.02460796],
             [1.0, 6.52746137, 19.7959214, 36.0621443, 41.7294216, 30.6168545])
_I0E_FAR = [0.398942278, 8.31151304e-3, 7.76631764e-4, 1.44668903e-4, 2.54899471e-5, 1.8302761e-7, 2.4915684e-5]


@decomposes(bessel_i0e_p)
@_in_working_precision
def _bessel_i0e(x: Formula) -> Formula:
    x = abs(x)
    near, far = _i0e_double(x) if _is_double(x) else _i0e_single(x)
    return _cases((_is_nan(x), math.nan), (x < (19.0 if _is_double(x) else 6.0), near), otherwise=far)


def _i0e_single(x: Formula) -> tuple[Formula, Formula]:
    part, large = _where(x < 6.0, x, 0.0) * (1 / 6), _where(x < 6.0, 6.0, x)
    near, beyond = (_polynomial(each, part) for each in _I0E_NEAR)
    return near / beyond, _polynomial(_I0E_FAR, 6.0 / large) * _rsqrt(large)


def _i0e_double(x: Formula) -> tuple[Formula, Formula]:
    """The power series (DLMF 10.25.2), all of whose terms are positive; the asymptotic one (10.40.1) for large x."""
    quarter = _where(x < 19.0, x * x / 4.0, 0.0)
    series = _like(x, 1.0)
    for k in range(54, 0, -1):
        series = series * (quarter * (1.0 / k**2)) + 1.0
    large = _where(x < 19.0, 19.0, x)
    inverse = 1.0 / large
    far = _like(x, 1.0)
    for k in range(30, 0, -1):
        far = far * (inverse * ((2 * k - 1) ** 2 / (8.0 * k))) + 1.0
    return series * _exp(-x), far * _rsqrt(large) * (1 / math.sqrt(2 * math.pi))


register_rule_modules("jaxlite.lax.special_series_rules")
