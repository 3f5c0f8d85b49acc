"""Compile options for tiny programs: most of what tests take is XLA's code generation, and this one is quick.

The loops are others and LLVM optimizes nothing; the StableHLO is the same. So values that are held to a tolerance show as much.
"""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def quick_options() -> dict[str, Any]:
    """By name of the flag."""
    from lowering import xla  # here, so that tests without jaxlite do not pay for it

    options = xla.CompileOptions()  # what it holds dies with it
    is_older = "xla_cpu_use_fusion_emitters:" in str(options.executable_build_options.debug_options)
    return {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1,
            **({"xla_cpu_use_fusion_emitters": False} if is_older else {"xla_llvm_disable_expensive_passes": True})}
