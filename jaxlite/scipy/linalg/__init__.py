"""jaxlite.scipy.linalg: SciPy's linear algebra. Factorizations and solvers, functions of matrices, special matrices."""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.scipy.linalg.factorizations import (
    cho_factor,
    cholesky,
    det,
    eigh,
    eigh_tridiagonal,
    hessenberg,
    inv,
    lu,
    lu_factor,
    qr,
    qr_multiply,
    rsf2csf,
    schur,
    svd,
)
from jaxlite.scipy.linalg.matrix_functions import expm, expm_frechet, funm, polar, sqrtm
from jaxlite.scipy.linalg.solvers import cho_solve, lu_solve, solve, solve_sylvester, solve_triangular
from jaxlite.scipy.linalg.special_matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)

__dir__ = _Lazy(__name__).names
