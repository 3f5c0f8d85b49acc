"""Names for annotations: what functions of jaxlite take as arrays, and as dtypes."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxlite.core.array import Array

__all__ = ["Array", "ArrayLike", "DTypeLike", "SupportsDType"]
__dir__ = lambda: __all__


@runtime_checkable
class SupportsDType(Protocol):
    """Anything that says its dtype. Checkers of annotations test with it while a program runs."""

    @property
    def dtype(self) -> np.dtype: ...


ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike = str | type[Any] | np.dtype | SupportsDType
