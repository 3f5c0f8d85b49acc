"""Enumerations for `jit`: how a nested jitted function is inlined, and the effort of XLA's optimizations."""

import enum
from typing import Any

from lowering import xla


class Inline(enum.Enum):
    """How a nested jitted function is inlined."""

    JAX_EARLY = "jax_early"  # its operations stand in the program
    JAX_LATE = "jax_late"  # a call in the program, operations in what XLA gets
    XLA_EARLY = "xla_early"  # a call, which XLA is asked to inline first
    XLA_LATE = "xla_late"  # a call, which XLA is asked to inline last
    AUTO = "auto"  # a call, which XLA inlines when it likes


class CompilerEffortLevel(enum.Enum):
    """The effort of XLA's optimizations for speed or memory; its `-O` levels."""

    UNKNOWN = 0
    O0 = 9
    O1 = 19
    O2 = 29
    O3 = 39


def inline_param(inline: Any) -> Any:
    """What `jit(inline=)` means: True to put operations into the program while it is traced, False, or a later time."""
    if inline is True:
        return Inline.JAX_LATE if xla.VERSION >= (0, 12) else True  # as JAX of the same jaxlib
    if not isinstance(inline, Inline):
        raise ValueError(f"Invalid inline option: {inline!r}")
    return {Inline.JAX_EARLY: True, Inline.AUTO: False}.get(inline, inline)
