"""The search for NaN beside an extreme of an array that is cut between devices, where no device has all of what is compared.

XLA:CPU passes over NaN where it takes an extreme over devices, so the rule of a reduction emits a second one, which searches.
XLA decides how arrays are cut, and in most programs a device has whole rows, those of a softmax, say. Its decision is made in
advance, by Shardy on a copy of the module, and the searches that it makes idle are taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lowering import xla

_NUMBER = "jaxlite.search"


class Search(NamedTuple):
    """The values of a search: which elements are NaN, cut as they are; whether one along these axes is; and what it decides."""

    is_nan: Any
    axes: Sequence[int]
    found: Any
    extreme: Any
    result: Any


def leave_out(builder: Any) -> None:
    """Take the searches out of a finished module that are along axes which XLA will not cut."""
    searches: list[Search] = builder.searches
    if not searches:
        return
    for number, search in enumerate(searches):
        search.is_nan.owner.attributes[_NUMBER] = builder.ir.IntegerAttr.get(builder.i32, number)
    needed = set()

    def look(operation: Any) -> Any:
        if _NUMBER in operation.attributes:
            number = operation.attributes[_NUMBER].value
            if xla.is_cut(operation, searches[number].axes):
                needed.add(number)
        return builder.ir.WalkResult.ADVANCE

    xla.with_shardings(builder.module).walk(look)
    plain = {}
    for number, search in enumerate(searches):
        del search.is_nan.owner.attributes[_NUMBER]
        if number not in needed:
            search.result.replace_all_uses_with(search.extreme)
            plain[search.result] = search.extreme
    for scope in builder.scopes:
        scope.update([(var, plain[value]) for var, value in scope.items() if value in plain])
    for number, search in enumerate(searches):
        if number not in needed:
            for value in (search.result, search.found, search.is_nan):
                value.owner.erase()
