"""The accuracy of elementwise functions: values of their keyword `accuracy`."""

from __future__ import annotations

import enum
from typing import Any


class AccuracyMode(enum.Enum):
    """How exactly elementwise functions are computed."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """Bounds for the error of elementwise functions: absolute, relative, in units of the last place.

    Raises: ValueError for negative bounds, and where all are zero.
    """

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0):
        if min(atol, rtol, ulps) < 0:
            raise ValueError("Tolerances must be non-negative.")
        if not (atol or rtol or ulps):
            raise ValueError("At least one of atol, rtol, or ulps must be set.")
        self.atol, self.rtol, self.ulps = atol, rtol, ulps

    def __repr__(self) -> str:
        return f"Tolerance(atol={self.atol}, rtol={self.rtol}, ulps={self.ulps})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tolerance) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self.atol, self.rtol, self.ulps))


def accuracy_params(accuracy) -> dict[str, Any]:
    """The params that a keyword `accuracy` adds to an operation: none by default.

    Raises: TypeError for anything but None, a mode and a tolerance.
    """
    if accuracy is None:
        return {}
    if not isinstance(accuracy, (AccuracyMode, Tolerance)):
        raise TypeError(f"accuracy must be None, a jaxlite.lax.AccuracyMode or a jaxlite.lax.Tolerance, got {accuracy!r}")
    return {"accuracy": accuracy}
