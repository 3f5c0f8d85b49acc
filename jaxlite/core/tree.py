"""Pytrees: nested containers as lists of leaves plus a treedef.

Owns what users know as `jaxlite.tree` and `jaxlite.tree_util`, and the helpers that transformations need to fit one
tree onto another (`broadcast_prefix`, `flatten_axes`). Where two trees differ, `tree_differences.py` says how. The flattening
itself is jaxlib's C++ registry: tuple, list, dict, namedtuple and None (a node without leaves) are built in; `tree_nodes.py`
adds others.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

from jaxlite.core import failed_flattens
from jaxlite.core.filtering import boundary, hide_own_frames
from jaxlite.core.lazy import loader
from lowering.xla import pytree, pytree_registry

PyTreeDef = pytree.PyTreeDef
SequenceKey = pytree.SequenceKey
DictKey = pytree.DictKey
GetAttrKey = pytree.GetAttrKey
FlattenedIndexKey = pytree.FlattenedIndexKey
for _class, _doc in (  # jaxlib's classes have none
        (PyTreeDef, "The structure of a pytree, without its leaves."),
        (SequenceKey, "The entry of a key path at a list, tuple or namedtuple: `idx`."),
        (DictKey, "The entry of a key path at a dict: `key`."),
        (GetAttrKey, "The entry of a key path at an attribute: `name`."),
        (FlattenedIndexKey, "The entry of a key path at a container that does not name its children: `key`, a number.")):
    _class.__doc__ = _doc

KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[Any, ...]
IsLeaf = Callable[[Any], bool]

# A pickled treedef names its registry by reference; this is the name.
default_registry = pytree_registry
default_registry.__module__ = __name__
default_registry.__name__ = "default_registry"


class _NotSpecified:
    """The default of a parameter for which None is an argument, as `help` shows it."""

    def __repr__(self) -> str:
        return "<not-specified>"


NOT_SPECIFIED: Any = _NotSpecified()

tree_differences = loader("jaxlite.core.tree_differences")  # with the first error


# --- taking trees apart and putting them together ----------------------------------------------------

def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Any]:
    """The leaves of a tree, left to right, and its structure.

    Dicts are visited in the order of their sorted keys; None has no leaves.

    Args:
      tree: nested containers; whatever is not a registered container is a leaf.
      is_leaf: `is_leaf(x)` is asked at each node on the way down; True makes the node a leaf.
    Returns: `(leaves, treedef)`; `tree_unflatten(treedef, leaves)` is the way back.
    Raises: RecursionError for a tree that contains itself or is nested too deep.

    >>> tree_flatten({"b": (1, None), "a": [2]})
    ([2, 1], PyTreeDef({'a': [*], 'b': (*, None)}))
    """
    try:
        found = pytree_registry.flatten(tree, is_leaf)
    except SystemError as error:
        raise _explained(error) from None
    if failed_flattens.pending:
        failed_flattens.check(found[1])
    return found


def tree_unflatten(treedef: Any, leaves: Iterable[Any]) -> Any:
    """The tree of structure `treedef` with these leaves; ValueError if there are too few or too many.

    >>> tree_unflatten(tree_structure([0, (0, None)]), "ab")
    ['a', ('b', None)]
    """
    return treedef.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree, left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """The treedef of a tree: hashable, comparable, picklable, without the leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Apply `f` to each leaf; the result has the structure of `tree`.

    Args:
      f: gets a leaf of `tree` and what each tree of `rest` has at that place.
      rest: trees of which `tree` is a prefix: where `tree` has a leaf they may have a whole subtree.
      is_leaf: as for `tree_flatten`; asked about `tree` alone.
    Raises: ValueError where a tree of `rest` differs, with the key path and what both have there.

    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    try:  # not `boundary`: a call more for each call
        leaves, treedef = tree_flatten(tree, is_leaf)
        if not rest:
            return treedef.unflatten([f(x) for x in leaves])
        columns = _columns("tree_map", treedef, tree, rest, is_leaf)
        return treedef.unflatten([f(*row) for row in zip(leaves, *columns, strict=True)])
    except Exception as error:
        hide_own_frames(error)
        raise


@boundary
def tree_reduce(
    function: Callable[[Any, Any], Any], tree: Any, initializer: Any = NOT_SPECIFIED, is_leaf: IsLeaf | None = None
) -> Any:
    """Fold the leaves from left to right, like `functools.reduce`.

    Raises: TypeError for a tree without leaves when no `initializer` is given.

    >>> tree_reduce(lambda total, x: total + x, [1, (2, {"a": 3})])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    if initializer is NOT_SPECIFIED:
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


@boundary
def tree_reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = NOT_SPECIFIED, is_leaf: IsLeaf | None = None
) -> Any:
    """Fold the leaves with an associative operation, as a balanced tree of depth log2(leaves).

    Args:
      identity: the result for a tree without leaves; TypeError if there is none and it is needed.

    >>> tree_reduce_associative(lambda a, b: f"({a}{b})", list("abcd"))
    '((ab)(cd))'
    """
    leaves = tree_leaves(tree, is_leaf)
    if not leaves:
        if identity is NOT_SPECIFIED:
            raise TypeError("tree_reduce_associative: the tree has no leaves; give identity= for that case")
        return identity

    def fold(start: int, stop: int) -> Any:
        if stop - start == 1:
            return leaves[start]
        middle = (start + stop) // 2
        return operation(fold(start, middle), fold(middle, stop))

    return fold(0, len(leaves))


def tree_all(tree: Any, *, is_leaf: IsLeaf | None = None) -> bool:
    """Whether all leaves are true; True for a tree without leaves."""
    return all(tree_leaves(tree, is_leaf))


@boundary
def tree_transpose(outer_treedef: Any, inner_treedef: Any | None, pytree_to_transpose: Any) -> Any:
    """Turn an outer tree of inner trees into an inner tree of outer trees.

    Args:
      inner_treedef: None takes the structure of the first inner tree.
    Metadata of nodes may differ; those of the treedefs are taken.
    Raises: TypeError if an inner tree is different otherwise; ValueError if, with `inner_treedef=None`, the tree does not
      start with the outer structure or has no inner tree to look at.

    >>> tree_transpose(tree_structure([0, 0]), None, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    leaves, treedef = tree_flatten(pytree_to_transpose)
    if inner_treedef is None:
        outer = example(outer_treedef)
        inner_trees = _flatten_up_to(outer_treedef, outer, pytree_to_transpose, "tree_transpose outer_treedef", "tree")
        if not inner_trees:
            raise ValueError("tree_transpose: the outer tree has no leaves, so inner_treedef must be given")
        inner_treedef = tree_structure(inner_trees[0])
    expected = outer_treedef.compose(inner_treedef)
    if treedef != expected:
        tree_differences().raise_transpose_error(expected, treedef)
    columns = inner_treedef.num_leaves
    return inner_treedef.unflatten([outer_treedef.unflatten(leaves[i::columns]) for i in range(columns)])


@boundary
def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Repeat each leaf of `prefix_tree` over the subtree that `full_tree` has at its place.

    Args:
      is_leaf: as for `tree_flatten`; asked about `prefix_tree` alone.
    Returns: a tree of the structure of `full_tree`.
    Raises: ValueError if `prefix_tree` is not a prefix of `full_tree`, with the key path.

    >>> tree_broadcast([1, 2], [(0, 0), {"a": 0}])
    [(1, 1), {'a': 2}]
    """
    return tree_structure(full_tree).unflatten(broadcast_prefix(prefix_tree, full_tree, is_leaf))


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf | None = None) -> bool:
    """Whether each element is a leaf: no container, or one for which `is_leaf` holds."""
    if is_leaf is None:
        return pytree.all_leaves(pytree_registry, iterable)
    return all(is_leaf(x) or not pytree_registry.is_node(type(x)) for x in iterable)


def with_places(tree: Any) -> Any:
    """A tree of a structure, with bare objects for leaves: users' classes know these as places of arrays."""
    return tree.unflatten([object() for _ in range(tree.num_leaves)])


def leaf_paths(tree: Any) -> list[KeyPath]:
    """The key path of each leaf of a structure; empty ones if a node has other leaves where they are not arrays."""
    try:
        found = pytree_registry.flatten_with_path(with_places(tree))[0]
    except Exception:  # of the user's own class
        found = []
    return [path for path, _ in found] if len(found) == tree.num_leaves else [()] * tree.num_leaves


# --- key paths ---------------------------------------------------------------------------------------

def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], Any]:
    """Like `tree_flatten`, with `(key path, leaf)` pairs in place of leaves.

    Args:
      is_leaf_takes_path: call `is_leaf(path, x)` instead of `is_leaf(x)`.

    >>> [(keystr(path), x) for path, x in tree_flatten_with_path({"a": [1, 2]})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    predicate = is_leaf
    if is_leaf is not None and not is_leaf_takes_path:
        def predicate(path: KeyPath, x: Any) -> bool:
            return is_leaf(x)
    try:
        found = pytree_registry.flatten_with_path(tree, predicate)
    except SystemError as error:
        raise _explained(error) from None
    if failed_flattens.pending:
        failed_flattens.check(found[1])
    return found


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The `(key path, leaf)` pairs of a tree, left to right."""
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


@boundary
def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Like `tree_map`, with the key path as first argument of `f`.

    >>> tree_map_with_path(lambda path, x: keystr(path) + "=" + str(x), {"a": [1, 2]})
    {'a': ["['a'][0]=1", "['a'][1]=2"]}
    """
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    if not rest:
        return treedef.unflatten([f(path, x) for path, x in pairs])
    columns = _columns("tree_map_with_path", treedef, tree, rest, is_leaf, is_leaf_takes_path)
    return treedef.unflatten([f(*pair, *row) for pair, *row in zip(pairs, *columns, strict=True)])


_PLAIN_KEY = {
    SequenceKey: operator.attrgetter("idx"),
    DictKey: operator.attrgetter("key"),
    GetAttrKey: operator.attrgetter("name"),
    FlattenedIndexKey: operator.attrgetter("key"),
}


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A key path as text.

    Args:
      simple: names and indices alone, without brackets, quotes and dots.
      separator: put between the entries.

    >>> path = (DictKey("a"), SequenceKey(0), GetAttrKey("x"))
    >>> keystr(path), keystr(path, simple=True, separator="/")
    ("['a'][0].x", 'a/0/x')
    """
    if simple:
        keys = tuple(_PLAIN_KEY.get(type(key), str)(key) for key in keys)
    return separator.join(map(str, keys))


# --- one level, and treedefs -------------------------------------------------------------------------

def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """The children of one node and its metadata; ValueError for a leaf."""
    level = pytree_registry.flatten_one_level(tree)
    if failed_flattens.pending:
        failed_flattens.check()
    if level is None:
        raise ValueError(f"flatten_one_level: {type(tree)} is not a registered container")
    return level


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
    """The `(key, child)` pairs of one node and its metadata; ValueError for a leaf."""
    level = pytree_registry.flatten_one_level_with_keys(tree)
    if failed_flattens.pending:
        failed_flattens.check()
    if level is None:
        raise ValueError(f"flatten_one_level_with_keys: {type(tree)} is not a registered container")
    pairs, metadata = level
    if metadata is type(tree) and isinstance(tree, tuple):  # a namedtuple; jaxlib 0.10 gives all its fields one name
        pairs = tuple((GetAttrKey(name), x) for name, x in zip(metadata._fields, tree, strict=True))
    return pairs, metadata


def is_tree_node(typ: type) -> bool:
    """Whether values of this type are containers rather than leaves."""
    return pytree_registry.is_node(typ)


class _NodeType(NamedTuple):
    """How a type of container is taken apart, and made again from metadata and children."""

    to_iter: Callable[[Any], tuple[Iterable[Any], Hashable]]
    from_iter: Callable[[Any, Iterable[Any]], Any]


class _NodeTypes:
    """The types of containers: `kind in node_types`, and `node_types[kind]` says how they are made."""

    def __contains__(self, kind: Any) -> bool:
        return isinstance(kind, type) and pytree_registry.is_node(kind)

    def __getitem__(self, kind: Any) -> _NodeType:
        if kind not in self:
            raise KeyError(kind)

        def make(metadata: Any, children: Iterable[Any]) -> Any:
            values = list(children)
            node = PyTreeDef.from_node_data_and_children(pytree_registry, (kind, metadata), [_leaf] * len(values))
            return node.unflatten(values)

        return _NodeType(flatten_one_level, make)


node_types = _NodeTypes()
_leaf = tree_structure(0)


def treedef_children(treedef: Any) -> list[Any]:
    """The treedefs of the root's children; empty for a leaf."""
    return treedef.children()


def treedef_is_leaf(treedef: Any) -> bool:
    """Whether a treedef is one node alone: a leaf, None or an empty container."""
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[Any]) -> Any:
    """The treedef of a tuple with children of these structures."""
    return pytree.treedef_tuple(pytree_registry, list(treedefs))


# --- fitting one tree onto another -------------------------------------------------------------------

def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """One leaf of `prefix_tree` for each leaf of `full_tree`.

    Raises: ValueError if `prefix_tree` is not a prefix of `full_tree`, with each place where it is not.

    >>> broadcast_prefix((1, 2), ([0, 0], {"a": 0}))
    [1, 1, 2]
    """
    return _spread("prefix_tree must be a prefix of full_tree", "prefix_tree", prefix_tree, full_tree, is_leaf)


def flatten_axes(name: str, treedef: Any, axis_tree: Any) -> list[Any]:
    """One value for each leaf of `treedef` from a prefix tree such as `in_axes`, in which None is a value.

    Args:
      name: what the user calls the prefix tree, for the message: "vmap in_axes".
    Raises: ValueError with each place where `axis_tree` is not a prefix.

    >>> flatten_axes("vmap in_axes", tree_structure((0, {"a": 0, "b": 0})), (None, 1))
    [None, 1, 1]
    """
    plain = _of_tuples(treedef, axis_tree)
    if plain is not None:
        return plain
    headline = f"{name} specification must be a tree prefix of the corresponding value; \n  Mismatches"
    return _spread(headline, name, axis_tree, example(treedef), _is_none)


class PlaceOfLeaf:
    """Stands for a leaf of which only the place is known."""

    def __repr__(self) -> str:
        return "*"


LEAF = PlaceOfLeaf()


def example(treedef: Any) -> Any:
    """A tree of this structure."""
    return treedef.unflatten([LEAF] * treedef.num_leaves)


def _of_tuples(treedef: Any, axis_tree: Any) -> list[Any] | None:
    """`flatten_axes` where the prefix is a number, None, or tuples of them, so that no other node is looked into; else None.

    A user's class may not like to be made of anything but arrays.
    """
    if axis_tree is None or type(axis_tree) is int:
        return [axis_tree] * treedef.num_leaves
    node = treedef.node_data()
    children = treedef.children()
    if type(axis_tree) is not tuple or node is None or node[0] is not tuple or len(children) != len(axis_tree):
        return None
    parts = [_of_tuples(child, axes) for child, axes in zip(children, axis_tree, strict=True)]
    return None if any(part is None for part in parts) else [axis for part in parts for axis in part or ()]


def _is_none(x: Any) -> bool:
    return x is None


def _spread(headline: str, name: str, prefix: Any, full: Any, is_leaf: IsLeaf | None) -> list[Any]:
    leaves, treedef = tree_flatten(prefix, is_leaf)
    try:
        subtrees = treedef.flatten_up_to(full)
    except Exception as error:
        tree_differences().raise_prefix_error(error, headline, name, prefix, full, is_leaf)
    return [x for x, subtree in zip(leaves, subtrees, strict=True) for _ in tree_leaves(subtree)]


def _columns(
    caller: str, treedef: Any, tree: Any, rest: tuple[Any, ...], is_leaf: Any = None, takes_path: bool = False
) -> list[list[Any]]:
    """What each tree of `rest` has where `tree`, of structure `treedef`, has its leaves."""
    return [_flatten_up_to(treedef, tree, other, f"{caller} tree", f"rest[{i}]", is_leaf, takes_path)
            for i, other in enumerate(rest)]


def _flatten_up_to(
    treedef: Any, tree: Any, other: Any, first: str, name: str, is_leaf: Any = None, takes_path: bool = False
) -> list[Any]:
    try:
        return treedef.flatten_up_to(other)
    except Exception as error:
        if failed_flattens.pending:
            failed_flattens.check()
        tree_differences().raise_structure_error(error, tree, other, first, name, is_leaf, takes_path)
        raise


def _explained(error: SystemError) -> Exception:
    """The error that jaxlib means: it reports a RecursionError as the cause of a SystemError."""
    if isinstance(error.__cause__, RecursionError):
        return RecursionError("the pytree contains itself, or is nested deeper than sys.getrecursionlimit()")
    return error
