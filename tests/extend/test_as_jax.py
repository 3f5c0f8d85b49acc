"""jaxlite in jax's place: `import jaxlite.as_jax`, `python -m jaxlite`, and what is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxlite.core.missing import is_later, jax_names, version_of

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, path: tuple[Path, ...] = (), ok: bool = True, **variables: str) -> str:
    """What a fresh interpreter prints; of one that shall fail, its errors."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))} | variables
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


PROGRAM = """
import sys, importlib.metadata, logging, pickle
import jax, jax.numpy as jnp, jax.scipy.special
from jax import lax, config
from jax._src.core import ShapedArray
import jaxlite
assert jax is jaxlite and jnp is jaxlite.numpy and sys.modules["jax.numpy"] is jnp
assert jnp.__name__ == "jax.numpy" and jnp.__spec__.name == "jaxlite.numpy" and ShapedArray is jax.core.ShapedArray
assert jax.__version__ == importlib.metadata.version("jax") == importlib.metadata.version("jaxlib") == jax.version.__version__
assert jax.__version_info__ >= (0, 10, 2)
assert "jax" in {each.name for each in importlib.metadata.distributions()}
logged = []
handler = logging.Handler()
handler.emit = logged.append
logging.getLogger("jax").addHandler(handler)
with jax.log_compiles():
    jax.jit(lambda x: x - 7)(1.0)
assert {record.name for record in logged} == {"jax._src.dispatch", "jax._src.interpreters.pxla"}
words = [" ".join(record.getMessage().split()[:3]) for record in logged]
assert words == ["Finished tracing <lambda>", "Compiling jit(<lambda>) with", "Finished jaxpr to",
                 "Finished XLA compilation"], words
logged.clear()
with jax.explain_cache_misses(True):
    g = jax.jit(lambda x, d: x)
    g(1.0, {}), g(2, {}), g(2, ())
    jax.jit(lambda x, d: x + 1)(1.0, {})
assert {record.name for record in logged} == {"jax._src.interpreters.partial_eval"}
told = [[line.strip() for line in record.getMessage().splitlines()] for record in logged]
assert all(lines[0].startswith("TRACING CACHE MISS at ") for lines in told)
assert ["never seen" in lines[1] for lines in told] == [True, False, False, True], told
assert told[1][3:] == ["different input types:", "* at x, now i32[] and before f32[]"], told
assert told[2][3] == "different input pytree:" and told[2][4].startswith("* at input path [0][1], now "), told
print(sys.argv[1:], __name__, float(jax.jit(lambda x: jnp.sin(x) + lax.exp(x))(0.0)))
for statement, kind in {
    "import jax.experimental.mosaic_of_nothing": "No module named",
    "import jax.tpu_stub": "in JAX, not yet in jaxlite", "jax.tpu_name": "in JAX, not yet in jaxlite",
    "from jax import tpu_name": "in JAX, not yet in jaxlite", "from jax.dlpack import tpu_name": "in JAX, not yet in jaxlite",
    "if True:\\n def call():\\n  from jax import tpu_name\\n call()": "in JAX, not yet in jaxlite",
    "jax._src.core.nothing": "it is private in JAX", "import jax._src.nothing": "No module named",
}.items():
    try:
        exec(statement)
    except (ImportError if statement[0] in "if" else AttributeError) as error:
        assert kind in str(error), (statement, error)
    else:
        raise AssertionError(statement)
"""


def test_a_program_runs_unedited(tmp_path):
    """With names that JAX is said to have, so that the test stays when the real ones come; and beside an installed jax."""
    program = tmp_path / "program.py"
    teach = "from jaxlite.core import missing\nmissing.jax_names().update({'jax.tpu_stub': frozenset(), " \
            "'jax.dlpack': frozenset(['tpu_name']), 'jax': missing.jax_names()['jax'] | {'tpu_name'}})\n"
    program.write_text(teach + PROGRAM)
    installed = tmp_path / "site" / "jax"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("raise RuntimeError('the installed jax was imported')")
    out = run("-m", "jaxlite", str(program), "a", "--b", path=(installed.parent,))
    assert out == "['a', '--b'] __main__ 1.0\n"
    (tmp_path / "a_module.py").write_text("import sys, jax\nprint(sys.argv[1:], __name__, jax.__name__)")
    assert run("-m", "jaxlite", "-c", "x: int = 1; print(__annotations__)") == "{'x': <class 'int'>}\n"
    assert run("-m", "jaxlite", "-m", "a_module", "x", path=(tmp_path,)) == "['x'] __main__ jaxlite\n"
    shown = run("-m", "jaxlite", "-c", "import jax.numpy as jnp\njnp.ones(3) + jnp.ones(4)", ok=False)
    assert shown.splitlines()[:2] == ["Traceback (most recent call last):", '  File "<string>", line 2, in <module>']


def test_libraries_that_read_the_dictionary_of_a_module_find_all_names(tmp_path):
    library = tmp_path / "scico.py"
    library.write_text("import jax.numpy, jax.scipy.special\n"
                       "modules = jax.numpy, jax.numpy.linalg, jax.scipy.special\n"
                       "missing = [set(dir(each)) - each.__dict__.keys() for each in modules]")
    code = "import jax.numpy; before = 'einsum' in jax.numpy.__dict__; import scico; print(before, scico.missing)"
    assert run("-m", "jaxlite", "-c", code, path=(tmp_path,)) == "False [set(), set(), set()]\n"


def test_processes_that_a_program_starts_see_it_as_jax_too(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, subprocess, sys\nimport jax\nname = lambda: jax.numpy.__spec__.name\n"
        "def work(): print('spawned', name(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work)\n    process.start(), process.join()\n"
        "    see = 'import jax.numpy; print(jax.numpy.__spec__.name)'\n"
        "    print(subprocess.check_output([sys.executable, '-c', see], text=True))")
    assert run("-m", "jaxlite", str(program)).split() == ["spawned", "jaxlite.numpy", "jaxlite.numpy"]
    elsewhere = tmp_path / "jax"  # what a Python without jaxlite has
    elsewhere.mkdir()
    (elsewhere / "__init__.py").write_text("name = 'the real one'")
    stand_in = ROOT / "jaxlite" / "as_jax" / "stand_in"
    code = f"import sys; sys.path += [{str(stand_in)!r}, {str(tmp_path)!r}]; import jax; print(jax.name)"
    done = subprocess.run([sys.executable, "-S", "-c", code],
                          capture_output=True, text=True, timeout=60, cwd=tmp_path.parent, env={"PATH": ""})
    assert done.stdout.strip() == "the real one", done.stderr


def test_jaxlib_finds_our_classes_in_either_order():
    first = "import jaxlite.numpy as jnp; jnp.ones(3); import jaxlite.as_jax, jax"
    out = run("-c", f"{first}; print(jax.jit(jnp.sum)(jnp.ones(3)), jnp.ones(3).aval, jax.numpy is jnp)")
    assert out == "3.0 float32[3] True\n"


def test_it_does_not_share_a_process_with_jax(tmp_path):
    (tmp_path / "jax.py").touch()
    assert "jaxlite.as_jax: jax is imported already" in run("-c", "import jax, jaxlite.as_jax", path=(tmp_path,), ok=False)


def documentation_tool():
    spec = importlib.util.spec_from_file_location("missing_page", ROOT / "docs" / "missing.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_missing_names_is_up_to_date():
    tool = documentation_tool()
    text = tool.PAGE.read_text(encoding="utf-8")
    if any(is_later(module, name) for module, names in jax_names().items() for name in names):
        modules, names = tool.lacking()  # the page is of a later version: it lists these at least
        assert [each for each in modules if f"- `{each}`" not in text] == []
        shown = {line.partition("`: ")[0]: line for line in text.partition("## Why")[0].splitlines()}
        assert [each for module in names for each in names[module] if f"`{each}`" not in shown.get(f"- `{module}", "")] == []
    elif text != tool.page():
        pytest.fail("docs/missing.md is not what jaxlite lacks now: run `python docs/missing.py page`")


@pytest.mark.parametrize("environment", [".venv-jax", ".venv-jax-latest"])
def test_the_list_of_jax_names_has_those_of_an_installed_jax(environment):
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment with jax")
    code = "import sys, json, jax; sys.path.insert(0, 'docs'); import missing; " \
           "print(json.dumps([jax.__version__, missing.public_names()]))"
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    version, names = json.loads(done.stdout.splitlines()[-1])
    tool = documentation_tool()
    lines = tool.NAMES.read_text(encoding="utf-8").splitlines()
    assert tool.with_names(lines, ".".join(version.split(".")[:2]), names) == lines


def test_names_of_jax_have_the_version_that_added_them():
    listed = documentation_tool().with_names
    older = {"jax": ["a", "gone"], "jax.old": ["b"], "jax.unseen": None}
    newer = {"jax": ["a", "new"], "jax.old": ["b"], "jax.young": ["c"], "jax.unseen": ["d"]}
    both = ["jax a gone new@0.12", "jax.old b", "jax.unseen@0.12 d", "jax.young@0.12 c"]
    assert listed(listed([], "0.10", older), "0.12", newer) == both
    assert listed(listed([], "0.12", newer), "0.10", older) == both
    assert listed(both, "0.12", {"jax": ["a"], "jax.young": ["c"]}) == ["jax a gone", "jax.old b", "jax.young@0.12 c"]
    assert listed(both, "0.10", older | {"jax.unseen": ["d"]})[2] == "jax.unseen d"


def test_a_name_of_a_later_jax_is_an_error_that_says_so():
    code = """from jaxlite.core import missing
missing.jax_names.cache_clear()
missing._versions().update({'jax.numpy': {'later': '99.0', 'there': '0.1'}, 'jax.later': {'': '99.1', 'name': '99.1'}})
import jaxlite.as_jax, jax.numpy
for statement in 'jax.numpy.later', 'jax.numpy.there', 'from jax.numpy import later', 'import jax.later':
    try:
        exec(statement)
    except (AttributeError, ImportError) as error:
        print(error)"""
    shown = run("-c", code).splitlines()
    assert [line.partition(": ")[2].partition(" and jaxlite")[0] for line in shown] == [
        "jax.numpy.later is in JAX 99.0,",
        "jax.numpy.there is in JAX, not yet in jaxlite; docs/missing.md lists what is missing",
        "jax.numpy.later is in JAX 99.0,", "jax.later is in JAX 99.1,"]
    assert [version_of(*name) for name in [("jax.experimental.thunky", "jit"), ("jax.numpy", "minmax"), ("jax.numpy", "sin"),
                                           ("jax.experimental", "thunky")]] == ["0.12", "0.12", "", "0.12"]


def test_options_of_the_command_line():
    code = "from jaxlite import config; config.parse_flags_with_absl(); print(config.jax_enable_x64, config.jax_debug_nans)"
    assert run("-c", code, "--jax_enable_x64", "--other", "--", "--jax_debug_nans=1") == "True False\n"


def test_options_are_flags_of_absl():
    pytest.importorskip("absl")
    code = ("from absl import app, flags\nimport jaxlite as jax\nflags.DEFINE_integer('n', 1, '')\n"
            "jax.config.config_with_absl()\n"
            "app.run(lambda argv: print(argv[1:], flags.FLAGS.n, jax.config.jax_enable_x64, jax.config.jax_debug_nans))")
    assert run("-c", code, "rest", "--jax_enable_x64", "--n=3", "--nojax_debug_nans") == "['rest'] 3 True False\n"


def test_flags_of_a_program_can_be_read_once_the_options_are_parsed():
    pytest.importorskip("absl")
    code = ("from absl import flags\nimport jaxlite as jax\nflags.DEFINE_integer('n', 1, '')\n"
            "jax.config.parse_flags_with_absl()\n"
            "f = flags.FLAGS; print(f.n, f.jax_enable_x64, f.jax_debug_nans, f(['', '--n=2']), f.n, jax.config.jax_enable_x64)")
    assert run("-c", code, "--n=3", "--jax_enable_x64", "--", "--jax_debug_nans") == "1 True False [''] 2 True\n"


def test_modules_of_jaxlib_are_there_without_an_import_of_their_own():
    """As JAX's import leaves them; gpax names classes of `jaxlib.xla_client` in annotations."""
    code = ("import jax, jaxlib, sys; loaded = 'jaxlib.xla_client' in sys.modules\n"
            "print(loaded, isinstance(jax.devices()[0], jaxlib.xla_client.Device), hasattr(jaxlib, 'nothing'),"
            " hasattr(jaxlib, '_nothing'))")
    assert run("-m", "jaxlite", "-c", code) == "False True False False\n"


def test_private_names_lead_somewhere():
    program = """
import jaxlite.as_jax, importlib, jax
from jaxlite.as_jax.private import _ALIASES
for name, table in _ALIASES.items():
    module = importlib.import_module(f"jax._src.{name}")
    for text in " ".join(names for _, names in table).replace("*", "").split():
        getattr(module, text.partition("=")[0])
from jax.experimental.sparse._base import JAXSparse
from jax.experimental.sparse import BCOO
jax._src.dispatch.xla_primitive_callable.cache_clear()
assert issubclass(BCOO, JAXSparse) and JAXSparse is jax.experimental.sparse.JAXSparse
private = jax._src.api_util
print(private._ensure_index_tuple(2), *private._ensure_index_tuple([1, 0]), jax._src.pjit.jit_p,
      private.infer_argnums_and_argnames(
    __import__("inspect").signature(lambda a, b, *, c: 0), 1, None))
"""
    assert run("-c", program).split() == ["(2,)", "1", "0", "jit", "((1,),", "('b',))"]


def test_pickles_that_jax_wrote_are_read():
    program = """
import jaxlite.as_jax, pickle, numpy as np
parts = (*np.arange(3, dtype="float32").__reduce__(), {"weak_type": True})
array = pickle.loads(b"cjax._src.array\\n_reconstruct_array\\n" + pickle.dumps(parts, 0)[:-1] + b"R.")
print(type(array).__name__, array, array.weak_type)
slots = {"shape": (2,), "dtype": np.dtype("int8"), "_sharding": None, "_dll": None, "weak_type": False, "is_ref": False}
print(pickle.loads(b"\\x80\\x02cjax\\nShapeDtypeStruct\\n)\\x81" + pickle.dumps((None, slots), 2)[2:-1] + b"b."))
"""
    assert run("-c", program).splitlines() == ["ArrayImpl [0. 1. 2.] True", "ShapeDtypeStruct(shape=(2,), dtype=int8)"]


def test_options_of_the_environment_that_a_program_sets_before_it_imports_jax(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("""
import os, sys
os.environ.update(JAX_ENABLE_X64="1", JAX_NUM_CPU_DEVICES="3", JAX_SERIALIZATION_VERSION="3")
del os.environ["JAX_DEBUG_NANS"]
print("jax" in sys.modules, "jax.numpy" in sys.modules)
from jax.numpy import ones
import jax
print(ones(1).dtype, len(jax.devices()), jax.config.jax_debug_nans, jax.config.jax_debug_infs,
      jax.config.jax_serialization_version)
os.environ["JAX_ENABLE_X64"] = "0"
import jax
print(ones(2).dtype)
""")
    for arguments in ([str(file)], ["-c", file.read_text()]):
        lines = run("-m", "jaxlite", *arguments, JAX_DEBUG_NANS="1", JAX_DEBUG_INFS="1").splitlines()
        assert lines == ["False False", "float64 3 False True 3", "float64"]


def test_traced_values_say_what_they_are():
    """autoray takes functions for a value from the package that its class names, others tell by it how it is differentiated."""
    program = """
import jaxlite.as_jax, jax
names = set()
see = lambda x: names.add(type(x).__module__.partition(".")[0]) or x
jax.jit(jax.grad(lambda x: jax.vmap(see)(see(x)).sum()))(jax.numpy.ones(2))
jax.linearize(see, see(1.0) + jax.numpy.ones(2))
see(jax.random.key(0))
print(*sorted(names - {"builtins"}))
kinds = []
for derivative in (jax.grad, jax.jacfwd):
    derivative(lambda x: kinds.append(type(x).__name__) or x)(1.0)
print(*kinds, type(jax.numpy.float32).__name__)
"""
    assert run("-c", program) == "jax\nLinearizeTracer JVPTracer _ScalarMeta\n"


def test_modules_that_are_loaded_have_their_names_in_jax():
    """Some libraries look into sys.modules for those that they name."""
    program = """
import jaxlite.as_jax, sys, jax
assert sys.modules["jax.numpy"] is jax.numpy
state = jax._src.distributed.global_state
assert isinstance(state, jax._src.distributed.State) and state.coordinator_address is None
assert (state.process_id, state.num_processes, state.client, state.service) == (0, 1, None, None)
assert jax.sharding.SingleDeviceSharding(jax.devices()[0])._addressable_device_assignment == (jax.devices()[0],)
jax.tree_util.SequenceKey, jax.scipy.special.gamma
assert sys.modules["jax.tree_util"] is jax.tree_util and sys.modules["jax.scipy.special"] is jax.scipy.special
assert jax.tree_util.__spec__.name == "jaxlite.tree_util"
try:
    jax.dlpack.to_dlpack_of_nothing
except AttributeError as error:
    print("to_dlpack_of_nothing" in str(error))
"""
    assert run("-c", program).split() == ["True"]


def test_what_pages_on_primitives_and_interpreters_import():
    program = """
import jaxlite.as_jax
from jax._src.lib.mlir.dialects import hlo
import jax.extend.mlir.ir, jax.extend.mlir as mlir
from jax.extend.mlir.passmanager import PassManager
assert mlir.ir.Type is jax.extend.mlir.ir.Type and "RankedTensorType" in dir(mlir.ir) and PassManager.parse
from jax._src.util import merge_lists, partition_list, safe_map, split_list, unzip2
print(hlo.AddOp.__name__, safe_map(max, [1, 5], [3, 4]), unzip2([(1, 2), (3, 4)]), split_list([1, 2, 3], [1, 1]))
print(merge_lists([True, False], *partition_list([True, False], "ab")))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["AddOp [3, 5] ((1, 3), (2, 4)) [[1], [2], [3]]", "['a', 'b']"]


def test_the_parts_of_gmres_and_of_a_generalized_eigenvalue_problem():
    """pyscfad takes them from `jax._src`."""
    program = """
import jaxlite.as_jax, jax, numpy as np
from jax._src import ad_util, api, lax, numpy as jnp
from jax._src.lax.lax import _complex_basetype
from jax._src.lax.linalg import _H, _T, symmetrize
from jax._src.tree_util import prefix_errors
from jax._src.traceback_util import UnfilteredStackTrace
[error] = prefix_errors([1, [2]], [1, 2])
print(str(error("axes")).endswith("axes[1]: expected a leaf of type int, got a list of length 1"))
from jax._src.scipy.sparse.linalg import _gmres_batched, _gmres_incremental, _gmres_solve, _identity, _norm, _normalize_matvec
x = np.array([[1, 2j], [3, 4]], np.complex64)
print((_H(x) == x.conj().T).all(), (_T(x) == x.T).all(), (symmetrize(x) == (x + x.conj().T) / 2).all())
print(ad_util.Zero is jax.interpreters.ad.Zero, api.vmap is jax.vmap, _complex_basetype(x.dtype), _norm([x[0, :1], 2]))
matrix, right = np.diag([2., 3., 5.]).astype("f") + np.float32(.5), np.ones(3, np.float32)
for corrections in (_gmres_batched, _gmres_incremental):
    solve = lambda A, b: _gmres_solve(A, b, jnp.zeros(3), 1e-5, 1e-5, 3, 5, _identity, corrections)
    out = lax.custom_linear_solve(_normalize_matvec(matrix), right, solve=solve, transpose_solve=solve)
    print(float(abs(matrix @ out - right).max()) < 1e-5)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["True", "True True True", "True True float32 2.236068", "True", "True"]


def test_what_libraries_build_their_own_functions_from():
    """quaxed takes `jnp.vectorize` apart, and unxt extends `device_put` by its primitive."""
    program = """
import jaxlite.as_jax, jax, jax.numpy as jnp
from jax._src.numpy.index_tricks import CClass, RClass
from jax._src.numpy import vectorize as parts
class Named(CClass):
    def __getitem__(self, key):
        return "mine", super().__getitem__(key).shape
print(Named()[[1, 2], [3, 4]], RClass()[1, 2].shape)
ins, outs = parts._parse_gufunc_signature("(n,k),(k)->(n)")
call, args, kwargs = parts._apply_excluded(lambda a, b, c, d: a @ b + c + d, {1, "d"}, [jnp.ones((4, 2, 3)), jnp.ones(3), 1],
                                           {"d": 5})
print(call(*args).shape, len(args), kwargs)
shape, sizes = parts._parse_input_dimensions([jnp.ones((4, 2, 3)), jnp.ones(3)], ins, "here")
print(shape, sizes, parts._check_output_dims(lambda x: x, sizes, outs, "here")(jnp.ones(2)).shape)
for wrong in (lambda: parts._parse_input_dimensions([1], ins, "there"),
              lambda: parts._check_output_dims(lambda x: x, sizes, outs, "there")(jnp.ones(3))):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, "there" in str(error) or "n" in str(error))
put = lambda x: jax.lax.device_put_p.bind(x, devices=[jax.devices()[0]], srcs=[None])[0]
print(put(1.0).committed, jax.jit(jax.grad(lambda x: jax.vmap(put)(x).sum()))(jnp.ones(2)))
"""
    assert run("-c", program).splitlines() == [
        "('mine', (2, 2)) (2,)", "(4, 2) 2 {}", "(4,) {'n': 2, 'k': 3} (2,)", "TypeError True", "ValueError True",
        "True [1. 1.]"]


LIBRARY_RULE = """
import jaxlite.as_jax
import jax, jax.numpy as jnp, numpy as np
from jax._src.interpreters import mlir
from jax._src.lax import linalg, lax
from jax.extend.core import Primitive

def rule(ctx, x):
    [aval], info = ctx.avals_in, jax.core.ShapedArray((2,), np.dtype(np.int32))
    call = jax.ffi.ffi_lowering("lapack_spotrf_ffi", operand_layouts=[(1, 2, 0)], result_layouts=[(1, 2, 0), (0,)])
    factor, status = call(ctx.replace(avals_out=[aval, info]), x, uplo=np.uint8(ord("L")))
    good = mlir.compare_hlo(status, mlir.full_like_aval(ctx, 0, info), "EQ", "SIGNED")
    which = jax.core.ShapedArray((2, 1, 1), np.dtype(bool))
    good = mlir.broadcast_in_dim(ctx, good, which, broadcast_dimensions=range(1))
    return [linalg._broadcasting_select_hlo(ctx, good, which, factor, aval, linalg._nan_like_hlo(ctx, aval), aval)]

jnp.linalg.cholesky(jnp.eye(2))  # which registers LAPACK
triangle = Primitive("lower triangle of Cholesky")
triangle.def_abstract_eval(lambda x: x)
mlir.register_lowering(triangle, rule, platform="cpu")
x = np.array([[[4, 2], [2, 5]], [[1, 2], [2, 1]]], np.float32)
out = np.tril(jax.jit(triangle.bind)(x))
np.testing.assert_allclose(out[0], np.linalg.cholesky(x[0]), rtol=1e-6)
assert np.isnan(out[1][np.tril_indices(2)]).all()
"""


def test_a_library_lowers_to_native_code_with_other_results_than_its_own():
    """The primitive has one result, LAPACK's routine three; a matrix that it cannot factor becomes NaN."""
    run("-c", LIBRARY_RULE)


def test_private_functions_do_what_those_of_jax_do():
    program = """
import jaxlite.as_jax, jax, jax.numpy as jnp
from jax._src.core import dimension_as_value, is_constant_dim
from jax._src.interpreters.batching import make_iota, to_elt
from jax._src.traceback_util import filter_traceback
from jax._src.util import HashableFunction, canonicalize_axis
from jax._src.xla_bridge import backends_are_initialized
print(backends_are_initialized(), make_iota(3).tolist(), backends_are_initialized(), canonicalize_axis(-1, 3))
seen = []
def f(x):
    seen.append(to_elt(x._trace, None, jnp.ones((2, 3)), 1))
    return seen[0].sum() + x
print(jax.vmap(f)(make_iota(3)).tolist(), seen[0].shape, to_elt(None, None, 5, None))
made = [HashableFunction(lambda x: x + n, n) for n in (1, 1, 2)]
print(made[0] == made[1], made[0] == made[2], hash(made[0]) == hash(made[1]), made[2](1))
size, = jax.export.symbolic_shape("b")
print(is_constant_dim(3), is_constant_dim(size), dimension_as_value(3))
from jax._src import linear_util, lax
from jax._src.basearray import Array
from jax._src.custom_derivatives import custom_vjp
from jax._src.lax.lax import _const
from jax._src.named_sharding import UNSPECIFIED
from jax._src.numpy.util import promote_args_inexact
print(Array is jax.Array, custom_vjp is jax.custom_vjp, linear_util is not None, UNSPECIFIED)
print(_const(2, 1.5), _const(jnp.ones(2, jnp.bfloat16), 1.5).dtype, lax.lax._const(1.0, 2),
      [(x.dtype.name, x.shape, x.weak_type) for x in promote_args_inexact("f", jnp.ones((1, 2), int), jnp.arange(2), 3)])
from jax._src.clusters import ClusterEnv, SlurmCluster
from jax._src.core import definitely_equal_shape
from jax._src.public_test_util import check_close
from jax._src.util import HashablePartial
import os
os.environ.update(SLURM_JOB_ID="7", SLURM_PROCID="3", SLURM_NTASKS="8", SLURM_JOB_NODELIST="node[001-004]", SLURM_LOCALID="1")
print(SlurmCluster.is_env_present(), SlurmCluster in ClusterEnv._cluster_types, SlurmCluster.get_process_count(),
      SlurmCluster.get_process_id(), SlurmCluster.get_coordinator_address(None, "12"))
print(definitely_equal_shape((size, 2), (size, 2)), definitely_equal_shape((size,), (2,)))
power = lambda x, n: x ** n
parts = [HashablePartial(power, n) for n in (2, 2, 3)]
print(parts[0](3), parts[0] == parts[1], parts[0] == parts[2])
check_close({"a": jnp.ones(2)}, {"a": jnp.array([1, 1 + 1e-7])})
check_close(jnp.zeros(3), jnp.full(3, 2e-3), atol={jnp.float32: 1e-3})  # tolerances grow with the size
for wrong in (jnp.ones(2) + 0.1, jnp.ones(1), jnp.ones(2) + 1e-5, jnp.ones(2, int) + 1):
    try:
        check_close(jnp.ones(2), wrong)
        print("equal")
    except AssertionError:
        pass
try:
    jnp.ones(2) @ jnp.ones(3)
except TypeError as error:
    print(filter_traceback(error.__traceback__).tb_next)
"""
    assert run("-c", program).splitlines() == [
        "False [0, 1, 2] True 2", "[2.0, 3.0, 4.0] (2,) 5", "True False True 3", "True False 3", "True True True None",
        "1 bfloat16 2.0 [('float32', (1, 2), False), ('float32', (1, 2), False), ('float32', (), False)]",
        "True True 8 3 node001:12", "True False", "8 True False", "None"]


def test_contractions_in_an_order_that_a_library_chose():
    program = """
import jaxlite.as_jax, jax, jax.numpy as jnp, numpy as np
from jax._src.numpy import einsum
x, y, z = (jnp.arange(6.0).reshape(shape) for shape in ((2, 3), (3, 2), (2, 3)))
steps = (((2, 1), frozenset("k"), "kl,jk->lj"), ((1, 0), frozenset("j"), "lj,ij->li"))
print(np.allclose(jax.jit(lambda *each: einsum._einsum(each, steps, None, None))(x, y, z), (x @ y @ z).T))
"""
    assert run("-c", program) == "True\n"


def test_modules_that_a_library_seeks_are_there(tmp_path):
    (tmp_path / "tokamax.py").write_text("import sys, jax\nprint('jax._src.lax.lax' in sys.modules)")
    assert run("-m", "jaxlite", "-c", "import tokamax", path=(tmp_path,)) == "True\n"


def test_the_parts_of_a_symbolic_dimension_compute_it():
    program = """
import math, operator
import jaxlite.as_jax
from jax import export
a, b = export.symbolic_shape("a, b")
apply = {"floordiv": operator.floordiv, "mod": operator.mod}
def value(size):
    return size if isinstance(size, int) else sum(times * math.prod(of(*each) for each in term._factors)
                                                  for term, times in size._sorted_terms)
def of(factor, power):
    known = {"a": 7, "b": 4}
    return (known[factor.var] if factor.operation is None else apply[factor.operation](*map(value, factor.operands))) ** power
print([value(size) for size in (a, 3 * a * a * b - a // 3 + 4, (a + b) % 5, 2 * (a * b // (a + b)))])
print([(str(term), term.is_constant) for term, _ in (2 * a * a * b + 4)._sorted_terms])
"""
    assert run("-c", program) == "[7, 590, 1, 4]\n[('a^2*b', False), ('', True)]\n"
