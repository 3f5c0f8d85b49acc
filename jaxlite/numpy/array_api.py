"""The namespace information of the array API standard."""

from __future__ import annotations

from typing import Any

from jaxlite.core import config, dtypes
from jaxlite.devices import api
from lowering.xla import VERSION

__array_api_version__ = "2024.12" if VERSION < (0, 11) else "2025.12"  # as JAX of the same jaxlib

_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
           "complex64", "complex128")
_WIDE = frozenset(("int64", "uint64", "float64", "complex128"))


class ArrayNamespaceInfo:
    """The capabilities, dtypes and devices of `jaxlite.numpy`, as the array API standard requires."""

    def capabilities(self) -> dict[str, Any]:
        """What depends on values, and the greatest rank."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None: the runtime chooses."""
        return None

    def devices(self) -> list[Any]:
        """None, for no choice, and the devices there are."""
        return [None, *api.devices()]

    def default_dtypes(self, *, device=None) -> dict[str, Any]:
        """The dtypes that creation functions use for each kind."""
        return {"real floating": dtypes.default_dtype(float), "complex floating": dtypes.default_dtype(complex),
                "integral": dtypes.default_dtype(int), "indexing": dtypes.default_dtype(int)}

    def dtypes(self, *, device=None, kind=None) -> dict[str, Any]:
        """The dtypes of a kind, or of all, by name; 64-bit ones where they are enabled."""
        found = {name: getattr(dtypes, "bool_" if name == "bool" else name) for name in _DTYPES
                 if config.enable_x64.value or name not in _WIDE}
        return found if kind is None else {name: dtype for name, dtype in found.items() if dtypes.isdtype(dtype, kind)}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """What this namespace can do, by the array API standard.

    >>> from jaxlite import numpy as jnp
    >>> jnp.__array_namespace_info__().capabilities()["max dimensions"]
    64
    """
    return ArrayNamespaceInfo()
