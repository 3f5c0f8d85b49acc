"""Arrays that JAX has pickled: what its pickles name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.core import array as arrays


def _reconstruct_array(make: Callable[..., Any], args: tuple[Any, ...], state: Any, aval_state: dict[str, Any]) -> Any:
    """The array whose data is the NumPy array that `make` makes and `state` fills; `aval_state` has its weak type."""
    value = make(*args)
    value.__setstate__(state)
    return arrays.rebuild(value, aval_state.get("weak_type", False))
