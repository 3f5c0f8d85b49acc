"""Derivatives with respect to sparse arrays: sparse arrays with the same places, of derivatives by the elements."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from jaxlite import numpy as jnp
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.experimental.sparse.base import is_sparse
from jaxlite.transforms import derivatives, jacobians


def _of_elements(transform: Callable, fun: Callable, argnums: int | Sequence[int], with_value: bool,
                 **options) -> Callable:
    """The transformation of `fun` as a function of the elements of its sparse arguments."""

    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        chosen = tuple(number % len(args) for number in chosen)
        flat = {number: tree_flatten(args[number], is_leaf=is_sparse) for number in chosen}
        elements = [[leaf.data if is_sparse(leaf) else leaf for leaf in flat[number][0]] for number in chosen]

        def on_elements(elements):
            full = list(args)
            for number, own in zip(chosen, elements, strict=True):
                leaves, tree = flat[number]
                full[number] = tree_unflatten(tree, [leaf._with_data(data) if is_sparse(leaf) else data
                                                     for leaf, data in zip(leaves, own, strict=True)])
            return fun(*full, **kwargs)

        def restored(derivative):
            results = []
            for number, own in zip(chosen, derivative, strict=True):
                leaves, tree = flat[number]
                results.append(tree_unflatten(tree, [_like(leaf, data) if is_sparse(leaf) else data
                                                     for leaf, data in zip(leaves, own, strict=True)]))
            return results[0] if isinstance(argnums, int) else tuple(results)

        found = transform(on_elements, **options)(elements)
        if with_value:
            return found[0], restored(found[1])
        if options.get("has_aux"):
            return restored(found[0]), found[1]
        return restored(found)

    return wrapped


def _like(mat, data):
    """Derivatives by the elements of `mat`, at its places; of an array of results, a tree of them."""
    extra = data.ndim - mat.data.ndim
    if not extra:
        return mat._with_data(data)
    children, (shape, *rest) = mat.tree_flatten()
    lead = data.shape[:extra]
    places = [jnp.broadcast_to(child, (*lead, *child.shape)) for child in children[1:]]
    return type(mat).tree_unflatten(((*lead, *shape), *rest), (data, *places))


def grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs) -> Callable:
    """`jax.grad` for functions of sparse arrays.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.eye(2))
    >>> print(sparse.grad(lambda m: (m @ jnp.arange(2.0)).sum())(m).data)
    [0. 1.]
    """
    return _of_elements(derivatives.grad, fun, argnums, False, has_aux=has_aux, **kwargs)


def value_and_grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs) -> Callable:
    """`jax.value_and_grad` for functions of sparse arrays."""
    return _of_elements(derivatives.value_and_grad, fun, argnums, True, has_aux=has_aux, **kwargs)


def jacfwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs) -> Callable:
    """`jax.jacfwd` for functions of sparse arrays."""
    return _of_elements(jacobians.jacfwd, _dense_results(fun), argnums, False, has_aux=has_aux, **kwargs)


def jacrev(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs) -> Callable:
    """`jax.jacrev` for functions of sparse arrays."""
    return _of_elements(jacobians.jacrev, _dense_results(fun), argnums, False, has_aux=has_aux, **kwargs)


jacobian = jacrev


def _dense_results(fun: Callable) -> Callable:
    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        return tree_map(lambda leaf: leaf.todense() if is_sparse(leaf) else leaf, fun(*args, **kwargs), is_leaf=is_sparse)

    return wrapped
