"""The parts of a symbolic dimension under JAX's names, for libraries that compute it in a language of theirs (jax2onnx)."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxlite.core import symbolic


class DimensionFactor(NamedTuple):
    """A variable, or an operation on two sizes."""

    var: str | None
    operation: str | None
    operands: tuple[Any, ...]


class DimensionTerm:
    """A product of factors, each with its power; none in the constant term."""

    def __init__(self, term: symbolic.Term):
        self._text = symbolic.term_text(term)
        self._factors = tuple(
            (DimensionFactor(operands[0], None, ()) if kind == "var" else DimensionFactor(None, kind, tuple(operands)), power)
            for (kind, *operands), power in symbolic.written_order(term))
        self.is_constant = not term

    def __repr__(self) -> str:
        return self._text


def sorted_terms(dim: symbolic.Dim) -> tuple[tuple[DimensionTerm, int], ...]:
    """The terms of a dimension with their coefficients, in the order in which it is written."""
    return tuple((DimensionTerm(term), coefficient) for term, coefficient in dim.in_order())
