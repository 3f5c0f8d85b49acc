"""Random numbers from keys: the same key, shape and dtype always give the same numbers.

A key is made from a seed with `key` (or, in the older form of plain uint32 words, `PRNGKey`), used once, and split
with `split` and `fold_in` into new ones. The default generator, threefry2x32, gives JAX's numbers bit for bit.

>>> from jaxlite import random
>>> first, second = random.split(random.key(0))
>>> random.uniform(first, (2,)).shape
(2,)
"""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.random.counts import binomial as binomial
from jaxlite.random.counts import multinomial as multinomial
from jaxlite.random.counts import poisson as poisson
from jaxlite.random.gammas import ball as ball
from jaxlite.random.gammas import beta as beta
from jaxlite.random.gammas import chisquare as chisquare
from jaxlite.random.gammas import dirichlet as dirichlet
from jaxlite.random.gammas import f as f
from jaxlite.random.gammas import gamma as gamma
from jaxlite.random.gammas import generalized_normal as generalized_normal
from jaxlite.random.gammas import loggamma as loggamma
from jaxlite.random.gammas import random_gamma_p as random_gamma_p
from jaxlite.random.gammas import t as t
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
from jaxlite.random.selections import categorical as categorical
from jaxlite.random.selections import choice as choice
from jaxlite.random.selections import multivariate_normal as multivariate_normal
from jaxlite.random.selections import orthogonal as orthogonal
from jaxlite.random.selections import permutation as permutation
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

__dir__ = _Lazy(__name__).names
