"""What transformations and control flow mean, in NumPy and plain Python loops: the oracle of random programs.

vmap is a loop over examples, scan and fori_loop are loops, cond is an if, derivatives are central differences of fourth
order, and what changes nothing (jit, checkpoint, custom rules that agree with the derivative) is left out. All floats are
double. Where a result jumps or bends, `Kinks` remembers how near the arguments came, since differences across such a
point say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

STEP = 1e-3


class TooLong(Exception):
    """More evaluations than a test should take."""


class Kinks:
    """How near a program came to a point where a function jumps or bends, how strongly functions curve within a step
    (which says how good differences are), and how often it was evaluated."""

    def __init__(self, most_calls: int) -> None:
        self.margin, self.curvature, self.calls, self.most_calls = np.inf, 0.0, 0, most_calls

    def near(self, distance: Any) -> None:
        self.margin = min(self.margin, float(np.min(np.abs(distance), initial=np.inf)))

    def curved(self, change: Any) -> None:
        self.curvature = max(self.curvature, float(np.max(np.abs(change), initial=0.0)))

    def called(self) -> None:
        self.calls += 1
        if self.calls > self.most_calls:
            raise TooLong


# --- trees -------------------------------------------------------------------------------------------


def tree_map(fun: Callable, tree: Any, *rest: Any) -> Any:
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: tree_map(fun, tree[key], *(each[key] for each in rest)) for key in tree}
    if isinstance(tree, (tuple, list)):
        return type(tree)(tree_map(fun, *parts) for parts in zip(tree, *rest, strict=True))
    return fun(tree, *rest)


def leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    tree_map(found.append, tree)
    return found


def _axes_of(axes: Any, tree: Any) -> Any:
    """A tree of axes in the shape of a tree of values; None, which `tree_map` takes for no leaf, becomes 'none'."""
    if isinstance(axes, (tuple, list)):
        return type(tree)(_axes_of(axis, part) for axis, part in zip(axes, tree, strict=True))
    if isinstance(axes, dict):
        return {key: _axes_of(axes[key], tree[key]) for key in tree}
    return tree_map(lambda _: "none" if axes is None else axes, tree)


# --- transformations ---------------------------------------------------------------------------------


def _stack(rows: list[Any], axis: int = 0) -> Any:
    return tree_map(lambda *parts: np.stack([np.asarray(part) for part in parts], axis), *rows)


def _elements(tree: Any) -> Iterator[tuple[int, tuple[int, ...]]]:
    for number, leaf in enumerate(leaves(tree)):
        for index in np.ndindex(np.shape(leaf)):
            yield number, index


class LoopOracle:
    """The names that a random program uses, with these meanings."""

    def __init__(self, most_calls: int = 20000) -> None:
        self.kinks = Kinks(most_calls)

    def names(self) -> dict[str, Any]:
        same = lambda fun, **_: fun
        found = {name: getattr(self, name) for name in dir(self) if not name.startswith("_")}
        return {**found, "jnp": np, "jit": same, "checkpoint": same, "custom_jvp_of": same, "custom_vjp_of": same}

    # --- derivatives

    def _slope(self, fun: Callable, args: Any, along: Any) -> Any:
        h = STEP / max(1.0, *(float(np.max(np.abs(v), initial=0)) for v in leaves(along)))

        def at(step: float) -> Any:
            self.kinks.called()
            return fun(*tree_map(lambda x, v: x + step * v, args, along))

        def slope(ahead: Any, behind: Any, far_ahead: Any, far_behind: Any) -> Any:
            near, far = (np.asarray(ahead) - behind) / (2 * h), (np.asarray(far_ahead) - far_behind) / (4 * h)
            self.kinks.curved((near - far) / (1 + np.abs(near)))
            return (4 * near - far) / 3

        return tree_map(slope, at(h), at(-h), at(2 * h), at(-2 * h))

    def _slopes(self, fun: Callable, args: Any) -> Iterator[tuple[int, tuple[int, ...], Any]]:
        """The derivative along each element of the arguments."""
        for number, index in _elements(args):
            seen = -1

            def unit(leaf: Any, number: int = number, index: tuple[int, ...] = index) -> Any:
                nonlocal seen
                seen += 1
                result = np.zeros(np.shape(leaf))
                if seen == number:
                    result[index] = 1.0
                return result

            yield number, index, self._slope(fun, args, tree_map(unit, args))

    def _by_element(self, fun: Callable, args: Any, use: Callable[[Any], float]) -> Any:
        """A tree like the arguments of a number for each of their elements."""
        found = [np.zeros(np.shape(leaf)) for leaf in leaves(args)]
        for number, index, slope in self._slopes(fun, args):
            found[number][index] = use(slope)
        results = iter(found)
        return tree_map(lambda _: next(results), args)

    def jvp(self, fun: Callable, primals: Any, tangents: Any) -> Any:
        return fun(*primals), self._slope(fun, primals, tangents)

    def linearize(self, fun: Callable, *primals: Any) -> Any:
        return fun(*primals), lambda *tangents: self._slope(fun, primals, tangents)

    def vjp(self, fun: Callable, *primals: Any) -> Any:
        def pull(ct: Any) -> Any:
            return self._by_element(fun, primals, lambda slope: sum(
                np.sum(np.asarray(x) * y) for x, y in zip(leaves(ct), leaves(slope), strict=True)))

        return fun(*primals), pull

    def grad(self, fun: Callable) -> Callable:
        return lambda x, *rest: self._by_element(lambda x: fun(x, *rest), (x,), float)[0]

    def value_and_grad(self, fun: Callable) -> Callable:
        return lambda x, *rest: (fun(x, *rest), self.grad(fun)(x, *rest))

    def jacfwd(self, fun: Callable) -> Callable:
        def jacobian(x: Any, *rest: Any) -> Any:
            columns = [slope for _, _, slope in self._slopes(lambda x: fun(x, *rest), (x,))]
            return np.stack(columns, -1).reshape(np.shape(columns[0]) + np.shape(x))

        return jacobian

    jacrev = jacfwd

    def hessian(self, fun: Callable) -> Callable:
        return self.jacfwd(self.grad(fun))

    # --- batches and loops

    def vmap(self, fun: Callable, in_axes: Any = 0, out_axes: int = 0) -> Callable:
        def batched(*args: Any) -> Any:
            axes = _axes_of(in_axes, args)
            size = next(np.shape(x)[axis] for x, axis in zip(leaves(args), leaves(axes), strict=True) if axis != "none")
            rows = [fun(*tree_map(lambda x, axis, k=k: x if axis == "none" else np.take(x, k, axis), args, axes))
                    for k in range(size)]
            return _stack(rows, out_axes)

        return batched

    def scan(self, fun: Callable, carry: Any, xs: Any, length: int | None = None, reverse: bool = False,
             unroll: int = 1) -> Any:
        size = len(leaves(xs)[0]) if length is None else length
        rows = []
        for k in (range(size)[::-1] if reverse else range(size)):
            carry, row = fun(carry, tree_map(lambda x, k=k: x[k], xs))
            rows.append(row)
        return carry, _stack(rows[::-1] if reverse else rows)

    def fori_loop(self, low: Any, high: Any, fun: Callable, carry: Any) -> Any:
        for k in range(int(low), int(high)):
            carry = fun(np.int32(k), carry)
        return carry

    def while_loop(self, goes_on: Callable, fun: Callable, carry: Any) -> Any:
        while goes_on(carry):
            carry = fun(carry)
        return carry

    def cond(self, which: Any, yes: Callable, no: Callable, *args: Any) -> Any:
        return (yes if which else no)(*args)

    def switch(self, which: Any, branches: Any, *args: Any) -> Any:
        return branches[int(np.clip(which, 0, len(branches) - 1))](*args)

    def lax_map(self, fun: Callable, xs: Any) -> Any:
        return _stack([fun(tree_map(lambda x, k=k: x[k], xs)) for k in range(len(leaves(xs)[0]))])

    def associative_scan(self, fun: Callable, x: Any) -> Any:
        rows = [x[0]]
        for row in x[1:]:
            rows.append(fun(rows[-1], row))
        return np.stack(rows)

    # --- operations

    def cast(self, x: Any, dtype: str) -> Any:
        return np.asarray(x).astype(np.float64 if dtype.startswith("float") else dtype)

    def less(self, x: Any, y: Any) -> Any:
        self.kinks.near(np.asarray(x, np.float64) - y)
        return x < y

    def maximum(self, x: Any, y: Any) -> Any:
        self.less(x, y)
        return np.maximum(x, y)

    def absolute(self, x: Any) -> Any:
        self.kinks.near(x)
        return np.abs(x)

    def sort(self, x: Any, axis: int) -> Any:
        result = np.sort(x, axis)
        self.kinks.near(np.diff(result, axis=axis))
        return result

    def largest(self, x: Any, axis: int) -> Any:
        return np.take(self.sort(x, axis), -1, axis)

    def argmax(self, x: Any, axis: int) -> Any:
        self.sort(x, axis)
        return np.argmax(x, axis).astype(np.int32)

    def floor(self, x: Any) -> Any:
        self.kinks.near(x - np.round(x))
        return np.floor(x).astype(np.int32)

    def at_add(self, x: Any, index: Any, y: Any) -> Any:
        result = np.array(x)
        np.add.at(result, index, y)
        return result

    def at_set(self, x: Any, index: Any, y: Any) -> Any:
        result = np.array(x)
        result[index] = y
        return result

    def dynamic_slice(self, x: Any, start: Any, size: int, axis: int) -> Any:
        start = int(np.clip(start, 0, np.shape(x)[axis] - size))
        return np.take(x, np.arange(start, start + size), axis)

    def softmax(self, x: Any, axis: int) -> Any:
        return np.exp(x) / np.sum(np.exp(x), axis, keepdims=True)

