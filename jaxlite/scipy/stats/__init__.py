"""jaxlite.scipy.stats: distributions, one module each, and summaries of samples. Modules are loaded on first use."""

from importlib import import_module as _import_module
from typing import Any as _Any

from jaxlite.scipy.stats.summaries import mode, rankdata, sem

_DISTRIBUTIONS = (
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gennorm", "geom", "gumbel_l",
    "gumbel_r", "laplace", "logistic", "multinomial", "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "t",
    "truncnorm", "uniform", "vonmises", "wrapcauchy",
)


def __getattr__(name: str) -> _Any:
    if name in _DISTRIBUTIONS:
        return _import_module(f"jaxlite.scipy.stats.{name}")
    raise AttributeError(f"module 'jaxlite.scipy.stats' has no attribute {name!r}")
