"""Derivatives with respect to sparse arrays, as `jax.experimental.sparse.ad` names them: a view."""

from jaxlite.experimental.sparse.base import is_sparse
from jaxlite.experimental.sparse.derivatives import grad, jacfwd, jacobian, jacrev, value_and_grad

__all__ = ["grad", "is_sparse", "jacfwd", "jacobian", "jacrev", "value_and_grad"]
