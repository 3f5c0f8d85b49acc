"""`jax._src.util` for programs, such as those of JAX's documentation on jaxpr interpreters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.symbolic import is_symbolic
from jaxlite.lax.shaping import canonical_axis as canonicalize_axis  # noqa: F401  torchax
from jaxlite.numpy import api
from jaxlite.traces.eager import eager_trace
from lowering import platforms


def full_lower(value: Any) -> Any:
    """What a tracer of a library's says that it is; any other value itself."""
    lower = getattr(type(value), "full_lower", None)
    return value if lower is None else lower(value)


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """`map` as a list, of sequences of equal lengths."""
    return [f(*each) for each in safe_zip(*args)]


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """`zip` as a list, of sequences of equal lengths."""
    return list(zip(*args, strict=True))


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Pairs as a pair of tuples."""
    found = list(pairs)
    return tuple(first for first, _ in found), tuple(second for _, second in found)


def split_list(args: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    """A list in parts of some lengths, and what is left."""
    left, parts = list(args), []
    for length in lengths:
        parts.append(left[:length])
        left = left[length:]
    return [*parts, left]


def partition_list(which: Sequence[bool], args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """What is not chosen, and what is."""
    pairs = safe_zip(which, args)
    return [each for chosen, each in pairs if not chosen], [each for chosen, each in pairs if chosen]


def merge_lists(which: Sequence[bool], first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """The list whose partition is these two."""
    sources = iter(first), iter(second)
    return [next(sources[bool(chosen)]) for chosen in which]


def register_custom_decorator_type(cls: type) -> type:
    """Mark a class as a decorator that adds rules to functions. Nothing here asks which classes are marked."""
    return cls


# Libraries add their primitives to it, whose lowering wants to know its devices. Here every lowering knows them.
prim_requires_devices_during_lowering: set[Any] = set()


class xla_primitive_callable:
    """What JAX compiles for eager operations: libraries drop it when they are done with a model."""

    @staticmethod
    def cache_clear() -> None:
        eager_trace.clear()


class HashableFunction:
    """A function that equals others with the same code and the same values of `closure`."""

    def __init__(self, f: Callable[..., Any], closure: Hashable):
        self.f, self.closure = f, closure

    def __eq__(self, other: Any) -> bool:
        return type(other) is HashableFunction and (self.f.__code__, self.closure) == (other.f.__code__, other.closure)

    def __hash__(self) -> int:
        return hash((self.f.__code__, self.closure))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)


def _dtype(x: Any) -> Any:
    return dtypes.dtype(x, canonicalize=True)


def const(example: Any, value: Any) -> Any:
    """A number in the dtype of an example; as a Python number where the example is one."""
    if isinstance(example, (bool, int, float, complex)):
        return type(example)(value)
    return np.array(value, api.dtype_of(example))


def promote_args_inexact(name: str, *args: Any) -> list[Any]:
    """Arrays of one dtype, floating or complex, and one rank."""
    return [api.as_array(arg) for arg in api.promote_inexact(name, *args)]


def _ensure_index_tuple(x: Any) -> tuple[int, ...]:
    """One whole number, or several, as a tuple."""
    return tuple(map(operator.index, x)) if np.iterable(x) else (operator.index(x),)


def is_constant_dim(d: Any) -> bool:
    """Whether a size is known: an int."""
    return not is_symbolic(d)


def dimension_as_value(d: Any) -> Any:
    """A size as a number of a program: an int as it is, a symbolic dimension as an array."""
    return d if isinstance(d, int) else d.__jax_array__()


def backends_are_initialized() -> bool:
    """Whether a client has started."""
    return bool(platforms.clients)


class HashablePartial:
    """A function with its first arguments. It equals others with the same code and equal arguments."""

    def __init__(self, f: Callable[..., Any], *args: Any, **kwargs: Any):
        self.f, self.args, self.kwargs = f, args, kwargs

    def _key(self) -> tuple[Any, ...]:
        return self.f.__code__, self.args, tuple(sorted(self.kwargs.items()))

    def __eq__(self, other: Any) -> bool:
        return type(other) is HashablePartial and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*self.args, *args, **{**self.kwargs, **kwargs})


def definitely_equal_shape(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether shapes are equal for all values of their symbolic dimensions."""
    return tuple(one) == tuple(other)
