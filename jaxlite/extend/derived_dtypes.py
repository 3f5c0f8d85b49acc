"""Dtypes whose tangents have a dtype of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray


class primal_tangent_dtype_scalar(dtypes.extended):
    """Abstract scalar type above the dtypes that `primal_tangent_dtype` makes, for `issubdtype`."""


class PrimalTangentDType(dtypes.ExtendedDType):
    """A dtype of values of one dtype with tangents of another."""

    type = primal_tangent_dtype_scalar

    def __init__(self, primal_dtype: Any, tangent_dtype: Any, name: str):
        self.primal_dtype, self.tangent_dtype, self.name = primal_dtype, tangent_dtype, name
        self._rules = SimpleNamespace(
            physical_element_aval=lambda dtype: ShapedArray((), primal_dtype), allow_conversion=True,
            tangent_dtype=lambda dtype: tangent_dtype)

    def _key(self) -> tuple[Any, ...]:
        return self.primal_dtype, self.tangent_dtype, self.name

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, PrimalTangentDType) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> Any:
        return PrimalTangentDType, self._key()


def primal_tangent_dtype(primal_dtype: Any, tangent_dtype: Any, name: str | None = None) -> PrimalTangentDType:
    """A dtype of values of one dtype that are differentiated in another: of quantized parameters, say.

    `lax.convert_element_type` makes arrays of it from those of the primal dtype, and the other way round.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite import lax
    >>> from jaxlite.experimental import primal_tangent_dtype
    >>> int8 = primal_tangent_dtype("int8", "bfloat16")
    >>> x = lax.convert_element_type(jnp.ones(2, "int8"), int8)
    >>> x.dtype, jaxlite.typeof(x).to_tangent_aval()
    (PrimalTangentDType{i8/bf16}, ShapedArray(bfloat16[2]))
    """
    primal_dtype, tangent_dtype = dtypes.dtype(primal_dtype), dtypes.dtype(tangent_dtype)
    short = "/".join(map(dtypes.short_name, (primal_dtype, tangent_dtype)))
    return PrimalTangentDType(primal_dtype, tangent_dtype, name or f"PrimalTangentDType{{{short}}}")
