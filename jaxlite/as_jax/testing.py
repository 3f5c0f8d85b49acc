"""`jax._src.public_test_util.check_close`, for the tests of libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.transforms.gradient_checks import Tolerance, _compare


def check_close(xs: Any, ys: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = "") -> None:
    """Compare the arrays of two trees. Tolerances may be given by dtype. Raises: AssertionError where they differ."""
    xs, ys = tree_map(np.asarray, xs), tree_map(np.asarray, ys)
    shapes = [[leaf.shape for leaf in tree_leaves(tree)] for tree in (xs, ys)]
    assert shapes[0] == shapes[1], f"{err_msg}: shapes {shapes[0]} and {shapes[1]}"
    _compare(xs, ys, atol, rtol, err_msg)
