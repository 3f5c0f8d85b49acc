"""What transformed functions and stages say of themselves."""

import inspect
import pickle

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.experimental import checkify


def test_a_function_of_cotangents_takes_one():
    with pytest.raises(TypeError, match="was called with 2 arguments"):
        jaxlite.vjp(lambda x: x, 1.0)[1](1.0, 2.0)


def test_a_transposed_function_gives_arrays():
    (x, y) = jaxlite.linear_transpose(lambda x, y: (x + y, y), 1.0, 2.0)((1.0, 2.0))
    assert isinstance(x, jaxlite.Array) and isinstance(y, jaxlite.Array)


def test_argument_specifications_have_names():
    spec = inspect.getfullargspec(jnp.matmul)
    assert spec.args == ["a", "b"] and "precision" in spec.kwonlyargs
    assert inspect.getfullargspec(jaxlite.random.normal).args[:2] == ["key", "shape"]
    signature = inspect.signature(jnp.matmul)
    assert pickle.loads(pickle.dumps(signature)) == signature == signature.replace()


@pytest.mark.parametrize("transform", [
    jaxlite.jit, jaxlite.vmap, jaxlite.grad, jaxlite.value_and_grad, jaxlite.jacfwd, jaxlite.jacrev, jaxlite.hessian,
    jaxlite.checkpoint, jaxlite.custom_jvp, jaxlite.custom_vjp, jaxlite.named_call, checkify.checkify,
    jaxlite.sharding.auto_axes, jaxlite.sharding.explicit_axes,
    lambda fun: jaxlite.shard_map(fun, mesh=jaxlite.make_mesh((1,), ("x",)), in_specs=jaxlite.P(), out_specs=jaxlite.P()),
])
def test_a_transformed_function_has_the_signature_of_the_function(transform):
    def fun(x, *rest, scale: float = 1.0):
        return x * scale

    assert inspect.signature(transform(fun)) == inspect.signature(fun)
    assert transform(fun).__name__ == "fun"


def test_what_stages_tell():
    traced = jaxlite.jit(lambda x: x).trace(1.0)
    lowered = traced.lower()
    assert traced.out_info.weak_type and not lowered.out_info.weak_type and not lowered.compile().out_info.weak_type
    (info,), _ = lowered.args_info
    assert info.donated is False and info.shape == ()
    assert lowered.as_text().startswith("module @jit__lambda attributes")


def test_a_checkpoint_in_a_jaxpr_has_its_name():
    assert jaxlite.make_jaxpr(jaxlite.checkpoint(jnp.sin))(1.0).eqns[0].primitive.name == "remat2"


def test_precisions_by_name():
    assert [jaxlite.lax.Precision(each).name for each in ("high", "float32", None)] == ["HIGH", "HIGHEST", "DEFAULT"]
    with pytest.raises(ValueError):
        jaxlite.lax.Precision("some")


def test_complex_to_real_warns():
    x = np.ones(2, np.complex64)
    with pytest.warns(np.exceptions.ComplexWarning):
        jaxlite.lax.convert_element_type(x, np.float32)
    with pytest.warns(DeprecationWarning, match="jnp.real"):
        jnp.asarray(x).astype(np.float32)


def test_promotion_without_64_bits():
    assert jnp.promote_types("uint32", "int8") == np.int32 and jnp.promote_types("int64", "int8") == np.int64
    with jaxlite.enable_x64(True):
        assert jnp.promote_types("uint32", "int8") == np.int64


def test_a_loop_that_reverse_mode_refuses_is_named():
    with pytest.raises(ValueError, match="does not work for lax.while_loop or lax.fori_loop with dynamic start/stop values"):
        jaxlite.grad(lambda x: jaxlite.lax.while_loop(lambda y: y < 9, lambda y: y * x, 1.0))(2.0)
