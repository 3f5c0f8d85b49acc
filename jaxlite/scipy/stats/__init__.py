"""jaxlite.scipy.stats: distributions, one module each, and summaries of samples. Modules are loaded on first use."""


from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, modules=(
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "gennorm", "geom", "gumbel_l",
    "gumbel_r", "laplace", "logistic", "multinomial", "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "t",
    "truncnorm", "uniform", "vonmises", "wrapcauchy",
), kde="gaussian_kde", summaries="mode rankdata sem")


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
