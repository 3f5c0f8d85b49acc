"""Accumulators: what a user's backward rule adds the cotangents of its arguments to, instead of returning them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.tracing import ref_methods
from jaxlite.core.values import aval_of
from jaxlite.traces.jvp import Zero, add_tangents, instantiate, tangent_aval


class GradAccum:
    """Takes the cotangents of one argument in a backward pass. `aval` is their type."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval

    def accum(self, x: Any) -> None:
        """Add a cotangent; None and zeros add nothing."""
        raise NotImplementedError

    def freeze(self) -> Any:
        """The sum."""
        raise NotImplementedError

    def _check(self, x: Any) -> None:
        given = x.aval if type(x) is Zero else aval_of(x)
        if getattr(given, "shape", None) != getattr(self.aval, "shape", None):
            raise ValueError(f"Expected cotangent type {self.aval.str_short()} but got {given.str_short()}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval})"


class ValAccum(GradAccum):
    """The sum as a value, `Zero` at first."""

    __slots__ = ("val",)

    def __init__(self, aval: Any, val: Any = None):
        super().__init__(aval)
        self.val = Zero(aval) if val is None else val

    def accum(self, x: Any) -> None:
        if x is not None:
            self._check(x)
            self.val = add_tangents(self.val, x)

    def freeze(self) -> Any:
        return self.val


class NullAccum(GradAccum):
    """For an argument whose derivative is not wanted: it drops what it takes."""

    __slots__ = ()

    def accum(self, x: Any) -> None:
        pass


class RefAccum(GradAccum):
    """The sum in a mutable array, `ref`, which is made of the first cotangent if it is not given."""

    __slots__ = ("ref",)

    def __init__(self, aval: Any, ref: Any = None):
        super().__init__(aval)
        self.ref = ref

    def accum(self, x: Any) -> None:
        if x is None or type(x) is Zero:
            return
        self._check(x)
        if self.ref is None:
            self.ref = ref_methods.new(x)
        else:
            self.ref.addupdate(x)

    def inst(self) -> RefAccum:
        """This accumulator, with a mutable array of zeros if it had none."""
        if self.ref is None:
            self.ref = ref_methods.new(instantiate(Zero(self.aval)))
        return self

    def freeze(self) -> Any:
        return Zero(self.aval) if self.ref is None else ref_methods.freeze(self.ref)


def accumulator(aval: Any, target: Any = None) -> GradAccum:
    """For an argument of a type, whose cotangent is to go to a target (`traces/transpose.py: Linear`)."""
    own = tangent_aval(aval)
    if target is None:
        return ValAccum(own)
    return NullAccum(own) if target is False else RefAccum(own, target)


def values_of(accumulators: Sequence[GradAccum]) -> list[Any]:
    """The sums in accumulators that have values; None for others."""
    return [each.val if type(each) is ValAccum else None for each in accumulators]
