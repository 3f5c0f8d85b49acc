"""Named scopes: their names are in what a program is lowered to, and nowhere else."""

import re
import threading

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax, named_call, named_scope

X = np.arange(3, dtype=np.float32)


def names(fun, *args):
    """The locations' names of a lowered program: primitives, with the scopes before them."""
    return set(re.findall(r'loc\("([\w/ ]+)"\(', jax.jit(fun).lower(*args).as_text(debug_info=True)))


def test_names_nest_and_end():
    def f(x):
        with named_scope("outer"):
            x = lax.sin(x)
            with named_scope("inner part"):
                x = lax.cos(x)
            x = lax.exp(x)
        return lax.tanh(x)

    assert names(f, X) >= {"outer/sin", "outer/inner part/cos", "outer/exp", "tanh"}


def test_names_are_in_what_xla_compiles():
    @named_scope("angle")
    def f(x):
        return lax.sin(x)

    assert 'op_name="angle/sin"' in jax.jit(f).lower(X).compile().as_text()
    np.testing.assert_allclose(f(X), np.sin(X), rtol=1e-6)


def test_a_function_called_again_has_its_name_each_time():
    @named_scope("twice")
    def f(x, again):
        return f(lax.sin(x), False) if again else lax.cos(x)

    assert names(lambda x: lax.exp(f(x, True)), X) >= {"twice/sin", "twice/twice/cos", "exp"}


def test_a_decorated_function_is_where_its_errors_and_equations_come_from():
    @named_scope("sum")
    def f(x, y):
        return lax.add(x, y)

    text = jax.jit(f).lower(X, X).as_text(debug_info=True)
    assert "test_scopes.py" in text and "contextlib" not in text and "scopes.py:" not in text.replace("test_scopes.py", "")
    with pytest.raises(TypeError) as raised:
        jax.jit(f)(X, np.ones(2, np.float32))
    assert [entry.name for entry in raised.traceback[1:]] == ["f"]
    assert f.__name__ == "f"


def test_named_calls():
    def layer(x, *, scale):
        "Scales."
        return lax.mul(x, scale)

    assert names(lambda x: named_call(layer)(x, scale=x), X) >= {"layer/mul"}
    assert names(lambda x: named_call(layer, name="first")(x, scale=x), X) >= {"first/mul"}
    assert (named_call(layer).__name__, named_call(layer).__doc__) == ("layer", "Scales.")


@pytest.mark.parametrize("transform", [jax.grad, lambda f: lambda x: jax.jvp(f, (x,), (x,))], ids=["grad", "jvp"])
def test_derivatives_are_named_as_what_they_are_of(transform):
    def f(x):
        with named_scope("layer"):
            y = lax.sin(x)
        return lax.exp(y)

    found = names(transform(f), np.float32(1))
    assert found >= {"layer/sin", "layer/cos", "layer/mul"} and "cos" not in found


def test_batches_loops_and_numpy_functions():
    def body(carry, x):
        with named_scope("step"):
            return carry + jnp.linalg.norm(x), jax.nn.softmax(x)

    def f(x):
        with named_scope("loop"):
            return lax.scan(jax.vmap(body), x[:, 0], jnp.stack([x, x]))

    found = names(f, np.ones((3, 4), np.float32))
    assert found >= {"loop/step/exp", "loop/step/sqrt", "loop/scan"} and "exp" not in found


def test_a_program_of_its_own_has_the_names_of_none_of_its_callers():
    inner = jax.jit(lambda x: lax.sin(x))

    def f(x):
        with named_scope("first"):
            x = inner(x)
        with named_scope("second"):
            return lax.cos(inner(x))

    assert names(f, X) >= {"sin", "second/cos", "first/jit", "second/jit"}
    assert not {"first/sin", "second/sin"} & names(f, X)


def test_they_change_no_program():
    def f(x):
        return jnp.where(x > 1, jnp.sin(x), x).sum()

    named = named_scope("all")(f)
    assert str(jax.make_jaxpr(jax.grad(named))(X)) == str(jax.make_jaxpr(jax.grad(f))(X))
    assert jax.jit(named).lower(X).as_text() == jax.jit(f).lower(X).as_text()


def test_lines_are_still_known():
    def f(x):
        with named_scope("here"):
            return lax.sin(x)

    (eqn,) = jax.make_jaxpr(f)(X).eqns
    assert "test_scopes.py" in eqn.source_line


def test_other_threads_have_no_part_in_it():
    found = []
    with named_scope("mine"):
        thread = threading.Thread(target=lambda: found.append(names(lambda x: lax.sin(x), X)))
        thread.start()
        thread.join()
        assert names(lambda x: lax.cos(x), X)
    assert "sin" in found[0]


def test_an_error_ends_the_scope():
    def f(x):
        try:
            with named_scope("broken"):
                raise ValueError
        except ValueError:
            return lax.sin(x)

    assert "sin" in names(f, X)


@pytest.mark.parametrize("name", [3, None, b"x"])
def test_a_name_is_a_string(name):
    with pytest.raises(TypeError, match="name must be a string"):
        named_scope(name)
