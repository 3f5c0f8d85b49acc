"""Groups of values: what goes into a scan and comes out of it, as its params in JAX from 0.11 on tell.

Our rules use two numbers instead, `num_consts` and `num_carry`. Libraries that process or bind scans see the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class FlatTree:
    """A value, or a tuple of trees. Its `vals` are the values in order."""

    __slots__ = ("_elements", "_value")

    def __init__(self, elements: tuple[FlatTree, ...] | None, value: Any = None):
        self._elements, self._value = elements, value

    @property
    def vals(self) -> tuple[Any, ...]:
        if self._elements is None:
            return (self._value,)
        return tuple([value for each in self._elements for value in each.vals])

    def map(self, function: Callable[[Any], Any]) -> FlatTree:
        """The same tree of other values."""
        if self._elements is None:
            return FlatTree(None, function(self._value))
        return FlatTree(tuple([each.map(function) for each in self._elements]))

    def update(self, values: Iterable[Any]) -> FlatTree:
        """The same tree of these values."""
        values = tuple(values)
        if len(values) != len(self):
            raise ValueError(f"a tree of {len(self)} values got {len(values)}")
        found = iter(values)
        return self.map(lambda _: next(found))

    def unpack(self) -> tuple[FlatTree, ...]:
        """The trees that this one is a tuple of."""
        if self._elements is None:
            raise TypeError(f"this is one value, no tuple of trees: {self._value!r}")
        return self._elements

    def unflatten(self) -> Any:
        """Nested tuples of the values."""
        return self._value if self._elements is None else tuple([each.unflatten() for each in self._elements])

    def __len__(self) -> int:
        return 1 if self._elements is None else sum(map(len, self._elements))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.vals)

    def __getitem__(self, index: Any) -> Any:
        return self.vals[index]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, FlatTree) and (self._elements, self._value) == (other._elements, other._value)

    def __hash__(self) -> int:
        return hash((self._elements, self._value))

    def __repr__(self) -> str:
        return repr(self.unflatten())


def pack(trees: Iterable[FlatTree]) -> FlatTree:
    """A tuple of trees."""
    return FlatTree(tuple(trees))


def nones(count: int) -> FlatTree:
    """A tuple of this many Nones."""
    return pack([FlatTree(None)] * count)


def scan_groups(params: dict[str, Any]) -> dict[str, FlatTree]:
    """The groups of a scan with our params: constants, carry and elements go in, carry and elements come out."""
    consts, carry, jaxpr = params["num_consts"], params["num_carry"], params["jaxpr"]
    return {"ft_in": pack(map(nones, (consts, carry, len(jaxpr.in_avals) - consts - carry))),
            "ft_out": pack(map(nones, (carry, len(jaxpr.out_avals) - carry)))}


def scan_counts(params: dict[str, Any]) -> dict[str, Any]:
    """Our params of a scan from those with groups."""
    consts, carry, _ = params["ft_in"].unpack()
    rest = {name: value for name, value in params.items() if name not in ("ft_in", "ft_out")}
    return {**rest, "num_consts": len(consts), "num_carry": len(carry)}


class ScanParams(dict[str, Any]):
    """The params of a scan, in which the groups are found too."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        if name in ("ft_in", "ft_out"):
            return scan_groups(self)[name]
        raise KeyError(name)
