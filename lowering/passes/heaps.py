"""Whether XLA:CPU keeps a program's temporaries in several blocks of memory, each of a size that the C library keeps.

XLA puts all of them into one block, which it asks for in each call. glibc maps a block of more than 32 MiB anew, and each of
its pages is zeroed when it is first written: up to a fifth of the time of a training step. So if all arrays are small beside
this limit, and together larger, they go into blocks below it (`lowering/host_memory.py`). Larger arrays would leave most of a
block empty: with arrays of two blocks' size the blocks together take four times as much as one.
"""

from __future__ import annotations

from typing import Any

from lowering.host_memory import LARGEST_KEPT
from lowering.passes.operations import bodies

_OPTION = f"xla_multiheap_size_constraint_per_heap={LARGEST_KEPT}"
_LARGEST_ARRAY = LARGEST_KEPT // 3


def options(jaxpr: Any) -> tuple[str, ...]:
    """XLA's flag that says so, where it gains."""
    total, largest = _sizes(jaxpr, {})
    return (_OPTION,) if total > LARGEST_KEPT and largest <= _LARGEST_ARRAY else ()


def _sizes(jaxpr: Any, known: dict[Any, tuple[int, int]]) -> tuple[int, int]:
    """The bytes of all arrays that a program computes, those of its loops' bodies once, and of the largest.

    `known` has those of programs that were asked for before.
    """
    if jaxpr not in known:
        total = largest = 0
        for eqn in jaxpr.eqns:
            sizes = [(each, each) for each in map(_bytes, eqn.outvars)]
            sizes += [_sizes(inner, known) for inner in bodies(eqn)]
            total += sum(each for each, _ in sizes)
            largest = max([largest, *[each for _, each in sizes]])
        known[jaxpr] = total, largest
    return known[jaxpr]


def _bytes(var: Any) -> int:
    size, dtype = getattr(var.aval, "size", 0), getattr(var.aval, "dtype", None)
    return size * getattr(dtype, "itemsize", 0) if type(size) is int else 0
