"""Trees of booleans that mark arguments, for `in_nzs` and `saveable_args`."""

from __future__ import annotations

from typing import Any

from jaxlite.core.tree import treedef_is_leaf


def marks_of(function: str, argument: str, marks: Any, tree: Any) -> list[bool]:
    """The mark of each leaf of a tree, from booleans and tuples of them, which stand for containers of any kind.

    Raises: ValueError if they do not fit the tree, or are something else.
    """
    if isinstance(marks, bool):
        return [marks] * tree.num_leaves
    what = f"the {argument} argument to jax.{function}"
    if not isinstance(marks, (tuple, list, dict)):
        raise ValueError(f"{what} must be a tree of bools, like a tuple-tree (made of bools and tuples only), but {argument} "
                         f"is {marks!r} of type {type(marks).__name__}")
    given = [marks[key] for key in sorted(marks)] if isinstance(marks, dict) else marks
    children = [] if treedef_is_leaf(tree) else tree.children()
    if len(given) != len(children):
        raise ValueError(f"{what} must form a tree prefix of the corresponding values (up to container types, so containers "
                         f"need only match in their number of children), but {argument} has {len(given)} children while the "
                         f"corresponding container has {len(children)}")
    return [mark for each, child in zip(given, children, strict=True) for mark in marks_of(function, argument, each, child)]
