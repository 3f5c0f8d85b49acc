"""Functions with a stack of transformations, for libraries that write transformations.

A `WrappedFun` is a function and the layers that transform its arguments and results. A layer may also produce another
value, such as the pytree that it flattened: it stores the value in a `Store`, which is read after the call.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from jaxlite.core.jaxpr import DebugInfo
from lowering.xla import trace_context

__all__ = [
    "EqualStore", "Store", "StoreException", "WrappedFun", "cache", "merge_linear_aux", "transformation", "transformation2",
    "transformation_with_aux", "transformation_with_aux2", "wrap_init",
]
__dir__ = lambda: __all__

_EMPTY = object()


class StoreException(Exception):
    """A store was read before it was filled, or filled twice."""


class Store:
    """A place for one value that a call leaves behind; filled once."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: Any = _EMPTY

    @property
    def val(self) -> Any:
        """The value. Raises: StoreException if there is none."""
        if self._value is _EMPTY:
            raise StoreException("Store empty")
        return self._value

    def store(self, value: Any) -> None:
        """Fill it. Raises: StoreException if it is filled."""
        if self._value is not _EMPTY:
            raise StoreException("Store occupied")
        self._value = value

    def reset(self) -> None:
        self._value = _EMPTY

    def __bool__(self) -> bool:
        return self._value is not _EMPTY


class EqualStore(Store):
    """A store that may be filled again with an equal value."""

    __slots__ = ()

    def store(self, value: Any) -> None:
        if self._value is not _EMPTY and self._value != value:
            raise StoreException(f"Stores occupied with different values: {self._value} and {value}")
        self._value = value


class WrappedFun:
    """A function in layers. `call_wrapped(*args, **kwargs)` runs them, the outermost first.

    Attributes: `f` the function inside; `transforms` the layers, pairs of a function and its static arguments, outermost
    first; `stores` one for each layer, or None; `params` keyword arguments for `f`; `debug_info`.
    """

    __slots__ = ("f", "transforms", "stores", "params", "in_type", "debug_info", "__weakref__")

    def __init__(self, f: Callable, transforms: tuple[Any, ...], stores: tuple[Any, ...], params: tuple[Any, ...],
                 in_type: Any = None, debug_info: DebugInfo | None = None):
        self.f, self.transforms, self.stores, self.params = f, transforms, stores, params
        self.in_type, self.debug_info = in_type, debug_info

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", "<unnamed wrapped function>")

    def wrap(self, layer: Callable, static: tuple[Any, ...], store: Store | None) -> WrappedFun:
        """The same with one more layer around it."""
        return WrappedFun(self.f, ((layer, static), *self.transforms), (store, *self.stores), self.params, None,
                          self.debug_info)

    def populate_stores(self, stores: Iterable[Store | None]) -> None:
        """Fill the stores from those of another call with the same layers."""
        for own, other in zip(self.stores, stores, strict=True):
            if own is not None and other is not None:
                own.store(other.val)

    @property
    def f_transformed(self) -> Callable:
        """The function with its layers, as one callable."""
        fun: Callable = functools.partial(self.f, **dict(self.params)) if self.params else self.f
        for (layer, static), store in zip(reversed(self.transforms), reversed(self.stores), strict=True):
            fun = functools.partial(layer, fun, *([] if store is None else [store]), *static)
        return fun

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function through its layers."""
        return self.f_transformed(*args, **kwargs)

    def _key(self) -> Any:
        return self.f, self.transforms, self.params, self.in_type

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: Any) -> bool:
        return type(other) is WrappedFun and self._key() == other._key()

    def __repr__(self) -> str:
        layers = [f"{getattr(layer, '__name__', layer)}{static}" for layer, static in self.transforms]
        return "Wrapped function:\n" + "".join(f"{index}: {text}\n" for index, text in enumerate(layers)) + repr(self.f)


def wrap_init(f: Callable, params: dict[str, Any] | None = None, *, debug_info: DebugInfo | None = None) -> WrappedFun:
    """A function without layers yet; `params` are keyword arguments for it.

    >>> double = transformation2(lambda f, *args: 2 * f(*args))
    >>> double(wrap_init(max)).call_wrapped(3, 4)
    8
    """
    return WrappedFun(f, (), (), tuple(sorted((params or {}).items())), None, debug_info)


def _curried(add_layer: Callable[..., Any]) -> Callable[..., Any]:
    """`transform(layer)(fun, *static)` beside `transform(layer, fun, *static)`."""

    @functools.wraps(add_layer)
    def call(layer: Callable, *args: Any, **options: Any) -> Any:
        return add_layer(layer, *args, **options) if args else functools.partial(add_layer, layer, **options)

    return call


@_curried
def transformation2(layer: Callable, fun: WrappedFun, *static: Any) -> WrappedFun:
    """Add a layer `layer(f, *static, *args, **kwargs)`, which calls `f` and gives the result."""
    return fun.wrap(layer, static, None)


@_curried
def transformation_with_aux2(layer: Callable, fun: WrappedFun, *static: Any, use_eq_store: bool = False) -> Any:
    """Add a layer `layer(f, store, *static, *args, **kwargs)`; gives the function and one that reads the store."""
    store = EqualStore() if use_eq_store else Store()
    return fun.wrap(layer, static, store), lambda: store.val


class _Generator:
    """A layer written as a generator: it yields `(args, kwargs)`, is sent the result, and yields its own."""

    __slots__ = ("make",)

    def __init__(self, make: Callable):
        self.make = make

    def _run(self, fun: Callable, *args: Any, **kwargs: Any) -> Any:
        steps = self.make(*args, **kwargs)
        inner, inner_kwargs = next(steps)
        return steps.send(fun(*inner, **inner_kwargs))

    __call__ = _run

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and other.make == self.make

    def __hash__(self) -> int:
        return hash(self.make)


class _GeneratorWithAux(_Generator):
    """The same, where the last thing yielded is the result and what goes into the store."""

    __slots__ = ()

    def __call__(self, fun: Callable, store: Store, *args: Any, **kwargs: Any) -> Any:
        out, aux = self._run(fun, *args, **kwargs)
        store.store(aux)
        return out


@_curried
def transformation(generator: Callable, fun: WrappedFun, *static: Any) -> WrappedFun:
    """Add a layer written as a generator of `*static, *args`: it yields `(args, kwargs)`, then the result."""
    return fun.wrap(_Generator(generator), static, None)


@_curried
def transformation_with_aux(generator: Callable, fun: WrappedFun, *static: Any) -> Any:
    """The same for a generator that at last yields `(result, aux)`; gives the function and one that returns aux."""
    store = Store()
    return fun.wrap(_GeneratorWithAux(generator), static, store), lambda: store.val


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether it was the first of two calls that stored a value, and that value. Raises: StoreException unless one did."""
    found = []
    for first, aux in ((True, aux1), (False, aux2)):
        try:
            found.append((first, aux()))
        except StoreException:
            pass
    if len(found) != 1:
        raise StoreException("neither store occupied" if not found else "both stores occupied")
    return found[0]


def cache(call: Callable) -> Callable:
    """Remember `call(fun, *args)` for each function with its layers, arguments and options in force; fills stores again."""
    remembered: Any = weakref.WeakKeyDictionary()

    @functools.wraps(call)
    def remembering(fun: WrappedFun, *args: Any) -> Any:
        answers = remembered.setdefault(fun.f, {})
        key = fun.transforms, fun.params, fun.in_type, args, trace_context()
        if key in answers:
            answer, stores = answers[key]
            fun.populate_stores(stores)
            return answer
        answer = call(fun, *args)
        answers[key] = answer, fun.stores
        return answer

    remembering.cache_clear = remembered.clear  # type: ignore[attr-defined]
    return remembering
