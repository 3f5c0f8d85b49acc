"""The log of a backward pass: named values that users' backward functions give beside cotangents.

A pass that runs in a thread has its entries in `state.log`. Where a rule transposes a program inside of a trace of its own, the
arrays among them are outputs of the new program, behind the cotangents, and are logged again where it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.tracing import state
from jaxlite.core.tree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from jaxlite.core.tree_nodes import register_dataclass
from jaxlite.core.values import is_array_like


class collecting:
    """Inside a `with` block backward passes log into a dict of its own, which it gives."""

    __slots__ = ("previous",)

    def __enter__(self) -> dict[Any, Any]:
        self.previous = state.log
        found: dict[Any, Any] = {}
        state.log = found
        return found

    def __exit__(self, *exc: Any) -> None:
        state.log = self.previous


def log(entries: dict[Any, Any] | None, source: Any) -> None:
    """Add entries to the log of the pass that runs. Args: `source` the primitive whose rule has them.

    Raises: ValueError for a name that is in the log.
    """
    found = state.log
    if not entries or found is None:
        return
    for name, value in entries.items():
        if name in found:
            raise ValueError(f"Duplicate backward-pass log key {name!r} from the transpose rule for '{source}'. Each key must "
                             "be unique within a backward pass.")
        found[name] = value


def as_outputs(entries: dict[Any, Any]) -> tuple[list[Any], Any]:
    """The arrays among entries, as outputs of a program, and the tree that they have. Raises: TypeError for anything else."""
    leaves, tree = tree_flatten(entries)
    for leaf in leaves:
        if not is_array_like(leaf):
            path = next(keystr(path) for path, each in tree_flatten_with_path(entries)[0] if each is leaf)
            raise TypeError(f"a backward pass inside of a transformed function logged a value of type {type(leaf)} at {path}, "
                            "which is not a valid JAX type")
    return leaves, tree


def with_log(run: Callable[..., Any], *args: Any) -> tuple[Any, list[Any], Any]:
    """What `run(*args)` returns, and what it logs (see `as_outputs`)."""
    with collecting() as entries:
        found = run(*args)
    return found, *as_outputs(entries)


def log_outputs(outs: Sequence[Any], tree: Any, source: Any) -> Sequence[Any]:
    """Log what a transposed program gives behind the cotangents. Returns the cotangents."""
    count = len(outs) - tree.num_leaves
    log(tree_unflatten(tree, outs[count:]), source)
    return outs[:count]


class CondSum:
    """What the branches of a `cond` or `switch` logged under one name.

    `index` is the branch that ran. `branches` has for each branch what it logged if it ran, zeros if another one ran, and
    None for a branch that does not log under this name.
    """

    def __init__(self, index: Any, branches: list[Any]):
        self.index, self.branches = index, branches

    def __repr__(self) -> str:
        return f"CondSum(index={self.index!r}, branches={self.branches!r})"


register_dataclass(CondSum, data_fields=["index", "branches"], meta_fields=[])
