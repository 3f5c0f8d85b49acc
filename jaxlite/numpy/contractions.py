"""In which order `einsum` multiplies its operands, two at a time, and which of two comes first.

An operand is the text of its index letters here. Sets of operands are the bits of numbers. The letters of the first of two
operands come first in their product, behind those of a batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core.aval import Ints

_SEARCHED = 7  # operands up to which all orders are compared
_TIES, _KEPT = 4, 6  # equally cheap ways to divide a set, and orders of its product's letters, that are looked at
_BATCHED = 1e-3  # of an operand that is copied if there is a batch of it, to tell equal orders apart
_TURNED, _ROWS_MOVED = 0.25, 0.5  # what it costs to read a matrix by columns, and to move whole rows: parts of a copy
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Parts = dict[int, list[tuple[int, int]]]  # set -> the two sets whose products are multiplied, or several such pairs


class Step(NamedTuple):
    """The places of two operands, or one, which their product leaves for one at the end, and whether the later one is first."""

    places: Ints
    is_swapped: bool


class Product(NamedTuple):
    """The letters of a product: those that both operands keep, those that are summed up, those of one operand alone."""

    batch: str
    contracted: str
    first: str
    second: str

    @property
    def result(self) -> str:
        return self.batch + self.first + self.second


def product(first: str, second: str, keep: set[str], extents: Mapping[str, int]) -> Product:
    """The product of two operands without letters of their own that are summed up; the larger one is read in its order."""
    larger = second if _size(second, extents) > _size(first, extents) else first
    shared = set(first).intersection(second)
    return Product("".join(letter for letter in first if letter in shared and letter in keep),
                   "".join(letter for letter in larger if letter in shared and letter not in keep),
                   *("".join(letter for letter in text if letter not in shared) for text in (first, second)))


@lru_cache(1024)
def plan(inputs: tuple[str, ...], output: str, sizes: tuple[tuple[str, int], ...], optimize: Any) -> list[Step]:
    """The steps of a product of operands, of extents `sizes` for each letter.

    Args:
      optimize: as in `einsum`; a path is a tuple.
    Raises: ValueError for a path that leaves several operands.
    """
    count, operands = len(inputs), _Operands(inputs, output, dict(sizes))
    if count == 1:
        return [Step((0,), False)]
    if isinstance(optimize, tuple):
        parts = operands.parts_by([step for step in optimize if isinstance(step, tuple)])
    elif optimize is False:
        parts = operands.parts_by([tuple(range(count))])
    elif optimize == "optimal" or optimize in ("auto", True) and count <= _SEARCHED:
        parts = operands.cheapest_parts()
    else:
        parts = operands.parts_by(operands.path_by_numpy("greedy" if optimize in ("auto", True) else optimize))
    if (1 << count) - 1 not in parts:
        raise ValueError(f"einsum: the path {optimize} does not multiply all of {count} operands")
    steps, terms = list[Step](), list[Any](range(count))

    def multiply(tree: Any) -> None:
        if type(tree) is tuple:
            for part in tree:
                multiply(part)
            first, second = map(terms.index, tree)
            places = (min(first, second), max(first, second))
            terms[:] = [*(term for place, term in enumerate(terms) if place not in places), tree]
            steps.append(Step(places, first > second))

    multiply(operands.least_copied(parts))
    return steps


class _Operands:
    """The operands of a contraction: texts of letters, the letters of the result, and the extent of each letter."""

    def __init__(self, inputs: tuple[str, ...], output: str, extents: Mapping[str, int]):
        self.inputs, self.output, self.extents = inputs, output, extents
        self._kept: dict[int, set[str]] = {}

    def kept(self, members: int) -> set[str]:
        """The letters of the product of a set, after the sums over those that nothing else has."""
        if members not in self._kept:
            inside, outside = set[str](), set(self.output)
            for place, text in enumerate(self.inputs):
                (inside if members >> place & 1 else outside).update(text)
            self._kept[members] = inside & outside
        return self._kept[members]

    def parts_by(self, path: Sequence[Ints]) -> Parts:
        """As a path says, whose steps take operands out by their places, and put their product behind the rest."""
        terms, parts = [1 << place for place in range(len(self.inputs))], Parts()
        for step in path:
            chosen = [terms[place] for place in sorted(step)]
            terms = [term for place, term in enumerate(terms) if place not in step]
            product = chosen[0]
            for other in chosen[1:]:
                parts[product | other] = [(product, other)]
                product |= other
            terms.append(product)
        return parts

    def path_by_numpy(self, kind: Any) -> list[Ints]:
        spec = ",".join(self.inputs) + "->" + self.output
        others = sorted(set(spec).difference(LETTERS, "->,"))  # indices that NumPy does not take
        table = dict(zip(map(ord, others), (letter for letter in LETTERS if letter not in spec), strict=False))
        shapes = [[self.extents[letter] for letter in text] for text in self.inputs]
        limit = np.iinfo(np.int64).max  # elements of a product: by default NumPy makes none that is larger than all operands
        return np.einsum_path(spec.translate(table), *[np.broadcast_to(np.float32(0), shape) for shape in shapes],
                              optimize=(kind, limit))[0][1:]

    def cheapest_parts(self) -> Parts:
        """With the fewest operations, and of those the fewest elements of products: each set by the best of all its parts."""
        best, parts = dict[int, tuple[int, int]](), Parts()
        for members in range(1, 1 << len(self.inputs)):
            lowest, part, found = members & -members, (members - 1) & members, []
            elements = _size(self.kept(members), self.extents)
            while part:
                if part & lowest:  # each pair once
                    other = members ^ part
                    letters = self.kept(part) | self.kept(other)
                    work = _size(letters, self.extents) * (1 if letters == self.kept(members) else 2)
                    cost = best[part][0] + best[other][0] + work, best[part][1] + best[other][1] + elements
                    found.append((cost, (part, other)))
                part = (part - 1) & members
            best[members] = min(cost for cost, _ in found) if found else (0, 0)
            if found:
                parts[members] = [pair for cost, pair in found if cost == best[members]][:_TIES]
        return parts

    def least_copied(self, parts: Parts) -> Any:
        """The order of all operands for which the fewest elements are copied: pairs of pairs of places, the first ones first.

        A single product takes its operands as they are given, unless the other order is that of its result.
        """
        known: dict[int, dict[str, tuple[float, Any]]] = {}  # set -> letters of its product -> what is copied, and the order

        def products(members: int) -> dict[str, tuple[float, Any]]:
            if members in known:
                return known[members]
            found: dict[str, tuple[float, Any]] = {}
            if members not in parts:
                place = members.bit_length() - 1
                text = "".join(letter for letter in dict.fromkeys(self.inputs[place]) if letter in self.kept(members))
                found[text] = 0.0, place
            for pair in parts.get(members, ()):
                for part, other in (pair, pair[::-1]):
                    for (first, (cost, tree)), (second, (other_cost, other_tree)) in itertools.product(
                            products(part).items(), products(other).items()):
                        made = product(first, second, self.kept(members), self.extents)
                        copied = (cost + other_cost + self._copied(first, made.batch, made.first, made.contracted)
                                  + self._copied(second, made.batch, made.contracted, made.second))
                        if not made.first and made.second:  # under `vmap`, the rows of the second have to be brought in front
                            copied += _BATCHED * _size(second, self.extents)
                        if made.result not in found or copied < found[made.result][0]:
                            found[made.result] = copied, (tree, other_tree)
            known[members] = dict(sorted(found.items(), key=lambda item: item[1][0])[:_KEPT])
            return known[members]

        results = products((1 << len(self.inputs)) - 1)
        return min((copied * (len(self.inputs) > 2) + self._moved(text), place, tree)
                   for place, (text, (copied, tree)) in enumerate(results.items()))[2]

    def _copied(self, text: str, batch: str, rows: str, columns: str) -> float:
        """The elements that are copied to make a batch of matrices of an operand."""
        if text == batch + rows + columns:
            return 0.0
        is_turned = len(rows) == len(columns) == 1 and text == batch + columns + rows
        return _size(text, self.extents) * (_TURNED if is_turned else 1.0)

    def _moved(self, text: str) -> float:
        """The elements that are copied to bring the axes of the result in order."""
        is_row = text[-1:] == self.output[-1:]
        return 0.0 if text == self.output else _size(text, self.extents) * (_ROWS_MOVED if is_row else 1.0)


def _size(letters: Iterable[str], extents: Mapping[str, int]) -> int:
    return math.prod([extents[letter] for letter in letters])
