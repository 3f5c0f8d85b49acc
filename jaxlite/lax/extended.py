"""Conversions between the dtypes of libraries and those of what is behind their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray, shaped_like
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.traces.batching import Axis, bring
from jaxlite.traces.jvp import Zero, tangent_aval, zero_for

_words = loader("jaxlite.random.words")  # how operations run on elements with axes of their own
to_edtype_p = Primitive("to_edtype")
from_edtype_p = Primitive("from_edtype")


def convert(operand: Any, aval: ShapedArray, dtype: Any) -> Any:
    """An array in another dtype, where one of both is extended. Raises: ValueError if its rules do not allow that."""
    if isinstance(dtype, dtypes.ExtendedDType) and isinstance(aval.dtype, dtypes.ExtendedDType):
        raise ValueError(f"cannot directly convert between extended dtypes: from {aval.dtype} to {dtype}. Instead, convert to "
                         "and from the dtypes of what is behind their elements")
    if isinstance(dtype, dtypes.ExtendedDType):
        return to_edtype_p.bind(operand, edtype=dtype)
    return from_edtype_p.bind(operand, dtype=dtype)


def _check(allowed: bool, old: Any, new: Any, plain: Any, element: Any) -> None:
    if not allowed:
        raise ValueError(f"Cannot convert_element_type from {old} to {new}")
    if plain != element.dtype:
        raise ValueError(f"can only convert between an extended dtype and its representation dtype, but tried to convert from "
                         f"{old} to {new}, where the representation type is {element.dtype}.")


@to_edtype_p.def_abstract_eval
def _to_edtype_aval(x: ShapedArray, *, edtype: Any) -> ShapedArray:
    rules = dtypes.rules_of(edtype)
    allowed = rules is not None and (rules.convert_to(x.dtype, edtype) if hasattr(rules, "convert_to")
                                     else rules.allow_conversion)
    element = edtype.physical_element()
    _check(allowed, x.dtype, edtype, x.dtype, element)
    if element.shape:
        _words()
    outer = len(x.shape) - len(element.shape)
    if outer < 0 or x.shape[outer:] != tuple(element.shape):
        raise ValueError("can only convert to extended dtype from an array of its representation type, but the extended dtype "
                         f"{edtype} has a representation shape {element.shape} while the given representation array has shape "
                         f"{x.shape}")
    return shaped_like(x, x.shape[:outer], edtype, False)


@from_edtype_p.def_abstract_eval
def _from_edtype_aval(x: ShapedArray, *, dtype: Any) -> ShapedArray:
    rules = dtypes.rules_of(x.dtype)
    allowed = rules is not None and (rules.convert_from(x.dtype, dtype) if hasattr(rules, "convert_from")
                                     else rules.allow_conversion)
    element = x.dtype.physical_element()
    _check(allowed, x.dtype, dtype, dtype, element)
    return shaped_like(x, (*x.shape, *element.shape), dtype, False)


def _tangent(tangent: Any, out: Any) -> Any:
    """The tangent of the operand as that of the result."""
    dtype = tangent_aval(aval_of(out)).dtype
    return zero_for(out) if type(tangent) is Zero or dtype == dtypes.float0 else shaping.convert(tangent, dtype, False)


def _def_rules(primitive: Primitive) -> None:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        return out, _tangent(tangents[0], out)

    def batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        return primitive.bind(bring(args[0], dims[0], axis.size, 0), **params), 0

    primitive.def_jvp(jvp)
    primitive.def_transpose(lambda ct, x, **params: [shaping.convert(ct, x.aval.dtype, False)])
    primitive.def_batching(batch)


_def_rules(to_edtype_p)
_def_rules(from_edtype_p)
