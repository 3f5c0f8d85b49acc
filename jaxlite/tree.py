"""Pytrees under the names of `jax.tree`: `tree.map`, `tree.leaves`, ...

Registering containers of one's own is in `jaxlite.tree_util`.
"""

from jaxlite.core import tree as _tree
from jaxlite.core import tree_nodes as _tree_nodes

__all__ = [
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path", "reduce",
    "reduce_associative", "static", "structure", "transpose", "unflatten",
]
__dir__ = lambda: __all__

all = _tree.tree_all
broadcast = _tree.tree_broadcast
flatten = _tree.tree_flatten
flatten_with_path = _tree.tree_flatten_with_path
leaves = _tree.tree_leaves
leaves_with_path = _tree.tree_leaves_with_path
map = _tree.tree_map
map_with_path = _tree.tree_map_with_path
reduce = _tree.tree_reduce
reduce_associative = _tree.tree_reduce_associative
static = _tree_nodes.static
structure = _tree.tree_structure
transpose = _tree.tree_transpose
unflatten = _tree.tree_unflatten
