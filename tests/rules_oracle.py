"""Oracles for derivative and batching rules, and the check that a family's table of rules is complete.

Differences of fourth order in float64, the adjoint identity <ct, J v> = <J^T ct, v>, and a Python loop over a batch.
A function under test takes arrays and returns an array or a list of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jaxlite
from jaxlite.core.jaxpr import check_jaxpr
from jaxlite.core.primitive import NoRule, Primitive, load_rules

RNG = np.random.default_rng(1)


def as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def draw_like(value: Any) -> np.ndarray:
    """Normal numbers in the shape and dtype of an array; complex ones have both parts."""
    value = np.asarray(value)
    result = RNG.standard_normal(value.shape)
    if value.dtype.kind == "c":
        result = result + 1j * RNG.standard_normal(value.shape)
    return np.asarray(result, value.dtype)


def inner(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """The sum of products, without conjugation; its real part, which is what derivatives of real parts preserve."""
    return float(sum(np.sum(np.asarray(x) * np.asarray(y)).real for x, y in zip(xs, ys, strict=True)))


def difference(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any], step: float) -> list[Any]:
    """The derivative along tangents, by a central difference of fourth order."""

    def along(h: float) -> list[np.ndarray]:
        outs = fun(*[np.asarray(x + h * v, x.dtype) for x, v in zip(primals, tangents, strict=True)])
        return [np.asarray(out) for out in as_list(outs)]

    return [(8 * (up - down) - (far_up - far_down)) / (12 * step) for up, down, far_up, far_down in zip(
        along(step), along(-step), along(2 * step), along(-2 * step), strict=True)]


def check_jvp(fun: Callable, primals: Sequence[Any], order: int = 2, rtol: float = 1e-6, step: float = 1e-4) -> None:
    """The JVP against differences, and of that the JVP, up to an order. All primals are double and vary."""
    primals = [np.asarray(x) for x in primals]
    tangents = [draw_like(x) for x in primals]
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
    scale = max(1.0, sum(float(np.sum(np.abs(np.asarray(a) * b))) for a, b in zip(as_list(slopes), cts, strict=True)))
    assert abs(inner(cts, as_list(slopes)) - inner(found, tangents)) <= rtol * scale
    if len(primals) > 1:
        for index in range(len(primals)):
            def alone(x: Any, index: int = index) -> Any:
                return fun(*primals[:index], x, *primals[index + 1:])

            (each,) = jaxlite.vjp(alone, primals[index])[1](ct)
            np.testing.assert_allclose(np.asarray(each), np.asarray(found[index]), rtol=1e-8, atol=rtol)
    check_jaxpr(jaxlite.make_jaxpr(lambda *xs: jaxlite.vjp(fun, *xs)[1](ct))(*primals))


def check_batching(fun: Callable, args: Sequence[Any], size: int = 3, in_axes: Sequence[Any] | None = None,
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
        return [as_list(jaxlite.vmap(fun, in_axes=axes)(*batch))
                for axes, batch in zip(combinations, batches, strict=True)]

    for axes, result in zip(combinations, jaxlite.jit(batch_all)(stacked), strict=True):
        loop = []
        for k in range(size):
            row = [rows[k if axis is not None else 0] for rows, axis in zip(examples, axes, strict=True)]
            loop.append([np.asarray(out) for out in as_list(fun(*row))])
        for position, out in enumerate(result):
            expected = np.stack([outs[position] for outs in loop])
            assert out.shape == expected.shape and out.dtype == expected.dtype, axes
            np.testing.assert_allclose(np.asarray(out), expected, rtol=rtol, atol=0, err_msg=f"in_axes={axes}")
    check_jaxpr(jaxlite.make_jaxpr(batch_all)(stacked))


def vary(value: np.ndarray, k: int) -> np.ndarray:
    """A value like another: its elements in another order."""
    return np.roll(value.reshape(-1), k).reshape(value.shape)


def missing_rules(table: dict[str, str], modules: Sequence[Any]) -> list[str]:
    """Where the primitives of some modules do not have the rules that a table says.

    Args:
      table: for each primitive which rules it has: letters of "jtb" for jvp, transpose and batching. One in upper
        case is declared to be absent by nature; one that is not there is absent since nothing asks for it.
    """
    load_rules()
    primitives = {value.name: value for module in modules for value in vars(module).values()
                  if isinstance(value, Primitive)}
    wrong = [f"{name}: not in the table" for name in primitives if name not in table]
    wrong += [f"{name}: not a primitive of these modules" for name in table if name not in primitives]
    for name, letters in table.items():
        for letter, slot in zip("jtb", ("jvp", "transpose", "batching"), strict=True):
            rule = getattr(primitives.get(name), slot, None)
            state = "missing" if rule is None else "refused" if type(rule) is NoRule else "present"
            wanted = "present" if letter in letters else "refused" if letter.upper() in letters else "missing"
            if state != wanted:
                wrong.append(f"{name}: its {slot} rule is {state}, it should be {wanted}")
    return wrong
