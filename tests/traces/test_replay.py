"""Calls that are played back instead of run: they write the same programs, and only where nothing else happens."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.jaxpr import check_jaxpr
from jaxlite.extend.core import Primitive
from jaxlite.numpy import replay
from jaxlite.traces import linearize, transpose
from jaxlite.traces.replay import Recordings
from tests.numpy.test_gradients import FAMILIES

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
STORES = (replay._recordings, linearize._recordings, transpose._recordings)


@pytest.fixture(autouse=True)
def _nothing_recorded(monkeypatch: Any) -> None:
    for store in STORES:
        store.clear()
        monkeypatch.setattr(store, "idle", 0)


def traced(fun: Any, *args: Any, **options: Any) -> Any:
    return jaxlite.make_jaxpr(lambda *xs: fun(*xs), **options)(*args)


@contextmanager
def recordings_off(monkeypatch: Any) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(Recordings, "find", lambda *key: None)
        yield


def without_recordings(monkeypatch: Any, fun: Any, *args: Any) -> str:
    with recordings_off(monkeypatch):
        return str(traced(fun, *args))


def played(fun: Any, *args: Any) -> str:
    """The program once everything in it that can be is played back: calls record the second time, derivatives after them."""
    texts = [str(traced(fun, *args)) for _ in range(4)]
    return texts[-1]


# --- the same programs -------------------------------------------------------------------------------


def program(row: Any) -> Any:
    """A row's function, its derivatives both ways, and itself on a batch."""

    def fun(*xs: Any) -> Any:
        outs, pull = jaxlite.vjp(row.outputs, *xs)
        batched = jaxlite.vmap(row.outputs)(*[jnp.stack([x, x]) for x in xs])
        return outs, pull([out * 2 for out in outs]), jaxlite.jvp(row.outputs, xs, xs), batched

    return fun


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_are_the_same(family: str, x64: None, monkeypatch: Any) -> None:
    for row in FAMILIES[family]:
        fun = program(row)
        assert played(fun, *row.primals) == without_recordings(monkeypatch, fun, *row.primals), row.label
        check_jaxpr(traced(fun, *row.primals).jaxpr)
    assert all(store.made for store in STORES)


def test_values_are_the_same() -> None:
    def loss(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = jnp.tanh(x @ w) * 0.5 + jnp.mean(jnp.where(x > 0, x, -0.5), axis=-1, keepdims=True)
        return jnp.sum(x ** 2)

    w = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    with jaxlite.disable_jit():  # nothing is staged, so nothing is played back
        expected = jaxlite.grad(loss, (0, 1))(X, w)
    for found, right in zip(jaxlite.jit(jaxlite.grad(loss, (0, 1)))(X, w), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def test_equations_name_the_line_of_the_call(monkeypatch: Any) -> None:
    def fun(x: Any) -> Any:
        x = jnp.mean(x, axis=0) * x
        x = jnp.mean(x, axis=0) * x
        x = jnp.mean(x, axis=0) * x
        return jnp.sum(x * x)

    def lines(gradient: Any) -> list[str]:
        return [eqn.source_line for eqn in traced(gradient, X).eqns]

    with recordings_off(monkeypatch):
        expected = lines(jaxlite.grad(fun))
    assert len(set(expected)) == 4
    assert [lines(jaxlite.grad(fun)) for _ in range(4)] == [expected] * 4


# --- what tells calls apart --------------------------------------------------------------------------


@pytest.mark.parametrize("values", [
    (0.0, -0.0), (1, 1.0, True), (np.float32(0), np.float32(-0.0), np.float64(0)), (2.0, 3.0), (1, np.int8(1), np.uint8(1)),
])
def test_scalars(values: tuple[Any, ...], monkeypatch: Any) -> None:
    def fun(x: Any) -> Any:
        return [jnp.where(x > 0, x, value) for value in values] + [jnp.where(x > 0, value, value) for value in values]

    assert played(fun, X) == without_recordings(monkeypatch, fun, X)


def test_scalars_in_derivatives(monkeypatch: Any) -> None:
    def fun(x: Any) -> Any:
        return sum(jnp.sum(lax.mul(x, np.float32(value)) / value) for value in (2.0, 3.0, 2.0, 3.0, 2.0, 3.0))

    assert played(jaxlite.grad(fun), X) == without_recordings(monkeypatch, jaxlite.grad(fun), X)


def test_weak_types_and_options(monkeypatch: Any) -> None:
    def fun(x: Any, y: Any) -> Any:
        return [jnp.mean(each) for each in (x, y, x[0, 0], y + x)], jnp.sum(x > 0)

    for enabled in (False, True, False):
        with jaxlite.enable_x64(enabled):
            assert played(fun, X, 2.0) == without_recordings(monkeypatch, fun, X, 2.0)


def test_sizes_of_named_axes(monkeypatch: Any) -> None:
    def fun(x: Any) -> Any:
        return jnp.sum(jnp.sin(lax.all_gather(jnp.mean(x, axis=0), "i")) * jnp.mean(x, axis="i")[0])

    for size in (2, 3, 2):
        def text(size: int = size) -> str:
            return str(traced(jaxlite.value_and_grad(fun), X, axis_env=[("i", size)]))

        with recordings_off(monkeypatch):
            expected = text()
        assert [text() for _ in range(4)] == [expected] * 4


def test_operands_by_keyword(monkeypatch: Any) -> None:
    def fun(x: Any, y: Any) -> Any:
        return [jnp.average(x, weights=y), jnp.average(y, weights=x), jnp.average(weights=x, a=y), jnp.sum(x, where=y > 0)]

    assert played(fun, X, X[::-1]) == without_recordings(monkeypatch, fun, X, X[::-1])


def test_operands_from_outside_become_constants_in_the_order_of_their_use(monkeypatch: Any) -> None:
    def fun(x: Any, n: Any) -> Any:
        row = x[0]

        def body(i: Any, total: Any) -> Any:
            same = jnp.transpose(row)  # of one axis: itself
            return total * n + same + jnp.subtract.outer(x[1], row)[0]

        return lax.fori_loop(0, 3, body, row)

    assert played(fun, X, 2) == without_recordings(monkeypatch, fun, X, 2)


def test_one_operand_twice(monkeypatch: Any) -> None:
    def fun(x: Any) -> Any:
        return jnp.sum(lax.mul(x, x) + jnp.hypot(x, x) + jnp.matmul(x, x.T)[0, 0])

    both = lambda x: (fun(x), jaxlite.grad(fun)(x))
    assert played(both, X) == without_recordings(monkeypatch, both, X)


# --- what runs each time -----------------------------------------------------------------------------


def test_warnings_are_given_each_time() -> None:
    def fun(x: Any) -> Any:
        return jnp.sum(x, dtype="float64")

    for _ in range(4):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            traced(fun, X)
        assert [(warning.category, warning.filename) for warning in given] == [(UserWarning, __file__)]


def test_errors_are_raised_each_time() -> None:
    for _ in range(4):
        with pytest.raises(ValueError, match="axis 5 is out of bounds"):
            traced(lambda x: jnp.mean(x, axis=5), X)
        with pytest.raises(TypeError, match="grad requires real-valued outputs"):
            traced(jaxlite.grad(lambda x: jnp.sum(x * 1j)), X)


def test_rules_of_others_run_each_time() -> None:
    calls = []
    twice = Primitive("twice_in_test_replay")
    twice.def_abstract_eval(lambda x: x)

    def jvp(primals: Any, tangents: Any) -> Any:
        calls.append("jvp")
        return twice.bind(*primals), twice.bind(*tangents)

    def pull(cotangent: Any, x: Any) -> Any:
        calls.append("transpose")
        return [twice.bind(cotangent)]

    twice.def_jvp(jvp)
    twice.def_transpose(pull)
    for count in range(1, 5):
        traced(jaxlite.grad(lambda x: jnp.sum(twice.bind(x))), X)
        assert calls == ["jvp", "transpose"] * count


def test_values_that_are_known_may_be_looked_at() -> None:
    """Eager derivatives box concrete values, whose functions may ask for them."""
    for _ in range(4):
        gradient = jaxlite.grad(lambda x: jnp.sum(jnp.compress(x[0] > 0, x, axis=1) ** 2))(X)
        np.testing.assert_allclose(gradient, np.where(X[0] > 0, 2 * X, 0))


def test_nothing_is_kept_after_clear_caches() -> None:
    for _ in range(3):
        traced(jaxlite.grad(lambda x: jnp.mean(jnp.where(x > 0, x, 0.5))), X)
    assert all(store.made for store in STORES)
    jaxlite.clear_caches()
    assert not any(store.made or store._seen for store in STORES)


def test_a_trace_that_has_ended(monkeypatch: Any) -> None:
    leaked = []
    for _ in range(3):
        traced(lambda x: leaked.append(x) or jnp.mean(x, axis=0), X)
    with pytest.raises(jaxlite.errors.UnexpectedTracerError):
        traced(lambda x: jnp.mean(leaked[0], axis=0), X)
