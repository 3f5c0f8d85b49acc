"""jaxlite.scipy.special: special functions, element by element, in the floating dtype of their arguments.

Modules are loaded on first use: who wants the normal distribution does not wait for hypergeometric functions.
"""


from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(
    __name__,
    entropies="boxcox boxcox1p entr expit kl_div logit rel_entr xlog1py xlogy",
    error_functions="dawsn erf erfc erfcinv erfcx erfinv fresnel log_ndtr ndtr ndtri owens_t wofz",
    gammas="bernoulli beta betainc betaln comb digamma factorial gamma gammainc gammaincc gammaln gammasgn loggamma "
           "multigammaln poch polygamma zeta",
    harmonics="bessel_jn i0 i0e i1 i1e sph_harm_y",
    hypergeometric="hyp1f1 hyp2f1",
    integrals="exp1 expi expn sici spence",
    legendre="lpmn lpmn_values",
    softmaxes="log_softmax logsumexp softmax",
)


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
