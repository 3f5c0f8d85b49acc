"""Activation functions. All are elementwise, and keep the dtype of their argument.

Integers become floating. Exceptions: functions that use `sigmoid` (sigmoid, silu, glu) raise an error for integers, and
relu, hard_tanh and identity keep them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic  # not through jax.numpy, whose names exporters such as jax2onnx replace
from jaxlite.numpy.api import api, as_array, as_arrays, check_arrays, dtype_of, float_api, part_of_caller, promote_inexact
from jaxlite.transforms.custom_derivatives import custom_jvp


def _floating(name: str, x):
    """The argument as a floating-point array. What were integers is weakly typed, as by an operation with a Python float."""
    check_arrays(name, x)
    aval = aval_of(x)
    return as_array(x) if dtypes.kind(aval.dtype) in "fc" else shaping.convert(x, dtypes.canonicalize_dtype(float), True)


def _inexact(name: str, x):
    """The argument as a floating-point array, as wide as integers need, as by an operation of floating arrays."""
    if dtypes.kind(dtype_of(x)) == "b":
        return _floating(name, x)
    return as_array(promote_inexact(name, x)[0])


def _named(name: str) -> Callable[[Callable], custom_jvp]:
    """`custom_jvp` for a function that has this name in jaxprs."""
    def derivable(function: Callable) -> custom_jvp:
        function.__name__ = name
        return custom_jvp(function)

    return derivable


@_named("relu")
def _relu(x):
    return arithmetic.maximum(x, 0)


@_relu.defjvp
def _relu_jvp(primals, tangents):
    (x,), (g,) = primals, tangents
    # At 0 the derivative is 0, where that of maximum would be 1/2.
    return _relu(x), lax.select(jnp.greater(x, 0), g, shaping.full_like(g, 0))


@api
@part_of_caller
def relu(x):
    """max(x, 0). The derivative at 0 is 0."""
    check_arrays("relu", x)
    return _relu(as_array(x))


@api
def identity(x):
    """x itself, as an array."""
    check_arrays("identity", x)
    return as_array(x)


@api
@part_of_caller
def relu6(x):
    """min(max(x, 0), 6). The derivative at 0 and 6 is 0."""
    return _relu6(_floating("relu6", x))


@_named("relu6")
def _relu6(x):
    return arithmetic.minimum(arithmetic.maximum(x, 0), 6)


@_relu6.defjvp
def _relu6_jvp(primals, tangents):
    (x,), (g,) = primals, tangents
    inside = jnp.greater(x, 0) & jnp.less(x, 6)
    return _relu6(x), lax.select(inside, g, shaping.full_like(g, 0))


@api
def sigmoid(x):
    """1 / (1 + exp(-x)). Raises: TypeError for integers."""
    check_arrays("sigmoid", x)
    return lax.logistic(as_array(x))


@api
def softplus(x):
    """log(1 + exp(x))."""
    check_arrays("softplus", x)
    if dtypes.kind(dtype_of(x)) == "c":
        return jnp.logaddexp(x, 0.0)
    return _softplus(_inexact("softplus", x))


@custom_jvp
def _softplus(x):
    return lax.max(x, shaping.full_like(x, 0)) + lax.log1p(lax.exp(arithmetic.known_below_zero(-lax.abs(x))))


@_softplus.defjvp
def _softplus_jvp(primals, tangents):
    (x,), (g,) = primals, tangents
    return _softplus(x), g * lax.logistic(x)  # of every order, and without the selections of the formula


@api
def sparse_plus(x):
    """0 below -1, x above 1, and the parabola (x + 1)**2 / 4 between."""
    x = _floating("sparse_plus", x)
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


@api
def sparse_sigmoid(x):
    """0 below -1, 1 above 1, and (x + 1) / 2 between."""
    return 0.5 * jnp.clip(_floating("sparse_sigmoid", x) + 1.0, 0.0, 2.0)


@api
def soft_sign(x):
    """x / (|x| + 1)."""
    x = _inexact("soft_sign", x)
    return x / (jnp.abs(x) + 1)


@api
def silu(x):
    """x * sigmoid(x). Raises: TypeError for integers."""
    x = as_arrays("silu", x)
    return x * lax.logistic(x)


swish = silu


@api
def mish(x):
    """x * tanh(softplus(x))."""
    x = _inexact("mish", x)
    return x * jnp.tanh(softplus(x))


@api
def log_sigmoid(x):
    """log(sigmoid(x)), accurate for large |x|."""
    x = _inexact("log_sigmoid", x)
    return -softplus(-x)


@api
def elu(x, alpha=1.0):
    """x above 0, alpha * (exp(x) - 1) below."""
    x = _floating("elu", x)
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0.0, x)))


@api
def celu(x, alpha=1.0):
    """max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1): continuously differentiable."""
    x = _floating("celu", x)
    return arithmetic.maximum(x, 0.0) + alpha * jnp.expm1(arithmetic.minimum(x, 0.0) / alpha)


@api
def selu(x):
    """The scaled exponential linear unit, which keeps mean 0 and variance 1 (Klambauer et al. 2017)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


@float_api
def gelu(x, approximate: bool = True):
    """x times the normal distribution function of x (Hendrycks & Gimpel 2016); by default its tanh approximation."""
    x = as_array(promote_inexact("gelu", x)[0])
    if approximate:
        factor = np.sqrt(2 / np.pi).astype(x.dtype)
        cubic = x + 0.044715 * x**3
        return x * (0.5 * (1.0 + jnp.tanh(factor * cubic)))
    root = np.sqrt(0.5).astype(x.dtype)
    return jnp.array(0.5 * x * lax.erfc(-x * root), dtype=x.dtype)


@api
def leaky_relu(x, negative_slope=1e-2):
    """x above 0, negative_slope * x below."""
    x = as_arrays("leaky_relu", x)
    return jnp.where(x >= 0, x, negative_slope * x)


@api
def hard_tanh(x):
    """x limited to [-1, 1]."""
    x = as_arrays("hard_tanh", x)
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


@api
def hard_sigmoid(x):
    """relu6(x + 3) / 6."""
    return relu6(_floating("hard_sigmoid", x) + 3.0) / 6.0


@api
def hard_silu(x):
    """x * hard_sigmoid(x)."""
    x = _floating("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@api
def squareplus(x, b=4):
    """(x + sqrt(x**2 + b)) / 2."""
    check_arrays("squareplus", x, b)
    x = as_array(x)
    x, b = promote_inexact("squareplus", x.astype(int) if x.dtype == bool else x, b)
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


@api
def tanh(x, /):
    """The hyperbolic tangent."""
    return jnp.tanh(x)


@api
def log1mexp(x):
    """log(1 - exp(-x)) for x > 0, accurate for small and large x (Mächler 2012)."""
    return _log1mexp(as_array(promote_inexact("log1mexp", x)[0]))


@custom_jvp
def _log1mexp(x):
    small = x < math.log(2)
    return jnp.where(small, jnp.log(-jnp.expm1(-jnp.where(small, x, 1.0))), jnp.log1p(-jnp.exp(-jnp.where(small, 1.0, x))))


@_log1mexp.defjvp
def _log1mexp_jvp(primals, tangents):
    (x,), (g,) = primals, tangents
    return _log1mexp(x), g / jnp.expm1(x)


@api
def glu(x, axis: int = -1):
    """The gated linear unit: the first half of an axis times the sigmoid of the second (Dauphin et al. 2016)."""
    x = as_arrays("glu", x)
    size = x.shape[axis]
    if size % 2:
        raise ValueError(f"glu: axis {axis} must have an even size, got {size}")
    first, second = jnp.split(x, 2, axis)
    return first * lax.logistic(second)


