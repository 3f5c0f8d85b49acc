"""The error function and its relatives: scaled and complex ones, Dawson's and Fresnel's integrals, the normal
distribution and its inverse, Owen's T.

Rational approximations are W. Cody's (Math. Comp. 23, 1969; also netlib's specfun) and, for quantiles, M. Wichura's
AS 241 (Applied Statistics 37, 1988). The complex error function is J. Weideman's expansion (SIAM J. Numer. Anal. 31,
1994).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import as_array, broadcasts_inside, check_arrays, float_api, promote_dtypes_inexact, scalar
from jaxlite.scipy.arguments import floats, in_working_precision, polynomial
from jaxlite.transforms.custom_derivatives import custom_jvp


@float_api
def erf(x):
    """The error function."""
    return lax.erf(floats("erf", x))


@float_api
def erfc(x):
    """1 - erf(x), accurate where it is small."""
    return lax.erfc(floats("erfc", x))


@float_api
def erfinv(x):
    """The inverse of the error function, for x in [-1, 1]."""
    return lax.erf_inv(floats("erfinv", x))


# --- scaled ------------------------------------------------------------------------------------------

# erfcx(x) for x in [0.46875, 4], and (1/sqrt(pi) - x erfcx(x)) x^2 as a function of x^-2 for greater ones.
_MIDDLE = ([1.23033935479799725e3, 2.05107837782607147e3, 1.71204761263407058e3, 8.81952221241769090e2, 2.98635138197400131e2,
            6.61191906371416295e1, 8.88314979438837594e0, 5.64188496988670089e-1, 2.15311535474403846e-8],
           [1.23033935480374942e3, 3.43936767414372164e3, 4.36261909014324716e3, 3.29079923573345963e3, 1.62138957456669019e3,
            5.37181101862009858e2, 1.17693950891312499e2, 1.57449261107098347e1, 1.0])
_FAR = ([6.58749161529837803e-4, 1.60837851487422766e-2, 1.25781726111229246e-1, 3.60344899949804439e-1,
         3.05326634961232344e-1, 1.63153871373020978e-2],
        [2.33520497626869185e-3, 6.05183413124413191e-2, 5.27905102951428412e-1, 1.87295284992346725e0, 2.56852019228982242e0,
         1.0])
# x erfcx(x) for x > 0.46875 as a function of 1 / x, fitted to values of 50 digits: enough for float32.
_LARGE = ([0.564189589, 3.13771585, 8.72114084, 13.1162816, 9.2327615],
          [1, 5.56146005, 15.9576097, 26.0335366, 23.5373208, 9.23239576])


def _quotient(parts: tuple[list[float], list[float]], x):
    return polynomial(parts[0], x) / polynomial(parts[1], x)


@custom_jvp
def _erfcx_of_large(x):
    """`_erfcx` for x > 0.46875."""
    if aval_of(x).dtype.itemsize < 8:
        inverse = 1 / jnp.maximum(x, 0.46875)
        return inverse * _quotient(_LARGE, inverse)
    middle, far = jnp.clip(x, 0.46875, 4), jnp.maximum(x, 4)
    square = jnp.square(1 / far)
    below = polynomial(_FAR[1], square)
    # One quotient of what is chosen, as divisions are what takes long.
    above = jnp.where(x > 4, below / math.sqrt(math.pi) - square * polynomial(_FAR[0], square), polynomial(_MIDDLE[0], middle))
    return above / jnp.where(x > 4, below * far, polynomial(_MIDDLE[1], middle))


@custom_jvp
def _erfcx(x):
    size = jnp.abs(x)
    near = jnp.minimum(size, 0.5)
    value = jnp.where(size > 0.46875, _erfcx_of_large(size), jnp.exp(near * near) * (1 - lax.erf(near)))
    return jnp.where(x < 0, 2 * jnp.exp(x * x) - value, value)


def _erfcx_slope(t, out, x):
    square = jnp.square(1 / jnp.maximum(x, 4))
    return t * jnp.where(x > 4, -2 * square * _quotient(_FAR, square), 2 * x * out - 2 / math.sqrt(math.pi))


for _function in (_erfcx, _erfcx_of_large):
    _function.defjvps(_erfcx_slope)


@in_working_precision
def _real_erfcx(x):
    return _erfcx(shaping.convert(x, None, False))


@float_api
def erfcx(x):
    """exp(x^2) erfc(x), which does not underflow for large x; of complex numbers, too."""
    check_arrays("erfcx", x)
    if dtypes.kind(aval_of(x).dtype) == "c":
        x = as_array(x) * 1j
        return wofz(shaping.convert(x, x.dtype, False))
    x = floats("erfcx", x)
    return _real_erfcx(shaping.convert(x, x.dtype, False))


# --- complex -----------------------------------------------------------------------------------------


@functools.cache
def _expansion(count: int) -> tuple[float, np.ndarray]:
    """The scale L and the coefficients, highest first, of Weideman's expansion."""
    scale = math.sqrt(count / math.sqrt(2))
    points = 2 * count
    theta = np.arange(-points + 1, points) * np.pi / points
    t = scale * np.tan(theta / 2)
    values = np.concatenate([[0.0], np.exp(-t * t) * (scale * scale + t * t)])
    coefficients = np.real(np.fft.fft(np.fft.fftshift(values))) / (2 * points)
    return scale, coefficients[1:count + 1][::-1]


@functools.cache
def _fraction(count: int) -> tuple[list[float], list[float]]:
    """Numerator and denominator of 1 / (1 - (1/2) v / (1 - (2/2) v / (1 - ...))), `count` steps deep, lowest first."""
    above, below = np.poly1d([1.0]), np.poly1d([1.0])
    for k in range(count, 0, -1):
        above, below = below, below - above * np.poly1d([k / 2, 0.0])
    return list(map(float, above.coeffs[::-1])), list(map(float, below.coeffs[::-1]))


@custom_jvp
def _wofz(z):
    is_below = jnp.imag(z) < 0
    upper = jnp.where(is_below, -z, z)
    is_double = aval_of(z).dtype == np.complex128
    scale, coefficients = _expansion(56 if is_double else 24)
    # Where it is large, i z turns Z to -1 and the expansion loses digits: there Laplace's continued fraction has them.
    is_far = jnp.abs(upper) > (8 if is_double else 5)
    inner = jnp.where(is_far, 1, upper)
    inverse = 1 / jnp.where(is_far, upper, scale - 1j * inner)  # divisions are what takes long
    ratio = (scale + 1j * inner) * inverse
    near = inverse * (2 * polynomial(list(map(float, coefficients[::-1])), ratio) * inverse + 1 / math.sqrt(math.pi))
    small = jnp.where(is_far, inverse, 0)
    far = (1j / math.sqrt(math.pi)) * small * _quotient(_fraction(12 if is_double else 6), small * small)
    value = jnp.where(is_far, far, near)
    safe = jnp.where(is_below, z, 0)
    return jnp.where(is_below, 2 * jnp.exp(-safe * safe) - value, value)


_wofz.defjvps(lambda t, out, z: t * (2j / math.sqrt(math.pi) - 2 * z * out))


@float_api
def wofz(z):
    """The Faddeeva function exp(-z^2) erfc(-i z), complex."""
    check_arrays("wofz", z)
    (z,) = promote_dtypes_inexact(z)
    if z.dtype.itemsize < 4:
        z = z.astype(np.float32)
    if dtypes.kind(z.dtype) != "c":
        return lax.complex(jnp.exp(-z * z), dawsn(z) * (2 / math.sqrt(math.pi)))
    return _wofz(shaping.convert(z, z.dtype, False))


# The x from which dawsn(x) is a series in 1 / x^2; numerator and denominator of dawsn(x) / x in x^2 below; and the series of
# 2 x dawsn(x). All are fitted to values of 60 digits.
_DAWSN_32 = (4, (
    [0.999999984, -0.0591789996, 0.0366615615, 0.000522037403, 0.000231730596, 8.56561144e-6, 1.82581628e-8],
    [1, 0.607487009, 0.174990772, 0.0313639618, 0.00384886379, 0.000319262707, 2.04964272e-5]),
    [1, 0.499991312, 0.752138332, 1.68093005, 14.665774, -131.999114, 1480.08235])
_DAWSN_64 = (6, (
    [1, -0.058553764622929637, 0.042103699668142301, 0.00039072721795384719, 0.00044007146367697314, 1.6433547796204722e-5,
     2.1156724066202699e-6, 9.5717358073843422e-8, 5.6353815820262263e-9, 2.2081618498632487e-10, 7.9717683442109952e-12,
     2.2192244375542628e-13, 4.7442139196190903e-15, 7.1410850588469394e-17, 7.0993352347622619e-23],
    [1, 0.60811290204373688, 0.18084563436396948, 0.034981519106062225, 0.0049367763571250503, 0.00054023930517369032,
     4.7539602321517912e-5, 3.4405524864009625e-6, 2.0752053742738003e-7, 1.0492697757246055e-8, 4.4408276554795528e-10,
     1.5558615738445207e-11, 4.4076274422184365e-13, 9.4037526254929692e-15, 1.4288493416353097e-16]),
    [1, 0.49999999999987868, 0.75000000023295355, 1.8749998246603959, 6.5625682996975562, 29.51550998125403,
     164.73048471917281, 831.60980737866742, 22545.775928064455, -570145.30665531866, 18543437.613854981, -290020867.69366465,
     2357027343.8236773])


@custom_jvp
def _dawsn(x):
    border, (numerator, denominator), series = _DAWSN_64 if aval_of(x).dtype.itemsize > 4 else _DAWSN_32
    square = x * x
    is_small = square < border * border
    # One quotient for both: dawsn(x) / x, or 1 / x.
    ratio = jnp.where(is_small, polynomial(numerator, square), 1) / jnp.where(is_small, polynomial(denominator, square), x)
    return ratio * jnp.where(is_small, x, 0.5 * polynomial(series, ratio * ratio))


@_dawsn.defjvp
def _dawsn_jvp(primals, tangents):
    (x,), out = primals, _dawsn(*primals)
    is_infinite = jnp.isinf(x)
    slope = jnp.where(is_infinite, 0, 1 - 2 * jnp.where(is_infinite, 0, x) * out)
    return out, slope * tangents[0]


@float_api
@in_working_precision
def dawsn(x):
    """Dawson's integral: exp(-x^2) times the integral of exp(t^2) from 0 to x."""
    return _dawsn(lax.convert_element_type(x, x.dtype))  # strongly typed


# pi x f(x) and pi^2 x^3 g(x) for x >= 1.2, f and g the auxiliary functions of DLMF 7.2.10: quotients of polynomials of
# (1.2 / x)^4, fitted to values of 60 digits.
_FRESNEL_32 = (
    ([0.999999976, 13.6020724, 40.4912736, 26.8974173, 2.18497759],
     [1, 13.7486451, 42.2574542, 30.7885217, 3.46935364]),
    ([0.999999784, 16.7826436, 60.4540512, 45.3358019, 2.98694656],
     [1, 17.5154292, 71.0535073, 72.6793725, 13.4206147]))
_FRESNEL_64 = (
    ([0.9999999999999999, 137.27535438327544, 6748.2607033968025, 154926.34954758576, 1820317.0518840791, 11303235.425092919,
      37048111.02492569, 62234830.36216498, 50247237.09886661, 17259521.376716476, 1964566.7539092444, 36975.57083732258],
     [1.0, 137.42194174386808, 6768.154331492898, 155885.23758660103, 1841626.233723819, 11540917.535026241, 38409787.39612122,
      66187417.28202571, 55789542.73576185, 20672109.585246146, 2728432.653495197, 76210.68096629022]),
    ([0.9999999999999983, 155.44823193236945, 8682.42956447461, 226953.72371268197, 3036766.240841101, 21422188.422394935,
      79288656.02662857, 148767290.366774, 131704155.06331398, 47996823.42757337, 5374560.503620682, 67234.31825032539],
     [1.0, 156.18116873532105, 8794.644266298183, 233063.02732492622, 3190009.7873614747, 23346218.280522306, 91640069.83237371,
      188720130.08880904, 193810963.6049333, 90283665.01849923, 15892515.337293278, 685870.9114951092]))


@custom_jvp
def _fresnel(x) -> tuple[Any, Any]:
    is_double = aval_of(x).dtype.itemsize > 4
    size = jnp.abs(x)
    is_small = size < 1.2
    small, large = jnp.where(is_small, size, 0), jnp.where(is_small, 2, jnp.minimum(size, 2.0**55 if is_double else 2.0**26))
    # DLMF 7.6.4 and 7.6.6.
    fourth = (math.pi / 2 * small * small) ** 2
    terms = [(-1) ** (k // 2) / (math.factorial(k) * (2 * k + 1)) for k in range(24 if is_double else 16)]
    cosine = small * polynomial(terms[0::2], fourth)
    sine = small * (math.pi / 2) * small * small * polynomial(terms[1::2], fourth)
    # DLMF 7.5.3 and 7.5.4.
    angle = _fresnel_angle(large)
    across, along = jnp.sin(angle), jnp.cos(angle)
    inverse = 1 / large
    square = inverse * inverse
    f, g = (_quotient(parts, 1.2**4 * square * square) for parts in (_FRESNEL_64 if is_double else _FRESNEL_32))
    f, g = f * inverse / math.pi, g * inverse * square / math.pi**2
    sign = jnp.sign(x)
    return (sign * jnp.where(is_small, sine, 0.5 - f * along - g * across),
            sign * jnp.where(is_small, cosine, 0.5 + f * across - g * along))


def _fresnel_angle(x):
    """pi x^2 / 2 up to whole turns; the square is one of two parts whose products are exact."""
    high = lax.reduce_precision(x, *((11, 25) if aval_of(x).dtype.itemsize > 4 else (8, 11)))
    low = x - high
    total: Any = 0
    for part in (high * high, 2 * high * low, low * low):
        total += part - 4 * jnp.round(part / 4)
    return total * (math.pi / 2)


@_fresnel.defjvp
def _fresnel_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    angle = _fresnel_angle(x)
    return _fresnel(x), (t * jnp.sin(angle), t * jnp.cos(angle))


@float_api
@in_working_precision
def fresnel(x) -> tuple[Any, Any]:
    """Fresnel's integrals (S, C): those of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
    return _fresnel(shaping.convert(x, None, False))


# --- normal distribution -----------------------------------------------------------------------------


def _strict(name: str, x):
    """The operand, strongly typed. Raises: TypeError for other dtypes than float32 and float64."""
    x = jnp.asarray(x)
    dtype = aval_of(x).dtype
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"{name}: x.dtype={dtype} is not supported; it takes float32 and float64.")
    return shaping.convert(x, dtype, False)


@float_api
def ndtr(x):
    """The distribution function of the standard normal distribution.

    Raises: TypeError for other dtypes than float32 and float64.
    """
    return lax.erfc(_strict("ndtr", x) * (-math.sqrt(0.5))) / 2


_CENTRE = ([3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
            4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3],
           [1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
            3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3])
_TAIL = ([1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
          1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4],
         [1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
          1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9])
_END = ([6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
         2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7],
        [1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
         1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15])


@custom_jvp
def _ndtri(p):
    centred = p - 0.5
    is_centre = jnp.abs(centred) <= 0.425
    inner = jnp.where(is_centre, centred, 0)
    tail = jnp.where(is_centre, 0.5, jnp.minimum(p, 1 - p))
    is_inside = tail > 0
    depth = jnp.sqrt(-jnp.log(jnp.where(is_inside, tail, 0.5)))
    outer = jnp.where(depth <= 5, _quotient(_TAIL, jnp.minimum(depth, 5) - 1.6), _quotient(_END, jnp.maximum(depth, 5) - 5))
    outer = jnp.where(is_inside, outer, jnp.where(tail == 0, jnp.inf, jnp.nan))
    value = jnp.where(is_centre, inner * _quotient(_CENTRE, 0.180625 - inner * inner), jnp.sign(centred) * outer)
    return jnp.where((p < 0) | (p > 1), jnp.nan, value)


_ndtri.defjvps(lambda t, out, p: t * (math.sqrt(2 * math.pi) * jnp.exp(out * out / 2)))


@in_working_precision
def _erfcinv(y):
    return (0 - _ndtri(y / 2)) * math.sqrt(0.5)


@float_api
def erfcinv(y):
    """The inverse of erfc, for y in [0, 2]; as accurate near 0, where `erfinv(1 - y)` loses all digits."""
    y = floats("erfcinv", y)
    return _erfcinv(lax.convert_element_type(y, aval_of(y).dtype))  # strongly typed


@float_api
def ndtri(p):
    """The quantile function of the standard normal distribution, for p in [0, 1].

    Raises: TypeError for other dtypes than float32 and float64.
    """
    return _ndtri(_strict("ndtri", p))


@custom_jvp
def _log_ndtr(x):
    is_double = aval_of(x).dtype.itemsize > 4
    # Beyond 1 both tails are exp(-x^2 / 2) erfcx(|x| / sqrt(2)) / 2; between, the integral is a series, DLMF 7.6.1.
    size = jnp.abs(x)
    tail = 0.5 * _erfcx_of_large(jnp.maximum(size, 1) * math.sqrt(0.5))
    half = 0.5 * size * size
    terms = [(-1) ** k / (math.factorial(k) * (2 * k + 1) * math.sqrt(2 * math.pi)) for k in range(15 if is_double else 8)]
    missing = jnp.where(size > 1, jnp.exp(-half) * tail, 0.5 - x * polynomial(terms, half))
    # One logarithm for both: what the lesser of the two loses in it is less than what the square has lost.
    is_low = x < -1
    logarithm = jnp.log1p(jnp.where(is_low, tail - 1, -missing))
    return jnp.where(is_low, logarithm - half, logarithm)  # a selection last: XLA:CPU writes both terms of a sum


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    out = _log_ndtr(x)
    # The density over the distribution function; both underflow together on the left, where the quotient is simple.
    is_low = x < -1
    high = jnp.maximum(x, -1)
    # Not as in `_log_ndtr`: XLA:CPU would write each quotient or power that both have to memory.
    left = math.sqrt(2 / math.pi) / _erfcx_of_large(jnp.minimum(x, -1) * -math.sqrt(0.5))
    right = math.sqrt(2 / math.pi) * jnp.exp(-high * high / 2) / (1 + lax.erf(high * math.sqrt(0.5)))
    return out, t * jnp.where(is_low, left, right)


@float_api
def log_ndtr(x, series_order: int = 3):
    """The logarithm of `ndtr`, accurate in both tails.

    Args:
      series_order: an integer in [0, 30]. It has no effect: the left tail is computed to full precision.
    """
    if not isinstance(series_order, int):
        raise TypeError("series_order must be a Python integer.")
    if series_order < 0:
        raise ValueError("series_order must be non-negative.")
    if series_order > 30:
        raise ValueError("series_order must be <= 30.")
    x = jnp.asarray(x)
    checked = _strict("log_ndtr", x)
    if aval_of(x).weak_type:  # made strong by a constant, so that its gradient is strong too, as in JAX
        checked = lax.mul(x, scalar(1.0, aval_of(checked).dtype))
    return _log_ndtr(checked)


# --- Owen's T ----------------------------------------------------------------------------------------


@broadcasts_inside  # derivatives call it too
def _owens_integral(h, a):
    """The integral for 0 <= a <= 1, by Gauss and Legendre."""
    total: Any = 0
    if h.dtype == np.float64:
        nodes, weights = (jnp.asarray(each, h.dtype) for each in np.polynomial.legendre.leggauss(48))
        square = 1 + jnp.square(a[..., None] * (nodes + 1) / 2)
        total = jnp.sum(weights * jnp.exp(-0.5 * (h * h)[..., None] * square) / square, axis=-1)
    else:  # few enough to be terms of one kernel
        half = -0.5 * h * h
        for node, weight in zip(*np.polynomial.legendre.leggauss(10), strict=True):
            square = 1 + jnp.square(a * ((float(node) + 1) / 2))
            total += float(weight) * jnp.exp(half * square) / square
    return a / 2 * total / (2 * math.pi)


@custom_jvp
def _owens_t(h, a):
    sign, h, a = jnp.sign(a), jnp.abs(h), jnp.abs(a)
    is_steep = a > 1
    slope = jnp.where(is_steep, 1 / jnp.where(is_steep, a, 1), a)
    height = jnp.where(is_steep & (h > 0), h * jnp.where(h > 0, a, 1), h)
    flat = _owens_integral(height, slope)
    beyond, further = (lax.erfc(each * math.sqrt(0.5)) / 2 for each in (h, height))
    return sign * jnp.where(is_steep, (beyond + further) / 2 - beyond * further - flat, flat)


@_owens_t.defjvp
def _owens_t_jvp(primals, tangents):
    (h, a), (dh, da) = primals, tangents
    along_h = -jnp.exp(-h * h / 2) * lax.erf(a * h * math.sqrt(0.5)) / (2 * math.sqrt(2 * math.pi))
    along_a = jnp.exp(-h * h * (1 + a * a) / 2) / (2 * math.pi * (1 + a * a))
    return _owens_t(h, a), dh * along_h + da * along_a


@float_api
@in_working_precision
def owens_t(h, a):
    """Owen's T function: the integral of exp(-h^2 (1 + x^2) / 2) / (1 + x^2) from 0 to a, over 2 pi."""
    return _owens_t(*(shaping.convert(x, None, False) for x in jnp.broadcast_arrays(h, a)))
