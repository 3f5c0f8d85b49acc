"""The public names beside the numpy API: where they are, and small functions that have no other test."""

import importlib
import inspect
import pkgutil
import re
import sys
import types

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax, random
from jaxlite.core.missing import jax_names

NAMES = {
    "jaxlite": "Array Device ShapeDtypeStruct block_until_ready check_tracer_leaks checking_leaks checkpoint compile_report "
               "custom_gradient explain_cache_misses custom_jvp custom_vjp closure_convert debug_infs debug_nans "
               "default_prng_impl device_get device_put disable_jit enable_x64 ensure_compile_time_eval eval_shape float0 "
               "fwd_and_bwd grad hessian jacfwd jacrev jit jvp linear_transpose linearize make_jaxpr process_indices remat "
               "pure_callback threefry_partitionable typeof value_and_grad vjp vmap nn ops random tree tree_util",
    "jaxlite.core": "AbstractValue ShapedArray Trace Tracer ensure_compile_time_eval eval_jaxpr Primitive",
    "jaxlite.extend.core": "ClosedJaxpr DropVar Jaxpr JaxprEqn Literal Primitive Var check_jaxpr jaxpr_as_fun subjaxprs",
    "jaxlite.errors": "ConcretizationTypeError JAXIndexError JAXTypeError JaxRuntimeError UnexpectedTracerError",
    "jaxlite.typing": "ArrayLike DTypeLike",
    "jaxlite.debug": "callback print",
    "jaxlite.dlpack": "from_dlpack is_supported_dtype",
    "jaxlite.experimental": "io_callback",
    "jaxlite.ops": "segment_max segment_min segment_prod segment_sum",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_exist_and_are_listed(module):
    found = importlib.import_module(module)
    wanted = NAMES[module].split()
    assert [name for name in wanted if not hasattr(found, name)] == []
    assert [name for name in wanted if name not in dir(found)] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        found.no_such_name  # noqa: B018


PUBLIC = ["jaxlite"] + [f"jaxlite.{name.partition('.')[2]}" for name in jax_names() if name != "jax"]


@pytest.mark.parametrize("module", PUBLIC)
def test_dir_shows_public_names_and_nothing_else(module):
    try:
        found = importlib.import_module(module)
    except ImportError:
        pytest.skip("in JAX, not in jaxlite")
    if module.startswith("jaxlite.extend.mlir") or module == "jaxlite.extend.ifrt_programs":
        pytest.skip("names of jaxlib")
    names = [name for name in dir(found) if not name.startswith(("_", "@"))]  # pytest adds the latter to files test_*
    assert [name for name in names if not hasattr(found, name)] == []
    foreign = {"Any", "Callable", "Iterator", "Sequence", "annotations", "np", "jnp", "api",
               "aval_of", "float_api", "as_array", "math"}
    assert {name for name in foreign & set(names) if f"{module}.{name}" not in sys.modules} == set()
    modules = [name for name in names if isinstance(getattr(found, name), types.ModuleType)]
    listed = jax_names().get(module.replace("jaxlite", "jax", 1), ())
    assert [name for name in modules if f"{module}.{name}" not in sys.modules and name not in (*listed, "ir")] == []
    if module.startswith("jaxlite.experimental."):  # single files of a module's own classes
        return
    mine = {name for name, value in vars(found).items() if not name.startswith("_")
            and isinstance(value, (types.FunctionType, type)) and value.__module__ == module}
    assert mine <= set(names), "defined here without an underscore, so it is public: name it in __all__"


def test_a_jaxpr_can_be_run_through_the_public_names():
    closed = jax.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0)
    (out,) = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, 0.5)
    np.testing.assert_allclose(out, 2 * np.sin(0.5), rtol=1e-6)
    assert isinstance(closed.eqns[1].invars[1], jax.extend.core.Literal)
    jax.jit(lambda x: [isinstance(x, jax.core.Tracer)] == [True] or pytest.fail("no Tracer"))(1.0)


def test_errors_about_traced_values_have_common_bases():
    leaked = []
    jax.jit(lambda x: leaked.append(x) or x)(1.0)
    with pytest.raises(jax.errors.JAXTypeError):
        leaked[0] + 1
    with pytest.raises(jax.errors.JAXIndexError):
        jax.jit(lambda x: x[x > 0])(jnp.ones(2))
    for method in (lambda x: x.devices(), lambda x: x.addressable_data(0), lambda x: x.unsafe_buffer_pointer(),
                   lambda x: x.is_fully_addressable):
        with pytest.raises(jax.errors.ConcretizationTypeError, match="value of the argument x"):
            jax.jit(method)(jnp.ones(2))


@pytest.mark.parametrize("transform", [jax.jit, lambda f: jax.vmap(f), lambda f: lambda x: jax.linearize(f, x)[0]])
def test_traced_values_lack_what_waits_for_a_result(transform):
    """As in JAX, whose message this begins with; the functions of these names pass over traced values in a tree."""
    for name in ("block_until_ready", "copy_to_host_async"):
        with pytest.raises(AttributeError, match=f"^The '{name}' method is not available on traced array with shape"):
            transform(lambda x: getattr(x, name)())(jnp.ones(2))  # noqa: B023
        transform(lambda x: pytest.fail("it has one") if hasattr(x, name) else x)(jnp.ones(2))  # noqa: B023
        assert transform(lambda x: getattr(jax, name)({"x": x})["x"])(jnp.ones(2)).tolist() == [1, 1]  # noqa: B023


def test_traced_values_tell_their_size_in_bytes_as_arrays_do():
    for x in (jnp.ones((2, 3), jnp.bfloat16), jnp.ones(3, jnp.int4), jax.random.split(jax.random.key(0), 3)):
        assert jax.eval_shape(lambda x: np.zeros(x.nbytes, np.int8), x).shape == (x.size * x.dtype.itemsize,)


def test_typeof_says_shape_dtype_and_weak_type():
    assert repr(jax.typeof(1.0)) == "ShapedArray(float32[], weak_type=True)"
    assert repr(jax.typeof(np.zeros((2, 3), np.int8))) == "ShapedArray(int8[2,3])"
    assert jax.vmap(lambda x: x if jax.typeof(x).shape == (3,) else None)(jnp.ones((2, 3))).shape == (2, 3)
    with pytest.raises(TypeError, match="not a valid JAX type"):
        jax.typeof("x")


def test_is_concrete_asks_what_is_behind_a_derivative():
    seen = []

    def f(x):
        seen.append(jax.core.is_concrete(x))
        return x

    for call in (f, jax.grad(f), jax.jit(f), jax.jit(jax.grad(f))):
        call(1.0)
    jax.vmap(f)(jnp.ones(2))
    assert seen == [True, True, False, False, False]


def test_ensure_compile_time_eval_computes_what_is_known():
    @jax.jit
    def f(x):
        with jax.ensure_compile_time_eval():
            steps = lax.scan(lambda c, _: (c + jnp.sin(3.0), None), 0.0, None, length=3)[0]
            negative = bool(steps < 0)  # no tracer
            y = jax.jit(jnp.cos)(x)  # a tracer still
        return (-y if negative else y) + steps

    np.testing.assert_allclose(f(0.5), np.cos(0.5) + 3 * np.sin(3), rtol=1e-6)
    with jax.ensure_compile_time_eval():
        assert float(jnp.sum(jnp.arange(3))) == 3


def test_debug_infs_names_the_operation():
    with jax.debug_infs(True):
        with pytest.raises(FloatingPointError, match=r"\(inf\) encountered in log"):
            jax.jit(lambda x: jnp.log(x) + 1)(0.0)
        assert np.isnan(jnp.log(-1.0))
    assert np.isinf(jnp.log(0.0))


def test_forward_and_backward_passes_compile_once_each():
    x, w = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    fwd, bwd = jax.fwd_and_bwd(lambda x, w: (x @ w, 3), argnums=1, has_aux=True)
    for _ in range(2):
        y, residuals, aux = fwd(x, w)
        np.testing.assert_allclose(bwd(residuals, jnp.ones_like(y)), x.T @ np.ones((2, 2)))
    assert aux == 3 and fwd._cache_size() == bwd._cache_size() == 1


def test_zeros_of_key_dtypes():
    keys = random.split(random.key(0), 3)
    for zeros in (jnp.zeros(3, keys.dtype), jnp.zeros_like(keys), jnp.empty(3, keys.dtype), jax.jit(jnp.zeros_like)(keys)):
        assert zeros.dtype == keys.dtype and not np.asarray(random.key_data(zeros)).any() and zeros.shape == (3,)
    assert (random.key_data(jnp.ones(3, keys.dtype)) == 1).all()
    with pytest.raises(TypeError, match="does not accept dtypes"):
        keys + 1
    assert jax.device_get({"key": keys})["key"] is keys
    words = ["a", None, 3, np.float32(2)]  # what is no array stays
    assert all(one is other for one, other in zip(jax.device_get(words), words, strict=True))


def test_dtypes_that_go_through_dlpack():
    assert [jax.dlpack.is_supported_dtype(each) for each in (bool, jnp.bfloat16, complex, jnp.int4, jnp.float8_e5m2)] == [
        True, True, True, False, False]


def test_dce_sink_keeps_what_it_is_given():
    def f(x):
        lax.dce_sink({"unused": jnp.sin(x)})
        return x * 2

    def operations(fun, *args):
        return [eqn.primitive.name for eqn in jax.make_jaxpr(fun)(*args).eqns]

    assert operations(f, 1.0) == ["sin", "dce_sink", "mul"]
    assert "dce_sink" in operations(jax.vmap(f), np.ones(2)) and "dce_sink" in operations(jax.grad(f), 1.0)
    assert (f(3.0), jax.jit(f)(3.0), jax.grad(f)(3.0)) == (6, 6, 2)
    assert "custom_call" not in jax.jit(f).lower(1.0).as_text()
    text = jax.jit(lambda x: lax.dce_sink(x, prevent_mlir_dce=True) or x).lower(1.0).as_text()
    assert "custom_call @dce_sink" in text and "has_side_effect = true" in text


def test_device_put_refuses_what_is_no_device():
    for wrong in ("cpu", 3, [jax.devices()[0]]):
        with pytest.raises(ValueError):
            jax.device_put(jnp.ones(2), wrong)
    both = jax.device_put({"a": 1, "b": 2}, {"a": jax.devices()[0], "b": None})
    assert both["a"].committed and not both["b"].committed


# Functions and methods with parameters of JAX's, by name and in this order.
SIGNATURES = """
jaxlite.make_mesh(axis_sizes, axis_names, axis_types, devices)     jaxlite.typeof(x)     jaxlite.new_ref(init_val, pin)
jaxlite.empty_ref(ty, memory_space, pin)    jaxlite.ShapeDtypeStruct(shape, dtype, is_ref)    jaxlite.ref.Ref.addupdate(x, idx)
jaxlite.NamedSharding.shard_shape(global_shape)     jaxlite.NamedSharding.devices_indices_map(global_shape)
jaxlite.NamedSharding.is_equivalent_to(other, ndim)     jaxlite.NamedSharding.check_compatible_aval(aval_shape)
jaxlite.P.update(partitions, unreduced, reduced)    jaxlite.random.gamma(key, a, shape, dtype, method)
jaxlite.random.poisson(key, lam, shape, dtype, method)      jaxlite.scipy.stats.gaussian_kde.pdf(x)
jaxlite.export.SymbolicScope(constraints_str)       jaxlite.extend.core.jaxpr_as_fun(closed_jaxpr)
jaxlite.extend.core.Primitive.def_abstract_eval(abstract_eval)
jaxlite.extend.core.Primitive.def_effectful_abstract_eval(effectful_abstract_eval)
jaxlite.experimental.hijax.register_hitype(val_cls, typeof_fn)      jaxlite.experimental.hijax.is_undefined_primal(x)
jaxlite.experimental.pjit.pjit(fun, in_shardings, out_shardings, static_argnums, static_argnames, donate_argnums)
jaxlite.experimental.sparse.bcoo_conv_general_dilated(lhs, rhs, out_sharding)
jaxlite.interpreters.ad.defbilinear(prim, lhs_rule, rhs_rule)       jaxlite.interpreters.batching.defvectorized(prim)
jaxlite.interpreters.batching.broadcast(x, sz, axis, mesh_axis)     jaxlite.interpreters.batching.defreducer(prim, ident)
jaxlite.interpreters.batching.bdim_at_front(x, bdim, size, mesh_axis)
"""


@pytest.mark.parametrize("text", re.findall(r"\S+\([^)]*\)", SIGNATURES))
def test_parameters_have_jax_names(text):
    path, _, names = text.removesuffix(")").partition("(")
    value = pkgutil.resolve_name(path)
    given = list(inspect.signature(value).parameters)
    assert [name for name in given if name in names.split(", ")] == names.split(", ")


def test_a_description_of_a_ref():
    described = jax.ShapeDtypeStruct((3,), np.float32, is_ref=True)
    assert "is_ref=True" in repr(described) and described != described.update(is_ref=False)

    def write(ref):
        ref[0] = 1.0
        return ref[...] * 2

    assert jax.eval_shape(write, described) == jax.ShapeDtypeStruct((3,), np.float32)
    assert "Ref{f32[3]}" in str(jax.jit(write).trace(described).jaxpr)


def test_methods_of_samplers():
    key = jax.random.key(0)
    assert jax.random.gamma(key, 2.0, method="approximate") == jax.random.gamma(key, 2.0)
    for sampler in (jax.random.beta, jax.random.poisson):
        with pytest.raises(ValueError, match="must be one of"):
            sampler(key, *[2.0] * (1 + (sampler is jax.random.beta)), method="best")
