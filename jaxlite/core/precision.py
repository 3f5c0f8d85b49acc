"""The precisions of matrix products: arguments of `lax.dot`, and values of an option."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np

_TYPES: dict[str, Any] = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "TF32": np.float32, "F32": np.float32,
                          "F64": np.float64}
_FLOATS8 = tuple(getattr(ml_dtypes, f"float8_{name}") for name in ("e4m3fn", "e5m2", "e5m2fnuz", "e4m3fnuz", "e4m3b11fnuz"))


class Precision(enum.Enum):
    """How exactly accelerators multiply float32 matrices; the CPU is always exact."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        return cls.DEFAULT if value is None else PRECISION_NAMES.get(value) if isinstance(value, str) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


class DotAlgorithmPreset(enum.Enum):
    """Named algorithms for matrix products: `<lhs>_<rhs>_<accumulator>`, then how many passes.

    Operands of a dtype that an algorithm does not take are converted to one that it takes, and its result to the
    result's dtype; those for ANY_F8 take 8-bit floats alone. A backend refuses the ones that it does not have.
    """

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    @property
    def accumulation_type(self) -> Any:
        """The dtype that products are added up in; None if the backend chooses it."""
        words = self.name.replace("ANY_F8", "ANY").split("_")
        return _TYPES.get(words[2]) if len(words) > 2 else None

    @property
    def supported_lhs_types(self) -> tuple[Any, ...] | None:
        """The dtypes of operands that are taken as they are, the one that others are converted to first; None for any."""
        words = self.name.split("_")
        if words[0] == "BF16":
            return (np.float32,) if len(words) == 4 else (ml_dtypes.bfloat16, np.float32)
        return (_TYPES[words[0]],) if words[0] in _TYPES else None

    @property
    def supported_rhs_types(self) -> tuple[Any, ...] | None:
        """The same as on the left."""
        return self.supported_lhs_types

    def supported_output_types(self, lhs_dtype: Any, rhs_dtype: Any) -> tuple[Any, ...] | None:
        """The dtypes of results that come as they are, for operands of some dtypes; None for any."""
        total = self.accumulation_type
        if total is None:
            return None
        if self.name.startswith("ANY_F8"):
            return (np.float32, np.float16, ml_dtypes.bfloat16, *_FLOATS8)
        narrow = _TYPES[self.name.split("_")[0]]
        as_they_are = self.name in ("F16_F16_F32", "BF16_BF16_F32") and np.dtype(lhs_dtype) == np.dtype(rhs_dtype) == narrow
        return (total, narrow) if as_they_are else (total,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


PRECISION_NAMES = {
    "default": Precision.DEFAULT, "fastest": Precision.DEFAULT, "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH, "bfloat16_3x": Precision.HIGH, "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST, "float32": Precision.HIGHEST,
}  # fmt: skip
