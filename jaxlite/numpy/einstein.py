"""einsum: sums of products in Einstein's notation, as a sequence of transposes, reductions and `dot_general`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, is_cut
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy import reductions
from jaxlite.numpy.api import api, as_array, check_arrays, low, multiplies_masks, promote_dtypes, refuse_out
from jaxlite.numpy.contractions import LETTERS, Step, plan, product

_UNKNOWN = 64  # what an extent counts that is not known


@boundary
def einsum(subscripts, /, *operands, out: None = None, optimize: str | bool | list[Ints] = "auto", precision=None,
           preferred_element_type=None, _dot_general: Callable[..., Any] = lax.dot_general, out_sharding=None):
    """Sums of products of array elements, named by index letters.

    Args:
      subscripts: as in NumPy: 'ij,jk->ik', with implicit output ('ij,jk'), with '...' for broadcast axes; or operands
        and lists of axis numbers in turn.
      optimize: the order of contraction of more than two operands: 'auto' or True finds a cheap one, 'greedy',
        'optimal', False takes them from left to right, or a path from `einsum_path`.
      precision, preferred_element_type: as in `lax.dot_general`.
      _dot_general: what multiplies two operands, instead of `lax.dot_general`.
    Raises: ValueError for subscripts that do not fit the operands; TypeError for sizes that differ.

    >>> import jaxlite.numpy as jnp
    >>> jnp.einsum('ij,j->i', jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    refuse_out("einsum", out)
    spec, operands = _parse_arguments(subscripts, operands)
    check_arrays("einsum", *operands)
    operands = tuple(map(low, operands))
    inputs, output = _parse(spec, tuple([aval_of(operand).shape for operand in operands]))
    if isinstance(optimize, list):
        optimize = tuple(tuple(step) if isinstance(step, (tuple, list)) else step for step in optimize)  # type: ignore[assignment]
    preferred_element_type = dtypes.requested_dtype(preferred_element_type, "einsum")
    params = {"inputs": inputs, "output": output, "optimize": optimize, "precision": precision,
              "preferred_element_type": preferred_element_type}
    if _dot_general is not lax.dot_general:  # a function of the user's runs each time
        return placement.laid_out_by(out_sharding, _einsum, *operands, dot_general=_dot_general, **params)
    return placement.laid_out_by(out_sharding, _compiled_einsum, *operands, **params)


@boundary
def einsum_path(subscripts, /, *operands, optimize="auto") -> tuple[list[Ints], Any]:
    """The order in which `einsum` contracts its operands, and a report of its cost, by NumPy."""
    spec, operands = _parse_arguments(subscripts, operands)
    shapes = tuple([aval_of(operand).shape for operand in operands])
    if optimize is not False:
        inputs, output = _parse(spec, shapes)
        steps = plan(inputs, output, _sizes(inputs, shapes), tuple(optimize) if isinstance(optimize, list) else optimize)
        optimize = ["einsum_path", *(step.places for step in steps)]
    path, info = np.einsum_path(spec, *[np.broadcast_to(np.float32(0), shape) for shape in shapes], optimize=optimize)
    return path[1:], info


def _parse_arguments(subscripts, operands: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    if isinstance(subscripts, str):
        if not operands:
            raise ValueError("einsum: no operands for the subscripts " + repr(subscripts))
        return subscripts.replace(" ", ""), tuple(operands)
    given = (subscripts, *operands)
    arrays, lists = given[0:len(given) // 2 * 2:2], given[1::2]

    every = lists + given[-1:] if len(given) % 2 else lists
    try:
        names = sorted({axis for axes in every for axis in axes} - {Ellipsis})
    except TypeError as error:
        raise TypeError("einsum: a list of indices has integers, or other values of one type that can be hashed and compared, "
                        f"such as names, and Ellipsis; got {every}") from error
    # Capitals sort before small letters: an implicit output keeps the order of the names.
    letters = LETTERS.swapcase() + "".join(map(chr, range(192, 192 + len(names))))
    letter_of = {Ellipsis: "...", **dict(zip(names, letters, strict=False))}

    def text(axes) -> str:
        return "".join(map(letter_of.__getitem__, axes))

    spec = ",".join(map(text, lists))
    if len(given) % 2:
        spec += "->" + text(given[-1])
    return spec, tuple(arrays)


@lru_cache(1024)
def _parse(spec: str, shapes: tuple[Ints, ...]) -> tuple[tuple[str, ...], str]:
    """Index letters of each operand and of the output; '...' becomes letters of its own."""
    left, arrow, right = spec.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(shapes):
        raise ValueError(f"Number of einsum subscripts, {len(inputs)}, must be equal to the number of operands, {len(shapes)}.")
    for text in (*inputs, right):
        if text.count("...") > 1 or "." in text.replace("...", ""):
            raise ValueError(f"einsum: '.' stands in {spec!r} outside of one '...'")
        for letter in text.replace("...", ""):
            if letter in "->,":
                raise ValueError(f"einsum: {letter!r} stands in {spec!r} where an index was expected")
    free = [letter for letter in LETTERS if letter not in spec]
    broadcast_rank = max([len(shape) - len(text.replace("...", "")) for text, shape in zip(inputs, shapes, strict=True)
                          if "..." in text], default=0)
    if broadcast_rank > len(free):
        raise ValueError("einsum: too many axes")
    dots = "".join(free[:max(broadcast_rank, 0)])
    expanded = []
    for position, (text, shape) in enumerate(zip(inputs, shapes, strict=True)):
        written = text
        if "..." in text:
            count = len(shape) - len(text.replace("...", ""))
            if count < 0:
                raise ValueError(f"einsum: {text!r} names more axes than the operand of shape {shape} has")
            text = text.replace("...", dots[len(dots) - count:])
        if len(text) != len(shape):
            raise ValueError(f"Einstein sum subscript {written!r} does not contain the correct number of indices for operand "
                             f"{position}.\nThe shape of that operand is {shape}.")
        expanded.append(text)
    everything = "".join(expanded)
    if arrow:
        output = right.replace("...", dots)
    else:
        output = (dots if any("..." in text for text in inputs) else "") + "".join(
            sorted(letter for letter in set(everything) if everything.count(letter) == 1 and letter not in dots))
    for letter in output:
        if letter not in everything:
            raise ValueError(f"Output character {letter!r} did not appear in the input")
        if output.count(letter) > 1:
            raise ValueError(f"Output character {letter!r} appeared more than once in the output.")
    sizes: dict[str, int] = {}
    for position, (text, shape) in enumerate(zip(expanded, shapes, strict=True)):
        for letter, size in zip(text, shape, strict=True):
            known = sizes.setdefault(letter, size)
            if known != size and 1 not in (known, size):
                raise ValueError(f"Size of label {letter!r} for operand {position} ({known}) does not match previous terms "
                                 f"({size}).")
            sizes[letter] = max(known, size) if 0 not in (known, size) else min(known, size)
    return tuple(expanded), output


def _sizes(inputs: Sequence[str], shapes: Sequence[Ints]) -> tuple[tuple[str, int], ...]:
    """The extent of each letter; a guess where it is not known."""
    sizes: dict[str, int] = {}
    for text, shape in zip(inputs, shapes, strict=True):
        for letter, size in zip(text, shape, strict=True):
            if sizes.get(letter, 1) == 1:
                sizes[letter] = size if type(size) is int else _UNKNOWN
    return tuple(sizes.items())


def _einsum(*operands, inputs: tuple[str, ...], output: str, optimize: Any, precision: Any, preferred_element_type: Any,
            dot_general: Callable[..., Any] = lax.dot_general):
    dtype, values = preferred_element_type, list(operands)  # `dot_general` multiplies those of two dtypes
    if dtype is None:
        values = promote_dtypes(*operands)
        dtype = aval_of(values[0]).dtype
    weak = preferred_element_type is None and all(aval_of(value).weak_type for value in values)
    if len(values) == 1 and preferred_element_type is not None:
        values = [shaping.convert(values[0], dtype, False)]  # what is summed up is summed in that type
    terms = list(zip(inputs, map(as_array, values), strict=True))
    sizes = _sizes(inputs, [aval_of(value).shape for _, value in terms])
    steps = plan(inputs, output, sizes, optimize)
    multiplied = partial(_multiplied, output=output, sizes=dict(sizes), dot_general=partial(
        dot_general, preferred_element_type=dtype), precision=precision)
    if len(values) > 2 and placement.product_sharding() is not None:  # the last product alone is left unreduced
        with placement.choosing():
            terms = multiplied(terms, steps[:-1])
        steps = steps[-1:]
        if not any(is_cut(aval_of(value)) for _, value in terms):  # the sum is over what is whole everywhere
            with placement.choosing():
                terms, steps = multiplied(terms, steps), []
    ((text, value),) = multiplied(terms, steps)
    text, value = _sum_out(text, value, set(output))
    value = shaping.transpose(value, [text.index(letter) for letter in output])
    return shaping.convert(value, dtype, weak)


_compiled_einsum = api(multiplies_masks(_einsum))


def _multiplied(terms: list[tuple[str, Any]], steps: Sequence[Step], output: str, sizes: dict[str, int],
                dot_general: Callable[..., Any], precision) -> list[tuple[str, Any]]:
    """The terms after some steps, each of which multiplies two terms and puts the product behind the rest."""
    for step in steps:
        chosen = [terms[place] for place in step.places]
        terms = [term for place, term in enumerate(terms) if place not in step.places]
        rest = set(output).union(*(text for text, _ in terms))
        if len(chosen) == 1:
            made = _diagonals(*chosen[0])
        elif step.is_swapped:
            made = _contract(*chosen[1], *chosen[0], rest, sizes, dot_general, _swap(precision))
        else:
            made = _contract(*chosen[0], *chosen[1], rest, sizes, dot_general, precision)
        terms.append(_sum_out(*made, rest))
    return terms


def _diagonals(text: str, value) -> tuple[str, Any]:
    """A repeated letter keeps the diagonal of its axes."""
    for letter in sorted(set(text)):
        while text.count(letter) > 1:
            first = text.index(letter)
            second = text.index(letter, first + 1)
            shape = aval_of(value).shape
            pair = (shape[first], shape[second])
            rows, columns = shaping.indices(pair, dtypes.uint32)
            mask = shaping.broadcast_in_dim(rows == columns, shape, (first, second))
            value = lax.select(mask, value, shaping.full_like(value, 0))
            gone = second if pair[0] == pair[1] else first  # of 1 and n, which NumPy refuses, the last one stays, as in JAX
            value = (lax.reduce_or if dtypes.kind(value.dtype) == "b" else lax.reduce_sum)(value, (gone,))
            text = text[:gone] + text[gone + 1:]
    return text, value


def _sum_out(text: str, value, keep: set[str]) -> tuple[str, Any]:
    axes = tuple(index for index, letter in enumerate(text) if letter not in keep)
    if not axes:
        return text, value
    dtype = aval_of(value).dtype
    value = (reductions.any(value, axis=axes) if dtypes.kind(dtype) == "b" else
             reductions.sum(value, axis=axes, dtype=dtype))
    return "".join(letter for letter in text if letter in keep), value


def _contract(left: str, a, right: str, b, keep: set[str], sizes: dict[str, int], dot_general: Callable[..., Any],
              precision) -> tuple[str, Any]:
    """The product of two operands, summed over the letters that no later product needs."""
    left, a = _diagonals(*_drop_ones(left, a, right, sizes))
    right, b = _diagonals(*_drop_ones(right, b, left, sizes))
    left, a = _sum_out(left, a, keep | set(right))
    right, b = _sum_out(right, b, keep | set(left))
    made = product(left, right, keep, sizes)
    contracted, batch = (tuple([text.index(letter) for letter in letters] for text in (left, right))
                         for letters in (made.contracted, made.batch))
    return made.result, dot_general(a, b, (contracted, batch), precision)


def _swap(precision):
    return precision[::-1] if isinstance(precision, tuple) and len(precision) == 2 else precision


def _drop_ones(text: str, value, other: str, sizes: dict[str, int]) -> tuple[str, Any]:
    """Remove axes of size 1 that the other operand stretches."""
    axes = [index for index, letter in enumerate(text)
            if aval_of(value).shape[index] == 1 and sizes[letter] != 1 and letter in other]
    if not axes:
        return text, value
    return "".join(letter for index, letter in enumerate(text) if index not in axes), shaping.squeeze(value, axes)
