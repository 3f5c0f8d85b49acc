"""Tracebacks show the user's frames alone, unless all are asked for."""

from __future__ import annotations

import copy
import pickle
import traceback
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core import source
from jaxlite.core.filtering import UnfilteredStackTrace


def mismatch(x: Any) -> Any:
    return jnp.dot(x, jnp.ones(7))


def nested(x: Any) -> Any:
    return jaxlite.jit(mismatch)(x) + 1


def frames(call: Callable[[], Any]) -> list[Any]:
    with pytest.raises(Exception) as info:
        call()
    return list(traceback.walk_tb(info.value.__traceback__))


def functions(call: Callable[[], Any], own: bool) -> list[str]:
    return [frame.f_code.co_name for frame, _ in frames(call) if source.is_own_file(frame.f_code.co_filename) == own]


X = jnp.ones(3)
WITHOUT_OWN = {
    "jit": lambda: jaxlite.jit(mismatch)(X),
    "nested jit": lambda: jaxlite.jit(nested)(X),
    "trace": lambda: jaxlite.jit(mismatch).trace(X),
    "lower": lambda: jaxlite.jit(mismatch).lower(X),
    "eval_shape of jit": lambda: jaxlite.jit(mismatch).eval_shape(X),
    "make_jaxpr": lambda: jaxlite.make_jaxpr(mismatch)(X),
    "eval_shape": lambda: jaxlite.eval_shape(mismatch, X),
    "eager": lambda: mismatch(X),
    "scan": lambda: lax.scan(lambda c, x: (c + mismatch(X), None), 0.0, X),
    "carry of scan": lambda: lax.scan(lambda c, x: (X, None), 0.0, X),
    "cond": lambda: lax.cond(True, mismatch, mismatch, X),
    "while_loop": lambda: lax.while_loop(lambda x: mismatch(x) > 0, mismatch, X),
    "grad": lambda: jaxlite.grad(mismatch)(X),
    "output of grad": lambda: jaxlite.grad(lambda x: x)(X),
    "jvp": lambda: jaxlite.jvp(mismatch, (X,), (X,)),
    "tangents of jvp": lambda: jaxlite.jvp(jnp.sin, (X,), (1.0,)),
    "vjp": lambda: jaxlite.vjp(mismatch, X),
    "cotangent of vjp": lambda: jaxlite.vjp(jnp.sin, X)[1](1.0),
    "linearize": lambda: jaxlite.linearize(mismatch, X),
    "tangent of linearize": lambda: jaxlite.linearize(jnp.sin, X)[1](1.0),
    "hessian": lambda: jaxlite.hessian(mismatch)(X),
    "vmap": lambda: jaxlite.vmap(lambda x: mismatch(X) + x)(X),
    "sizes of vmap": lambda: jaxlite.vmap(jnp.add)(X, jnp.ones(5)),
    "checkpoint": lambda: jaxlite.checkpoint(mismatch)(X),
    "device_put": lambda: jaxlite.device_put(X, 3),
    "einsum": lambda: jnp.einsum("i,j->k", X, X),
    "numpy's functions": lambda: jnp.linalg.eigvalsh(jnp.ones((2, 3))),
    "lax's functions": lambda: lax.conv_dimension_numbers(0, X, 1),
    "scipy's functions": lambda: jaxlite.scipy.linalg.polar(X),
    "what is no function": lambda: jaxlite.hessian(X),
    "options": lambda: jaxlite.config.update("jax_nobody", 1),
    "a missing option": lambda: jaxlite.config.nobody,
    "a missing name": lambda: jaxlite.core.nobody,
    "branch on a tracer": lambda: jaxlite.jit(lambda x: 1 if x else 2)(True),
}


@pytest.mark.parametrize("name", WITHOUT_OWN)
def test_no_own_frames(name: str) -> None:
    call = WITHOUT_OWN[name]
    assert functions(call, own=True) == []
    assert functions(call, own=False)[-1] in ("mismatch", "<lambda>")


def test_frames_between_own_ones_are_kept() -> None:
    assert functions(WITHOUT_OWN["nested jit"], own=False) == ["frames", "<lambda>", "nested", "mismatch"]


def test_lines_are_kept() -> None:
    (*_, (frame, line)) = frames(lambda: jaxlite.jit(mismatch)(X))
    assert (frame.f_code, line) == (mismatch.__code__, mismatch.__code__.co_firstlineno + 1)


def test_off_keeps_all() -> None:
    jaxlite.config.update("jax_traceback_filtering", "off")
    try:
        assert "trace_to_jaxpr" in functions(lambda: jaxlite.jit(mismatch)(X), own=True)
    finally:
        jaxlite.config.update("jax_traceback_filtering", "auto")


def test_tracebackhide_marks_own_frames() -> None:
    jaxlite.config.update("jax_traceback_filtering", "tracebackhide")
    try:
        found = frames(lambda: jaxlite.jit(mismatch)(X))
    finally:
        jaxlite.config.update("jax_traceback_filtering", "auto")
    own = [frame for frame, _ in found if source.is_own_file(frame.f_code.co_filename)]
    assert own
    assert all(frame.f_locals["__tracebackhide__"] for frame in own)


def test_own_frames_above_a_boundary_are_marked() -> None:
    own = [frame for frame, _ in frames(lambda: lax.add(1, 1.0)) if source.is_own_file(frame.f_code.co_filename)]
    assert all(frame.f_locals["__tracebackhide__"] for frame in own)


def test_causes_are_filtered_too() -> None:
    def wraps(x: Any) -> Any:
        try:
            return mismatch(x)
        except TypeError as error:
            raise ValueError("my own") from error

    with pytest.raises(ValueError, match="my own") as info:
        jaxlite.jit(wraps)(X)
    cause = info.value.__cause__
    assert isinstance(cause, TypeError)
    assert [frame.f_code.co_name for frame, _ in traceback.walk_tb(cause.__traceback__)] == ["wraps", "mismatch"]


def test_what_looks_like_a_bug_of_ours_keeps_its_frames() -> None:

    def own_failure(x: Any) -> Any:
        exec(compile("assert False", source._OWN_FOLDERS[0] + "made_up.py", "exec"))

    assert functions(lambda: jaxlite.jit(own_failure)(X), own=True)


def test_what_looks_for_what_is_not_there_is_a_bug_of_ours() -> None:
    def own_failure(x: Any) -> Any:
        exec(compile("x.nobody", source._OWN_FOLDERS[0] + "made_up.py", "exec"))

    assert functions(lambda: jaxlite.jit(own_failure)(X), own=True)


def test_exceptions_of_users_pass_unchanged() -> None:
    class Mine(Exception):
        pass

    error = Mine("text")

    def fails(x: Any) -> Any:
        raise error

    with pytest.raises(Mine) as info:
        jaxlite.jit(fails)(X)
    assert info.value is error
    assert not getattr(error, "__notes__", [])


def _raise(*args):
    raise KeyError("of the user")


@pytest.mark.parametrize("call", [
    lambda x: jaxlite.tree.map(_raise, [1]), lambda x: jaxlite.tree.map(max, [1, 2], [1]), lambda x: jnp.array(["a"]),
    lambda x: jnp.concatenate([x, jnp.ones((2, 2))]), lambda x: x + jnp.ones(2), lambda x: x.reshape(2, 2),
    lambda x: int(x[None]),
    lambda x: jnp.zeros("a"), lambda x: jaxlite.lax.slice(x, (0,), (9,)), lambda x: jaxlite.jit(3), lambda x: bool(x),
    lambda x: jaxlite.random.split(jaxlite.random.key(0), -1), lambda x: jaxlite.grad(3), lambda x: x.astype("no dtype")])
def test_tracebacks_end_in_the_frame_of_the_user(call):
    with pytest.raises(Exception) as info:
        call(jnp.ones(3))
    trace, names = info.value.__traceback__, []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    assert not [name for name in names if source.is_own_file(name)]


@pytest.mark.parametrize("mode, notes", [("quiet_remove_frames", 1), ("remove_frames", 0)])
def test_removed_frames_are_noted_where_it_is_asked_for(mode: str, notes: int) -> None:
    jaxlite.config.update("jax_traceback_filtering", mode)
    try:
        with pytest.raises(TypeError) as caught:
            jaxlite.jit(mismatch)(X)
    finally:
        jaxlite.config.update("jax_traceback_filtering", "auto")
    assert len(getattr(caught.value, "__notes__", ())) == notes


def test_removed_frames_stay_in_the_cause() -> None:
    """One cause for all boundaries, with all frames in their order, ours too, and with the cause that the user gave."""

    def raises(x):
        raise KeyError("mine") from ValueError("first")

    def outer():
        return jaxlite.jit(lambda x: jaxlite.vmap(raises)(x))(X)

    jaxlite.config.update("jax_traceback_filtering", "remove_frames")
    try:
        with pytest.raises(KeyError) as caught:
            outer()
    finally:
        jaxlite.config.update("jax_traceback_filtering", "auto")
    cause = caught.value.__cause__
    assert type(cause) is UnfilteredStackTrace and "KeyError: 'mine'" in str(cause)
    assert repr(cause.__cause__) == "ValueError('first')"
    short, whole = ([frame.f_code for frame, _ in traceback.walk_tb(each.__traceback__)] for each in (caught.value, cause))
    assert not any(source.is_own_file(code.co_filename) for code in short)
    assert [code for code in whole if not source.is_own_file(code.co_filename)] == short[-2:]
    assert len(set(whole)) == len(whole) > len(short) and whole[-1].co_name == "raises"


def test_ufuncs_leave_no_frame() -> None:
    assert not functions(lambda: jnp.add(jnp.ones(2), jnp.ones(3)), own=True)


def test_functions_are_intercepted_under_all_their_names():
    alias, calls, numbers = lax.dot_general, [], (((0,), (0,)), ((), ()))  # as a layer keeps it
    code = alias.__code__
    inside = types.FunctionType(code, alias.__globals__, argdefs=alias.__defaults__)
    inside.__kwdefaults__ = alias.__kwdefaults__
    alias.__globals__["_replaced"] = lambda *args, **kwargs: calls.append(len(args)) or inside(*args, **kwargs)
    try:
        alias.__code__ = (lambda *args, **kwargs: _replaced(*args, **kwargs)).__code__  # type: ignore[name-defined] # noqa: F821
        assert float(alias(np.ones(3), np.ones(3), numbers, preferred_element_type=np.float32)) == 3 and calls == [3]
    finally:
        alias.__code__ = code
        del alias.__globals__["_replaced"]
    assert float(alias(np.ones(3), np.ones(3), numbers)) == 3 and calls == [3]


@pytest.mark.parametrize("use", [bool, int, range, float, np.asarray, lambda x: jnp.arange(3)[x > jnp.arange(3)]])
def test_errors_about_traced_values_are_copied_and_pickled(use) -> None:
    with pytest.raises((TypeError, IndexError)) as found:
        jaxlite.jit(lambda x: use(x))(1)
    error = found.value
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error) and str(same) == str(error) and same.args == error.args
