"""Random numbers from keys: the same key, shape and dtype always give the same numbers.

A key is made from a seed with `key` (or, in the older form of plain uint32 words, `PRNGKey`), used once, and split
with `split` and `fold_in` into new ones. The default generator, threefry2x32, gives JAX's numbers bit for bit.

>>> from jaxlite import random
>>> first, second = random.split(random.key(0))
>>> random.uniform(first, (2,)).shape
(2,)
"""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.random.keys import Key as Key
from jaxlite.random.keys import PRNGKey as PRNGKey
from jaxlite.random.keys import clone as clone
from jaxlite.random.keys import fold_in as fold_in
from jaxlite.random.keys import key as key
from jaxlite.random.keys import key_data as key_data
from jaxlite.random.keys import key_impl as key_impl
from jaxlite.random.keys import split as split
from jaxlite.random.keys import wrap_key_data as wrap_key_data
from jaxlite.random.prng import key_dtype as key_dtype
from jaxlite.random.uniforms import bernoulli as bernoulli
from jaxlite.random.uniforms import bits as bits
from jaxlite.random.uniforms import cauchy as cauchy
from jaxlite.random.uniforms import double_sided_maxwell as double_sided_maxwell
from jaxlite.random.uniforms import exponential as exponential
from jaxlite.random.uniforms import geometric as geometric
from jaxlite.random.uniforms import gumbel as gumbel
from jaxlite.random.uniforms import laplace as laplace
from jaxlite.random.uniforms import logistic as logistic
from jaxlite.random.uniforms import lognormal as lognormal
from jaxlite.random.uniforms import maxwell as maxwell
from jaxlite.random.uniforms import normal as normal
from jaxlite.random.uniforms import pareto as pareto
from jaxlite.random.uniforms import rademacher as rademacher
from jaxlite.random.uniforms import randint as randint
from jaxlite.random.uniforms import rayleigh as rayleigh
from jaxlite.random.uniforms import triangular as triangular
from jaxlite.random.uniforms import truncated_normal as truncated_normal
from jaxlite.random.uniforms import uniform as uniform
from jaxlite.random.uniforms import wald as wald
from jaxlite.random.uniforms import weibull_min as weibull_min

_lazy = _Lazy(
    __name__,
    counts="binomial multinomial poisson",
    gammas="ball beta chisquare dirichlet f gamma generalized_normal loggamma random_gamma_p t",
    selections="categorical choice multivariate_normal orthogonal permutation",
)
__dir__ = _lazy.names
__getattr__ = _lazy.load
