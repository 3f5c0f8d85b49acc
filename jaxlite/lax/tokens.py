"""Tokens: values without data that order side effects."""

from __future__ import annotations

from jaxlite.core import dtypes
from jaxlite.core.aval import AbstractToken, abstract_token, shaped_array
from jaxlite.core.primitive import Primitive

create_token_p = Primitive("create_token")
after_all_p = Primitive("after_all")
_outside = shaped_array((0,), dtypes.bool_, False)  # what tokens are at a program's boundary


@create_token_p.def_abstract_eval
def _create_token_aval() -> AbstractToken:
    return abstract_token


def create_token(_=None):
    """A token to start a chain of ordered effects with. Outside traced functions it is an empty array."""
    return create_token_p.bind()


@after_all_p.def_abstract_eval
def _after_all_aval(*operands) -> AbstractToken:
    for operand in operands:
        if not isinstance(operand, AbstractToken) and operand is not _outside:
            raise TypeError(f"Arguments to after_all must be tokens, got {operand}")
    return abstract_token


def after_all(*operands):
    """A token that is there once all of the given ones are. Raises: TypeError for other operands."""
    return after_all_p.bind(*operands)
