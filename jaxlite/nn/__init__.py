"""jaxlite.nn: activations, softmax and its relatives, attention, one-hot codes; `initializers` for weights."""

from importlib import import_module as _import_module
from typing import Any as _Any

from jaxlite.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
    tanh,
)
from jaxlite.nn.attention import dot_product_attention
from jaxlite.nn.normalization import log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize
from jaxlite.nn.scaled import scaled_matmul


def __getattr__(name: str) -> _Any:
    if name == "initializers":  # loaded on first use
        return _import_module("jaxlite.nn.initializers")
    raise AttributeError(f"module 'jaxlite.nn' has no attribute {name!r}")
