"""`jax._src.public_test_util.check_close`, for the tests of libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.core.values import aval_of
from jaxlite.transforms.gradient_checks import Tolerance, _real_bytes, _tolerance, _wide

_CLOSE = {1: 1e-1, 2: 1e-3, 4: 1e-6, 8: 1e-15}  # by bytes of a real number


def check_close(xs: Any, ys: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = "") -> None:
    """Compare the arrays of two trees. Tolerances may be given by dtype. They grow with the number of elements, as in
    JAX. Raises: AssertionError where they differ."""
    xs, ys = tree_map(np.asarray, xs), tree_map(np.asarray, ys)
    shapes = [[leaf.shape for leaf in tree_leaves(tree)] for tree in (xs, ys)]
    assert shapes[0] == shapes[1], f"{err_msg}: shapes {shapes[0]} and {shapes[1]}"
    for pair in zip(tree_leaves(xs), tree_leaves(ys), strict=True):
        if any(each.dtype == dtypes.float0 for each in pair):
            continue
        kinds = [dtypes.kind(aval_of(each).dtype) for each in pair]
        one, other = (each if kind in "biu" else np.asarray(each, _wide(each)) for each, kind in zip(pair, kinds))
        np.testing.assert_allclose(one, other, err_msg=err_msg, atol=one.size * max(_given(atol, each) for each in pair),
                                   rtol=one.size * max(_given(rtol, each) for each in pair))


def _given(tolerance: Tolerance, value: Any) -> float:
    dtype = aval_of(value).dtype
    if dtypes.kind(dtype) in "biu":
        return _tolerance(tolerance, dtype, 0.0)
    return _tolerance(tolerance, dtype, 1e-2 if dtype == dtypes.bfloat16 else _CLOSE[_real_bytes(value)])
