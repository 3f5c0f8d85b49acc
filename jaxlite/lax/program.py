"""Operations on programs instead of numbers: composites, staging, hints for the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.array import make_array
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import tree_flatten, tree_leaves
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.lax.control_flow.bodies import Body, trace_body

# --- composites --------------------------------------------------------------------------------------

composite_p = Primitive("composite", multiple_results=True)


@composite_p.def_abstract_eval
def _composite_avals(*args, jaxpr: ClosedJaxpr, name: str, attributes, version: int) -> list[Any]:
    return list(jaxpr.out_avals)


@composite_p.def_jvp
def _composite_jvp(primals, tangents, **params) -> tuple[list[Any], list[Any]]:
    raise ValueError("JVP rule for composite not implemented. You can use `jaxlite.custom_jvp` to add support: a composite "
                     "is opaque, so its derivative is not that of its decomposition.")


def composite(decomposition: Callable, name: str, version: int = 0) -> Callable:
    """A function that compilers may recognize by its name, and otherwise run as it is written.

    Args:
      decomposition: a traceable function; its keyword arguments become attributes of the operation.
      name: the name of the operation, such as 'my.softmax'.
      version: a number that says which meaning of the name is meant.
    Returns: a function of the same arguments. Attributes that are None are left out.

    >>> import numpy as np
    >>> composite(lambda x, *, scale: x * scale, name="my.scale")(np.float32(2), scale=3.0)
    Array(6., dtype=float32)
    """

    functions: dict[str, Callable] = {}  # by the text of the attributes: what was traced is found again by its function

    def call(*args, **attributes):
        given = tuple((key, _hashable(value)) for key, value in attributes.items() if value is not None)
        fun = functions.setdefault(repr(given), lambda *values: decomposition(*values, **attributes))
        leaves, tree = tree_flatten((args, {}))
        body = trace_body(fun, tree, [aval_of(leaf) for leaf in leaves], "composite")
        outs = composite_p.bind(*body.consts, *leaves, jaxpr=body.derive(_closed), name=name, attributes=given,
                                version=version)
        return body.out_tree.unflatten(outs)

    return call


def _closed(body: Body) -> ClosedJaxpr:
    return hoist_consts(body.jaxpr)


def _hashable(value):
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    if isinstance(value, np.ndarray):
        return _hashable(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


# --- staging -----------------------------------------------------------------------------------------


def stage(x, /):
    """An array for an array-like, or a tracer as it is."""
    return x if isinstance(x, (ArrayImpl, Tracer)) else make_array(x)


def shape_as_value(shape):
    """A shape as an array of int32."""
    return np.asarray(tuple(shape), np.int32)


def dtype(x):
    """The dtype of an array, scalar, type or name, as arrays have it: 32 bits wide unless x64 is enabled."""
    return dtypes.dtype(x, canonicalize=True)


# --- uses --------------------------------------------------------------------------------------------

dce_sink_p = Primitive("dce_sink", multiple_results=True)
_sink = frozenset({"dce_sink"})


@dce_sink_p.def_effectful_abstract_eval
def _dce_sink_avals(x, *, prevent_mlir_dce: bool) -> tuple[list[Any], Any]:
    return [], _sink


@dce_sink_p.def_jvp
def _dce_sink_jvp(primals, tangents, **params) -> tuple[list[Any], list[Any]]:
    dce_sink_p.bind(*primals, **params)
    return [], []


@dce_sink_p.def_batching
def _dce_sink_batch(axis, args, dims, **params) -> tuple[list[Any], list[Any]]:
    dce_sink_p.bind(*args, **params)
    return [], []


dce_sink_p.no_transpose("nothing comes of it that could depend on its operand linearly")


def dce_sink(val, *, prevent_mlir_dce: bool = False) -> None:
    """Count the leaves of a pytree as used, so that what computes them stays in the traced program.

    Args:
      prevent_mlir_dce: keep it from XLA's own passes, too: it is a call with a side effect there, to a target that has to
        be registered before the program can run.
    """
    for leaf in tree_leaves(val):
        dce_sink_p.bind(leaf, prevent_mlir_dce=bool(prevent_mlir_dce))
