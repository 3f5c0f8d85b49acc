"""Pytrees under the names of `jax.tree_util`; see `jaxlite.tree` for the short ones."""

from jaxlite.core.tree import (
    DictKey as DictKey,
)
from jaxlite.core.tree import (
    FlattenedIndexKey as FlattenedIndexKey,
)
from jaxlite.core.tree import (
    GetAttrKey as GetAttrKey,
)
from jaxlite.core.tree import (
    KeyEntry as KeyEntry,
)
from jaxlite.core.tree import (
    KeyPath as KeyPath,
)
from jaxlite.core.tree import (
    Partial as Partial,
)
from jaxlite.core.tree import (
    PyTreeDef as PyTreeDef,
)
from jaxlite.core.tree import (
    SequenceKey as SequenceKey,
)
from jaxlite.core.tree import (
    all_leaves as all_leaves,
)
from jaxlite.core.tree import (
    default_registry as default_registry,
)
from jaxlite.core.tree import (
    flatten_one_level as flatten_one_level,
)
from jaxlite.core.tree import (
    flatten_one_level_with_keys as flatten_one_level_with_keys,
)
from jaxlite.core.tree import (
    is_tree_node as is_tree_node,
)
from jaxlite.core.tree import (
    keystr as keystr,
)
from jaxlite.core.tree import (
    register_dataclass as register_dataclass,
)
from jaxlite.core.tree import (
    register_pytree_node as register_pytree_node,
)
from jaxlite.core.tree import (
    register_pytree_node_class as register_pytree_node_class,
)
from jaxlite.core.tree import (
    register_pytree_with_keys as register_pytree_with_keys,
)
from jaxlite.core.tree import (
    register_pytree_with_keys_class as register_pytree_with_keys_class,
)
from jaxlite.core.tree import (
    register_static as register_static,
)
from jaxlite.core.tree import (
    tree_all as tree_all,
)
from jaxlite.core.tree import (
    tree_broadcast as tree_broadcast,
)
from jaxlite.core.tree import (
    tree_flatten as tree_flatten,
)
from jaxlite.core.tree import (
    tree_flatten_with_path as tree_flatten_with_path,
)
from jaxlite.core.tree import (
    tree_leaves as tree_leaves,
)
from jaxlite.core.tree import (
    tree_leaves_with_path as tree_leaves_with_path,
)
from jaxlite.core.tree import (
    tree_map as tree_map,
)
from jaxlite.core.tree import (
    tree_map_with_path as tree_map_with_path,
)
from jaxlite.core.tree import (
    tree_reduce as tree_reduce,
)
from jaxlite.core.tree import (
    tree_reduce_associative as tree_reduce_associative,
)
from jaxlite.core.tree import (
    tree_structure as tree_structure,
)
from jaxlite.core.tree import (
    tree_transpose as tree_transpose,
)
from jaxlite.core.tree import (
    tree_unflatten as tree_unflatten,
)
from jaxlite.core.tree import (
    treedef_children as treedef_children,
)
from jaxlite.core.tree import (
    treedef_is_leaf as treedef_is_leaf,
)
from jaxlite.core.tree import (
    treedef_tuple as treedef_tuple,
)
