"""jaxlite.scipy.special: special functions, element by element, in the floating dtype of their arguments."""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.nn.normalization import logsumexp
from jaxlite.scipy.special.entropies import boxcox, boxcox1p, entr, expit, kl_div, logit, rel_entr, xlog1py, xlogy
from jaxlite.scipy.special.error_functions import (
    dawsn,
    erf,
    erfc,
    erfcx,
    erfinv,
    fresnel,
    log_ndtr,
    ndtr,
    ndtri,
    owens_t,
    wofz,
)
from jaxlite.scipy.special.gammas import (
    bernoulli,
    beta,
    betainc,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    zeta,
)
from jaxlite.scipy.special.harmonics import bessel_jn, i0, i0e, i1, i1e, sph_harm_y
from jaxlite.scipy.special.hypergeometric import hyp1f1, hyp2f1
from jaxlite.scipy.special.integrals import exp1, expi, expn, sici, spence
from jaxlite.scipy.special.legendre import lpmn, lpmn_values
from jaxlite.scipy.special.softmaxes import log_softmax, softmax

__dir__ = _Lazy(__name__).names
