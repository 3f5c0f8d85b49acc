"""Export: files in JAX's format, written and read; calls, derivatives, platforms, errors."""

from __future__ import annotations

import collections
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import export
from jaxlite.commands import aot
from jaxlite.core import config
from jaxlite.experimental import serialize_executable

DATA = Path(__file__).resolve().parents[1] / "data" / "export"  # written by JAX, of the version in the file's name
VERSIONS = ["jax010", "jax012"]
S = jaxlite.ShapeDtypeStruct


def read(name):
    return export.deserialize((DATA / f"{name}.bin").read_bytes())


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_jax_load_and_run(version):
    f = read(f"{version}_vjp")
    x, n, unused = {"k": np.arange(3, dtype=np.float32)}, np.int32(2), np.zeros(2, np.float32)
    out = jaxlite.jit(f.call)(x, n, unused)
    np.testing.assert_allclose(out["a"], 2 * np.sin(x["k"]), rtol=1e-6)
    assert (out["b"][0], out["b"][1], f.module_kept_var_idx) == (3, 3, (0, 1))
    slope = jaxlite.grad(lambda k: f.call({"k": k}, n, unused)["a"].sum())(x["k"])
    np.testing.assert_allclose(slope, 2 * np.cos(x["k"]), rtol=1e-6)
    many = read(f"{version}_platforms")
    out = many.call(jnp.ones((2, 3), jnp.bfloat16))
    assert type(out) is collections.OrderedDict and out["y"].tolist() == [[3, 3]] * 2
    assert many.platforms == ("cpu", "cuda", "tpu")
    key = jaxlite.random.key(7)
    np.testing.assert_array_equal(read(f"{version}_key").call(key), jaxlite.random.normal(key, (2,)))


TABLE = np.arange(100, dtype=np.float32)


def model(params, n):
    scale = jnp.asarray(TABLE)[n]  # a large constant: part of the file
    return [jnp.tanh(params["w"] @ params["x"]) * scale, jnp.argmax(params["x"])], None, n + 1


@pytest.mark.parametrize("platforms", [None, ("cuda", "cpu", "tpu")])
def test_round_trip(platforms):
    params = {"w": jnp.ones((2, 3)), "x": jnp.arange(3.0)}
    exported = export.export(jaxlite.jit(model), platforms=platforms)(params, 5)
    again = export.deserialize(exported.serialize(vjp_order=1))
    for name in ("fun_name", "in_tree", "out_tree", "platforms", "module_kept_var_idx", "calling_convention_version",
                 "uses_global_constants", "mlir_module_serialized", "nr_devices"):
        assert getattr(again, name) == getattr(exported, name), name
    for each in (exported.call, again.call, jaxlite.jit(again.call)):
        for one, two in zip(jaxlite.tree.leaves(each(params, 5)), jaxlite.tree.leaves(model(params, 5)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6)
    loss = lambda call: jaxlite.grad(lambda params: call(params, 5)[0][0].sum())(params)
    for one, two in zip(jaxlite.tree.leaves(loss(again.call)), jaxlite.tree.leaves(loss(model)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
    assert "stablehlo.tanh" in again.mlir_module() and again.vjp().in_avals[-1].dtype == jaxlite.float0


def test_the_module_is_called_as_the_one_of_lower():
    fun = jaxlite.jit(lambda x: x + 1)
    for text in (export.export(fun)(1.0).mlir_module(), fun.lower(1.0).as_text()):
        assert "module @jit__lambda " in text


def test_a_program_is_written_once_for_each_setting():
    f = jaxlite.jit(lambda x: jnp.sin(x) * 2)

    def text(size=3, **options):
        return export.export(f, **options)(S((size,), jnp.float32)).mlir_module_serialized

    checks = [export.DisabledSafetyCheck.custom_call("mine")]
    first = text()
    assert text() is first and text(disabled_checks=checks) is not first
    assert text(platforms=["cpu", "tpu"]) != first != text(4)
    with jaxlite.enable_x64(True):
        assert export.export(f)(S((3,), np.float64)).out_avals[0].dtype == np.float64
    assert text() is first


@pytest.mark.parametrize("options", [{}, {"platforms": ["cpu", "tpu"]}])
@pytest.mark.parametrize("size", ["3", "n"])
def test_donated_arguments_are_marked(options, size):
    fun = jaxlite.jit(lambda x, y: (y[:2], x + y[0]), donate_argnums=(0, 1))
    x = S(export.symbolic_shape(size, constraints=["n >= 3"]), np.float32)
    with pytest.warns(UserWarning, match=rf"donated buffers were not usable: float32\[{size}\]") as warned:
        made = export.export(fun, **options)(x, x)
    assert warned[0].filename == __file__
    assert made.mlir_module().count("{tf.aliasing_output = 1 : i32}") == 1
    ones = jnp.ones(3)
    assert made.call(ones, ones)[1].tolist() == [2, 2, 2] and not ones.is_deleted()


def test_derivatives_of_programs_with_integers():
    """Their tangents have no data, at any order and with symbolic sizes; complex constants and unused arguments are kept."""
    size, = export.symbolic_shape("b")
    fun = jaxlite.jit(lambda x, n: (jnp.sin(x) ** 3 * n[0], n + 1, jnp.arange(x.shape[0]) + 1j * x[0]), keep_unused=True)
    exported = export.export(fun)(S((size,), np.float32), S((size,), np.int32))
    again = export.deserialize(exported.serialize(vjp_order=2))
    assert str(again.vjp().vjp().in_avals) == str(exported.vjp().vjp().in_avals) and not again.vjp().vjp().has_vjp()
    x, n = np.linspace(0.1, 1, 3).astype(np.float32), np.full(3, 2, np.int32)

    def second(call):
        slope = jaxlite.grad(lambda x: call(x, n)[0].sum() + call(x, n)[2].real.sum())
        return jaxlite.grad(lambda x: (slope(x) ** 2).sum())(x)

    np.testing.assert_allclose(second(again.call), second(fun), rtol=1e-5)
    np.testing.assert_array_equal(again.call(x, n)[2], fun(x, n)[2])
    of_x, of_n = again.vjp().call(x, n, np.ones(3, np.float32), np.zeros(3, jaxlite.float0), np.zeros(3, np.complex64))
    assert of_x.shape == (3,) and (of_n.dtype, of_n.shape) == (jaxlite.float0, (3,))
    assert "float0[b]" in str(again.vjp().in_avals)
    kept = export.export(jaxlite.jit(lambda x, unused: x, keep_unused=True))(x, n)
    assert kept.module_kept_var_idx == (0, 1) and kept.call(x, n).tolist() == x.tolist()


def test_what_is_in_a_file_may_be_any_tree_and_dtype():
    point = export.register_namedtuple_serialization(collections.namedtuple("Spot", "x y"), serialized_name="test.Spot")
    values = [np.zeros((2,), dtype) for dtype in (bool, np.int8, np.uint16, np.float16, jnp.bfloat16, jnp.float8_e4m3fn)]
    exported = export.export(jaxlite.jit(lambda *args: args))(point(values, None), [], {}, jaxlite.random.key(0))
    again = export.deserialize(exported.serialize())
    assert (again.in_tree, again.out_tree) == (exported.in_tree, exported.out_tree)
    assert again.in_avals == exported.in_avals and again.out_avals == exported.out_avals
    with pytest.raises(ValueError, match="Duplicate serialization registration"):
        export.register_namedtuple_serialization(point, serialized_name="test.Other")


def test_custom_calls_and_callbacks():
    calls = jaxlite.jit(lambda x: jaxlite.pure_callback(lambda x: x, x, x))
    with pytest.raises(NotImplementedError, match="serialization of host_callbacks is not yet implemented"):
        export.export(calls)(1.0)
    linalg = export.export(jaxlite.jit(jnp.linalg.cholesky), platforms=["cpu"])(jnp.eye(3))
    np.testing.assert_allclose(linalg.call(4 * np.eye(3, dtype=np.float32)), 2 * np.eye(3))


def exported(**options):
    return export.export(jaxlite.jit(lambda x, n: x * n), **options)(np.ones(3, np.float32), 2)


def with_version(number):
    with config.export_calling_convention_version(number):
        return exported()


@pytest.mark.parametrize("call, error, text", [
    (lambda: exported().call(np.ones(3, np.float32)), ValueError, "same pytree structure as when the function '<lambda>'"),
    (lambda: exported().call(np.ones(4, np.float32), 2), ValueError,
     r"Shape mismatch for args\[0\].shape\[0\] \(expected same constant\): expected \(3,\) and called with \(4,\)"),
    (lambda: exported().call(np.ones((), np.float32), 2), ValueError, r"Rank mismatch for args\[0\]"),
    (lambda: exported().call(np.ones(3, np.float32), 2.0), ValueError, r"Dtype mismatch for args\[1\]: expected int32"),
    (lambda: exported(platforms=["tpu"]).call(np.ones(3, np.float32), 2), ValueError,
     r"was exported for platforms '\('tpu',\)' but it is used on '\('cpu',\)'"),
    (lambda: exported(platforms=["xyz"]), ValueError, "unknown platform 'xyz'"),
    (lambda: export.export(lambda x: x)(1.0), ValueError, "must be the result of `jit`"),
    (lambda: exported(platforms=[]), ValueError, "no platforms to export for"),
    (lambda: with_version(8), ValueError, r"calling convention version 8 is outside the range of supported versions \[9..10\]"),
    (lambda: exported().call("a", 2), TypeError, "Argument 'a' of type <class 'str'> is not a valid JAX type"),
    (lambda: export.deserialize("abc"), TypeError, "takes the bytes of a file, got a str"),
    (lambda: export.deserialize(b"abc"), ValueError, "not a file of an exported function"),
    (lambda: export.deserialize(b"\x04" + bytes(40)), (ValueError, NotImplementedError), "."),
    (lambda: export.deserialize(exported().serialize()).vjp(), ValueError, "No VJP is available"),
    (lambda: jaxlite.vmap(exported().call)(np.ones((2, 3), np.float32), np.ones(2, int)), NotImplementedError,
     "Batching rule for 'call_exported' not implemented"),
    (lambda: export.export(jaxlite.jit(lambda x: x))({1: 2.0}).serialize(), TypeError, "dictionaries with string keys"),
])
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_disabled_platform_check():
    assert with_version(9).calling_convention_version == 9
    assert not export.deserialize(exported().serialize(vjp_order=-1)).has_vjp()
    check = export.DisabledSafetyCheck.platform()
    out = exported(platforms=["tpu"], disabled_checks=[check]).call(np.ones(3, np.float32), 2)
    assert out.tolist() == [2, 2, 2] and str(export.DisabledSafetyCheck.custom_call("foo")) == "custom_call:foo"


def test_damaged_files_raise():
    data = bytes(exported().serialize())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), 200):
        damaged = bytearray(data)
        damaged[place] ^= 0xFF
        try:
            export.deserialize(damaged[:-12])  # of a version without a checksum
        except (ValueError, NotImplementedError):
            pass
        if place < len(data) - 12:
            with pytest.raises(ValueError, match="its checksum is another"):
                export.deserialize(damaged)


def test_executables_are_kept():
    key = jaxlite.random.key(0)
    table = jnp.asarray(TABLE)
    compiled = jaxlite.jit(lambda x, unused, key: {"y": x + table, "key": key}).lower(TABLE, 1.0, key).compile()
    again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    out = again(TABLE, 2.0, key)
    np.testing.assert_array_equal(out["y"], 2 * TABLE)
    assert out["key"] == key and again.runtime_executable() is not None
    with pytest.raises(TypeError, match="Argument types differ"):
        again(TABLE[1:], 2.0, key)
    for _ in range(2):  # the second is found in the persistent cache: XLA does not write the code of what it loaded
        compiled = jaxlite.jit(lambda x: jnp.tanh(jnp.linalg.cholesky(x @ x.T)) * 1.5).lower(jnp.eye(4)).compile()
        for _ in range(2):
            compiled = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
        np.testing.assert_allclose(compiled(np.eye(4, dtype=np.float32)), 1.5 * np.tanh(np.eye(4)), rtol=1e-6)
    kept = serialize_executable.serialize(compiled)
    middle = len(kept[0]) // 2
    changed = kept[0][:middle] + bytes([kept[0][middle] ^ 1]) + kept[0][middle + 1:]
    for wrong in (b"", b"junk", kept[0][:-9], changed):
        with pytest.raises(ValueError, match="not the bytes of a compiled function"):
            serialize_executable.deserialize_and_load(wrong, *kept[1:])
    with pytest.raises(TypeError, match="got a PjitFunction"):
        serialize_executable.serialize(jaxlite.jit(jnp.sin))


def test_command_line(tmp_path, capsys):
    (tmp_path / "prog_for_aot.py").write_text("import jaxlite.numpy as jnp\ndef f(x, n):\n    return {'y': jnp.sin(x) * n}\n")
    file = str(tmp_path / "f.bin")
    assert aot.main([f"{tmp_path}/prog_for_aot.py:f", "f32[3]", "i32[]", "--platforms", "cpu,cuda", "-o", file]) == 0
    assert "args[0]: f32[3]" in capsys.readouterr().out
    assert aot.main(["show", file]) == 0
    shown = capsys.readouterr().out
    assert "f for cpu, cuda" in shown and "result['y']: f32[3]" in shown and "stablehlo.sine" in shown
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    assert aot.main(["run", file, str(tmp_path / "x.npy"), "3"]) == 0
    assert "result['y']: [0. 0. 0.]" in capsys.readouterr().out
    assert aot.main(["run", file, "1"]) == 1 and "takes 2 arrays" in capsys.readouterr().err
    assert aot.main([f"{tmp_path}/prog_for_aot.py:f", "f32"]) == 1 and "is not a specification" in capsys.readouterr().err


@pytest.mark.parametrize("given, text", [
    (["{prog}:g", "f32[3]"], "has no attribute 'g'"), (["{prog}:number", "f32[3]"], "is not a function, it is 3"),
    (["{prog}", "f32[3]"], "names no function"), (["nowhere:f", "f32[3]"], "No module named 'nowhere'"),
    (["{prog}:f", "f99[3]"], "'f99' is not a dtype"), (["{prog}:f", "f32[a b]"], "syntax error in symbolic shape"),
    (["{prog}:f", "f32[3]", "--platforms", "xyz"], "unknown platform 'xyz'"), (["{prog}:f"], "missing 1 required positional"),
    (["{prog}:f", "f32[b]", "--constraint", "b"], "Constraint parsing error"), (["{prog}:branch", "f32[b]"], "is inconclusive"),
    (["{prog}:calls", "f32[3]"], "serialization of host_callbacks"), (["show", "{prog}"], "not a file of an exported function"),
    (["show", "nowhere.bin"], "No such file"), (["run", "{file}"], "takes 1 arrays, got 0"),
    (["run", "{file}", "x+"], "is not an input"),
    (["run", "{file}", "[1]"], "symbolic shape constraint b >= 2. Expected 'b - 2' to be greater or equal to 0, but found -1"),
    (["run", "{file}", "[[1, 2]]"], "Rank mismatch for args[0]"), (["run", "{file}", "[99999999999, 1]"], "out of bounds"),
])
def test_command_line_errors(tmp_path, capsys, given, text):
    """One line, no traceback."""
    prog, file = tmp_path / "prog_of_errors.py", tmp_path / "sums.bin"
    prog.write_text("import jaxlite\ndef f(x): return x.sum()\nnumber = 3\ndef branch(x): return x if len(x.shape) > 0 < "
                    "x.shape[0] - 5 else -x\ndef calls(x): return jaxlite.pure_callback(lambda x: x, x, x)\n")
    if "{file}" in given:
        assert aot.main([f"{prog}:f", "i32[b]", "--constraint", "b >= 2", "-o", str(file)]) == 0
        assert "without its derivative" in capsys.readouterr().out
    assert aot.main([each.format(prog=prog, file=file) for each in given]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ") and text in told and "Traceback" not in told


def test_public_functions_need_no_jit():
    assert export.export(jnp.sin)(np.zeros(3, np.float32)).call(np.zeros(3, np.float32)).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="must be the result of `jit`"):
        export.export(lambda x: x)


def test_lapack_in_a_process_that_lowers_none_of_it(tmp_path):
    """The first linear algebra of a process may come from a file, of an exported function or of an executable."""
    def eigenvalues(x):
        return jnp.linalg.eigh(x)[0]

    matrix = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    jitted = jaxlite.jit(eigenvalues)
    (tmp_path / "function").write_bytes(export.export(jitted)(matrix).serialize())
    (tmp_path / "executable").write_bytes(pickle.dumps(serialize_executable.serialize(jitted.lower(matrix).compile())))
    code = f"""if True:
        import pathlib, pickle, jaxlite, jaxlite.export, jaxlite.numpy as jnp
        from jaxlite.experimental import serialize_executable
        folder, matrix = pathlib.Path({str(tmp_path)!r}), jnp.array([[2.0, 1.0], [1.0, 2.0]])
        loaded = {{kind}}
        print([round(float(value), 4) for value in loaded(matrix)])"""
    for kind in ("jaxlite.export.deserialize((folder / 'function').read_bytes()).call",
                 "serialize_executable.deserialize_and_load(*pickle.loads((folder / 'executable').read_bytes()))"):
        done = subprocess.run([sys.executable, "-c", code.format(kind=kind)], capture_output=True, text=True, timeout=120)
        assert done.stdout.strip() == "[1.0, 3.0]", done.stderr


def test_a_module_without_its_function_is_a_damaged_file():
    blob = bytes(export.export(jaxlite.jit(lambda x: x + 1))(np.float32(1)).serialize())[:-12].replace(b"main\0", b"mine\0")
    with pytest.raises(ValueError, match="has no function `main`"):
        export.deserialize(blob).call(np.float32(1))
