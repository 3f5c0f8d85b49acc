"""Programs inside of lowering rules, and words for XLA on operations."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import scheduling_groups, xla_metadata
from jaxlite.extend.core import Primitive
from jaxlite.interpreters import mlir, pxla


def test_rules_lower_whole_programs():
    class Half:
        pass

    mlir.register_constant_handler(Half, lambda value, aval: mlir.ir_constant(np.float32(0.5)))
    program = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(1.0)
    prim = Primitive("program_twice")
    prim.def_abstract_eval(lambda x: x)

    def rule(ctx, x):
        function = mlir.lower_jaxpr_to_fun(ctx.module_context, "inner", program, ())
        (inlined,), tokens = mlir.jaxpr_subcomp(ctx.module_context, program.jaxpr, None, mlir.TokenSet(), (), x)
        assert not tokens.effects() and "func" in str(function) and mlir.unflatten_ir_values_like_types([1, 2, 3], [0, (0, 0)])
        half = mlir.ir_constant(Half())
        return [mlir.ir.Operation.create("stablehlo.multiply", [x.type], [inlined, half]).result]

    mlir.register_lowering(prim, rule)
    text = jax.jit(prim.bind).lower(1.0).as_text()
    assert "func.func private @inner" in text
    np.testing.assert_allclose(jax.jit(prim.bind)(1.0), 0.5 * (np.sin(1) + 1), rtol=1e-6)
    with pytest.raises(RuntimeError, match="no lowering rule is running"):
        mlir.jaxpr_subcomp(None, program.jaxpr, None, mlir.TokenSet(), ())


def test_modules_and_their_merger():
    program = jax.make_jaxpr(lambda x: jax.jit(jnp.sin)(x) + 1)(1.0)
    first = mlir.lower_jaxpr_to_module("one", program, platforms=["cpu"])
    with first.module.context:
        second = mlir.ir.Module.parse(str(first.module))
        name = mlir.merge_mlir_modules(first.module, "main", second)
        assert name == "main_1" and first.module.operation.verify() and str(first.module).count("@main_1") == 1
    with pytest.raises(ValueError, match="one platform"):
        mlir.lower_jaxpr_to_module("one", program, platforms=["cpu", "tpu"])


def test_metadata_of_operations():
    def f(x):
        with xla_metadata.set_xla_metadata(kind="first", count=3, flag=True):
            y = jnp.sin(x)
        return xla_metadata.set_xla_metadata(y * x, other="last") + 1

    text = jax.jit(f).lower(1.0).as_text()
    assert text.count("frontend_attributes") == 2 and '{count = "3", flag = "true", kind = "first"}' in text
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(np.ones(2)), np.sin(1) + np.cos(1), rtol=1e-6)
    grouped = scheduling_groups.scheduling_group("g")(lambda x: jnp.sin(x) * 2)
    assert 'scheduling_group = "g"' in jax.jit(grouped).lower(1.0).as_text()
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(grouped)))(np.ones(2)), 2 * np.cos(1), rtol=1e-6)


def _marked(f):
    """The operations of a lowered function that have attributes, by their names, sorted."""
    lines = [line for line in jax.jit(f).lower(1.0).as_text().splitlines() if '{mhlo.frontend_attributes = {a = "1"' in line]
    return sorted(line.split("= ", 1)[1].split()[0].removeprefix("stablehlo.") for line in lines)


def test_metadata_goes_into_calls_and_derivatives():
    def double(x):
        return jnp.sin(x) * 2

    call = jax.jit(double)

    def inside(f):
        def g(x):
            with xla_metadata.set_xla_metadata(a=1):
                y = f(x)
            return y - x

        return g

    assert _marked(inside(double)) == ["multiply", "sine"]
    assert _marked(inside(call)) == ["call", "multiply", "sine"]
    both = jax.jit(lambda x: inside(call)(x) + call(x)).lower(1.0).as_text()
    assert both.count("sine") == 2 and both.count("frontend") == 3  # of the two functions, one is marked
    assert {"compare", "sine", "cosine"} <= set(_marked(inside(lambda x: lax.cond(x > 0, call, jnp.cos, x))))
    assert _marked(jax.grad(inside(lambda x: jnp.sin(x) * jnp.cos(x)))).count("multiply") == 4
    assert _marked(jax.grad(inside(call)))
    nested = jax.jit(lambda x: inside(inside(call))(x)).lower(1.0).as_text()
    assert 'sine %arg0 {mhlo.frontend_attributes = {a = "1"}}' in nested
    with xla_metadata.set_xla_metadata(a=1):
        assert _marked(double) == ["multiply", "sine"]
    assert _marked(double) == []
    assert _marked(lambda x: jax.vmap(jax.jit(inside(jnp.sin)), axis_size=2, in_axes=None)(x).sum()) == ["sine"]
    assert _marked(lambda x: jax.vmap(jax.jit(inside(jnp.sin)))(jnp.stack([x, x])).sum()) == ["sine"]
    assert _marked(lambda x: jax.jvp(jax.jit(inside(jnp.sin)), (x,), (x,))[1])[:2] == ["cosine", "multiply"]


def test_partition_specs_of_mappings():
    assert pxla.array_mapping_to_axis_resources({"x": 0, "y": 2, "z": 0}) == jax.P(("x", "z"), None, "y")


def test_a_function_as_a_pass_of_the_compiler():
    from jaxlite.core.config import enable_compilation_cache
    from jaxlite.extend import xla

    seen, before = [], enable_compilation_cache.value
    try:
        xla.register_hlo_module_transformation(seen.append, name="watch", platforms="cpu")
        assert jax.jit(lambda x: x * 2 + 1)(1.0) == 3 and seen and isinstance(seen[0], bytes)
        assert xla.clear_hlo_module_transformation("watch") and not xla.clear_hlo_module_transformation("watch")
    finally:
        enable_compilation_cache.set(before)
    with pytest.raises(TypeError, match="must be a PipelineStage enum"):
        xla.register_hlo_module_transformation(seen.append, name="watch", stage=0)
