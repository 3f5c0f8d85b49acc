"""jaxlite.nn: activations, softmax and its relatives, attention, one-hot codes; `initializers` for weights."""


from jaxlite.core.lazy import Lazy as _Lazy
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

_lazy = _Lazy(__name__, ["initializers"], scaled="get_scaled_dot_general_config scaled_dot_general scaled_matmul")


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
