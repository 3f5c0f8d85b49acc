"""Checks of derivatives against finite differences, for tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import as_array
from jaxlite.traces.jvp import tangent_aval
from jaxlite.transforms.derivatives import jvp, vjp

Tolerance = float | dict[Any, float] | None
_TOLERANCE = {2: 2e-1, 4: 2e-3, 8: 1e-5}  # by bytes of a real number


def _real_bytes(value: Any) -> int:
    dtype = aval_of(value).dtype
    return dtype.itemsize // 2 if dtypes.kind(dtype) == "c" else dtype.itemsize


def _random_like(rng: np.random.RandomState) -> Callable[[Any], Any]:
    def draw(value: Any) -> Any:
        aval = tangent_aval(aval_of(value))
        if aval.dtype == dtypes.float0:
            return np.zeros(aval.shape, dtypes.float0)
        drawn = rng.randn(*aval.shape)
        if dtypes.kind(aval.dtype) == "c":
            drawn = drawn + 1j * rng.randn(*aval.shape)
        return as_array(np.asarray(drawn).astype(aval.dtype))

    return draw


def _shift(value: Any, tangent: Any, step: float) -> Any:
    if tangent.dtype == dtypes.float0:
        return value
    return as_array((np.asarray(value) + step * np.asarray(tangent)).astype(tangent.dtype))


def _slope(f: Callable, args: Sequence[Any], tangents: Any, eps: float) -> Any:
    """The central difference along a direction."""
    ahead = f(*tree_map(lambda x, v: _shift(x, v, eps), args, tangents))
    behind = f(*tree_map(lambda x, v: _shift(x, v, -eps), args, tangents))
    return tree_map(lambda x, y: (np.asarray(x, _wide(x)) - np.asarray(y, _wide(y))) / (2 * eps), ahead, behind)


def _wide(value: Any) -> Any:
    return np.complex128 if dtypes.kind(aval_of(value).dtype) == "c" else np.float64


def compare_leaves(actual: Any, expected: Any, atol: Tolerance, rtol: Tolerance, message: str,
                   tolerance: Callable[[Tolerance, Any, Any], float]) -> None:
    """Compare the arrays of two trees, except those of float0. Of what was given, `tolerance(given, one, other)` makes the
    bounds for a pair. Raises: AssertionError where they differ.
    """
    for one, other in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if dtypes.float0 in (aval_of(one).dtype, aval_of(other).dtype):
            continue
        np.testing.assert_allclose(_exact(one), _exact(other), err_msg=message,
                                   rtol=tolerance(rtol, one, other), atol=tolerance(atol, one, other))


def _exact(value: Any) -> Any:
    """An array with a dtype of NumPy's in which its elements are exact."""
    return np.asarray(value) if dtypes.kind(aval_of(value).dtype) in "biu" else np.asarray(value, _wide(value))


def _compare(actual: Any, expected: Any, atol: Tolerance, rtol: Tolerance, message: str) -> None:
    compare_leaves(actual, expected, atol, rtol, message,
                   lambda given, one, other: _tolerance(given, aval_of(one).dtype, _TOLERANCE[_real_bytes(one)]))


def _tolerance(given: Tolerance, dtype: Any, default: float) -> float:
    """The tolerance that is given, in general or for this dtype, or the default."""
    if isinstance(given, dict):
        given = {np.dtype(each): value for each, value in given.items()}.get(dtype)
    return default if given is None else given


def _dot(left: Any, right: Any) -> Any:
    return sum(np.real(np.sum(np.asarray(x, _wide(x)) * np.asarray(y, _wide(y))))
               for x, y in zip(tree_leaves(left), tree_leaves(right), strict=True) if x.dtype != dtypes.float0)


@boundary
def check_jvp(f: Callable, f_jvp: Callable, args: Sequence[Any], atol: Tolerance = None, rtol: Tolerance = None,
              eps: float = 1e-4, err_msg: str = "") -> None:
    """Compare `f_jvp(args, tangents)`, which gives (output, its tangent), with `f` and its differences.

    Args:
      atol, rtol: tolerances, or tolerances by dtype; by default those fit for the dtype of the results.
      eps: the step of the difference.
    Raises: AssertionError where they differ.
    """
    args = tuple(args)
    tangents = tree_map(_random_like(np.random.RandomState(0)), args)
    out, tangent = f_jvp(args, tangents)
    prefix = f"{err_msg} " if err_msg else ""
    _compare(out, f(*args), atol, rtol, prefix + "JVP primal")
    _compare(tangent, _slope(f, args, tangents, eps), atol, rtol, prefix + "JVP tangent")


@boundary
def check_vjp(f: Callable, f_vjp: Callable, args: Sequence[Any], atol: Tolerance = None, rtol: Tolerance = None,
              eps: float = 1e-4, err_msg: str = "") -> None:
    """Compare `f_vjp(*args)`, which gives (output, function of cotangents), with `f` and its differences.

    Arguments are as in `check_jvp`.
    """
    args = tuple(args)
    draw = _random_like(np.random.RandomState(0))
    out, pull = f_vjp(*args)
    prefix = f"{err_msg} " if err_msg else ""
    _compare(out, f(*args), atol, rtol, prefix + "VJP primal")
    tangents = tree_map(draw, args)
    cotangents = tree_map(draw, out)
    back = pull(cotangents)
    narrowest = min(tree_leaves(out), key=_real_bytes, default=np.zeros((), np.float32))
    default = _TOLERANCE[_real_bytes(narrowest)]
    np.testing.assert_allclose(_dot(back, tangents), _dot(cotangents, _slope(f, args, tangents, eps)),
                               rtol=_tolerance(rtol, narrowest.dtype, default),
                               atol=_tolerance(atol, narrowest.dtype, default), err_msg=prefix + "VJP cotangent projected")


@boundary
def check_grads(f: Callable, args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"),
                atol: Tolerance = None, rtol: Tolerance = None, eps: float | None = None) -> None:
    """Compare derivatives of a function with finite differences, up to an order.

    Args:
      f: a function of pytrees of arrays.
      args: where; a sequence of its arguments.
      order: 1 for first derivatives alone, 2 for those and the second, and so on.
      modes: 'fwd' checks jvp, 'rev' vjp; orders above 1 check every mixture of them.
      atol, rtol: tolerances, or tolerances by dtype; by default those fit for the dtype of the results.
      eps: the step of the differences; by default it follows from the dtype of the arguments.
    Raises: AssertionError where they differ.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.transforms.gradient_checks import check_grads
    >>> check_grads(jnp.sin, (0.5,), order=1)
    """
    args = tuple(args)
    for mode in modes:
        if mode not in ("fwd", "rev"):
            raise ValueError(f"check_grads: modes are 'fwd' and 'rev', got {mode!r}")
    if eps is None:
        inexact = [_real_bytes(leaf) for leaf in tree_leaves(args) if dtypes.kind(aval_of(leaf).dtype) in "fc"]
        eps = 1e-4 if min(inexact, default=4) >= 4 else 1e-2
    _check(f, args, order, modes, atol, rtol, eps, "")


def _inexact(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(tree) if leaf.dtype != dtypes.float0 and dtypes.kind(leaf.dtype) in "fc"]


def _check(f: Callable, args: tuple[Any, ...], order: int, modes: Sequence[str], atol: Tolerance, rtol: Tolerance,
           eps: float, message: str) -> None:
    if "fwd" in modes:
        check_jvp(f, functools.partial(jvp, f), args, atol, rtol, eps, f"{message}jvp of {f}" if message else "")
        if order > 1:
            def push(*primals: Any) -> Any:
                return _inexact(jvp(f, primals, tree_map(_random_like(np.random.RandomState(1)), primals)))

            _check(push, args, order - 1, modes, atol, rtol, eps, message + "jvp of ")
    if "rev" in modes:
        check_vjp(f, functools.partial(vjp, f), args, atol, rtol, eps, f"{message}vjp of {f}" if message else "")
        if order > 1:
            def pull(*primals: Any) -> Any:
                out, back = vjp(f, *primals)
                return _inexact(back(tree_map(_random_like(np.random.RandomState(1)), out)))

            _check(pull, args, order - 1, modes, atol, rtol, eps, message + "vjp of ")
