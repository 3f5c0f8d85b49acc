"""Functions of pytrees as functions of their leaves, for libraries that write transformations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxlite.core import source, tree
from jaxlite.core.jaxpr import DebugInfo
from jaxlite.core.shape_dtype import abstract
from jaxlite.core.tree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from jaxlite.extend.linear_util import Store, WrappedFun, transformation2, transformation_with_aux2


def debug_info(traced_for: str, fun: Callable, args: Sequence[Any], kwargs: dict[str, Any], *,
               static_argnums: Sequence[int] = (), static_argnames: Sequence[str] = (), **_: Any) -> DebugInfo:
    """Names for the messages of a trace: of the function, what it is traced for, and its arguments by pytree path."""

    def names() -> list[str]:
        dynamic = [arg for index, arg in enumerate(args) if index not in static_argnums]
        named = {name: value for name, value in kwargs.items() if name not in static_argnames}
        return [keystr(path) for path, _ in tree_flatten_with_path((dynamic, named))[0]]

    return DebugInfo(traced_for, source.function_location(fun), names)


@transformation_with_aux2
def flatten_fun(fun: Callable, store: Store, in_tree: Any, *leaves: Any) -> list[Any]:
    """A function of the leaves of `(args, kwargs)` that returns leaves; the second of the two results gives their tree.

    Args: a `linear_util.WrappedFun`, and the tree of `(args, kwargs)`.

    >>> import jaxlite
    >>> from jaxlite.extend import linear_util
    >>> leaves, in_tree = jaxlite.tree.flatten((({"a": 1, "b": 2},), {}))
    >>> flat, out_tree = flatten_fun(linear_util.wrap_init(lambda d: (d["b"], d["a"])), in_tree)
    >>> flat.call_wrapped(*leaves), out_tree()
    ([2, 1], PyTreeDef((*, *)))
    """
    args, kwargs = tree_unflatten(in_tree, leaves)
    out, out_tree = tree_flatten(fun(*args, **kwargs))
    store.store(out_tree)
    return out


@transformation_with_aux2
def flatten_fun_nokwargs(fun: Callable, store: Store, in_tree: Any, *leaves: Any) -> list[Any]:
    """The same for the tree of the positional arguments alone."""
    out, out_tree = tree_flatten(fun(*tree_unflatten(in_tree, leaves)))
    store.store(out_tree)
    return out


class _Static:
    """An argument that is closed over, compared as it would be in a key."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return type(other) is _Static and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


@transformation2
def _with_fixed(fun: Callable, positions: tuple[int, ...], fixed: tuple[_Static, ...], *args: Any, **kwargs: Any) -> Any:
    moving, still = iter(args), iter(fixed)
    chosen = set(positions)
    return fun(*[next(moving) if index in chosen else next(still).value for index in range(len(positions) + len(fixed))],
               **kwargs)


def argnums_partial(f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any],
                    require_static_args_hashable: bool = True) -> tuple[WrappedFun, tuple[Any, ...]]:
    """A function of some of its positional arguments, the others fixed; and those.

    Raises: ValueError for a fixed argument that cannot be hashed, if they are required to be.
    """
    numbers = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    positions = tuple(sorted({number % len(args) if -len(args) <= number < len(args) else number for number in numbers}))
    fixed = []
    for index, arg in enumerate(args):
        if index in positions:
            continue
        if require_static_args_hashable:
            try:
                hash(arg)
            except TypeError:
                raise ValueError(f"Non-hashable static arguments are used: argument {index} is {arg!r} of type "
                                 f"{type(arg)}") from None
        fixed.append(_Static(arg))
    return _with_fixed(f, positions, tuple(fixed)), tuple(args[index] for index in positions if index < len(args))


def flatten_axes(name: str, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False) -> list[Any]:
    """For each leaf of a tree what a prefix of that tree says of it: an axis, a sharding, None.

    Args: `name` says in messages what it is; `kws` and `tupled_args` what kind of tree it is for.
    Raises: ValueError if it is not a prefix.
    """
    return tree.flatten_axes(name, treedef, axis_tree)


def donation_vector(donate_argnums: Iterable[int], donate_argnames: Iterable[str], in_tree: Any,
                    kws: bool = True) -> tuple[bool, ...]:
    """For each leaf of the arguments whether it is donated; `in_tree` is the tree of `(args, kwargs)`."""
    args_tree, kwargs_tree = in_tree.children() if kws else (in_tree, None)
    numbers, names = set(donate_argnums), set(donate_argnames)
    flags = [index in numbers for index, each in enumerate(args_tree.children()) for _ in range(each.num_leaves)]
    if kwargs_tree is not None:
        _, keys = kwargs_tree.node_data() or (None, ())
        flags += [key in names for key, each in zip(keys, kwargs_tree.children(), strict=True) for _ in range(each.num_leaves)]
    return tuple(flags)


def rebase_donate_argnums(donate_argnums: Iterable[int], static_argnums: Iterable[int]) -> tuple[int, ...]:
    """The numbers of donated arguments when the static ones are taken out."""
    static = sorted(set(static_argnums))
    return tuple(sorted(number - sum(each < number for each in static) for number in set(donate_argnums) - set(static)))


def safe_map(f: Callable, *args: Iterable[Any]) -> list[Any]:
    """`list(map(f, *args))` of sequences that must have one length."""
    lists = [list(each) for each in args]
    lengths = list(map(len, lists))
    if len(set(lengths)) > 1:
        raise ValueError(f"safe_map() arguments have different lengths: {lengths}")
    return [f(*each) for each in zip(*lists, strict=True)]


def shaped_abstractify(x: Any) -> Any:
    """The abstract value of an array, a scalar, or of anything with a shape and a dtype."""
    return abstract(x)
