"""Parts of a program that XLA schedules together; `jax.experimental.scheduling_groups`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.experimental.xla_metadata import xla_metadata_call, xla_metadata_call_p

__all__ = ["scheduling_group", "xla_metadata_call", "xla_metadata_call_p"]
__dir__ = lambda: __all__


def scheduling_group(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: what the function computes is a call of its own in the compiled program, of the scheduling group of this name.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> grouped = scheduling_group("first")(lambda x: jnp.sin(x) * 2)
    >>> 'scheduling_group = "first"' in jaxlite.jit(grouped).lower(1.0).as_text()
    True
    """
    return xla_metadata_call(scheduling_group=name)
