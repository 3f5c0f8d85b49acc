"""`jax._src.util` for programs, such as those of JAX's documentation on jaxpr interpreters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


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
