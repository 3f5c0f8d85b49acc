"""What XLA:CPU is given for a program: the module as the passes change it for a compile, and the flags.

Passes first say what they found in the jaxpr (`find`, `gains`, `options`), before anything is changed, since they exclude one
another: a program is compiled as one function, or has barriers, or is computed as vectors. Those that are chosen add
operations to the module (`emit`), in an order in which each sees what it needs of the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lowering.passes import (
    barriers,
    batched_products,
    emitters,
    flat,
    fusion,
    heaps,
    lean,
    places,
    shifts,
    short_rows,
    short_sorts,
    siblings,
    small_functions,
    tables,
    tails,
    thin_products,
    unrolling,
)
from lowering.passes.emitted import Emitted

_SEVERAL_RESULTS, _OLDER_EMITTER = "xla_cpu_use_multi_output_fusion", "xla_cpu_use_fusion_emitters=False"


@contextlib.contextmanager
def tuned(module: Any, jaxpr: Any, scopes: list[dict[Any, Any]], overwritten: Any, *, is_simple: bool,
          is_split: bool) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Within the context, the module of a program is as XLA:CPU compiles it best; gives the reasons of its barriers, and flags.

    Args:
      scopes: for each function and region of the module, its variables and their values.
      overwritten: the arrays that its loops overwrite (see `tables.emit`).
      is_simple: whether its parameters and results have no shardings, layouts or kinds of memory.
      is_split: whether XLA divides it among several devices.
    """
    shifted = shifts.find(jaxpr, is_split)
    own_loops, sorts = (set(), set()) if is_split else (short_rows.find(jaxpr), short_sorts.find(jaxpr))
    thin, in_batches = ([], set()) if is_split else (thin_products.find(jaxpr, scopes), batched_products.find(jaxpr))
    moved: set[Any] = set()
    reasons = fusion.barriers(jaxpr, shifted, own_loops, moved)
    in_parts = bool(sorts or thin)
    is_joint = not reasons and not in_parts and siblings.gains(jaxpr)
    is_older = not reasons and not in_parts and emitters.prefers_older(jaxpr)
    is_small = is_simple and not is_joint and not in_parts and emitters.is_one_function(jaxpr, reasons)
    has_kernels = is_simple and not is_joint and not is_small
    tail = tails.find(jaxpr, reasons) if has_kernels and not sorts else {}
    flags = (*unrolling.options(jaxpr), *heaps.options(jaxpr), *[_SEVERAL_RESULTS] * is_joint, *[_OLDER_EMITTER] * is_older)
    with Emitted() as emitted:
        tables.emit(overwritten, emitted)
        placed = barriers.emit(module, scopes, reasons, shifted, emitted)
        short_rows.emit(scopes, own_loops, emitted)
        placed += short_sorts.emit(module, scopes, sorts, emitted)
        batched_products.emit(scopes, in_batches, emitted)
        placed += thin_products.emit(thin, emitted)
        if has_kernels and not tail and flat.gains(jaxpr):
            placed += flat.emit(module, emitted)
        if has_kernels and not tail and lean.gains(jaxpr):
            lean.emit(module, emitted)
        # XLA would write a part of what it multiplies in parts, and send all of what it divides among devices.
        if not (is_split or is_small or is_joint or thin):
            places.emit(scopes, moved, emitted)
        with small_functions.whole(module, is_small), small_functions.end(scopes, tail):
            yield placed, flags
