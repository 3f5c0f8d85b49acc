"""Stages: `jit(f).trace`, `.lower`, `.compile`, and what each of their results tells and does."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import jaxlite
from jaxlite import ShapeDtypeStruct, jit, lax, stages
from jaxlite.compilation import execution

pytestmark = pytest.mark.usefixtures("uncached")

HERE = Path(__file__).name
F32 = np.float32
ONES = np.ones(3, F32)


def axpy(a, x, y=2.0, *, out=None):
    return {"out": lax.add(lax.mul(lax.full_like(x, 3), x), lax.mul(a, x)), "rest": (y, out)}


def array(value, dtype=F32):
    return jit(lambda x: x)(np.asarray(value, dtype))


@pytest.fixture(scope="module")
def jitted():
    return jit(axpy, donate_argnums=1)


@pytest.fixture(scope="module")
def traced(jitted):
    return jitted.trace(ONES, ONES, out=[1, None])


@pytest.fixture(scope="module")
def lowered(traced):
    return traced.lower()


@pytest.fixture(scope="module")
def compiled(lowered):
    return lowered.compile()


# --- what they tell ----------------------------------------------------------------------------------


def test_types(jitted, traced, lowered, compiled):
    assert isinstance(jitted, stages.Wrapped)
    assert isinstance(traced, stages.Traced) and isinstance(lowered, stages.Lowered)
    assert isinstance(compiled, stages.Compiled)
    assert isinstance(jitted.lower(ONES, ONES), stages.Lowered)


def test_traced(traced):
    assert traced.fun_name == "axpy" and traced.effects == frozenset()
    printing = jaxlite.jit(lambda x: jaxlite.debug.print("{}", x, ordered=True)).trace(1.0)
    assert len(printing.effects) == 1 and printing.effects == frozenset(printing.jaxpr.effects)
    assert [eqn.primitive.name for eqn in traced.jaxpr.eqns][-1] == "add"
    assert "add" in str(traced.jaxpr)
    assert [aval.shape for aval in traced.jaxpr.in_avals] == [(3,), (3,), ()]


def test_signature_is_the_same_at_each_stage(traced, lowered, compiled):
    tree = jaxlite.tree_util.tree_structure(((0, 0), {"out": [0, None]}))
    result = jaxlite.tree_util.tree_structure({"out": 0, "rest": (0, [0, None])})
    for stage in (traced, lowered, compiled):
        assert stage.in_tree == tree and stage.out_tree == result
        (a, x), kwargs = stage.in_avals
        assert (a.shape, x.dtype, kwargs["out"][0].weak_type) == ((3,), np.dtype(F32), True)
        (a, x), kwargs = stage.args_info
        assert not a.donated and x.donated and x.shape == (3,) and x.dtype == F32
        assert stage.donate_argnums == (1,)
        info = stage.out_info
        assert info["out"].shape == (3,) and info["out"].dtype == F32
        assert info["rest"][1] == [info["rest"][1][0], None] and info["rest"][1][0].weak_type == (stage is traced)
        assert isinstance(info["out"], ShapeDtypeStruct)
    assert traced.out_avals["rest"][0].shape == ()


def test_static_arguments_are_no_part_of_the_signature():
    f = jit(lambda x, n, *, k: [x] * n * k, static_argnums=1, static_argnames="k")
    compiled = f.lower(1.0, 2, k=3).compile()
    assert compiled.in_tree == jaxlite.tree_util.tree_structure(((0,), {}))
    assert len(compiled(5.0)) == 6


def test_texts(lowered, compiled):
    text = lowered.as_text()
    assert text == lowered.as_text("stablehlo") == lowered.as_text(dialect="stablehlo")
    assert "module @jit_axpy" in text and "stablehlo.add" in text and "loc(" not in text
    assert "result['out']" in text
    hlo = lowered.as_text("hlo")
    assert hlo.startswith("HloModule jit_axpy") and re.search(r"f32\[3\].* add\(", hlo)
    assert compiled.as_text().startswith("HloModule jit_axpy") and "is_scheduled=true" in compiled.as_text()
    for bad in ("mhlo", "llvm", ""):
        with pytest.raises(ValueError, match="unknown dialect.*stablehlo"):
            lowered.as_text(bad)


def test_text_with_the_users_lines(lowered):
    line = axpy.__code__.co_firstlineno + 1
    text = lowered.as_text(debug_info=True)
    assert re.search(rf'{HERE}":{line}', text)
    assert not re.search(r"/jaxlite/(core|traces|lax)/", text)
    assert 'loc("x")' in text and """loc("out[0]")""" in text  # the parameters carry the arguments' names


def test_reductions_that_are_copied_in_the_module():
    def sums(x, y):
        first = lax.reduce_sum(x, (0,))
        second = lax.reduce_sum(y, (0,))
        return first, second, lax.reduce_max(y, (0,)), lax.cond(x[0, 0] > 0, lambda: lax.reduce_sum(x, (0,)), lambda: x[0])

    x = np.arange(6, dtype=F32).reshape(2, 3)
    line = sums.__code__.co_firstlineno
    text = jit(sums).lower(x, x + 7).as_text(debug_info=True)
    uses = re.findall(r"stablehlo.reduce\((%\w+) init: .*across dimensions = \[0\].* loc\((#loc\d+)\)", text)
    assert [operand for operand, _ in uses[:3]] == ["%arg0", "%arg1", "%arg1"]
    assert len({place for _, place in uses}) == 4  # each its own line
    assert all(f'{HERE}":{line + offset}:' in text for offset in (1, 2, 3))
    for found, expected in zip(jit(sums)(x, x + 7), (x.sum(0), x.sum(0) + 14, x[1] + 7, x[0]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_constants_that_differ_by_their_sign():
    values = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
    found = jit(lambda x: [lax.mul(x, F32(value)) for value in values])(ONES)
    for value, out in zip(values, found, strict=True):
        np.testing.assert_array_equal(np.asarray(out).view(np.int32), np.full(3, value, F32).view(np.int32))
    assert [bool(np.signbit(out[0])) for out in found[:2]] == [False, True]


def test_compiler_ir(lowered):
    assert lowered.compiler_ir().operation.name == lowered.compiler_ir("stablehlo").operation.name == "builtin.module"
    assert lowered.compiler_ir("hlo").as_hlo_text() == lowered.as_text("hlo")
    with pytest.raises(ValueError, match="unknown dialect"):
        lowered.compiler_ir("x")


def test_analyses():
    n = 32
    lowered = jit(lambda x, y: lax.dot(x, y)).lower(ShapeDtypeStruct((n, n), F32), ShapeDtypeStruct((n, n), F32))
    compiled = lowered.compile()
    for stage in (lowered, compiled):
        assert stage.cost_analysis()["flops"] == pytest.approx(2 * n**3, rel=0.1)
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 2 * 4 * n * n and memory.output_size_in_bytes == 4 * n * n
    assert type(compiled.runtime_executable()).__name__ == "LoadedExecutable"


def test_shardings(compiled):
    device = jaxlite.devices()[0]
    (a, x), kwargs = compiled.input_shardings
    assert a.device_set == {device} == kwargs["out"][0].device_set
    assert compiled.output_shardings["out"].device_set == {device}
    assert compiled.out_info["out"].sharding.device_set == {device}
    assert compiled.out_info["out"].format == compiled.output_formats["out"]


def test_lowering_for_another_platform(traced):
    lowered = traced.lower(lowering_platforms=("tpu",))
    assert "stablehlo.add" in lowered.as_text()
    with pytest.raises(ValueError, match="lowered for tpu"):
        lowered.compile()
    assert traced.lower(lowering_platforms=("cpu",)).compile() is not None
    with pytest.raises(ValueError, match="names 'tpx', which is not a platform"):
        traced.lower(lowering_platforms=("cpu", "tpx"))


def test_lowering_for_several_platforms():
    def choose(x):
        return lax.platform_dependent(x, cpu=lax.sin, cuda=lax.cos, rocm=lax.exp, default=lax.tan)

    traced = jaxlite.jit(choose).trace(np.ones(3, np.float32))
    lowered = traced.lower(lowering_platforms=("cpu", "cuda", "tpu"))
    text = lowered.as_text()
    assert '_platform_index' in text and "stablehlo.case" in text
    assert all(f"stablehlo.{name} " in text for name in ("sine", "cosine", "tan")) and "exponential" not in text
    assert "stablehlo.exponential" in traced.lower(lowering_platforms=("rocm",)).as_text()
    with pytest.raises(ValueError, match="lowered for cpu,cuda,tpu"):
        lowered.compile()


# --- arguments without data --------------------------------------------------------------------------


class Duck:
    shape, dtype = (3,), np.dtype("float32")


@pytest.mark.parametrize(
    ("argument", "dtype", "weak"),
    [(ShapeDtypeStruct((3,), F32), "float32", False), (ShapeDtypeStruct([3], "float64"), "float32", False),
     (ShapeDtypeStruct((3,), np.int32, weak_type=True), "int32", True), (Duck(), "float32", False),
     (ONES, "float32", False), (array(ONES), "float32", False), (ONES.astype(np.float64), "float32", False)],
)
def test_arguments_may_be_shapes(argument, dtype, weak):
    f = jit(lambda tree: tree["x"])
    for info in (f.eval_shape({"x": argument}), f.trace({"x": argument}).out_info, f.lower({"x": argument}).out_info):
        assert (info.shape, info.dtype.name) == ((3,), dtype)
    assert f.trace({"x": argument}).out_info.weak_type == f.eval_shape({"x": argument}).weak_type == weak
    assert not f.lower({"x": argument}).out_info.weak_type  # a module has no weak types


@pytest.mark.parametrize("shape", [(-1,), (2.5,), ("a",), (1 << 40, None)])
def test_a_shape_that_cannot_be(shape):
    struct = ShapeDtypeStruct(shape, F32)
    for method in (jit(lambda x: x).lower, jit(lambda x: x).eval_shape):
        with pytest.raises(TypeError, match="path x"):
            method(struct)


def test_a_call_needs_data():
    f = jit(lambda x: x)
    f.lower(ShapeDtypeStruct((3,), F32)).compile()
    with pytest.raises(TypeError, match="ShapeDtypeStruct.*path x"):
        f(ShapeDtypeStruct((3,), F32))


def test_tracing_and_compiling_ahead_serves_the_call(count_traces):
    body = count_traces(lambda x: lax.add(x, x))
    f = jit(body)
    f.eval_shape(ONES), f.trace(ONES), f.lower(ONES).compile(), f(ONES)
    assert body.count == 1


def test_shape_dtype_struct():
    s = ShapeDtypeStruct((2, 3), "bfloat16", weak_type=True)
    assert repr(s) == "ShapeDtypeStruct(shape=(2, 3), dtype=bfloat16, weak_type=True)"
    assert (s.ndim, s.size, len(s), s.sharding) == (2, 6, 2, None)
    assert s == ShapeDtypeStruct([2, 3], ml_dtypes.bfloat16, weak_type=True) != s.update(shape=(3, 2))
    assert hash(s) == hash(s.update()) and s.update(dtype=F32).dtype == F32
    for bad, error in (((2,), ValueError), ((3,), TypeError)):
        with pytest.raises(error):
            ShapeDtypeStruct(bad, None if error is ValueError else "no such dtype")
    with pytest.raises(TypeError):
        len(ShapeDtypeStruct((), F32))
    with pytest.raises(ValueError, match="colour"):
        s.update(colour=1)


# --- calling a compiled function ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain():
    return jit(axpy).lower(ONES, ONES, out=[1, None]).compile()


def test_calling(plain):
    for x in (ONES, array(ONES), array(ONES)):
        out = plain(x, x, out=[7, None])
        assert out["out"].tolist() == [4, 4, 4] and int(out["rest"][1][0]) == 7
        assert plain.call(x, 2 * ONES, out=[7, None])["out"].tolist() == [8, 8, 8]


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((ONES,), {"out": [1, None]}, r"input pytree.*1 mismatch.*\n.*args"),
        ((ONES, ONES), {}, r"input pytree.*\n.*kwargs.*'out'"),
        ((ONES, ONES), {"out": [1, 2]}, r"input pytree.*\n.*kwargs\['out'\]\[1\]"),
        ((ONES, ONES), {"out": (1, None)}, r"input pytree.*\n.*kwargs\['out'\]"),
        ((ONES, ONES, 1.0), {"out": [1, None]}, "input pytree"),
        ((np.ones(4, F32), ONES), {"out": [1, None]}, r"'a' compiled with float32\[3\] and called with float32\[4\]"),
        ((ONES, ONES.astype(int)), {"out": [1, None]}, r"'x' compiled with float32\[3\] and called with int32\[3\]"),
        ((ONES, ONES), {"out": [1.0, None]}, r"'out\[0\]' compiled with int32\[\] and called with float32\[\]"),
        ((ONES, "text"), {"out": [1, None]}, "'x' of type <class 'str'>"),
    ],
)
def test_calling_with_other_types(plain, args, kwargs, words):
    for _ in range(2):
        with pytest.raises(TypeError, match=words):
            plain(*args, **kwargs)
    assert plain(ONES, ONES, out=[7, None])["out"].tolist() == [4, 4, 4]


def test_weak_types_do_not_matter_to_a_compiled_function():
    compiled = jit(lambda x: x).lower(F32(1)).compile()
    assert compiled(2.0).tolist() == 2 and not compiled(2.0).weak_type


def test_a_compiled_function_in_a_trace(plain):
    with pytest.raises(TypeError, match=r"Tracer.*f(loat)?32\[3\]"):
        jit(lambda x: plain(x, x, out=[7, None]))(ONES)
    out = jit(lambda x: lax.add(x, plain(ONES, ONES, out=[7, None])["out"]))(ONES)
    assert out.tolist() == [5, 5, 5]


def test_closed_over_arrays():
    c = np.arange(3, dtype=F32)
    lowered = jit(lambda x: lax.add(x, c)).lower(ONES)
    assert len(lowered._program.closed.consts) == 1
    for _ in range(2):
        assert lowered.compile()(ONES).tolist() == [1, 2, 3]


def test_closures_become_arguments():
    w = lax.iota(np.float32, 2)
    consts, f = jaxlite.jit(lambda x, y: {"sum": x + w, "y": y}).trace(1.0, y=3.0).closure_convert()
    assert [each.tolist() for each in consts] == [[0, 1]]
    assert f(consts, 4.0, y=5.0)["sum"].tolist() == [4, 5] and f([np.ones(2, np.float32)], 4.0, y=5.0)["sum"].tolist() == [5, 5]
    assert jaxlite.grad(lambda w: f([w], 4.0, y=5.0)["sum"] @ np.float32([2, 3]))(w).tolist() == [2, 3]
    for wrong in (lambda: f(consts, 4.0, 5.0), lambda: f([], 4.0, y=5.0)):
        with pytest.raises(TypeError, match="was traced for 1 consts"):
            wrong()


def test_unused_arguments_are_accepted():
    compiled = jit(lambda x, unused: x).lower(ONES, {"a": 1}).compile()
    for _ in range(2):
        assert compiled(ONES, {"a": 2}).tolist() == [1, 1, 1]


def test_a_compiled_function_is_on_the_fast_path(plain, monkeypatch):
    x = array(ONES)
    seven = jit(lambda: 7)()
    plain(x, x, out=[seven, None])

    def fail(*args):
        raise AssertionError("back in Python")

    monkeypatch.setattr(type(plain._executable), "__call__", fail)
    assert plain(x, x, out=[seven, None])["out"].tolist() == [4, 4, 4]


def test_a_compiled_function_under_disable_jit(plain):
    with jaxlite.disable_jit():
        assert plain(ONES, ONES, out=[7, None])["out"].tolist() == [4, 4, 4]


# --- options -----------------------------------------------------------------------------------------


def test_compiler_options():
    lowered = jit(lambda x: lax.add(x, x)).lower(ONES)
    for options in ({"xla_cpu_enable_fast_math": True}, {"xla_cpu_enable_fast_math": "False"},
                    {"xla_backend_optimization_level": 0}, {"xla_backend_optimization_level": "2"}, {}, None):
        assert lowered.compile(compiler_options=options)(ONES).tolist() == [2, 2, 2]
    assert lowered.compile()._executable is lowered.compile()._executable
    assert lowered.compile({"xla_backend_optimization_level": 0})._executable is not lowered.compile()._executable
    with pytest.raises(RuntimeError, match="No such compile option: 'nonsense'"):
        lowered.compile({"nonsense": True})
    with pytest.raises(RuntimeError, match="xla_backend_optimization_level"):
        lowered.compile({"xla_backend_optimization_level": "high"})
    with pytest.raises(TypeError, match="'xla_dump_to' must be"):
        lowered.compile({"xla_dump_to": ["a"]})


def test_options_of_compile_go_before_those_of_jit():
    with pytest.raises(RuntimeError, match="xla_backend_optimization_level"):
        jit(lambda x: x, compiler_options={"xla_backend_optimization_level": "high"}).lower(1.0).compile()
    lowered = jit(lambda x: x, compiler_options={"xla_backend_optimization_level": "high"}).lower(1.0)
    assert lowered.compile({"xla_backend_optimization_level": 1})(2.0).tolist() == 2


def test_device_assignment():
    lowered = jit(lambda x: x).lower(1.0)
    assert lowered.compile(device_assignment=tuple(jaxlite.devices()[:1]))(2.0).tolist() == 2
    with pytest.raises(ValueError, match="one device"):
        lowered.compile(device_assignment=())


def test_a_signature_is_lowered_once(monkeypatch):
    lowerings = []
    real = execution.lower_jaxpr
    monkeypatch.setattr(execution, "lower_jaxpr", lambda *args, **kwargs:
                        lowerings.append(args[1]) or real(*args, **kwargs))
    f = jaxlite.jit(lambda x: x + 1)
    texts = {f.lower(F32(1)).as_text(), f.trace(F32(2)).lower().as_text()}
    assert len(texts) == len(lowerings) == 1
    f.lower(np.zeros(3, F32))
    f.clear_cache()
    f.lower(F32(1))
    assert len(lowerings) == 3


def test_the_type_of_what_has_no_values():
    key = jaxlite.eval_shape(lambda: jaxlite.random.key(0))
    assert jaxlite.typeof(key) is jaxlite.typeof(jaxlite.random.key(0))
    weak = jaxlite.ShapeDtypeStruct((1, 2), F32, weak_type=True)
    assert jaxlite.typeof(weak).weak_type and jaxlite.typeof(weak).shape == (1, 2)
    assert jaxlite.api_util.shaped_abstractify(weak) is jaxlite.typeof(weak)
