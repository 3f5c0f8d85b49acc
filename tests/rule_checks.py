"""Checks of derivative and batching rules against oracles that know nothing of them.

Derivatives in float64 against central differences, transposes by `<ct, J v> == <J^T ct, v>`, second derivatives by
differences of the first, batches by a Python loop over examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jaxlite
from jaxlite.core.primitive import PRIMITIVES, NoRule, load_rules
from jaxlite.vectorize import vmap

STEP = 1e-6
_QUICK = {"xla_backend_optimization_level": 0}  # compiling is most of what these tests do


def _jit(fun: Callable) -> Callable:
    return jaxlite.jit(fun, compiler_options=_QUICK)


def is_inexact(value: Any) -> bool:
    return np.issubdtype(np.asarray(value).dtype, np.inexact)


def draw_like(value: Any, seed: int) -> np.ndarray:
    """Normal numbers in the shape and dtype of an inexact value."""
    value, rng = np.asarray(value), np.random.default_rng(seed)
    drawn = rng.normal(size=value.shape)
    if value.dtype.kind == "c":
        drawn = drawn + 1j * rng.normal(size=value.shape)
    return np.asarray(drawn, value.dtype)


def _outputs(fun: Callable) -> Callable[..., list[Any]]:
    def wrapped(*args: Any) -> list[Any]:
        out = fun(*args)
        return [each for each in (out if isinstance(out, (list, tuple)) else [out]) if each.dtype.kind in "fc"]

    return wrapped


def _dot(left: Sequence[Any], right: Sequence[Any]) -> float:
    return sum(float(np.real(np.sum(np.asarray(x) * np.asarray(y)))) for x, y in zip(left, right, strict=True))


def _close(got: Sequence[Any], expected: Sequence[Any], tolerance: float, what: str) -> None:
    for one, other in zip(got, expected, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape, what
        scale = max(1.0, float(np.max(np.abs(other), initial=0)))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def check_rules_exist(name: str, linear: bool) -> None:
    """A primitive has its rules, or a reason why it has none by nature; a linear one has a transpose."""
    load_rules()
    primitive = PRIMITIVES[name]
    for rule in (primitive.jvp, primitive.batching):
        assert callable(rule) or type(rule) is NoRule
    if linear:
        assert callable(primitive.transpose)


def check_derivatives(fun: Callable, *args: Any, orders: int = 2, tolerance: float = 2e-7, reverse: bool = True) -> None:
    """Check jvp and vjp of a function, and with `orders` 2 the jvp of its vjp, with all inexact arguments varying.

    Args:
      fun: gives an array or a list of arrays; integer results are left out.
      args: float64, complex128 or integer arrays; 64-bit types must be enabled.
      reverse: whether there is a transpose.
    """
    args = tuple(np.asarray(arg) for arg in args)
    varying = [index for index, arg in enumerate(args) if is_inexact(arg)]
    primals = [args[index] for index in varying]

    def of_varying(*values: Any) -> list[Any]:
        full = list(args)
        for index, value in zip(varying, values, strict=True):
            full[index] = value
        return _outputs(fun)(*full)

    directions = [draw_like(arg, 10 + index) for index, arg in enumerate(primals)]
    compiled = _jit(of_varying)
    base = compiled(*primals)
    cotangents = [draw_like(each, 50 + index) for index, each in enumerate(base)]

    def pull(*values: Any) -> list[Any]:
        return list(jaxlite.vjp(of_varying, *values)[1](cotangents))

    def first(values: Any, tangents: Any) -> Any:
        out, tangent = jaxlite.jvp(of_varying, tuple(values), tuple(tangents))
        return out, tangent, pull(*values) if reverse else None

    first = _jit(first)
    out, tangent, back = first(primals, directions)
    _close(out, base, 1e-12, "primal output of jvp")
    ahead, behind = [[x + sign * STEP * v for x, v in zip(primals, directions, strict=True)] for sign in (1, -1)]
    _close(tangent, _slope(compiled(*ahead), compiled(*behind)), tolerance, "jvp against differences")
    if reverse:
        left, right = _dot(cotangents, tangent), _dot(back, directions)
        assert abs(left - right) <= 1e-9 * max(1.0, abs(left)), f"<ct, J v> = {left}, <J^T ct, v> = {right}"
    if orders > 1:
        second = _jit(lambda values, tangents: jaxlite.jvp(pull, tuple(values), tuple(tangents))[1])(primals, directions)
        slope = _slope(first(ahead, directions)[2], first(behind, directions)[2])
        _close(second, slope, tolerance * 10, "jvp of vjp against differences")


def _slope(ahead: Sequence[Any], behind: Sequence[Any]) -> list[Any]:
    return [(np.asarray(x) - np.asarray(y)) / (2 * STEP) for x, y in zip(ahead, behind, strict=True)]


def check_batching(fun: Callable, args: Sequence[Any], in_axes: Sequence[int | None], rtol: float = 1e-5) -> None:
    """Check vmap against a loop over examples."""
    args = [np.asarray(arg) for arg in args]
    size = next(arg.shape[axis] for arg, axis in zip(args, in_axes, strict=True) if axis is not None)
    compiled = _jit(fun)
    rows = []
    for index in range(size):
        out = compiled(*[arg if axis is None else np.take(arg, index, axis)
                         for arg, axis in zip(args, in_axes, strict=True)])
        rows.append(out if isinstance(out, (list, tuple)) else [out])
    batched = _jit(vmap(fun, in_axes=tuple(in_axes)))(*args)
    batched = batched if isinstance(batched, (list, tuple)) else [batched]
    for position, got in enumerate(batched):
        expected = np.stack([np.asarray(row[position]) for row in rows])
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(np.asarray(got), expected, rtol=rtol, atol=rtol,
                                   err_msg=f"output {position}, in_axes={tuple(in_axes)}")


def spread_axes(shape: Sequence[int], size: int, axis: int | None) -> tuple[int, ...]:
    """The shape of a batch of arrays."""
    return tuple(shape) if axis is None else (*shape[:axis], size, *shape[axis:])
