"""Words for where two trees differ: for errors, and for explanations of why a function was compiled again.

A tree is walked node by node, so that each of the topmost places that differ is named by its key path, with what both
have there.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from jaxlite.core.tree import LEAF, IsLeaf, KeyPath, PyTreeDef, example, flatten_one_level_with_keys, keystr
from jaxlite.core.tree_nodes import static_fields
from lowering.xla import pytree_registry


def prefix_errors(prefix: Any, full: Any, is_leaf: IsLeaf | None = None, name: str = "tree") -> list[str]:
    """In words, each place where `prefix` is not a prefix of `full`; empty if it is one.

    Args:
      is_leaf: as for `tree_flatten`; asked about `prefix` alone.
      name: what the user calls `prefix`; messages start with it.

    >>> prefix_errors({"x": [(0, 1)]}, {"x": [[0, 1, 2]]}, name="in_axes")
    ["in_axes['x'][0]: expected a list of length 3, got a tuple of length 2"]
    """
    found = _differences(prefix, full, prefix=True, is_leaf=is_leaf)
    return [_message(name, path, there, here) for path, here, there in found]


def equality_errors(tree1: Any, tree2: Any, is_leaf: IsLeaf | None = None) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Each place where the structures of two trees differ: `(path, thing1, thing2, explanation)`.

    The texts fit into "`{name}{keystr(path)}` is {thing1} in one and {thing2} in the other, so {explanation}".
    Two treedefs (or a tree and a treedef) are compared as trees.

    >>> list(equality_errors([1, (2,)], [1, (2, 3)]))
    [((SequenceKey(idx=1),), 'a tuple of length 1', 'a tuple of length 2', 'the lengths do not match')]
    """
    tree1, tree2 = (example(t) if isinstance(t, PyTreeDef) else t for t in (tree1, tree2))
    for path, one, two in _differences(tree1, tree2, is_leaf=is_leaf):
        yield (path, *_explain(one, two))


def raise_prefix_error(
    error: Exception, headline: str, name: str, prefix: Any, full: Any, is_leaf: IsLeaf | None
) -> NoReturn:
    """Raise, in place of an error of jaxlib, a ValueError with each place where a tree is not a prefix; that error for none."""
    problems = prefix_errors(prefix, full, is_leaf, name)
    if not problems:
        raise error
    raise ValueError(_listed(headline, problems)) from (None if type(error) is ValueError else error)


def raise_transpose_error(expected: Any, treedef: Any) -> None:
    """Raise TypeError where a tree to transpose differs from what it should be by more than the metadata of nodes."""
    found = list(_differences(example(expected), example(treedef)))
    if treedef.num_leaves != expected.num_leaves or any(_explain(*pair)[2] != _METADATA for _, *pair in found):
        problems = [_message("tree", path, *pair) for path, *pair in found]
        raise TypeError(_listed(f"Mismatch\n{treedef}\n != \n{expected}\nThe tree is not outer_treedef of inner_treedef",
                                problems))


def raise_structure_error(
    error: Exception, tree: Any, other: Any, first: str, name: str, is_leaf: IsLeaf | None, takes_path: bool
) -> None:
    """Raise, in place of an error of jaxlib, a ValueError with each place where a tree of `tree_map` differs from the first."""
    found = list(_differences(tree, other, prefix=True, is_leaf=is_leaf, takes_path=takes_path))
    problems = [_message(name, path, *pair) for path, *pair in found]
    if not problems:
        return
    (path, expected, got), *_ = found
    explanation = _explain(expected, got)[2]
    what = "types" if explanation in (_TYPES, _NONE) else "pytree metadata"
    if explanation == _LENGTHS:
        what = f"lengths of {type(expected.value).__name__}"
    headline = f"pytree structure error: different {what} at key path\n    {first}{keystr(path)}"
    raise ValueError(_listed(headline, problems)) from (None if type(error) is ValueError else error)


class _Node(NamedTuple):
    """One level of a tree; a leaf has None for children."""

    value: Any
    children: list[tuple[Any, Any]] | None
    metadata: Any


def _node(x: Any) -> _Node:
    if not pytree_registry.is_node(type(x)):
        return _Node(x, None, None)
    pairs, metadata = flatten_one_level_with_keys(x)
    return _Node(x, list(pairs), metadata)


def _differences(
    a: Any, b: Any, path: KeyPath = (), prefix: bool = False, is_leaf: Any = None, takes_path: bool = False
) -> Iterator[tuple[KeyPath, _Node, _Node]]:
    """The topmost places where two trees differ; with `prefix`, a leaf of `a` fits anything."""
    def ends(x: Any) -> bool:
        return is_leaf is not None and (is_leaf(path, x) if takes_path else is_leaf(x))

    one = _Node(a, None, None) if ends(a) else _node(a)
    if prefix and one.children is None:
        return
    two = _Node(b, None, None) if not prefix and ends(b) else _node(b)
    if one.children is None and two.children is None:
        return
    if (
        one.children is None
        or two.children is None
        or type(a) is not type(b)
        or len(one.children) != len(two.children)
        or not _equal(one.metadata, two.metadata)
    ):
        yield path, one, two
        return
    for (key, x), (_, y) in zip(one.children, two.children, strict=True):
        yield from _differences(x, y, (*path, key), prefix, is_leaf, takes_path)


def _equal(x: Any, y: Any) -> bool:
    try:
        return bool(x == y)
    except Exception:
        return False


_TYPES = "the types do not match"
_NONE = "None is a container without leaves"
_LENGTHS = "the lengths do not match"
_METADATA = "the metadata does not match"
_DICTS = (dict, OrderedDict, defaultdict)


def _explain(one: _Node, two: _Node) -> tuple[str, str, str]:
    """Words for two different nodes and for the difference, where `one` is what `two` should have been."""
    if one.children is None or two.children is None or type(one.value) is not type(two.value):
        texts = [_describe(one), _describe(two)]
        if texts[0] == texts[1]:  # two classes of one name
            types = type(one.value), type(two.value)
            texts = [f"{text} ({t.__module__}.{t.__qualname__})" for text, t in zip(texts, types, strict=True)]
        if one.value is None or two.value is None:
            return texts[0], texts[1], _NONE
        return texts[0], texts[1], _TYPES
    kind = type(one.value)
    if kind in _DICTS and list(one.value) != list(two.value):
        lost = [_short(key) for key in one.value if key not in two.value]
        new = [_short(key) for key in two.value if key not in one.value]
        parts = [f"{', '.join(lost)} {_are(lost)} missing"] if lost else []
        parts += [f"{', '.join(new)} {_are(new)} unexpected"] if new else []
        if parts or kind is OrderedDict:
            return _describe(one), _describe(two), " and ".join(parts) or "the order of the keys does not match"
    if len(one.children) != len(two.children):
        texts = [_describe(one), _describe(two)]
        if texts[0] == texts[1]:  # a class of users
            counts = len(one.children), len(two.children)
            texts = [f"{text} with {n} child{'ren' * (n != 1)}" for text, n in zip(texts, counts, strict=True)]
        return texts[0], texts[1], _LENGTHS
    reason = _METADATA
    try:
        bool(one.metadata == two.metadata)
    except Exception as error:
        reason = f"comparing the metadata raised {type(error).__name__}: {error}"
    return f"{_describe(one)} with {_static(one)}", f"{_describe(two)} with {_static(two)}", reason


def _message(name: str, path: KeyPath, expected: _Node, got: _Node) -> str:
    one, two, explanation = _explain(expected, got)
    reason = "" if explanation in (_TYPES, _LENGTHS, _METADATA) else f" ({explanation})"
    return f"{name}{keystr(path)}: expected {one}, got {two}{reason}"


def _describe(node: _Node) -> str:
    x, children, _ = node
    if x is None:
        return "None"
    if x is LEAF:
        return "a leaf"
    name = type(x).__name__
    if children is None:
        return f"a leaf of type {name}"
    text = f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    if type(x) in _DICTS:
        keys = ", ".join(_short(key) for key in x)
        return f"{text} with keys {keys}" if 0 < len(keys) <= 80 else f"{text} with {len(x)} keys"
    return f"{text} of length {len(children)}" if type(x) in (tuple, list) else text


def _static(node: _Node) -> str:
    """The metadata of a node of a class that users made."""
    names = static_fields.get(type(node.value))
    if names is not None:
        return ", ".join(f"{name}={_short(x)}" for name, x in zip(names, node.metadata, strict=True)) or "no metadata"
    if type(node.value) is defaultdict:
        return f"default_factory {_short(node.metadata[0])}"
    return f"metadata {_short(node.metadata)}"


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _are(items: list[str]) -> str:
    return "is" if len(items) == 1 else "are"


def _listed(headline: str, problems: list[str], limit: int = 8) -> str:
    more = [f"and {len(problems) - limit} more"] if len(problems) > limit else []
    return "\n  ".join([f"{headline}:", *problems[:limit], *more])
