"""Parts of JAX's linear algebra for pyscfad, which has a generalized `eigh`, and a `gmres` with fixed tolerances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.flatten_util import ravel_pytree
from jaxlite.lax.linalg.pieces import symmetrized
from jaxlite.numpy import linalg
from jaxlite.scipy.sparse.linalg import _GMRES, _gmres


def symmetrize(x: Any) -> Any:
    """(x + x^H) / 2 of the last two axes."""
    return symmetrized("symmetrize", x)


def _norm(x: Any) -> Any:
    """The norm of a tree as one vector."""
    return linalg.norm(ravel_pytree(x)[0])


def _gmres_solve(A: Callable[..., Any], b: Any, x0: Any, atol: Any, ptol: Any, restart: int, maxiter: int,
                 M: Callable[..., Any], gmres_func: Callable[..., Any]) -> Any:
    """Solve A x = b; `atol` is the norm that the residual has to come down to, `gmres_func` makes the corrections."""
    [method] = [name for name, function in _GMRES.items() if function is gmres_func]
    return _gmres(A, b, x0=x0, M=M, maxiter=maxiter, tol=0.0, atol=atol, restart=restart, solve_method=method)
