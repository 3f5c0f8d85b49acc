"""Sharding rules of operations that Shardy does not know: which axes of operands and results are cut together.

A rule gives each axis a factor; axes with the same factor are cut along the same mesh axes. It is written as text,
`"i k, k j -> i j"`, or as `SdyShardingRule`. `rule_text` says it in Shardy's words, for operands of given shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lowering.partitioning import factor_names

BATCHING = "…"  # in place of leading axes, as many as there are
_DIM = re.compile(r"\s*(\.\.\.\d*|\(|\)|[^\s().]+)")


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"Factor names have to be strings, but got {name!r} of type {type(name)}")
    if not name[:1].isalpha():
        raise ValueError(f"Factor names have to start with a letter, but got '{name}'")
    if not all(char.isalnum() or char == "_" for char in name):
        raise ValueError(f"Unknown character in factor name '{name}': use letters, digits and underscores")


def _is_batching(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(BATCHING)


class CompoundFactor(tuple):
    """The factors of an axis that several factors make up, major to minor.

    >>> CompoundFactor("b", "c")
    ('b', 'c')
    """

    __slots__ = ()

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ValueError("A compound factor should contain at least two factors")
        for factor in factors:
            if _is_batching(factor):
                raise ValueError("Ellipsis can't be used in a compound factor")
            _check_name(factor)
        return tuple.__new__(cls, factors)


class ArrayMapping(tuple):
    """The factors of an array's axes, each a name or a `CompoundFactor`; the first may be `BATCHING`.

    Args: `BATCHING` may be followed by a number: those with different numbers mean different axes.

    >>> ArrayMapping(BATCHING, CompoundFactor("b", "c"), "d")
    ('…0', ('b', 'c'), 'd')
    """

    __slots__ = ()

    def __new__(cls, *dim_mappings: Any) -> ArrayMapping:
        checked: list[Any] = []
        for place, each in enumerate(dim_mappings):
            if _is_batching(each):
                if place:
                    raise ValueError("Ellipsis can only be used at the beginning of a dimension")
                group = each[len(BATCHING):] or "0"
                if not group.isdigit():
                    raise ValueError(f"A batching group is named by digits, but got '{each}'")
                each = BATCHING + group
            elif isinstance(each, (tuple, list)):
                each = CompoundFactor(*each)
            else:
                _check_name(each)
            checked.append(each)
        return tuple.__new__(cls, checked)


class SdyShardingRule:
    """Which axes of an operation's operands and results are cut together.

    Args:
      operand_mappings, result_mappings: an `ArrayMapping`, or a tuple of factors, for each operand and result.
      reduction_factors: those that the results lack because they are summed over: the results of the parts are partial.
      need_replication_factors: those along which the operation cannot be cut.
      permutation_factors: those along which the parts have to exchange data.
      factor_sizes: the sizes of factors that are only parts of compound ones.
    Raises: ValueError for a factor whose size is missing, or given where it is that of a whole axis.

    >>> SdyShardingRule((("i", "k"), ("k", "j")), (("i", "j"),), reduction_factors=("k",))
    SdyShardingRule((('i', 'k'), ('k', 'j')), (('i', 'j'),), {}, reduction_factors=('k',))
    """

    __slots__ = ("operand_mappings", "result_mappings", "factor_sizes", "reduction_factors", "need_replication_factors",
                 "permutation_factors")

    def __init__(self, operand_mappings: Iterable[Any], result_mappings: Iterable[Any], *,
                 reduction_factors: Sequence[str] = (), need_replication_factors: Sequence[str] = (),
                 permutation_factors: Sequence[str] = (), **factor_sizes: int):
        self.operand_mappings = tuple(ArrayMapping(*each) for each in operand_mappings)
        self.result_mappings = tuple(ArrayMapping(*each) for each in result_mappings)
        self.factor_sizes = factor_sizes
        self.reduction_factors, self.permutation_factors = tuple(reduction_factors), tuple(permutation_factors)
        self.need_replication_factors = tuple(need_replication_factors)
        dims = [dim for mapping in (*self.operand_mappings, *self.result_mappings) for dim in mapping]
        whole = {dim for dim in dims if isinstance(dim, str)}
        parts = dict.fromkeys(factor for dim in dims if isinstance(dim, tuple) for factor in dim)
        for factor in factor_sizes:
            if factor in whole:
                raise ValueError(f"Factor {factor} represents a whole dimension; do not specify its size")
            if factor not in parts:
                raise ValueError(f"Factor {factor} is not used in the rule")
        for factor in parts:
            if factor not in whole and factor not in factor_sizes:
                raise ValueError(f"Factor {factor} is only used in compound factors; must specify its size")
        seen: dict[str, str] = {}
        for kind, factors in self._special():
            for factor in factors:
                if factor not in whole and factor not in parts:
                    raise ValueError(f"Factor {factor} in {kind} is not used in the rule")
                if factor in seen:
                    raise ValueError(f"Factor {factor} can only be in one of the reduction, need replication, or permutation "
                                     f"factor sets, it is in {seen[factor]} and {kind}")
                seen[factor] = kind

    def _special(self) -> list[tuple[str, tuple[str, ...]]]:
        return [("reduction_factors", self.reduction_factors), ("need_replication_factors", self.need_replication_factors),
                ("permutation_factors", self.permutation_factors)]

    def _key(self) -> tuple[Any, ...]:
        return (self.operand_mappings, self.result_mappings, tuple(sorted(self.factor_sizes.items())), *self._special())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, SdyShardingRule) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        special = "".join(f", {kind}={factors}" for kind, factors in self._special() if factors)
        return f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes}{special})"


def parse_rule(text: str, **options: Any) -> SdyShardingRule:
    """A rule from its text; `options` are those of `SdyShardingRule`.

    Factors stand apart by spaces, arrays by commas, operands and results by `->`. A compound factor stands in brackets, `...`
    for leading axes.

    >>> parse_rule("... (i j), j -> ... (i j)", i=4)
    SdyShardingRule((('…0', ('i', 'j')), ('j',)), (('…0', ('i', 'j')),), {'i': 4})
    """
    operands, arrow, results = text.partition("->")
    if not arrow:
        raise ValueError(f"There is no -> in rule: '{text}'")
    if "->" in results:
        raise ValueError(f"There is more than one -> in rule: '{text}'")
    return SdyShardingRule(_parse_arrays(operands), _parse_arrays(results), **options)


def _parse_arrays(text: str) -> list[ArrayMapping]:
    return [_parse_array(part) for part in text.split(",")]


def _parse_array(text: str) -> ArrayMapping:
    dims: list[Any] = []
    compound: list[str] | None = None
    position = 0
    text = text.strip()
    while position < len(text):
        found = _DIM.match(text, position)
        if found is None:
            raise ValueError(f"Character '{text[position]}' is not understood in '{text}'")
        token, position = found[1], found.end()
        if token == "(":
            if compound is not None:
                raise ValueError("Compound factors should be one level, nested brackets are not allowed")
            compound = []
        elif token == ")":
            if compound is None:
                raise ValueError("Brackets are not balanced")
            if len(compound) < 2:
                raise ValueError("Brackets should contain at least two factors")
            dims.append(CompoundFactor(*compound))
            compound = None
        else:
            name = BATCHING + token[3:] if token.startswith("...") else token
            (dims if compound is None else compound).append(name)
    if compound is not None:
        raise ValueError("Brackets are not balanced")
    return ArrayMapping(*dims)


def rule_text(rule: SdyShardingRule, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> str:
    """A rule as Shardy's attribute, for operands and results of these shapes.

    Raises: ValueError if the rule is for other numbers of arrays or axes, or if sizes contradict each other.
    """
    sizes = dict(rule.factor_sizes)
    batch: dict[str, list[str]] = {}
    order: dict[str, None] = {}
    arrays: list[list[list[list[str]]]] = []
    for what, mappings, shapes in (("operand", rule.operand_mappings, operands), ("result", rule.result_mappings, results)):
        if len(mappings) != len(shapes):
            raise ValueError(f"Sharding rule has {len(mappings)} {what}s, but the operation has {len(shapes)} {what}s")
        arrays.append([_expanded(mapping, shape, f"{index}th {what}", batch)
                       for index, (mapping, shape) in enumerate(zip(mappings, shapes, strict=True))])
    pairs = [pair for group, shapes in zip(arrays, (operands, results), strict=True)
             for dims, shape in zip(group, shapes, strict=True) for pair in zip(dims, shape, strict=True)]
    for factors, size in pairs:
        order.update(dict.fromkeys(factors))
        if len(factors) == 1 and sizes.setdefault(factors[0], size) != size:
            raise ValueError(f"Sharding rule: the factor {factors[0]} is of an axis of size {sizes[factors[0]]} and of one of "
                             f"size {size}")
    for factors, size in pairs:
        if math.prod(sizes[factor] for factor in factors) != size:
            raise ValueError(f"Sharding rule: the factors {tuple(factors)} have the sizes "
                             f"{tuple(sizes[factor] for factor in factors)}, and are of an axis of size {size}")
    names = dict(zip(order, factor_names(), strict=False))
    sides = [", ".join("[" + ", ".join("".join(map(names.__getitem__, factors)) for factors in dims) + "]" for dims in group)
             for group in arrays]
    listed = ", ".join(f"{names[factor]}={sizes[factor]}" for factor in order)
    special = "".join(f" {kind}={{{', '.join(sorted((names[each] for each in factors), key=_name_order))}}}" for kind, factors
                      in (("reduction", rule.reduction_factors), ("need_replication", rule.need_replication_factors),
                          ("permutation", rule.permutation_factors)) if factors)
    return f"#sdy.op_sharding_rule<({sides[0]})->({sides[1]}) {{{listed}}}{special}, custom>"


def _expanded(mapping: ArrayMapping, shape: tuple[int, ...], what: str, batch: dict[str, list[str]]) -> list[list[str]]:
    """The factors of each axis, with those of a `BATCHING` expanded."""
    dims: list[Any] = list(mapping)
    if dims and _is_batching(dims[0]):
        count = len(shape) - (len(dims) - 1)
        if count < 0:
            raise ValueError(f"Sharding rule {what} has rank {len(dims) - 1}, but the operation {what} has rank {len(shape)}")
        leading = batch.setdefault(dims[0], [f"{dims[0]}_{index}" for index in range(count)])
        if len(leading) != count:
            raise ValueError(f"Batching group {dims[0]} is {len(leading)} axes elsewhere, and {count} of {what}")
        dims[:1] = leading
    if len(dims) != len(shape):
        raise ValueError(f"Sharding rule {what} has rank {len(dims)}, but the operation {what} has rank {len(shape)}")
    return [[dim] if isinstance(dim, str) else list(dim) for dim in dims]


def _name_order(name: str) -> tuple[int, str]:
    return len(name), name
