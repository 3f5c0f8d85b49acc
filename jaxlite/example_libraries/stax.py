"""Neural networks as pairs of functions.

A layer is `(init_fun, apply_fun)`: `init_fun(rng, input_shape)` gives `(output_shape, params)`, `apply_fun(params, inputs,
**kwargs)` the outputs. Combinators make layers of layers; a key for dropout goes through them as the keyword `rng`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite import lax, random
from jaxlite import numpy as jnp
from jaxlite.nn import activations, normalization
from jaxlite.nn.activations import elu as elu  # libraries take the functions of layers from here
from jaxlite.nn.activations import gelu as gelu
from jaxlite.nn.activations import leaky_relu as leaky_relu
from jaxlite.nn.activations import relu as relu
from jaxlite.nn.activations import selu as selu
from jaxlite.nn.activations import sigmoid as sigmoid
from jaxlite.nn.activations import softplus as softplus
from jaxlite.nn.initializers import glorot_normal, normal, ones, zeros
from jaxlite.nn.normalization import log_softmax as log_softmax
from jaxlite.nn.normalization import softmax as softmax
from jaxlite.nn.normalization import standardize as standardize

Layer = tuple[Callable[..., Any], Callable[..., Any]]

__all__ = [
    "AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout", "Elu", "Exp", "FanInConcat",
    "FanInSum", "FanOut", "Flatten", "Gelu", "GeneralConv", "GeneralConvTranspose", "Identity", "LeakyRelu", "LogSoftmax",
    "MaxPool", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "SumPool", "Tanh", "elementwise", "glorot", "logsoftmax",
    "parallel", "randn", "serial",
    "shape_dependent",
]
__dir__ = lambda: __all__

_glorot, _small, _tiny = glorot_normal(), normal(), normal(1e-6)
glorot, randn, logsoftmax = glorot_normal, normal, normalization.log_softmax  # by the names that older programs know

# --- layers with parameters --------------------------------------------------------------------------


def Dense(out_dim: int, W_init: Callable = _glorot, b_init: Callable = _small) -> Layer:
    """inputs @ W + b, with `out_dim` results.

    >>> from jaxlite import random
    >>> init_fun, apply_fun = Dense(3)
    >>> shape, (w, b) = init_fun(random.key(0), (-1, 2))
    >>> shape, w.shape, b.shape
    ((-1, 3), (2, 3), (3,))
    """

    def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
        weights_key, bias_key = random.split(rng)
        shape = (*input_shape[:-1], out_dim)
        return shape, (W_init(weights_key, (input_shape[-1], out_dim)), b_init(bias_key, (out_dim,)))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        weights, bias = params
        return jnp.dot(inputs, weights) + bias

    return init_fun, apply_fun


def GeneralConv(dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None = None,
                padding: Any = "VALID", W_init: Callable | None = None, b_init: Callable = _tiny) -> Layer:
    """A convolution. `dimension_numbers` names the axes of inputs, filters and results, as in ("NHWC", "HWIO", "NHWC")."""
    return _convolution(dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init, transposed=False)


def GeneralConvTranspose(dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int],
                         strides: Sequence[int] | None = None, padding: Any = "VALID", W_init: Callable | None = None,
                         b_init: Callable = _tiny) -> Layer:
    """A transposed convolution: `GeneralConv` run backwards, as it enlarges by its strides."""
    return _convolution(dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init, transposed=True)


def _convolution(dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None,
                 padding: Any, W_init: Callable | None, b_init: Callable, transposed: bool) -> Layer:
    inputs_axes, filter_axes, results_axes = dimension_numbers
    steps = tuple(strides) if strides else (1,) * len(filter_shape)
    make_weights = W_init or glorot_normal(filter_axes.index("I"), filter_axes.index("O"))

    def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
        sizes = iter(filter_shape)
        channels = {"O": out_chan, "I": input_shape[inputs_axes.index("C")]}
        shape = tuple(channels[axis] if axis in channels else next(sizes) for axis in filter_axes)
        compute = lax.conv_transpose_shape_tuple if transposed else lax.conv_general_shape_tuple
        result_shape = compute(tuple(input_shape), shape, steps, padding, dimension_numbers)
        bias_shape = tuple(out_chan if axis == "C" else 1 for axis in results_axes)
        weights_key, bias_key = random.split(rng)
        return result_shape, (make_weights(weights_key, shape), b_init(bias_key, bias_shape))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        weights, bias = params
        compute = lax.conv_transpose if transposed else lax.conv_general_dilated
        return compute(inputs, weights, steps, padding, dimension_numbers=dimension_numbers) + bias

    return init_fun, apply_fun


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(axis: int | Sequence[int] = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True,
              beta_init: Callable = zeros, gamma_init: Callable = ones) -> Layer:
    """Inputs with mean 0 and variance 1 over `axis`, then scaled by gamma and shifted by beta."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
        shape = tuple(size for index, size in enumerate(input_shape) if index not in axes)
        beta_key, gamma_key = random.split(rng)
        return input_shape, (beta_init(beta_key, shape) if center else (), gamma_init(gamma_key, shape) if scale else ())

    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        spread = tuple(None if index in axes else slice(None) for index in range(jnp.ndim(x)))
        result = normalization.standardize(x, axes, epsilon=epsilon)
        if scale:
            result = gamma[spread] * result
        return result + beta[spread] if center else result

    return init_fun, apply_fun


# --- layers without parameters -----------------------------------------------------------------------


def elementwise(fun: Callable, **fun_kwargs: Any) -> Layer:
    """A layer that is a function of the inputs, with keyword arguments that stay."""
    return (lambda rng, input_shape: (input_shape, ())), (lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs))


Tanh = elementwise(jnp.tanh)
Relu = elementwise(activations.relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(normalization.log_softmax, axis=-1)
Softmax = elementwise(normalization.softmax, axis=-1)
Softplus = elementwise(activations.softplus)
Sigmoid = elementwise(activations.sigmoid)
Elu = elementwise(activations.elu)
LeakyRelu = elementwise(activations.leaky_relu)
Selu = elementwise(activations.selu)
Gelu = elementwise(activations.gelu)


def _pooling(reducer: Callable, start: float, mean: bool) -> Callable[..., Layer]:
    def make(window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: str = "VALID",
             spec: str | None = None) -> Layer:
        """Pool over windows. `spec` names the axes, "NHWC" without it; `strides` is 1 along each without it."""
        steps = tuple(strides) if strides else (1,) * len(window_shape)
        names = "N" + "HWD"[:len(window_shape)] + "C" if spec is None else spec
        batch, channels = names.index("N"), names.index("C")

        def spread(sizes: Sequence[int]) -> tuple[int, ...]:
            full = list(sizes)
            for index in sorted((batch, channels)):
                full.insert(index, 1)
            return tuple(full)

        window, moves = spread(window_shape), spread(steps)

        def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
            pads = lax.padtype_to_pads(input_shape, window, moves, padding)
            return lax.reduce_window_shape_tuple(tuple(input_shape), window, moves, pads), ()

        def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
            out = lax.reduce_window(inputs, start, reducer, window, moves, padding)
            if not mean:
                return out
            return out / lax.reduce_window(jnp.ones_like(inputs), 0.0, lax.add, window, moves, padding)

        return init_fun, apply_fun

    return make


MaxPool = _pooling(lax.max, -math.inf, mean=False)
SumPool = _pooling(lax.add, 0.0, mean=False)
AvgPool = _pooling(lax.add, 0.0, mean=True)

Identity = elementwise(lambda x: x)
Flatten: Layer = (
    lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
    lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)),
)


def FanOut(num: int) -> Layer:
    """`num` copies of the inputs."""
    return (lambda rng, input_shape: ([input_shape] * num, ())), (lambda params, inputs, **kwargs: [inputs] * num)


FanInSum: Layer = (lambda rng, input_shape: (input_shape[0], ())), (lambda params, inputs, **kwargs: sum(inputs))


def FanInConcat(axis: int = -1) -> Layer:
    """The inputs, one after the other along an axis."""

    def init_fun(rng: Any, input_shape: Sequence[Sequence[int]]) -> Any:
        first = input_shape[0]
        place = axis % len(first)
        size = sum(shape[place] for shape in input_shape)
        return (*first[:place], size, *first[place + 1:]), ()

    return init_fun, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """In mode "train", each input is kept with probability `rate`, and divided by it; otherwise the identity."""

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        key = kwargs.get("rng")
        if key is None:
            raise ValueError("Dropout layer requires apply_fun to be called with a PRNG key argument. That is, instead of "
                             "`apply_fun(params, inputs)`, call it like `apply_fun(params, inputs, rng)` where `rng` is a PRNG "
                             "key (e.g. from `jax.random.key`).")
        if mode != "train":
            return inputs
        keep = random.bernoulli(key, rate, inputs.shape)
        return jnp.where(keep, inputs / rate, 0)

    return (lambda rng, input_shape: (input_shape, ())), apply_fun


# --- combinators -------------------------------------------------------------------------------------


def serial(*layers: Layer) -> Layer:
    """Layers one after the other.

    >>> from jaxlite import random
    >>> init_fun, apply_fun = serial(Dense(8), Relu, Dense(2))
    >>> shape, params = init_fun(random.key(0), (-1, 4))
    >>> shape, len(params)
    ((-1, 2), 3)
    """
    inits, applies = zip(*layers, strict=True) if layers else ((), ())

    def init_fun(rng: Any, input_shape: Any) -> Any:
        params = []
        for init in inits:
            rng, key = random.split(rng)
            input_shape, own = init(key, input_shape)
            params.append(own)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        for apply, own, options in zip(applies, params, _options(kwargs, len(layers)), strict=True):
            inputs = apply(own, inputs, **options)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Layers side by side: the first on the first input, and so on."""
    inits, applies = zip(*layers, strict=True)

    def init_fun(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        made = [init(key, shape) for init, key, shape in zip(inits, keys, input_shape, strict=True)]
        return tuple(zip(*made, strict=True))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return [apply(own, x, **options) for apply, own, x, options in zip(
            applies, params, inputs, _options(kwargs, len(layers)), strict=True)]

    return init_fun, apply_fun


def _options(kwargs: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Keyword arguments for each of some layers: each gets a key of its own."""
    key = kwargs.pop("rng", None)
    keys = [None] * count if key is None else random.split(key, count)
    return [{"rng": each, **kwargs} for each in keys]


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """A layer that is made when the shape of its inputs is known: `make_layer(input_shape)`."""

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return (lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape)), apply_fun
