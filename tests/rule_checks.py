"""Checks of derivative and batching rules against oracles that know nothing of them.

Derivatives in float64 against central differences of fourth order, transposes by `<ct, J v> == <J^T ct, v>`, second
derivatives by differences of the first, batches by a Python loop over examples, and tables of which primitive has which
rule. A function under test takes arrays and gives an array or a list of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jaxlite
from jaxlite.core.jaxpr import check_jaxpr
from jaxlite.core.primitive import PRIMITIVES, NoRule, Primitive, load_rules
from jaxlite.transforms.vmap import vmap
from tests.quick_code import quick_options

RNG = np.random.default_rng(1)
STEP = 1e-4


def quick_jit(fun: Callable) -> Callable:
    return jaxlite.jit(fun, compiler_options=quick_options())


def as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def draw_like(value: Any, seed: int | None = None) -> np.ndarray:
    """Normal numbers in the shape and dtype of an array; complex ones have both parts."""
    value, rng = np.asarray(value), RNG if seed is None else np.random.default_rng(seed)
    drawn = rng.normal(size=value.shape)
    if value.dtype.kind == "c":
        drawn = drawn + 1j * rng.normal(size=value.shape)
    return np.asarray(drawn, value.dtype)


def inner(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """The sum of products, without conjugation; its real part, which is what derivatives of real parts preserve."""
    return float(sum(np.sum(np.asarray(x) * np.asarray(y)).real for x, y in zip(xs, ys, strict=True)))


def difference(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any], step: float = STEP) -> list[Any]:
    """The derivative along tangents, by a central difference of fourth order."""

    def along(h: float) -> list[np.ndarray]:
        outs = fun(*[np.asarray(x + h * v, x.dtype) for x, v in zip(primals, tangents, strict=True)])
        return [np.asarray(out) for out in as_list(outs)]

    return [(8 * (up - down) - (far_up - far_down)) / (12 * step) for up, down, far_up, far_down in zip(
        along(step), along(-step), along(2 * step), along(-2 * step), strict=True)]


def assert_close(got: Sequence[Any], expected: Sequence[Any], tolerance: float, what: str) -> None:
    """Arrays agree to a fraction of the largest number of each."""
    for one, other in zip(got, expected, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape, what
        scale = max(1.0, float(np.max(np.abs(other), initial=0)))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def assert_adjoint(cts: Sequence[Any], slopes: Sequence[Any], back: Sequence[Any], tangents: Sequence[Any],
                   rtol: float = 1e-10) -> None:
    """`<ct, J v> == <J^T ct, v>`, to rounding of the sums."""
    scale = max(1.0, sum(float(np.sum(np.abs(np.asarray(x) * y))) for x, y in zip(slopes, cts, strict=True)))
    left, right = inner(cts, slopes), inner(back, tangents)
    assert abs(left - right) <= rtol * scale, f"<ct, J v> = {left}, <J^T ct, v> = {right}"


# --- derivatives -------------------------------------------------------------------------------------


def check_derivatives(fun: Callable, *args: Any, orders: int = 2, tolerance: float = 2e-7, reverse: bool = True) -> None:
    """Check jvp and vjp of a function, and with `orders` 2 the jvp of its vjp, with all inexact arguments varying.

    It costs three compilations of small programs; `check_jvp` and `check_transpose` run operation by operation.

    Args:
      fun: gives an array or a list of arrays; integer results are left out.
      args: float64, complex128 or integer arrays; 64-bit types must be enabled.
      reverse: whether there is a transpose.
    """
    args = tuple(np.asarray(arg) for arg in args)
    varying = [index for index, arg in enumerate(args) if arg.dtype.kind in "fc"]
    primals = [args[index] for index in varying]

    def of_varying(*values: Any) -> list[Any]:
        full = list(args)
        for index, value in zip(varying, values, strict=True):
            full[index] = value
        return [each for each in as_list(fun(*full)) if each.dtype.kind in "fc"]

    directions = [draw_like(arg, 10 + index) for index, arg in enumerate(primals)]
    compiled = quick_jit(of_varying)
    base = compiled(*primals)
    cotangents = [draw_like(each, 50 + index) for index, each in enumerate(base)]

    def pull(*values: Any) -> list[Any]:
        return list(jaxlite.vjp(of_varying, *values)[1](cotangents))

    def first(*values: Any) -> Any:
        out, tangent = jaxlite.jvp(of_varying, values, tuple(directions))
        return out, tangent, pull(*values) if reverse else None

    first = quick_jit(first)
    out, tangent, back = first(*primals)
    assert_close(out, base, 1e-12, "primal output of jvp")
    assert_close(tangent, difference(compiled, primals, directions), tolerance, "jvp against differences")
    if reverse:
        assert_adjoint(cotangents, tangent, back, directions)
    if orders > 1:
        second = quick_jit(lambda *values: jaxlite.jvp(pull, values, tuple(directions))[1])(*primals)
        slope = difference(lambda *values: first(*values)[2], primals, directions)
        assert_close(second, slope, tolerance * 10, "jvp of vjp against differences")


def check_jvp(fun: Callable, primals: Sequence[Any], order: int = 2, rtol: float = 1e-6, step: float = STEP) -> None:
    """The JVP against differences, and of that the JVP, up to an order. All primals are double and vary."""
    primals = tuple(np.asarray(x) for x in primals)
    tangents = tuple(draw_like(x) for x in primals)
    outs, slopes = jaxlite.jvp(fun, primals, tangents)
    expected = difference(fun, primals, tangents, step)
    for out, slope, reference in zip(as_list(outs), as_list(slopes), expected, strict=True):
        assert slope.shape == out.shape and slope.dtype == out.dtype
        scale = np.max(np.abs(reference), initial=1e-3)
        np.testing.assert_allclose(np.asarray(slope), reference, rtol=rtol, atol=rtol * scale)
    if order > 1:
        check_jvp(lambda *xs: jaxlite.jvp(fun, xs, tangents)[1], primals, order - 1, rtol * 10, step)


def check_transpose(fun: Callable, primals: Sequence[Any], rtol: float = 1e-10) -> None:
    """<ct, J v> = <J^T ct, v>, for tangents of all operands together and of each alone; programs are well typed."""
    primals = [np.asarray(x) for x in primals]
    tangents = [draw_like(x) for x in primals]
    outs, slopes = jaxlite.jvp(fun, primals, tangents)
    cts = [draw_like(out) for out in as_list(outs)]
    ct: Any = type(outs)(cts) if isinstance(outs, (list, tuple)) else cts[0]
    found = jaxlite.vjp(fun, *primals)[1](ct)
    for x, each in zip(primals, found, strict=True):
        assert each.shape == x.shape and each.dtype == x.dtype
    assert_adjoint(cts, as_list(slopes), found, tangents, rtol)
    if len(primals) > 1:
        for index in range(len(primals)):
            def alone(x: Any, index: int = index) -> Any:
                return fun(*primals[:index], x, *primals[index + 1:])

            (each,) = jaxlite.vjp(alone, primals[index])[1](ct)
            np.testing.assert_allclose(np.asarray(each), np.asarray(found[index]), rtol=1e-8, atol=rtol)
    check_jaxpr(jaxlite.make_jaxpr(lambda *xs: jaxlite.vjp(fun, *xs)[1](ct))(*primals))


# --- batching ----------------------------------------------------------------------------------------


def check_batching(fun: Callable, args: Sequence[Any], in_axes: Sequence[int | None], rtol: float = 1e-5) -> None:
    """vmap of a batch equals a loop over its examples."""
    args = [np.asarray(arg) for arg in args]
    size = next(arg.shape[axis] for arg, axis in zip(args, in_axes, strict=True) if axis is not None)
    compiled = quick_jit(fun)
    rows = [compiled(*[arg if axis is None else np.take(arg, index, axis)
                       for arg, axis in zip(args, in_axes, strict=True)]) for index in range(size)]
    _compare_with_rows(quick_jit(vmap(fun, in_axes=tuple(in_axes)))(*args), rows, in_axes, rtol, rtol)


def check_all_batchings(fun: Callable, args: Sequence[Any], size: int = 3, in_axes: Sequence[Any] | None = None,
                        make: Callable[[int, Any], Any] | None = None, rtol: float = 0) -> None:
    """vmap equals a loop over examples, for all combinations of batched and unbatched operands and of axes.

    Args:
      args: one example. Each becomes a batch by `make(index of the operand, example)`, called `size` times.
      in_axes: which axes to try for each operand; by default None, the first and the last.
    """
    args = [np.asarray(arg) for arg in args]
    examples = [[np.asarray(make(which, arg)) if make else vary(arg, k) for k in range(size)]
                for which, arg in enumerate(args)]
    choices = in_axes or [(None, 0, arg.ndim) if arg.ndim else (None, 0) for arg in args]
    combinations = [axes for axes in itertools.product(*choices) if any(axis is not None for axis in axes)]
    stacked = [{str(axis): rows[0] if axis is None else np.stack(rows, axis) for axis in axes}
               for rows, axes in zip(examples, choices, strict=True)]

    def batch_all(stacked: Any) -> list[list[Any]]:  # one program, since compiling each costs more
        batches = [[each[str(axis)] for each, axis in zip(stacked, axes, strict=True)] for axes in combinations]
        return [as_list(vmap(fun, in_axes=axes)(*batch)) for axes, batch in zip(combinations, batches, strict=True)]

    for axes, result in zip(combinations, jaxlite.jit(batch_all)(stacked), strict=True):
        rows = [fun(*[rows[k if axis is not None else 0] for rows, axis in zip(examples, axes, strict=True)])
                for k in range(size)]
        _compare_with_rows(result, rows, axes, rtol, 0)
    check_jaxpr(jaxlite.make_jaxpr(batch_all)(stacked))


def _compare_with_rows(batched: Any, rows: Sequence[Any], in_axes: Sequence[int | None], rtol: float, atol: float) -> None:
    for position, got in enumerate(as_list(batched)):
        expected = np.stack([np.asarray(as_list(row)[position]) for row in rows])
        assert got.shape == expected.shape and got.dtype == expected.dtype, in_axes
        np.testing.assert_allclose(np.asarray(got), expected, rtol=rtol, atol=atol,
                                   err_msg=f"output {position}, in_axes={tuple(in_axes)}")


def vary(value: np.ndarray, k: int) -> np.ndarray:
    """A value like another: its elements in another order."""
    return np.roll(value.reshape(-1), k).reshape(value.shape)


def spread_axes(shape: Sequence[int], size: int, axis: int | None) -> tuple[int, ...]:
    """The shape of a batch of arrays."""
    return tuple(shape) if axis is None else (*shape[:axis], size, *shape[axis:])


# --- tables of rules ---------------------------------------------------------------------------------


def missing_rules(table: dict[str, str], modules: Sequence[Any] = ()) -> list[str]:
    """Where primitives do not have the rules that a table says.

    Args:
      table: for each primitive which rules it has: letters of "jtb" for jvp, transpose and batching. One in upper
        case is declared to be absent by nature; one that is not there is absent since nothing asks for it.
      modules: the primitives that they hold must all be in the table.
    """
    load_rules()
    held = [value.name for module in modules for value in vars(module).values() if isinstance(value, Primitive)]
    wrong = [f"{name}: not in the table" for name in held if name not in table]
    for name, letters in table.items():
        for letter, slot in zip("jtb", ("jvp", "transpose", "batching"), strict=True):
            rule = getattr(PRIMITIVES.get(name), slot, None)
            state = "missing" if rule is None else "refused" if type(rule) is NoRule else "present"
            wanted = "present" if letter in letters else "refused" if letter.upper() in letters else "missing"
            if state != wanted:
                wrong.append(f"{name}: its {slot} rule is {state}, it should be {wanted}")
    return wrong
