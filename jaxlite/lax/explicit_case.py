"""One application of a primitive to arrays over explicit mesh axes: what sharding rules see."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.config import chooses_layouts
from jaxlite.core.errors import ShardingTypeError
from jaxlite.devices.sharding import axes_of

Spec = tuple[Any, ...]
Rule = Callable[..., Sequence[Spec]]


class Case:
    """The types of operands and results, the layouts of operands, and the primitive's rule."""

    __slots__ = ("name", "rule", "avals", "specs", "mesh", "params", "results")

    def __init__(self, name: str, rule: Rule, avals: Sequence[Any], mesh, params: dict[str, Any], results: Sequence[Any]):
        self.name, self.rule, self.avals, self.mesh, self.params, self.results = name, rule, avals, mesh, params, results
        self.specs: list[Spec] = [tuple(aval.layout.spec) if getattr(aval, "layout", None) is not None
                                  else (None,) * len(getattr(aval, "shape", ())) for aval in avals]

    def refuse(self, message: str) -> None:
        """Raise, unless the caller gives the result's sharding."""
        if not chooses_layouts.value:
            raise ShardingTypeError(message)

    def parts(self, entry) -> int:
        """Into how many parts an axis with this entry is cut."""
        return math.prod(self.mesh.shape[name] for name in axes_of(entry))

    def settled(self, spec: Spec, result) -> Spec:
        """A result's layout, checked: each mesh axis once, and equal parts."""
        seen: set[Any] = set()
        entries = []
        for entry, size in zip(spec, result.shape, strict=True):
            if entry is not None and not seen.isdisjoint(axes_of(entry)):
                self.refuse(f"{self.name} operation with inputs: {', '.join(aval.str_short() for aval in self.avals)} produces "
                            f"an illegally sharded result: {_shown(result, spec)}")
                entry = None
            if entry is not None and not (isinstance(size, int) and size % self.parts(entry) == 0):
                self.refuse(f"{self.name} on sharded dims where out dim ({size}) is not divisible by mesh axes "
                            f"({self.parts(entry)}) with spec ({entry}) is not implemented. Got input type="
                            f"{self.avals[0].str_short()} and output shape={result.shape}\nUse jax.sharding.reshard on it")
                entry = None
            seen.update(axes_of(entry))
            entries.append(entry)
        return tuple(entries)

    def merged(self, specs: Sequence[Spec]) -> Spec:
        """The layout of a result whose axes are those of all operands."""
        result = []
        for entries in zip(*specs, strict=True):
            given = dict.fromkeys(entry for entry in entries if entry is not None)
            if len(given) > 1:
                self.refuse(f"{self.name} got incompatible shardings for broadcasting: {', '.join(map(str, specs))}.\nUse "
                            "jax.sharding.reshard on one of them")
                given = {}
            result.append(next(iter(given), None))
        return tuple(result)

    def require_whole(self, operand: int, axes: Sequence[int], message: str) -> None:
        """Raise if an operand is cut along one of some axes."""
        if any(self.specs[operand][axis] is not None for axis in axes):
            self.refuse(message)


def _shown(result, spec: Spec) -> str:
    entries = ["(" + ",".join(map(str, entry)) + ")" if isinstance(entry, tuple) else entry for entry in spec]
    sizes = [str(size) if entry is None else f"{size}@{entry}" for size, entry in zip(result.shape, entries, strict=True)]
    return f"{result.str_short().split('[')[0]}[{','.join(sizes)}]"
