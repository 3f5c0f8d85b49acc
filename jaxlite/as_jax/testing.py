"""`jax._src.public_test_util.check_close`, for the tests of libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.core.values import aval_of
from jaxlite.transforms.gradient_checks import Tolerance, _real_bytes, _tolerance, compare_leaves

_CLOSE = {1: 1e-1, 2: 1e-3, 4: 1e-6, 8: 1e-15}  # by bytes of a real number


def check_close(xs: Any, ys: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = "") -> None:
    """Compare the arrays of two trees. Tolerances may be given by dtype. They grow with the number of elements, as in
    JAX. Raises: AssertionError where they differ."""
    xs, ys = tree_map(np.asarray, xs), tree_map(np.asarray, ys)
    shapes = [[leaf.shape for leaf in tree_leaves(tree)] for tree in (xs, ys)]
    assert shapes[0] == shapes[1], f"{err_msg}: shapes {shapes[0]} and {shapes[1]}"
    compare_leaves(xs, ys, atol, rtol, err_msg, _given)


def _given(given: Tolerance, *pair: Any) -> float:
    """What is given for the dtypes of two arrays, or else fits them, times the number of elements."""
    bounds = []
    for each in pair:
        dtype = aval_of(each).dtype
        default = 0.0 if dtypes.kind(dtype) in "biu" else 1e-2 if dtype == dtypes.bfloat16 else _CLOSE[_real_bytes(each)]
        bounds.append(_tolerance(given, dtype, default))
    return pair[0].size * max(bounds)
