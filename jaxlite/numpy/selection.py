"""`where`: elements chosen by a condition."""

from __future__ import annotations

from jaxlite.numpy.api import as_array, check_arrays, promote_dtypes, unwrapped
from jaxlite.numpy.arithmetic import as_bool, named, where_same


def where(condition, x=None, y=None, /, *, size: int | None = None, fill_value=None):
    """Elements of `x` where `condition` holds, of `y` elsewhere.

    Args:
      condition: an array; what is not zero counts as true. The three are broadcast together.
      x, y: arrays or scalars. Without both of them the result is `nonzero(condition)`: a tuple of the indices
        of the true elements, one array an axis.
      size, fill_value: for `nonzero`, whose result has no static shape: how many indices to give, and what to
        fill up with.
    Raises: TypeError if only one of x and y is given, ValueError for `size` or `fill_value` beside them.

    >>> import jaxlite.numpy as jnp
    >>> x = jnp.array([1.0, -2.0, 3.0])
    >>> print(jnp.where(x > 0, x, 0.0))
    [1. 0. 3.]
    """
    if x is None and y is None:
        check_arrays("where", condition)
        return as_array(condition).nonzero(size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where function.")
    return _select(condition, x, y)


def _select(condition, x, y, /):
    check_arrays("where", condition, x, y)
    condition, x, y = unwrapped((condition, x, y))
    return where_same(as_bool(condition), *promote_dtypes(x, y))


_select = named(_select, "where", None)
