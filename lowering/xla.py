"""All use of jaxlib: the only module of this project that imports it.

It provides functions for the rest of the code (compile a module, put a value on a device, make a C++ call path) and handles
the differences between jaxlib versions. Tested with jaxlib 0.10.2, 0.11.2 and 0.12.0. Elsewhere: `lowering.platforms`
chooses the devices of a program, `jaxlite.core.array` defines arrays.

MLIR's Python bindings load slowly, and only compiling needs them, so `ir` and `make_context` load them on first use. The
file is long on purpose: to support a new jaxlib, read this file only. Its sections follow the headings `# ---`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import itertools
import os
import sys
import threading
import types
import warnings
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from lowering.host_memory import keep_freed
from lowering.protobuf import fields, message
from lowering.this_process import LateLogger, forced_devices, instead_of_jax, loaded_on_use, more_threads

# XLA logs two lines per client at INFO; it reads this once, when the extension loads.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")


# jaxlib's version module has functions for its own build, and imports for them that take 6 ms.
with loaded_on_use("pathlib", "subprocess"):
    import jaxlib.version
from jaxlib import _hlo, _jax, weakref_lru_cache

VERSION_TEXT: str = jaxlib.version.__version__
VERSION: tuple[int, ...] = tuple(int(part) for part in VERSION_TEXT.split(".")[:2])
if not (0, 10) <= VERSION < (0, 13):
    raise ImportError(f"jaxlite works with jaxlib >= 0.10.2, < 0.13; this environment has jaxlib {VERSION_TEXT}")
# Everything that another version of may compile a module otherwise.
VERSIONS = (VERSION_TEXT, _jax.ifrt_version_number)
CRASHES_ON_LOST_SHARDS = VERSION < (0, 11)  # on arrays whose memory is gone, in programs over several devices
# Whether programs over several devices of the CPU may wait for each other without end, until XLA ends the process: they wait
# in threads of one pool, which has one for each device.
LACKS_THREADS = VERSION < (0, 12)
DIVIDES_BY_ZERO = VERSION < (0, 11)  # when it compiles, if integers are constants: that ends the process
# The pass of XLA:CPU that drops optimization barriers before it fuses. From 0.11 on it comes after.
BARRIER_DROPPER = "cse_barrier_expander" if VERSION < (0, 11) else ""
# Whether XLA:CPU has a code generator from before the one by way of MLIR, for programs that ask for it.
HAS_OLDER_EMITTER = VERSION < (0, 11)
# Whether it uses that generator for functions that are marked as small, for all that a program may have in them.
HAS_SMALL_FUNCTIONS = VERSION >= (0, 12)
HAS_SCANS = VERSION >= (0, 11)  # `chlo.scan`, for running totals
# How the names of the dtypes begin that XLA:CPU has not: a loop that reads or writes a row of an array widens all of it, in
# every iteration.
WIDENED = ("float8",) if VERSION >= (0, 11) else ("float8", "bfloat16")

# --- names that need no adapting ---------------------------------------------------------------------

pytree = _jax.pytree
pytree_registry = pytree.default_registry()
call_registry = pytree.PyTreeRegistry()  # what the C++ call path sees as containers: these, and arrays of random keys
call_registry.__module__, call_registry.__name__ = __name__, "call_registry"  # a pickled call path names it
Config = _jax.config.Config
config_unset = _jax.config.unset
trace_context = _jax.config.trace_context
jit_states = _jax.jax_jit
Traceback = _jax.Traceback
Array = _jax.Array
ArrayImpl = _jax.ArrayImpl
Client = _jax.Client
Device = _jax.Device
DeviceList = _jax.DeviceList
ifrt_programs = getattr(_jax, "ifrt_programs", None)
TransferConnection, TransferServer = _jax.TransferConnection, _jax.TransferServer
start_transfer_server, make_error_array = _jax.start_transfer_server, _jax._make_error_array
Sharding = _jax.Sharding
SingleDeviceSharding = _jax.SingleDeviceSharding
GSPMDSharding = _jax.GSPMDSharding
NamedSharding = _jax.NamedSharding
HloSharding = _hlo.HloSharding
PjitFunction = _jax.PjitFunction
Buffer, ExecutionContext, ExecutionStage = _jax.ffi.Buffer, _jax.ffi.ExecutionContext, _jax.ffi.ExecutionStage
PjitFunctionCache = _jax.PjitFunctionCache
CompileOptions = _jax.CompileOptions
DeviceAssignment = _jax.DeviceAssignment
XlaRuntimeError = _jax.JaxRuntimeError
atexit.register(_jax.collect_garbage)  # buffers without owners, while the clients still exist
# jaxlib keeps the NumPy arguments of a call until its next one: let Python's collector free them too.
gc.callbacks.append(lambda phase, _: _jax.collect_garbage() if phase == "stop" else None)
to_dlpack = _jax.buffer_to_dlpack_managed_tensor
block_until_ready = _jax.batched_block_until_ready
weak_value_interner = weakref_lru_cache.weak_value_interner
set_tracer_class = _jax.set_tracer_class
ArrayCopySemantics = _jax.ArrayCopySemantics
approx_top_k_output_size = _jax.approx_top_k_reduction_output_size

# What a compiled signature hands to the C++ call path; it reads these attributes by name.
FastPath = namedtuple(
    "FastPath",
    "xla_executable out_pytree_def in_shardings out_shardings out_avals out_committed "
    "kept_var_bitvec in_device_local_layouts const_args",
)

# C++ asks the sharding for these two.
_REPLICATED = _hlo.HloSharding.replicate()
SingleDeviceSharding._to_xla_hlo_sharding = lambda self, ndim: _REPLICATED  # type: ignore[attr-defined]
SingleDeviceSharding.memory_kind = property(lambda self: self._memory_kind)  # type: ignore[attr-defined]


def name_submodules() -> None:
    """`jaxlib.xla_client` and the like, which some write after `import jaxlib` alone: importing JAX loads them."""
    package = sys.modules["jaxlib"]

    def __getattr__(name: str) -> Any:
        full = f"jaxlib.{name}"
        if not name.startswith("_"):
            try:
                return importlib.import_module(full)
            except ModuleNotFoundError as error:
                if error.name != full:
                    raise
        raise AttributeError(f"module 'jaxlib' has no attribute {name!r}")

    vars(package).setdefault("__getattr__", __getattr__)


# --- shardings ---------------------------------------------------------------------------------------


def prime_named_sharding(check: Callable[[Any, Any], None], sharding_of: Callable[[Any, int], Any], mesh: Any) -> None:
    """Teach C++ what a `NamedSharding` is made of: `check(mesh, spec)` is called for each new one and may raise.

    C++ looks the check up in an installed `jax`, when the first one is made, and keeps what it finds.
    Args: `sharding_of(sharding, ndim)` gives the `HloSharding`; `mesh` is any that has no devices.
    """
    NamedSharding._to_xla_hlo_sharding = sharding_of  # type: ignore[attr-defined]
    NamedSharding.memory_kind = property(lambda self: self._memory_kind)  # type: ignore[attr-defined]
    with instead_of_jax({"jax": {}, "jax._src": {}, "jax._src.named_sharding": {"check_pspec": check}}):
        NamedSharding(mesh, ())


def tiled_sharding(dims: Sequence[int], axis_sizes: Sequence[int], order: Sequence[int], left: int) -> Any:
    """The `HloSharding` that cuts axis i of an array into `dims[i]` parts.

    The devices are those of a grid of `axis_sizes` with its axes put in an `order`; `left` of them hold each part.
    """
    replicated = left > 1
    return HloSharding.iota_tile([*dims, *[left] * replicated], list(axis_sizes), list(order),
                                 [_hlo.OpSharding.Type.REPLICATED] * replicated)


def op_sharding(data: bytes) -> Any:
    """An `OpSharding` from its bytes."""
    made = _hlo.OpSharding()
    made.ParseFromString(data)
    return made


def tuple_sharding(shardings: Sequence[Any]) -> Any:
    """The `HloSharding` of several results."""
    proto = _hlo.OpSharding()
    proto.type, proto.tuple_shardings = _hlo.OpSharding.Type.TUPLE, [each.to_proto() for each in shardings]
    return HloSharding.from_proto(proto)


# --- clients and devices -----------------------------------------------------------------------------


def make_cpu_client(num_devices: int | None = None, peers: Any = None) -> Any:
    """A client for this machine's processor; `peers` has the `store`, `number`, `size` and `collectives` of this process if
    it runs programs together with others."""
    if "jaxlib.xla_client" in sys.modules:  # where custom calls may be waiting for their platform
        _load_custom_calls()
    keep_freed()
    with more_threads(num_devices or forced_devices()) if LACKS_THREADS else contextlib.nullcontext():
        if peers is None:
            return _jax.get_tfrt_cpu_client(asynchronous=True, num_devices=num_devices)
        return _jax.get_tfrt_cpu_client(asynchronous=True, num_devices=num_devices, distributed_client=peers.store,
                                        node_id=peers.number, num_nodes=peers.size, collectives=peers.collectives)


def coordinator_service(address: str, count: int, **options: Any) -> Any:
    """The service at which processes meet. Timeouts in seconds. If it is `recoverable`, the death of one process does
    not end the others. jaxlib 0.12 takes files of certificates."""
    return _jax.get_distributed_runtime_service(address, count, **options)


def coordinator_client(address: str, number: int, **options: Any) -> Any:
    """A connection to the service, which must be running: a process that does not find it is ended. Timeouts in seconds."""
    client = _jax.get_distributed_runtime_client(address, number, use_compression=True, **options)
    client.connect()
    return client


def preemption_manager(client: Any) -> Any:
    """The manager that waits for SIGTERM in all processes."""
    manager = _jax.create_preemption_sync_manager()
    manager.initialize(client)
    return manager


def cpu_collectives(kind: str | None, client: Any) -> Any:
    """How the processors of several machines exchange data: 'gloo', 'mpi' or None."""
    if kind == "gloo":
        return _jax.make_gloo_tcp_collectives(distributed_client=client)
    if kind == "mpi":
        collectives = _jax.make_mpi_collectives()
        collectives.Init()
        atexit.register(collectives.Finalize)
        return collectives
    return None


def hardware_description(device: Any) -> bytes | None:
    """What code for this device may depend on, as bytes; on a CPU, its name and features. None if that is not known."""
    topology = _jax.get_topology_for_devices([device])
    if hasattr(topology, "serialize"):
        try:
            told = topology.serialize()
        except _jax.JaxRuntimeError:
            return None
        # On a CPU it lists the devices of this process too, field 1, which no code depends on.
        about = fields(fields(fields(told).get(9, b"")).get(2, b"")) if device.platform == "cpu" else {}
        return about.get(5, told)
    # Before jaxlib 0.11 a CPU does not tell. Linux does.
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(1 << 14).partition(b"\n\n")[0]
    except OSError:
        return None
    volatile = (b"cpu MHz", b"bogomips", b"BogoMIPS", b"processor", b"core id", b"apicid", b"initial apicid")
    return b"\n".join(line for line in first.split(b"\n") if not line.startswith(volatile))


def prime(aval_class: type, device: Any) -> None:
    """Teach C++ our abstract value class, so that it never looks for the jax package.

    A few entry points look up classes of an installed `jax` by module name and keep what they find for
    the life of the process. For the time of one call each, those names lead to our own objects.
    """
    if getattr(sys.modules.get("jax"), "__name__", None) == "jax":  # another module of this name is a stand-in for it
        raise RuntimeError("jaxlite and jax cannot share a process: both own jaxlib's global state")
    one = np.zeros(1, np.float32)
    sharding = SingleDeviceSharding(device)
    # This one is looked up at every call; None makes the lookup fail at once instead of importing jax. A program that has
    # something else in its place keeps it.
    sys.modules.setdefault("jax._src.sharding_impls", None)  # type: ignore[arg-type]
    with instead_of_jax({"jax": {}, "jax.core": {"ShapedArray": aval_class},
                          "jax._src.literals": {"TypedNdArray": type("TypedNdArray", (), {})}}):
        device_put(one, aval_class((1,), one.dtype, False), sharding, device, False)._fully_replicated_shard()
        if hasattr(_jax, "shard_args"):
            _jax.shard_args([sharding], [None], [_jax.ArrayCopySemantics.REUSE_INPUT], [one], None)


# --- arrays ------------------------------------------------------------------------------------------


def device_put(value: Any, aval: Any, sharding: Any, device: Any, committed: bool, copy: bool = False) -> Any:
    """Put one host value or array on one device. The aval is trusted: make sure that it fits.

    Without `copy` a 64-byte aligned NumPy array is aliased, and later writes to it show.
    """
    return _jax.batched_device_put(aval, sharding, [value], [device], committed, copy)


def put_shards(shards: Sequence[Any], aval: Any, sharding: Any, devices: Sequence[Any], committed: bool = True,
               copy: bool = False) -> Any:
    """One array from its shards, host values or arrays on one device, in the order of the sharding's devices.

    Without `copy`, aligned NumPy arrays are aliased: pass arrays that are not written to. With it, each shard has to be an
    object of its own.
    """
    return _jax.batched_device_put(aval, sharding, list(shards), list(devices), committed, copy)


def assemble(aval: Any, sharding: Any, shards: Sequence[Any], committed: bool = True) -> Any:
    """One array from arrays on single devices, in the order of the sharding's devices. Their types are trusted."""
    return ArrayImpl(aval, sharding, list(shards), committed=committed, _skip_checks=True)


if VERSION < (0, 11):

    def result_handler(aval: Any, sharding: Any, committed: bool) -> Any:
        """Wraps one output buffer of an executable in an Array of this aval."""
        return _jax.array_result_handler(aval, sharding, committed, _skip_checks=True)

    def to_numpy(array: Any) -> np.ndarray:
        """The array's value on the host, read-only, without a copy where the layout allows it."""
        try:
            return np.asarray(memoryview(array))
        except (BufferError, ValueError):
            return array._single_device_array_to_np_array_did_copy()[0]

    # In this version these end the process when the buffer is gone.
    def _guard(name: str) -> None:
        native = getattr(ArrayImpl, name)

        def checked(self: Any) -> Any:
            if self.is_deleted():
                raise RuntimeError(f"Array has been deleted with shape={self.aval}.")
            return native(self)

        checked.__name__ = name
        setattr(ArrayImpl, name, checked)

    for _name in ("platform", "is_ready", "clone"):
        _guard(_name)

else:
    def result_handler(aval: Any, sharding: Any, committed: bool) -> Any:
        """Wraps one output buffer of an executable in an Array of this aval."""
        return _jax.array_result_handler(aval, sharding, committed)

    def to_numpy(array: Any) -> np.ndarray:
        """The array's value on the host, read-only, without a copy where the layout allows it."""
        try:
            return np.asarray(memoryview(array))
        except (BufferError, ValueError):
            return array._to_np_array_did_copy()[0]


def memory_layout(minor_to_major: Sequence[int], tiling: Any, bits: int) -> Any:
    """An order of elements in memory in XLA's terms."""
    return _hlo.Layout(tuple(minor_to_major), tuple(tiling or ()), bits)


def layout_parts(layout: Any) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]:
    """The arguments of `memory_layout` for the layout of an array, or of an executable's parameter or result."""
    found = layout._xla_layout()
    return tuple(found.minor_to_major()), tuple(map(tuple, found.tiling())), found.element_size_in_bits()


def rewrap(array: Any, aval: Any, sharding: Any) -> Any:
    """The same buffer under another aval; the result is committed."""
    return array._rewrap_with_aval_and_sharding(aval, sharding)


def from_dlpack(external: Any, device: Any, copy: bool | None = None) -> Any:
    """An array over an object's memory; if that is not aligned to 64 bytes, a copy, or a ValueError for `copy=False`."""
    stream = None  # in which what the object's library still writes on a GPU is waited for
    if device.platform == "gpu":
        with contextlib.suppress(_jax.JaxRuntimeError):  # not all clients have such a stream
            stream = device.get_stream_for_external_ready_events()
    capsule = external.__dlpack__() if stream is None else external.__dlpack__(stream=stream)
    try:
        return _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream, copy)
    except _jax.JaxRuntimeError as error:
        if copy is False and "unaligned" in str(error):
            raise ValueError("copy=False, but the memory is not aligned to 64 bytes, so that it has to be copied") from None
        raise


# --- the C++ call path -------------------------------------------------------------------------------


def _referable(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A callable, or another that calls it, if there are no weak references to it: with those C++ looks for entries of its
    cache, and it ends the process where there are none."""
    try:
        weakref.ref(fun)
    except TypeError:
        return lambda *args, **kwargs: fun(*args, **kwargs)
    return fun


def make_call_path(
    name: str,
    fun: Callable[..., Any] | None,
    cache_miss: Callable[..., Any],
    static_argnums: Sequence[int],
    static_argnames: Sequence[str],
    key: Any,
    put_argument: Callable[..., Any],
    cache: Any,
) -> Any:
    """A callable that runs compiled code from its signature cache and calls `cache_miss` for the rest.

    `cache_miss(*args, **kwargs)` does the call itself and returns `(outputs, FastPath or None)`.
    Callables with one `fun` object and equal `key` share their entries in `cache`.
    """
    if fun is not None:
        fun = _referable(fun)
    statics = list(static_argnums), list(static_argnames)
    return _jax.pjit(name, fun, cache_miss, *statics, key, call_registry, put_argument, cache)


# --- MLIR, loaded at the first compile ---------------------------------------------------------------


_registry: Any = None
_thread_pool: Any = None
_registry_lock = threading.Lock()


def load_mlir() -> Any:
    """The module `ir` of MLIR's bindings, loaded at the first call."""
    global _registry, _thread_pool
    with _registry_lock:
        if _registry is None:
            # MLIR's package makes a logger to say at level DEBUG what it loads: 6 ms. Other threads must not meet the stand-in.
            alone = threading.active_count() == 1 and "logging" not in sys.modules
            with loaded_on_use("logging", getLogger=LateLogger) if alone else contextlib.nullcontext():
                from jaxlib.mlir import ir
            from jaxlib.mlir._mlir_libs import _jax_mlir_ext

            registry = ir.DialectRegistry()
            _jax_mlir_ext.register_dialects(registry)
            _leave_out_operation_classes()
            _thread_pool = ir.ThreadPool()
            _registry = registry
    from jaxlib.mlir import ir

    return ir


# The dialects whose operations occur in our modules, or are looked for by MLIR when it meets one of theirs.
_DIALECTS = ("builtin", "func", "stablehlo", "chlo")


def _leave_out_operation_classes(*dialects: str) -> None:
    """Keep MLIR from importing its Python classes of operations, hundreds a dialect: we make operations by name.

    It imports a dialect's module once, when it first wraps one of its operations. It finds an empty one.
    """
    from jaxlib.mlir._mlir_libs import _mlir

    for dialect in dialects or _DIALECTS:
        name = f"jaxlib.mlir.dialects.{dialect}"
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            try:
                _mlir.globals._check_dialect_module_loaded(dialect)
            finally:
                del sys.modules[name]


def load_operation_classes() -> None:
    """Import those classes after all, for a user who reads a module through MLIR's Python API."""
    for dialect in _DIALECTS:
        importlib.import_module(f"jaxlib.mlir.dialects.{dialect}")


def make_context() -> Any:
    """A new MLIR context with StableHLO, CHLO and the other dialects that XLA reads.

    Not Shardy, which only modules for several devices have: `load_shardy`; MHLO only where a program has imported it.
    """
    ir = load_mlir()
    from jaxlib.mlir._mlir_libs import _chlo, _stablehlo

    context = ir.Context(thread_pool=_thread_pool)
    context.append_dialect_registry(_registry)
    for register in (_stablehlo.register_dialect, _chlo.register_dialect):
        register(context)
    if "jaxlib.mlir.dialects.mhlo" in sys.modules:  # a library's lowering rules make operations of XLA's older dialect
        sys.modules["jaxlib.mlir.dialects.mhlo"].register_mhlo_dialect(context)
    context.get_dialect_descriptor("func")  # loads it: the parser would, building operations does not
    return context


def load_shardy(context: Any) -> None:
    """Register Shardy, the dialect of shardings, with a context. Only modules for several devices need it."""
    from jaxlib.mlir._mlir_libs import _sdy

    _leave_out_operation_classes("sdy")
    _sdy.register_dialect(context)


def location_cache(context: Any, is_hidden: Callable[[str], bool]) -> Any:
    """Turns tracebacks into MLIR locations; frames of files for which `is_hidden` holds are left out."""
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext

    def filename(code: Any) -> str | None:
        return None if is_hidden(code.co_filename) else code.co_filename

    return _jax_mlir_ext.TracebackToLocationCache(code_to_filename=filename, frame_limit=10, context=context)


def mlir_module(name: str) -> Any:
    """A module of MLIR's Python bindings, such as `dialects.func`."""
    load_mlir()
    return importlib.import_module(f"jaxlib.mlir.{name}")


def upstream_dialects() -> Any:
    """A registry of the dialects that are registered before StableHLO."""
    load_mlir()
    return _registry


def with_shardings(module: Any) -> Any:
    """A copy of a module whose operations have the shardings that XLA will give their values."""
    from jaxlib.mlir import passmanager

    with module.context:
        copy = module.operation.clone()
        propagate = passmanager.PassManager.parse("builtin.module(sdy-propagation-pipeline)")
        propagate.enable_verifier(False)
        propagate.run(copy)
    return copy


def is_cut(operation: Any, axes: Iterable[int]) -> bool:
    """Whether the result of an operation is cut between devices along one of these axes, by the sharding that it has."""
    from jaxlib.mlir._mlir_libs import _sdy

    if "sdy.sharding" not in operation.attributes:
        return False
    (sharding,) = _sdy.TensorShardingPerValueAttr(operation.attributes["sdy.sharding"]).shardings
    entries = _sdy.TensorShardingAttr(sharding).dimension_shardings
    return any(_sdy.DimensionShardingAttr(entries[axis]).axes for axis in axes)


# --- modules as bytes and in other forms -------------------------------------------------------------


mlir_functions = _jax.mlir  # on modules as bytes, under their names in jaxlib


def canonical_bytecode(module: Any) -> bytes:
    """A module as MLIR bytecode without source locations: equal for modules that mean the same by the same operations."""
    from jaxlib.mlir import passmanager

    with module.context:
        copy = module.operation.clone()
        strip = passmanager.PassManager.parse("builtin.module(strip-debuginfo)")
        strip.enable_verifier(False)  # XLA does that
        strip.run(copy)
        buffer = io.BytesIO()
        copy.write_bytecode(buffer)
    return buffer.getvalue()


def to_portable(module: Any) -> bytes:
    """A module as a portable artifact that readers of the last twelve weeks understand, and all later ones; if it has
    newer operations, readers of the last four weeks.
    """
    from jaxlib.mlir._mlir_libs import _stablehlo

    over_devices = any(operation.operation.name == "sdy.mesh" for operation in module.body)  # shardings stay what they are

    def artifact(age: Any) -> bytes:
        version = _stablehlo.get_version_from_compatibility_requirement(age)
        return _jax.mlir.serialize_portable_artifact(module, version, over_devices)

    ages = _stablehlo.StablehloCompatibilityRequirement
    silent = module.context.attach_diagnostic_handler(lambda diagnostic: True)
    try:
        return artifact(ages.WEEK_12)
    except Exception:
        pass
    finally:
        silent.detach()
    return artifact(ages.WEEK_4)


def from_portable(data: bytes, context: Any) -> Any:
    """The module of a portable artifact. Raises: ValueError for what is none, or is of a newer version."""
    if VERSION == (0, 10):  # StableHLO 1.18 has a new version of this operation; without its additions it reads as the old one
        data = data.replace(b"\0custom_call_v2\0", b"\0custom_call_v1\0")
    try:
        return _jax.mlir.deserialize_portable_artifact(data, context)
    except Exception as error:
        raise ValueError(f"the program is not a StableHLO artifact that this version of jaxlib can read: {error}") from None


def from_hlo(data: bytes, context: Any) -> Any:
    """The StableHLO module of a serialized HLO module, such as other frontends of XLA give."""
    return load_mlir().Module.parse(_jax.mlir.hlo_to_stablehlo(data), context)


def to_hlo(module: Any) -> Any:
    """A StableHLO module as an `XlaComputation`: HLO before any optimisation."""
    return _jax.mlir.mlir_module_to_xla_computation(module.operation.get_asm(binary=False, enable_debug_info=True))


def refine(module: Any) -> bytes:
    """A module whose `main` has static types as bytecode in which all types are static, its shape assertions checked.

    Raises: ValueError with the text of an assertion that does not hold.
    """
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    try:
        return _jax.mlir.refine_polymorphic_shapes(buffer.getvalue(), enable_shape_assertions=True, validate_static_shapes=True,
                                                   enable_shardy=True)
    except Exception as error:
        _, _, told = str(error).partition("error: ")  # then the operation, and all again
        raise ValueError(told.partition("\n")[0] if told.startswith("Input shapes") else str(error)) from None


def mosaic_bytes(text: str) -> bytes:
    """A kernel for a TPU, parsed and serialized as libtpu reads it."""
    ir = load_mlir()
    from jaxlib.mlir import passmanager
    from jaxlib.mlir._mlir_libs import _tpu_ext

    context = make_context()
    context.allow_unregistered_dialects = True  # what is serialized has names of its own
    _tpu_ext.register_dialect(context)
    with context:
        module = ir.Module.parse(text)
        passmanager.PassManager.parse("builtin.module(mosaic-serde{serialize=true})").run(module.operation)
        content = io.BytesIO()
        module.operation.write_bytecode(content, desired_version=0)
    return content.getvalue()


# --- compiling ---------------------------------------------------------------------------------------


def with_backend_options(options: Any, names: Sequence[str]) -> Any:
    """Compile options with flags of XLA:CPU that have no field of their own in `DebugOptions`, or with LLVM's (`--...`).

    They are a map there, `xla_backend_extra_options`, which overrides by name cannot set. A serialized message takes further
    fields at its end: these say CompileOptionsProto.executable_build_options.debug_options.xla_backend_extra_options[name].
    If the user has set such flags by `XLA_FLAGS`, only these apply.
    """
    text = options.SerializeAsString()
    if not names or b"xla_cpu_" in text:
        return options
    entries = b"".join(message(500, message(1, name.encode()) + message(2, b"")) for name in names)
    return CompileOptions.ParseFromString(text + message(3, message(3, entries)))


def is_compile_only(device: Any) -> bool:
    """Whether a device is only described (`topology_of`), so that programs can be compiled for it and not run."""
    return type(device.client).__name__ == "CompileOnlyPyClient"


def compile_module(module: Any, devices: Any, options: Any, host_functions: Sequence[Callable[..., Any]]) -> Any:
    """XLA's executable of a module: loaded, unless its devices are only described.

    Args: `devices` a `DeviceList`; `host_functions` what the module's callbacks name by their index.
    """
    first = devices[0]
    if is_compile_only(first):
        return first.client.compile(module, devices, options)
    try:
        return backend_compile_and_load(first.client, module, devices, options, host_functions)
    except XlaRuntimeError:
        raise
    except BaseException:  # of a signal: a thread of XLA's still reads the module
        _left_compiling.append((module, options, host_functions))
        raise


def backend_compile_and_load(client: Any, module: Any, devices: Any, options: Any,
                             host_functions: Sequence[Callable[..., Any]]) -> Any:
    """Compile a module for devices. Looked up in this module at each call: a program may replace it to watch compiles."""
    return client.compile_and_load(module, devices, options, host_functions)


_left_compiling: list[Any] = []


def cost_analysis(client: Any, computation: Any) -> dict[str, float]:
    """XLA's estimate of what an unoptimised computation costs."""
    return _jax.hlo_module_cost_analysis(client, computation.get_hlo_module())


def executable_cost(executable: Any, client_of: Callable[[str], Any]) -> dict[str, float]:
    """XLA's estimate of what an executable costs. A platform that has none is helped out by the CPU's client."""
    try:
        return executable.cost_analysis()
    except (_jax.JaxRuntimeError, NotImplementedError):
        return _jax.hlo_module_cost_analysis(client_of("cpu"), executable.hlo_modules()[0])


def compiler_passes() -> Any:
    """The module that registers Python functions as passes of the compiler."""
    from jaxlib import _xla

    return _xla


# --- custom calls ------------------------------------------------------------------------------------


def _load_custom_calls() -> Any:
    """jaxlib's registry of custom calls, with the CPU's targets registered. Few programs need it."""
    from jaxlib import xla_client

    xla_client.register_custom_call_handler("cpu", _jax.register_custom_call_target)
    xla_client.register_custom_type_handler("cpu", _jax.register_custom_type)
    return xla_client


def extension_version() -> int:
    """The number by which jaxlib counts changes of what it offers to Python, finer than its versions."""
    return int(getattr(_load_custom_calls(), "_version", 0))


@functools.cache
def register_lapack(platform: str = "cpu") -> None:
    """Make LAPACK's custom calls known, and hand it to a GPU's calls that need it; before the first of them runs."""
    from jaxlib import lapack

    from lowering import scipy_tables

    _load_custom_calls()
    _register_calls_of(lapack, "cpu")
    with scipy_tables.at_hand():
        lapack._lapack.initialize()
        if platform == "gpu":  # programs of the CPU do not wait for that module
            importlib.import_module("jaxlib.gpu_solver").initialize_hybrid_kernels()


def _register_calls_of(kernels: Any, platform: str) -> None:
    """Make known what a module of jaxlib has for a platform, and of which of them the leading axes are a batch."""
    from jaxlib import xla_client

    for name, capsule, api_version in kernels.registrations().get(platform, []) if hasattr(kernels, "registrations") else []:
        xla_client.register_custom_call_target(name, capsule, platform=platform, api_version=api_version)
    for name in kernels.batch_partitionable_targets() if hasattr(kernels, "batch_partitionable_targets") else []:
        xla_client.register_custom_call_as_batch_partitionable(name)


def register_calls_in(code: bytes, platform: str) -> None:
    """The same for a program from elsewhere that calls LAPACK: no rule of this process has written the calls."""
    if (name := {"cpu": b"lapack_", "gpu": b"hybrid_"}.get(platform)) and name in code:
        register_lapack(platform)


def inspection_key(function: Callable[[Any], None]) -> bytes:
    """The configuration of a custom call `InspectSharding`; the function must live until it is compiled."""
    return _jax.encode_inspect_sharding_callback(function)


_partitioners: weakref.WeakValueDictionary[str, Callable[..., Any]] = weakref.WeakValueDictionary()
_partitioner_names = itertools.count(1)


def partitioner_key(partition: Callable[..., Any]) -> str:
    """The configuration of a custom call `CustomSPMDPartitioning`; the function must live until it is compiled.

    XLA calls `partition(argument shapes, their shardings, result shape, its sharding)`; it gives the program of one partition
    as bytes, and the shardings of arguments and result that this program has, as tuples.
    """
    _register_partitioner()
    key = str(next(_partitioner_names))
    _partitioners[key] = partition
    return key


@functools.cache
def _register_partitioner() -> None:
    def partition(arg_shapes: Any, arg_shardings: Any, result_shape: Any, result_sharding: Any, key: bytes) -> Any:
        return _partitioners[key.decode()](arg_shapes, arg_shardings, result_shape, result_sharding)

    def not_asked(*args: Any) -> Any:  # under Shardy shardings follow from the rule
        raise RuntimeError("XLA propagates shardings without Shardy")

    _load_custom_calls().register_custom_call_partitioner("CustomSPMDPartitioning", not_asked, partition, not_asked, True)


def include_folder() -> str:
    """The folder with the headers of the interface for native code."""
    return os.path.join(os.path.dirname(_jax.__file__), "include")


def register_foreign_target(name: str, function: Any, platform: str, api_version: int, options: dict[str, Any]) -> None:
    """Make a handler in native code known."""
    _load_custom_calls().register_custom_call_target(name, function, platform=platform, api_version=api_version, **options)


def register_batch_partitionable(name: str) -> None:
    """Say that a handler's leading axes are a batch."""
    _load_custom_calls().register_custom_call_as_batch_partitionable(name)


def register_foreign_type(name: str, registration: Any, platform: str) -> None:
    """Make a type of handlers' state known."""
    _load_custom_calls().register_custom_type(name, registration, platform=platform)


# --- guards of transfers, of collections, of threads -------------------------------------------------


def transfer_guard_level(name: str | None) -> Any:
    """One of C++'s levels, from its name in small letters."""
    return None if name is None else getattr(_jax.guard_lib.TransferGuardLevel, name.upper())


def set_transfer_guards(levels: dict[str, Any], everywhere: bool = False) -> dict[str, Any]:
    """Set the levels of some directions, in this thread or for all; gives those before."""
    state = _jax.guard_lib.global_state() if everywhere else _jax.guard_lib.thread_local_state()
    before = {name: getattr(state, name) for name in levels}
    for name, level in levels.items():
        setattr(state, name, level)
    return before


@contextlib.contextmanager
def unguarded() -> Iterator[None]:
    """Allow copies in a `with` block: those that no user's program asked for."""
    before = set_transfer_guards(dict.fromkeys(("host_to_device", "device_to_device"), transfer_guard_level("allow")))
    try:
        yield
    finally:
        set_transfer_guards(before)


def is_guarded() -> bool:
    """Whether a guard of copies is set, in this thread or for all."""
    return any([level is not None and level != _ALLOWED for state in (_global_guards, _jax.guard_lib.thread_local_state())
                for level in (state.host_to_device, state.device_to_device, state.device_to_host)])


_global_guards = _jax.guard_lib.global_state()
_ALLOWED = _jax.guard_lib.TransferGuardLevel.ALLOW


def guards() -> Any:
    """This thread's guards, with the flags `explicit_device_put` and `explicit_device_get`."""
    return _jax.guard_lib.thread_local_state()


def set_collection_guard(level: Any) -> Any:
    """Set what happens when the search for cycles frees an array, by a name or what this gave before."""
    state = _jax.guard_lib.thread_local_state()
    before = state.garbage_collect_array
    if isinstance(level, str):
        level = getattr(_jax.guard_lib.GarbageCollectionGuardLevel, level.upper())
    state.garbage_collect_array = level
    return before


def set_thread_guard(on: bool) -> None:
    """Whether this thread alone may run programs of several processes."""
    _jax.guard_lib.update_thread_guard_global_state(on)


# --- the profiler ------------------------------------------------------------------------------------


def load_profiler() -> Any:
    """jaxlib's profiler."""
    from jaxlib import _profiler

    return _profiler


_kept_iterators: list[Any] = []


@functools.cache
def load_profile_data() -> Any:
    """The module that reads profiles.

    jaxlib makes the classes for iterators over their parts when there are none, with a warning; where warnings are errors,
    that would end the process. So the smallest profile is read here, with warnings off, and its iterators are kept.
    """
    from jaxlib import _profile_data

    first = b"\x08\x01"  # an id: field 1 is 1
    named = message(2, first + message(2, b"x"))
    event = first + message(4, first + b"\x20\x05")  # with one value
    plane = message(2, b"x") + message(3, message(4, event)) + message(4, first + named) + message(5, first + named)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = _profile_data.ProfileData.from_serialized_xspace(message(1, plane))
        planes = list(data.planes)
        lines = [line for each in planes for line in each.lines]
        events = [event for line in lines for event in line.events]
        _kept_iterators[:] = [data.planes, *(each.stats for each in (*planes, *events)), *(each.lines for each in planes),
                              *(line.events for line in lines)]
    return _profile_data


# --- accelerators and devices that are elsewhere -----------------------------------------------------


def load_plugin(name: str, library: str) -> Any:
    """Load a PJRT plugin's library; its custom calls can be registered before it is initialized."""
    from jaxlib import _profiler, xla_client

    api = xla_client.load_pjrt_plugin_dynamically(name, library)
    _profiler.register_plugin_profiler(api)
    return api


def initialize_plugin(name: str) -> None:
    """Initialize a plugin that was loaded."""
    from jaxlib import xla_client

    if not xla_client.pjrt_plugin_initialized(name):
        xla_client.initialize_pjrt_plugin(name)


def plugin_client(name: str, options: dict[str, Any], peers: Any = None) -> Any:
    """A client of an initialized plugin, for the devices of this machine and those of its peers."""
    from jaxlib import xla_client

    return xla_client.make_c_api_client(name, options, None if peers is None else peers.store)


def gpu_client_options() -> dict[str, Any]:
    """The environment's settings of a GPU's allocator and memory (`XLA_PYTHON_CLIENT_*`)."""
    from jaxlib import xla_client

    return xla_client.generate_pjrt_gpu_plugin_options()


def register_gpu_calls(package: str, name: str, api: Any) -> None:
    """Make known what a GPU's own package has beside XLA: factorizations, threefry, callbacks of the host.

    Args: `package` ('jax_cuda12_plugin'), without which there are none of them; the plugin's `name` and interface.
    """
    platform = {"cuda": "CUDA", "rocm": "ROCM"}[name]
    try:
        extension = importlib.import_module(f"{package}.{name}_plugin_extension")
    except ImportError:
        return
    from jaxlib import gpu_linalg, gpu_prng, gpu_rnn, gpu_solver, gpu_sparse, gpu_triton, xla_client

    xla_client.register_custom_call_handler(platform, functools.partial(extension.register_custom_call_target, api))
    xla_client.register_custom_type_handler(platform, functools.partial(extension.register_custom_type, api))
    for type_name, type_id in getattr(extension, "ffi_types", dict)().items():
        xla_client.register_custom_type(type_name, type_id, platform=platform)
    for target, capsule in extension.ffi_handlers().items():
        xla_client.register_custom_call_target(target, capsule, platform=platform, api_version=1)
    for kernels in (gpu_solver, gpu_linalg, gpu_prng, gpu_sparse, gpu_rnn, gpu_triton):
        _register_calls_of(kernels, platform)


def topology_of(api: Any, name: str, description: str, options: dict[str, Any]) -> Any:
    """The devices of a machine that is not here, as a plugin describes them.

    Args: `api` from `load_plugin`, or None to ask for what the plugin `name` calls by the `description`.
    """
    if api is None:
        return _jax.get_default_c_api_topology(name, description, options)
    return _jax.get_c_api_topology(api, description, options)


proxy_module = functools.partial(importlib.import_module, "jaxlib._ifrt_proxy")  # the client of a server that has the devices


# --- names that load on use --------------------------------------------------------------------------


def __getattr__(name: str) -> Any:
    if name == "ir":
        value = load_mlir()
        globals()[name] = value
        return value
    if name == "documents":  # a pretty printer: text, brk, group, nest, concat, color
        from jaxlib import _pretty_printer

        globals()[name] = _pretty_printer
        return _pretty_printer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
