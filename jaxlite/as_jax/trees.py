"""`jax._src.tree_util.prefix_errors`, for flax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.core import tree_differences


def prefix_errors(prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None,
                  ) -> list[Callable[[str], ValueError]]:
    """For each place where a tree is not a prefix of another: `error(name)`, which takes what the user calls the prefix."""

    def error_at(index: int) -> Callable[[str], ValueError]:
        return lambda name: ValueError(
            f"pytree structure error: {tree_differences.prefix_errors(prefix_tree, full_tree, is_leaf, name)[index]}")

    return [error_at(index) for index in range(len(tree_differences.prefix_errors(prefix_tree, full_tree, is_leaf)))]
