"""Functions of arrays in TensorFlow, and TensorFlow's in traced functions; what needs it is skipped where it is not installed.

TensorFlow is the oracle: for values, and for derivatives.
"""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import jax2tf
from tests import pages

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


# --- without TensorFlow ----------------------------------------------------------------------------


def test_arguments_are_checked_before_tensorflow_is_needed():
    with pytest.raises(TypeError, match="Expected a callable value, got 3"):
        jax2tf.convert(3)
    for platforms in (("cpu", "gpu"), "cpu"):
        with pytest.raises(ValueError, match=f"subset of .*Got: .*{platforms[-1]}"):
            jax2tf.convert(jnp.sin, native_serialization_platforms=platforms)
    with pytest.warns(DeprecationWarning, match="`enable_xla`"):
        jax2tf.convert(jnp.sin, enable_xla=True)
    with pytest.raises(ValueError, match="outside all JAX transformations"):
        jax.jit(lambda x: jax2tf.convert(jnp.sin)(x))(1.0)


def test_shapes_are_evaluated_without_tensorflow():
    spec = jax.ShapeDtypeStruct((4, 3), jnp.float32)
    types, shapes = jax2tf.eval_polymorphic_shape(lambda x, y: {"a": x @ y.T, "b": x[0]},
                                                  polymorphic_shapes=["b, _", None])(spec, spec)
    assert shapes == {"a": "(b, 4)", "b": "(3,)"} and types["b"].shape == (3,)
    again, _ = jax2tf.eval_polymorphic_shape(jnp.transpose, polymorphic_shapes=[shapes["a"]])(types["a"])
    assert str(again.shape) == "(4, b)"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        _, shape = jax2tf.eval_polymorphic_shape(jnp.sin, polymorphic_shapes=jax2tf.PolyShape("b", ...))(spec)
        with pytest.raises(ValueError, match=r"Invalid polymorphic shape element: 1\.5"):
            jax2tf.PolyShape(1.5)
    assert shape == "(b, 3)"


def test_tensorflow_is_imported_when_it_is_needed_and_its_absence_says_what_to_install():
    program = ("import sys, jaxlite\n"
               "from jaxlite.experimental import jax2tf\n"
               "assert 'tensorflow' not in sys.modules\n"
               "class No:\n"
               "    def find_spec(self, name, path=None, target=None):\n"
               "        if name == 'tensorflow':\n"
               "            raise ModuleNotFoundError('none', name='tensorflow')\n"
               "sys.meta_path.insert(0, No())\n"
               "for f in (jax2tf.convert(lambda x: x), jax2tf.call_tf(lambda x: x), jax2tf.dtype_of_val,\n"
               "          jaxlite.jit(jax2tf.call_tf(lambda x: x)), lambda x: jax2tf.split_to_logical_devices(x, None)):\n"
               "    try:\n"
               "        f(1.0)\n"
               "    except ImportError as error:\n"
               "        assert 'pip install tensorflow' in str(error)\n"
               "    else:\n"
               "        raise SystemExit('no error')\n")
    subprocess.run([sys.executable, "-c", program], check=True)


# --- convert -----------------------------------------------------------------------------------------


def test_trees_of_tensors_variables_arrays_and_scalars_are_converted(tf):
    converted = jax2tf.convert(lambda d, n, *, scale=1.0: {"a": d["x"] * n + scale, "b": (d["y"].sum(),)})
    out = converted({"x": tf.constant(X), "y": tf.Variable([1.0, 2.0])}, 3, scale=jnp.float32(2))
    assert isinstance(out["a"], tf.Tensor) and out["a"].dtype == tf.float32
    np.testing.assert_allclose(out["a"], 3 * X + 2)
    np.testing.assert_allclose(out["b"][0], 3)
    assert jax2tf.convert(jnp.sin)(tf.constant(1.0, tf.float64)).dtype == tf.float32
    words = jax2tf.convert(lambda key: jax.random.split(key))(jax.random.key(0))
    np.testing.assert_array_equal(words, jax.random.key_data(jax.random.split(jax.random.key(0))))
    for wrong in ("abc", tf.constant("abc"), object()):
        with pytest.raises(TypeError, match=r"of jax2tf\.convert\(f\) should be NumPy array"):
            jax2tf.convert(jnp.sin)(wrong)


def test_one_graph_serves_all_sizes_and_is_differentiated(tf):
    graph = tf.function(jax2tf.convert(lambda x, n: (jnp.sin(x) @ x.T * n, n + 1), polymorphic_shapes=("b, _", None)),
                        input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec((), tf.int32)])
    for rows in (2, 4):
        x = tf.constant(np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            ours, theirs = graph(x, 2)[0], tf.sin(x) @ tf.transpose(x) * 2
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(tape.gradient(ours, x), tape.gradient(theirs, x), rtol=1e-4, atol=1e-5)
    assert graph.experimental_get_tracing_count() == 1
    with pytest.raises(ValueError, match="'_' needs a known size"):
        tf.function(jax2tf.convert(jnp.sin), input_signature=[tf.TensorSpec((None,))])(tf.ones(2))


def test_second_derivatives_and_none(tf):
    x = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = jax2tf.convert(lambda x: x**3)(x)
        first = inner.gradient(y, x)
    assert (float(first), float(outer.gradient(first, x))) == (12.0, 12.0)
    with tf.GradientTape() as tape, pytest.raises(LookupError, match="does not support gradients"):
        tape.gradient(jax2tf.convert(jnp.sin, with_gradient=False)(x), x)


def test_a_saved_model_has_the_program_and_its_derivative(tf, tmp_path):
    module = tf.Module()
    module.params = {"w": tf.Variable(X.T), "scales": [tf.Variable(2.0)]}
    converted = jax2tf.convert(lambda p, x: x @ p["w"] * p["scales"][0], polymorphic_shapes=(None, "b, _"))
    module.f = tf.function(lambda x: converted(module.params, x), input_signature=[tf.TensorSpec((None, 3))])
    tf.saved_model.save(module, tmp_path, options=tf.saved_model.SaveOptions(experimental_custom_gradients=True))
    loaded, x = tf.saved_model.load(tmp_path), tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.f(x)
    np.testing.assert_allclose(y, X @ X.T * 2)
    np.testing.assert_allclose(tape.gradient(y, x), 2 * np.ones((2, 2)) @ X)


def test_platforms_of_a_graph(tf):
    np.testing.assert_allclose(jax2tf.convert(jnp.cos, native_serialization_platforms=("tpu", "cpu"))(X), np.cos(X), rtol=1e-6)
    with pytest.raises(tf.errors.NotFoundError, match="platform"):
        jax2tf.convert(jnp.cos, native_serialization_platforms=("tpu",))(X)
    allowed = jax2tf.convert(jnp.cos, native_serialization_platforms=("tpu",),
                             native_serialization_disabled_checks=[jax2tf.DisabledSafetyCheck.platform()])
    np.testing.assert_allclose(allowed(X), np.cos(X), rtol=1e-6)


def test_dtypes_are_those_of_arrays(tf):
    values = 1, 2.0, True, np.float64(1), np.ones(2, np.uint8), jnp.ones(2, jnp.bfloat16), tf.constant(1, tf.int64)
    assert [jax2tf.dtype_of_val(value) for value in values] == [
        tf.int32, tf.float32, tf.bool, tf.float32, tf.uint8, tf.bfloat16, tf.int32]
    with jax.enable_x64(True):
        assert jax2tf.dtype_of_val(1) == tf.int64


def test_the_program_of_the_page_runs(tf):
    names = {"tf": tf, "model": lambda params, x: {"y": jnp.tanh(x @ params["w"])}}
    block, = pages.blocks_of("docs/export.md")
    pages.run_block(block, names)
    out = names["graph"]({"w": tf.ones((3, 2))}, X)["y"]
    np.testing.assert_allclose(jax.jit(names["layer"])(jnp.asarray(out)), 0.5 * np.ones((2, 2)))


# --- call_tf -----------------------------------------------------------------------------------------


def test_a_tensorflow_function_is_called_and_differentiated_eagerly_and_in_programs(tf):
    def fun(d, n):
        return {"y": tf.sin(d["x"]) * tf.cast(n, tf.float32), "n": n + 1}

    called = jax2tf.call_tf(fun)
    for call in (called, jax.jit(called)):
        out = call({"x": X}, 3)
        np.testing.assert_allclose(out["y"], 3 * np.sin(X), rtol=1e-6)
        assert isinstance(out["n"], jax.Array) and int(out["n"]) == 4
    loss = lambda d, n: (called(d, n)["y"] * d["x"]).sum()
    for grad in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_allclose(grad({"x": X}, 2)["x"], 2 * (np.sin(X) + X * np.cos(X)), rtol=1e-5)
    np.testing.assert_allclose(lax.fori_loop(0, 2, lambda i, x: jax2tf.call_tf(tf.sin)(x), X), np.sin(np.sin(X)), rtol=1e-6)


def test_eager_calls_run_in_tensorflow_and_programs_contain_the_values_it_captures(tf):
    variable = tf.Variable([1.0, 2.0])

    def add(x):
        variable.assign_add(x)
        return variable * x

    np.testing.assert_array_equal(jax2tf.call_tf(add)(np.float32([1, 1])), [2, 3])
    np.testing.assert_array_equal(variable.numpy(), [2, 3])
    np.testing.assert_array_equal(jax.jit(jax2tf.call_tf(lambda x: x * variable))(np.float32([2, 2])), [4, 6])
    effects = [jax.make_jaxpr(jax2tf.call_tf(tf.sin, has_side_effects=flag))(1.0).effects for flag in (True, False)]
    assert len(effects[0]) == 1 and not effects[1]


def test_results_that_do_not_fit_are_refused(tf):
    three, four = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in (3, 4))
    x = X[0]
    for wrap in (lambda f: f, jax.jit):
        assert wrap(jax2tf.call_tf(tf.sin, output_shape_dtype=three))(x).shape == (3,)
        with pytest.raises(ValueError, match="do not match the declared output_shape_dtype"):
            wrap(jax2tf.call_tf(tf.sin, output_shape_dtype=four))(x)
        with pytest.raises(ValueError, match="pytree of the TensorFlow function results does not match"):
            wrap(jax2tf.call_tf(tf.sin, output_shape_dtype=(three,)))(x)
        with pytest.raises(ValueError, match="not convertible to JAX"):
            wrap(jax2tf.call_tf(tf.strings.as_string))(x)
    with pytest.raises(ValueError, match="output has dynamic shape"):
        jax.jit(jax2tf.call_tf(lambda x: tf.boolean_mask(x, x > 0)))(x)
    with pytest.raises(ValueError, match="Error compiling TensorFlow function"):
        jax.jit(jax2tf.call_tf(lambda x: tf.strings.length(tf.strings.as_string(x))))(x)
    with pytest.raises(NotImplementedError, match="ordered=True"):
        jax.jit(jax2tf.call_tf(tf.sin, ordered=True))(x)


def test_one_inside_the_other(tf):
    both = jax2tf.call_tf(jax2tf.convert(lambda x: jnp.cos(x) * x))
    loss = lambda x: both(x).sum()
    for grad in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_allclose(grad(X), np.cos(X) - X * np.sin(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax2tf.convert(jax2tf.call_tf(tf.sin))(X), np.sin(X), rtol=1e-6)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_graph_that_stays_one_is_called_by_the_converted_program(tf, ordered):
    sin = jax2tf.call_tf(lambda x: tf.sin(x), call_tf_graph=True, ordered=ordered)
    graph = tf.function(jax2tf.convert(lambda x: sin(sin(x) * 2)), autograph=False)
    np.testing.assert_allclose(graph(X), np.sin(2 * np.sin(X)), rtol=1e-6)
    operation, = (each for each in graph.get_concrete_function(X).graph.get_operations() if each.type == "XlaCallModule")
    assert len(operation.get_attr("function_list")) == 2
    with pytest.raises(ValueError, match="only support exporting"):
        jax.jit(sin)(X)
