"""`jax._src.numpy.einsum` for libraries that choose the order of an einsum's contractions themselves, by opt_einsum."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jaxlite.numpy as jnp
from jaxlite.core.values import is_array_like
from jaxlite.lax.dot import dot_general

_poly_einsum_handlers: dict[type, Callable[..., Any]] = {}  # by the type of a symbolic dimension; libraries look a path up here


def _default_poly_einsum_handler(*operands: Any, **kwargs: Any) -> tuple[list[Any], Any]:
    """opt_einsum's operands and contractions, as if symbolic dimensions were of size 8."""
    stand_ins = [SimpleNamespace(shape=tuple(size if type(size) is int else 8 for size in each.shape), dtype=each.dtype)
                 if is_array_like(each) else each for each in operands]
    found, contractions = importlib.import_module("opt_einsum").contract_path(*stand_ins, **kwargs)
    original = {id(stand_in): each for stand_in, each in zip(stand_ins, operands, strict=True)}
    return [original[id(each)] for each in found], contractions


def _einsum(operands: Sequence[Any], contractions: Sequence[tuple[Sequence[int], Any, str]], precision: Any,
            preferred_element_type: Any, _dot_general: Callable[..., Any] = dot_general, out_sharding: Any = None) -> Any:
    """Contractions one after the other: each takes operands out of the list, by their places, and appends its result."""
    left = list(operands)
    for number, (places, _, subscripts) in enumerate(contractions, 1):
        taken = [left.pop(place) for place in places]
        left.append(jnp.einsum(subscripts, *taken, precision=precision, preferred_element_type=preferred_element_type,
                               _dot_general=_dot_general, out_sharding=out_sharding if number == len(contractions) else None))
    return left[0]
