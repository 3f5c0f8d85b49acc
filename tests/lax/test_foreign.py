"""Native code: a C++ handler, compiled here with jaxlib's headers, called from programs; Python on buffers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import ffi
from jaxlite.experimental.buffer_callback import buffer_callback
from tests.pages import blocks_of, run_block

SOURCE = r"""
static int calls = 0;
extern "C" int count() { return calls; }

static ffi::Error Tagged(float alpha, ffi::Span<const int64_t> tags, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> y,
                       ffi::ResultBuffer<ffi::F32> out) {
  ++calls;
  if (x.element_count() != y.element_count()) return ffi::Error::InvalidArgument("sizes differ");
  for (size_t i = 0; i < x.element_count(); ++i)
    out->typed_data()[i] = alpha * x.typed_data()[i] + y.typed_data()[i] + tags[0];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(TaggedHandler, Tagged, ffi::Ffi::Bind().Attr<float>("alpha")
    .Attr<ffi::Span<const int64_t>>("tags").Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>()
    .Ret<ffi::Buffer<ffi::F32>>());

// Copies the memory byte by byte, and returns its attributes.
static ffi::Error Raw(ffi::Dictionary options, std::string_view word, bool flag, int64_t number, double real,
                      ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> out, ffi::ResultBuffer<ffi::F64> told) {
  for (size_t i = 0; i < x.element_count(); ++i) out->typed_data()[i] = x.typed_data()[i];
  auto bias = options.get<int32_t>("bias");
  double values[] = {double(word.size()), double(flag), double(number), real, double(bias.value())};
  for (size_t i = 0; i < 5; ++i) told->typed_data()[i] = values[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(RawHandler, Raw, ffi::Ffi::Bind().Attr<ffi::Dictionary>("options").Attr<std::string_view>("word")
    .Attr<bool>("flag").Attr<int64_t>("number").Attr<double>("real")
    .Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F64>>());

struct State { static ffi::TypeId id; int32_t seen = 0; };
ffi::TypeId State::id = {};
static ffi::TypeInfo info = ffi::MakeTypeInfo<State>();
extern "C" void* type_id() { return &State::id; }
extern "C" void* type_info() { return &info; }
static ffi::ErrorOr<std::unique_ptr<State>> Begin() { return std::make_unique<State>(); }
static ffi::Error Next(State* state, ffi::ResultBuffer<ffi::S32> out) {
  out->typed_data()[0] = ++state->seen;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(BeginHandler, Begin, ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(NextHandler, Next, ffi::Ffi::Bind().Ctx<ffi::State<State>>().Ret<ffi::Buffer<ffi::S32>>());
"""

F32 = lambda *shape: jax.ShapeDtypeStruct(shape, np.float32)
X, Y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ to compile a handler with")
    folder = tmp_path_factory.mktemp("ffi")
    (handler,) = blocks_of("docs/ffi.md", "c++")
    (folder / "axpy.cc").write_text(handler + SOURCE)
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{ffi.include_dir()}", "axpy.cc", "-o", "axpy.so"]
    subprocess.run(command, check=True, cwd=folder)
    library = ctypes.CDLL(str(folder / "axpy.so"))
    ffi.register_ffi_target("test_axpy", ffi.pycapsule(library.TaggedHandler))
    ffi.register_ffi_target("test_raw", ffi.pycapsule(library.RawHandler), platform="cpu")
    library.type_id.restype = library.type_info.restype = ctypes.c_void_p
    ffi.register_ffi_type("test_state", {"type_id": ffi.pycapsule(library.type_id()),
                                         "type_info": ffi.pycapsule(library.type_info())})
    ffi.register_ffi_target("test_next", {"instantiate": ffi.pycapsule(library.BeginHandler),
                                          "execute": ffi.pycapsule(library.NextHandler)})
    return library


def test_the_page_about_native_code(library, monkeypatch):
    monkeypatch.chdir(Path(library._name).parent)
    names = {}
    (program,) = blocks_of("docs/ffi.md")
    run_block(program, names)
    np.testing.assert_array_equal(jax.jit(names["axpy"])(X, Y), 2 * X + Y)


def axpy(x, y, **options):
    call = ffi.ffi_call("test_axpy", F32(*x.shape), **options)
    return call(x, y, alpha=np.float32(2), tags=np.array([100, 7], np.int64))


def test_a_handler_is_called(library):
    expected = 2 * X + Y + 100
    np.testing.assert_array_equal(axpy(X, Y), expected)
    np.testing.assert_array_equal(jax.jit(axpy)(X, Y), expected)
    batched = jax.vmap(lambda x, y: axpy(x, y, vmap_method="broadcast_all"), (0, None))(np.stack([X, 2 * X]), Y)
    np.testing.assert_array_equal(batched, np.stack([expected, expected + 2 * X]))
    one_by_one = jax.vmap(lambda x: axpy(x, Y, vmap_method="sequential"), 1)(np.stack([X, 2 * X], 1))
    np.testing.assert_array_equal(one_by_one, batched)
    with pytest.raises(NotImplementedError, match="vmap is only supported for the ffi_call primitive"):
        jax.vmap(axpy)(X[None], Y[None])
    with pytest.raises(ValueError, match="The FFI call to `test_axpy` cannot be differentiated"):
        jax.grad(lambda x: axpy(x, Y).sum())(X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="sizes differ"):
        axpy(X, np.ones(3, np.float32)).block_until_ready()


@pytest.mark.parametrize("method", ["sequential_unrolled", "expand_dims", "legacy_vectorized"])
def test_batches(library, method):
    """A second operand that is not batched gets an axis of size 1, or stays as it is; here both are."""
    xs = np.stack([X, 2 * X, 3 * X])
    np.testing.assert_array_equal(jax.vmap(lambda x: axpy(x, x, vmap_method=method))(xs), 3 * xs + 100)
    shapes = [var.aval.shape for var in jax.make_jaxpr(jax.vmap(lambda x: axpy(x, Y, vmap_method=method)))(xs).eqns[-1].invars]
    assert method == "sequential_unrolled" or shapes == [(3, 4), (1, 4) if method == "expand_dims" else (4,)]


def test_exported_calls_with_symbolic_sizes(library):
    from jaxlite import export

    fun = jax.jit(lambda x: axpy(x, 2 * x))
    allowed = [export.DisabledSafetyCheck.custom_call("test_axpy")]
    exported = export.export(fun, disabled_checks=allowed)(jax.ShapeDtypeStruct(export.symbolic_shape("n"), np.float32))
    np.testing.assert_array_equal(export.deserialize(exported.serialize()).call(X), 4 * X + 100)
    with pytest.raises(ValueError, match="custom calls whose targets have no compatibility guarantees"):
        export.export(fun)(X)


def test_side_effects_keep_a_call(library):
    def f(x, keep):
        axpy(x, Y, has_side_effect=keep)
        return x

    for keep in (False, True):
        before = library.count()
        jax.jit(f, static_argnums=1)(X, keep).block_until_ready()
        assert library.count() == before + keep


def test_attributes_layouts_and_aliases(library, x64):
    def raw(x, **options):
        call = ffi.ffi_call("test_raw", [F32(*x.shape), jax.ShapeDtypeStruct((5,), np.float64)], **options)
        return call(x, options={"bias": np.int32(9)}, word="four", flag=True, number=-3, real=0.5)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out, told = jax.jit(raw)(x)
    np.testing.assert_array_equal(told, [4, 1, -3, 0.5, 9])
    np.testing.assert_array_equal(out, x)
    turned, _ = jax.jit(lambda x: raw(x, input_layouts=[(1, 0)], output_layouts=[(0, 1), None]))(x)
    np.testing.assert_array_equal(turned, x.ravel(order="F").reshape(2, 3))
    np.testing.assert_array_equal(jax.jit(lambda x: raw(x, input_output_aliases={0: 0}))(x)[0], x)
    with pytest.raises(ValueError, match="'0:0' referring to an input with layout"):
        raw(x, input_layouts=[(1, 0)], input_output_aliases={0: 0})
    with pytest.raises(ValueError, match="outside the range"):
        raw(x, input_output_aliases={0: 5})


def test_state_lives_as_long_as_the_program(library):
    step = jax.jit(lambda: ffi.ffi_call("test_next", jax.ShapeDtypeStruct((1,), np.int32), has_side_effect=True)())
    assert [int(step()[0]) for _ in range(3)] == [1, 2, 3]


def test_what_cannot_be():
    with pytest.raises(jax.errors.JaxRuntimeError, match="nobody_registered_this"):
        ffi.ffi_call("nobody_registered_this", F32(4))(X)
    with pytest.raises(TypeError, match="takes a PyCapsule"):
        ffi.register_ffi_target("test_wrong", 3)
    with pytest.raises(ValueError, match="vmap_method"):
        ffi.ffi_call("test", F32(4), vmap_method="often")
    for wrong in (object(), np.complex64(1), np.array(["a"])):
        with pytest.raises(TypeError, match="attribute a is of"):
            ffi.ffi_call("test", F32(4))(X, a=wrong)
    with pytest.raises(ValueError, match="must have 'shape' and 'dtype' attributes. Got {'a': .* at position 0"):
        ffi.ffi_call("test", {"a": F32(4)})
    with pytest.raises(ValueError, match=r"number of input arguments \(1\) must equal the number of input layouts \(2\)"):
        ffi.ffi_call("test", F32(4), input_layouts=[None, None])(X)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.linear_transpose(ffi.ffi_call("test", F32(4)), X)(X)
    with pytest.raises(ValueError, match="64-bit"):
        ffi.ffi_call("test", jax.ShapeDtypeStruct((4,), np.float64))


def test_python_on_buffers():
    seen = []

    def double(ctx, out, x, y):
        seen.append((type(ctx).__name__, out["a"].shape, out["a"].writeable, x.writeable))
        np.asarray(out["a"])[...] = np.asarray(x) * 2
        np.asarray(out["b"])[...] = np.asarray(y["z"]).sum()

    call = buffer_callback(double, {"a": F32(4), "b": F32()}, vmap_method="sequential")
    out = jax.jit(call)(X, {"z": Y})
    np.testing.assert_array_equal(out["a"], 2 * X)
    assert out["b"] == 4
    assert seen == [("ExecutionContext", (4,), True, False)]
    np.testing.assert_array_equal(jax.vmap(call, (0, None))(np.stack([X, Y]), {"z": Y})["a"], np.stack([2 * X, 2 * Y]))
    with pytest.raises(ValueError, match="Buffer callbacks do not support JVP"):
        jax.jvp(lambda x: call(x, {"z": Y})["a"], (X,), (X,))

    def fail(ctx, out):
        raise RuntimeError("it was meant to")

    with pytest.raises(jax.errors.JaxRuntimeError, match="it was meant to"):
        buffer_callback(fail, F32())().block_until_ready()
    with pytest.raises(TypeError, match="must hold objects with a shape"):
        buffer_callback(fail, 3)
    assert jnp.ones(1).shape == (1,)
