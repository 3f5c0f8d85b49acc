"""Kinds of pytree nodes: how users make classes containers, and those that are added to jaxlib's.

jaxlib's registry knows tuple, list, dict, namedtuple and None. OrderedDict, defaultdict and `Partial` are registered here.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from jaxlite.core.failed_flattens import guarded
from jaxlite.core.tree import DictKey
from lowering.xla import call_registry, pytree_registry

static_fields: dict[Any, tuple[str, ...]] = {}  # of classes that came through register_dataclass, for messages


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None,
) -> None:
    """Make a class a container. It must be the exact type: subclasses are registered on their own.

    Args:
      flatten_func: `flatten_func(x) -> (children, aux_data)`; aux_data must be comparable and, where treedefs are
        hashed (as by jit), hashable.
      unflatten_func: `unflatten_func(aux_data, children) -> x`. It also gets children that are not arrays
        (tracers, placeholders), so it should not look at them.
      flatten_with_keys_func: like `flatten_func` with `(key, child)` pairs; without it keys are positions.
    Raises: ValueError if the class is registered already.
    """
    flatten_func = guarded(flatten_func)
    pytree_registry.register_node(nodetype, flatten_func, unflatten_func,
                                  None if flatten_with_keys_func is None else guarded(flatten_with_keys_func))
    call_registry.register_node(nodetype, flatten_func, unflatten_func, None)


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """Make a class a container whose children have keys.

    Args:
      flatten_with_keys: `flatten_with_keys(x) -> (pairs of key and child, aux_data)`.
      flatten_func: the same without keys, for speed; derived if not given.
    """
    if flatten_func is None:
        def flatten_func(x: Any) -> tuple[Iterable[Any], Hashable]:
            pairs, aux_data = flatten_with_keys(x)
            return [child for _, child in pairs], aux_data

    register_pytree_node(nodetype, flatten_func, unflatten_func, flatten_with_keys)


_Class = TypeVar("_Class", bound=type)


def register_pytree_node_class(cls: _Class) -> _Class:
    """Class decorator: a container by its methods `tree_flatten(self)` and `tree_unflatten(cls, aux_data, children)`.

    >>> @register_pytree_node_class
    ... class Pair:
    ...     def __init__(self, *items):
    ...         self.items = items
    ...     def tree_flatten(self):
    ...         return self.items, None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux_data, children):
    ...         return cls(*children)
    >>> from jaxlite.core.tree import tree_leaves
    >>> tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys_class(cls: _Class) -> _Class:
    """Class decorator: a container by its methods `tree_flatten_with_keys` and `tree_unflatten`.

    A method `tree_flatten` is used where keys are not needed, if there is one.
    """
    flatten = operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
    unflatten = cls.tree_unflatten  # type: ignore[attr-defined]
    register_pytree_with_keys(cls, operator.methodcaller("tree_flatten_with_keys"), unflatten, flatten)
    return cls


def register_dataclass(
    nodetype: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Make a class a container of some of its attributes; unflattening calls it with them as keywords.

    As a decorator it can be used bare, with arguments, or through `functools.partial`.

    Args:
      nodetype: a dataclass; or any class, if both kinds of fields are given.
      data_fields: names of the children. For a dataclass, data and meta fields together must be all fields
        with `init=True`. Default: the fields that are not meta fields.
      meta_fields: names of the static attributes; their values must be hashable and comparable. Default: the fields
        with `field(metadata={"static": True})` (see `jaxlite.tree.static`).
      drop_fields: fields that are in neither; they take their default value again at unflattening.
    Returns: `nodetype`.
    Raises: TypeError if only one of `data_fields` and `meta_fields` is given, or none for a class that is not a
      dataclass; ValueError if fields are missing, unknown, or both data and meta.

    >>> import dataclasses
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> from jaxlite.core.tree import tree_map
    >>> tree_map(lambda x: 2 * x, Layer(1.5, "first"))
    Layer(weight=3.0, name='first')
    """
    if nodetype is None:
        return functools.partial(
            register_dataclass, data_fields=data_fields, meta_fields=meta_fields, drop_fields=drop_fields
        )
    if (data_fields is None) != (meta_fields is None):
        raise TypeError(
            "register_dataclass: give both data_fields and meta_fields, or neither; "
            f"got data_fields={data_fields}, meta_fields={meta_fields}"
        )
    fields = getattr(nodetype, "__dataclass_fields__", None)
    if fields is not None:
        import dataclasses  # loaded already by whoever made the dataclass

        fields = dataclasses.fields(nodetype)
    if data_fields is None or meta_fields is None:
        if fields is None:
            raise TypeError(
                f"register_dataclass: {nodetype!r} is not a dataclass; name its data_fields and meta_fields"
            )
        kept = [f for f in fields if f.name not in drop_fields]
        data_fields = [f.name for f in kept if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in kept if f.metadata.get("static", False)]
    both = set(data_fields) & set(meta_fields)
    if both:
        raise ValueError(f"register_dataclass: fields {sorted(both)} are in data_fields and in meta_fields")
    if fields is not None:
        given = {*data_fields, *meta_fields}
        wanted = {f.name for f in fields if f.init} - set(drop_fields)
        problems = [f"Missing fields: {_as_set(wanted - given)}. Add them to drop_fields if meant."] if wanted - given else []
        problems += [f"Unexpected fields: {_as_set(given - wanted)}."] if given - wanted else []
        if problems:
            raise ValueError("data_fields and meta_fields must include all dataclass fields with ``init=True`` and only them. "
                             f"{' '.join(problems)} The class is {nodetype.__name__}")
    for registry in (pytree_registry, call_registry):
        registry.register_dataclass_node(nodetype, list(data_fields), list(meta_fields))
    static_fields[nodetype] = tuple(meta_fields)
    return nodetype


def _as_set(names: set[str]) -> str:
    return f"{{{', '.join(map(repr, sorted(names)))}}}"


_Type = TypeVar("_Type", bound=type)


def register_static(cls: _Type) -> _Type:
    """Class decorator: values of the class are nodes without leaves, part of the structure.

    They must be hashable and comparable: a jitted function is compiled anew for each different one.
    """
    def flatten(x: Any) -> tuple[tuple[()], Any]:
        return (), x

    register_pytree_node(cls, flatten, lambda x, _: x, flatten)
    return cls


def static(**kwargs: Any) -> Any:
    """A dataclass field that `tree_util.register_dataclass` takes as static: part of the structure, not a leaf.

    Args:
      **kwargs: those of `dataclasses.field`.

    >>> import dataclasses
    >>> from jaxlite import tree, tree_util
    >>> @tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     name: str = tree.static(default="first")
    >>> tree.leaves(Layer(1.5))
    [1.5]
    """
    import dataclasses  # only programs that declare a dataclass pay for it

    return dataclasses.field(**{**kwargs, "metadata": {**(kwargs.get("metadata") or {}), "static": True}})


# --- kinds that are registered here ------------------------------------------------------------------


class _Opaque:
    """A `functools.partial` that `Partial` must not merge into itself: its arguments are static."""

    def __init__(self, fun: Callable[..., Any]):
        self.fun = fun
        functools.update_wrapper(self, fun, assigned=(), updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and self.fun == other.fun

    def __hash__(self) -> int:
        return hash(self.fun)

    def __repr__(self) -> str:
        return f"static({self.fun!r})"


class Partial(functools.partial):  # type: ignore[type-arg]  # at run time its class has no parameters
    """`functools.partial` as a container: the arguments are children, the function is part of the structure.

    So a function with some arrays filled in can be an argument or result of a transformed function. The arguments
    of a `functools.partial` given as `func` stay static.

    >>> from jaxlite.core.tree import tree_leaves
    >>> add_one = Partial(operator.add, 1)
    >>> add_one(2), tree_leaves(add_one)
    (3, [1])
    """

    __module__ = "jaxlite.tree_util"

    def __new__(cls, func: Callable[..., Any], *args: Any, **kw: Any) -> Partial:
        return super().__new__(cls, _Opaque(func) if isinstance(func, functools.partial) else func, *args, **kw)


def _flatten_ordered(d: OrderedDict[Any, Any]) -> tuple[tuple[Any, ...], Hashable]:
    return tuple(d.values()), tuple(d)


def _flatten_ordered_with_keys(d: OrderedDict[Any, Any]) -> tuple[tuple[tuple[Any, Any], ...], Hashable]:
    return tuple((DictKey(k), x) for k, x in d.items()), tuple(d)


def _flatten_defaults(d: defaultdict[Any, Any]) -> tuple[tuple[Any, ...], Hashable]:
    keys = tuple(sorted(d))
    return tuple(d[k] for k in keys), (d.default_factory, keys)


def _flatten_defaults_with_keys(d: defaultdict[Any, Any]) -> tuple[tuple[tuple[Any, Any], ...], Hashable]:
    keys = tuple(sorted(d))
    return tuple((DictKey(k), d[k]) for k in keys), (d.default_factory, keys)


register_pytree_node(
    OrderedDict,
    _flatten_ordered,
    lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
    _flatten_ordered_with_keys,
)
register_pytree_node(
    defaultdict,
    _flatten_defaults,
    lambda aux, children: defaultdict(aux[0], zip(aux[1], children, strict=True)),
    _flatten_defaults_with_keys,
)
register_pytree_node(
    Partial,
    lambda p: ((p.args, p.keywords), p.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)
