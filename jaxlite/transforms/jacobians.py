"""Jacobians and Hessians: every direction at once, by vectorised jvp or vjp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.options import check_callable
from jaxlite.core import dtypes, source
from jaxlite.core.axes import with_sizes
from jaxlite.core.filtering import boundary
from jaxlite.core.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, shaping
from jaxlite.transforms.derivatives import _check_input, _check_output, checked_argnums, jvp, of_chosen, vjp
from jaxlite.transforms.vmap import vmap


def _basis(tree: Any) -> tuple[Any, list[tuple[int, ...]], list[int]]:
    """All unit vectors of a tree of arrays, stacked along a new first axis of each leaf; shapes and sizes of leaves."""
    leaves, treedef = tree_flatten(tree)
    avals = [aval_of(leaf) for leaf in leaves]
    sizes = [aval.size for aval in avals]
    total = sum(sizes)
    stacked, offset = [], 0
    for aval, size in zip(avals, sizes, strict=True):
        row, column = shaping.indices((total, size))
        unit = elementwise.eq(row, elementwise.add(column, shaping.full_like(column, offset)))
        stacked.append(shaping.reshape(shaping.convert(unit, aval.dtype, aval.weak_type), (total, *aval.shape)))
        offset += size
    return tree_unflatten(treedef, stacked), [aval.shape for aval in avals], sizes


def _array_of_zeros(x: Any, dtype: Any = np.int32) -> Any:
    """Derivatives that are float0 as zeros of a dtype that arrays can hold."""
    return shaping.full(x.shape, 0, dtype) if getattr(x, "dtype", None) == dtypes.float0 else x


def _split_axis(x: Any, axis: int, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[Any]:
    """Cut the axis of all directions into one piece for each leaf, in the leaf's shape."""
    shape = aval_of(x).shape
    pieces = shaping.split(x, sizes, axis)
    return [shaping.reshape(piece, with_sizes(shape, axis, *own)) for piece, own in zip(pieces, shapes, strict=True)]


@boundary
def jacfwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """The Jacobian of a function, column by column in forward mode: for fewer inputs than outputs.

    Returns: a function that gives, for each leaf of the output, a tree like the chosen arguments, of arrays of the
      output leaf's shape followed by the argument leaf's shape (and the auxiliary data if `has_aux`).
    """
    check_callable(fun)
    argnums = checked_argnums(argnums)

    @source.wraps(fun)
    @boundary
    def jacfun(*args: Any, **kwargs: Any) -> Any:
        chosen, primals = of_chosen(fun, argnums, args, kwargs, ValueError)
        for leaf in tree_leaves(primals):
            _check_input("jacfwd", leaf, holomorphic, False)
        basis, shapes, sizes = _basis(primals)
        aux: Any = None

        def push(tangents: Any) -> Any:
            nonlocal aux
            if has_aux:
                out, tangent, aux = jvp(chosen, primals, tangents, has_aux=True)
                return out, tangent, aux
            return jvp(chosen, primals, tangents)

        outs = vmap(push, out_axes=(None, -1, None) if has_aux else (None, -1))(basis)
        treedef = tree_flatten(primals)[1]

        def unpack(column: Any, out: Any) -> Any:
            aval = aval_of(out)
            if aval.dtype == dtypes.float0:  # of which no operation makes another
                parts: list[Any] = [np.zeros((*aval.shape, *own), dtypes.float0) for own in shapes]
            else:
                column = shaping.convert(_array_of_zeros(column, aval.dtype), None, aval.weak_type)
                parts = _split_axis(column, aval_of(column).ndim - 1, shapes, sizes)
            tree = tree_unflatten(treedef, parts)
            return tree[0] if isinstance(argnums, int) else tree

        jacobian = tree_map(unpack, outs[1], outs[0])
        return (jacobian, outs[2]) if has_aux else jacobian

    return jacfun


@boundary
def jacrev(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False) -> Callable:
    """The Jacobian of a function, row by row in reverse mode: for fewer outputs than inputs. Results as in `jacfwd`."""

    check_callable(fun)
    argnums = checked_argnums(argnums)

    @source.wraps(fun)
    @boundary
    def jacfun(*args: Any, **kwargs: Any) -> Any:
        chosen, primals = of_chosen(fun, argnums, args, kwargs, ValueError)
        for leaf in tree_leaves(primals):
            _check_input("jacrev", leaf, holomorphic, allow_int)
        out, pull, *aux = vjp(chosen, *primals, has_aux=has_aux)
        for leaf in tree_leaves(out):
            _check_output("jacrev", aval_of(leaf).dtype, holomorphic)
        basis, shapes, sizes = _basis(out)
        rows = vmap(pull)(basis)
        rows = rows[0] if isinstance(argnums, int) else rows
        out_tree = tree_flatten(out)[1]
        leaves, row_tree = tree_flatten(rows)
        weak = [aval_of(leaf).weak_type for leaf in tree_leaves(primals[0] if isinstance(argnums, int) else primals)]
        columns = [_split_axis(shaping.convert(_array_of_zeros(leaf), None, each), 0, shapes, sizes)
                   for leaf, each in zip(leaves, weak, strict=True)]
        jacobian = tree_unflatten(out_tree, [tree_unflatten(row_tree, [column[index] for column in columns])
                                             for index in range(len(shapes))])
        return (jacobian, aux[0]) if has_aux else jacobian

    return jacfun


jacobian = jacrev


@boundary
def hessian(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """The second derivatives of a function: `jacfwd` of `jacrev`."""
    return jacfwd(jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic), argnums, has_aux=has_aux,
                  holomorphic=holomorphic)
