"""Options: their names, types and environment variables, and setting them for a process or a thread.

Each option is a jaxlib `Config` state (a global value, and a thread-local one that overrides it), so the C++ call path sees
changes immediately. Options that change a traced program are part of the compile cache's key (`affects_program=True`).

The environment is read at import: `JAXLITE_<NAME>`, or `JAX_<NAME>` if JAX's option has the same meaning; a long name may have
a short alias. Under jax's name, what a program changes there before its first `import jax` is read too (`read_environment`).
"""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ContextDecorator
from itertools import takewhile
from typing import Any

from jaxlite.core.foreign_options import REFUSED, WITHOUT_MEANING
from jaxlite.core.precision import PRECISION_NAMES, DotAlgorithmPreset
from lowering import platforms as backends
from lowering import report, xla

_UNSET = xla.config_unset
hide_own_frames: Callable[[BaseException], None] = lambda error: None  # set by `jaxlite.core.filtering`, which reads options


class Option:
    """One option: its current value, a global setter, and a thread-local override as a context manager."""

    __slots__ = ("name", "parse", "state", "doc", "checks", "default", "variables")

    def __init__(self, name: str, default: Any, parse: Callable[..., Any], doc: str, in_call_key: bool, in_trace_key: bool,
                 short_name: str = ""):
        self.name, self.parse, self.doc, self.default = name, parse, doc, default
        self.checks: list[Callable[[Any], None]] = []  # that may refuse a value that is set for the process
        self.variables = tuple(each.upper() for each in ("JAXLITE_" + (short_name or name), "JAXLITE_" + name, "JAX_" + name))
        self.state = xla.Config(
            name, self.from_environment(), include_in_jit_key=in_call_key, include_in_trace_context=in_trace_key
        )

    def from_environment(self) -> Any:
        """The value that the environment gives it now, or else the default."""
        for variable in self.variables:
            text = os.environ.get(variable)
            if text is not None:
                return self.parse(text, variable)
        return self.default

    @property
    def value(self) -> Any:
        """The value in force in this thread."""
        return self.state.value

    def set(self, value: Any) -> None:
        """Set the value for the whole process."""
        value = self.parse(value, self.name)
        for check in self.checks:
            check(value)
        self.state.set_global(value)

    def __call__(self, new_val: Any = _UNSET) -> AbstractContextManager[None]:
        """Override the value in this thread, inside a `with` block; options that are on or off are turned on."""
        if new_val is _UNSET:
            if self.parse not in (_parse_bool, _parse_switch):
                raise TypeError(f"the context manager of the option {self.name} takes its new value as an argument")
            new_val = True
        return _Override(self.state, self.parse(new_val, self.name))


class _Override(ContextDecorator, AbstractContextManager[None]):
    """A value of an option for a block or a function. One that is entered by hand, and let go of, stays in force."""

    __slots__ = ("_state", "_value", "_previous")

    def __init__(self, state: Any, value: Any):
        self._state, self._value = state, value
        self._previous: list[Any] = []  # it may be entered within itself

    def _recreate_cm(self) -> _Override:  # for each call of a decorated function, in any thread
        return _Override(self._state, self._value)

    def __enter__(self) -> None:
        self._previous.append(self._state.swap_local(self._value))

    def __exit__(self, *error: Any) -> None:
        self._state.set_local(self._previous.pop())


def _parse_bool(value: Any, name: str) -> bool:
    if isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("1", "true", "yes", "on", "y", "t"):
            return True
        if lowered in ("0", "false", "no", "off", "n", "f", ""):
            return False
        raise ValueError(f"{name} is {value!r}; it takes 1 or 0, true or false")
    return bool(value)


def _parse_int(value: Any, name: str) -> int:
    try:
        return int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; it takes a whole number") from None


def _parse_seconds(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; it takes a number of seconds") from None


def _parse_number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; it takes a number") from None


def _parse_switch(value: Any, name: str) -> bool | None:
    return None if value is None else _parse_bool(value, name)


def _parse_text(value: Any, name: str) -> str | None:
    if not (value is None or isinstance(value, str)):
        raise ValueError(f"new string config value must be None or of type str, got {value} of type {type(value)}. The option "
                         f"is {name}.")
    return value


def _parse_any(value: Any, name: str) -> Any:
    return value or None if isinstance(value, str) else value


def _parse_device(value: Any, name: str) -> Any:
    """A device, a sharding over one, the name of a platform, or None: whether it is there shows when it is used."""
    value = value or None if isinstance(value, str) else value
    if not (value is None or isinstance(value, (xla.Device, xla.Sharding)) or value in backends.known_names()):
        raise ValueError("jax.default_device must be passed either a Device object (e.g. `jax.devices('cpu')[0]`) or a "
                         f"platform name string like 'cpu' or 'gpu', got: {value!r}")
    return value


def _parse_folder(value: Any, name: str) -> str | None:
    if not isinstance(value, os.PathLike):
        _parse_text(value, name)
    return os.path.abspath(os.path.expanduser(value)) if value else None


def _cache_folder() -> str | None:
    """The platform's folder for what a program may forget; None if there is no home to have one in."""
    places = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", "~")}
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(places.get(sys.platform, "~/.cache"))
    return os.path.join(base, "jaxlite") if os.path.isabs(base) else None


def _one_of(*choices: str | None) -> Callable[..., Any]:
    def parse(value: Any, name: str) -> str | None:
        if value not in choices:
            or_none, named = "None or " * (None in choices), [each for each in choices if each]
            raise ValueError(f"new enum value must be {or_none}in {named}, got {value} of type {type(value)}. "
                             f"The option is {name}.")
        return value

    return parse


def _promotion(value: Any, name: str) -> str | None:
    if not isinstance(value, str):
        raise TypeError(f"new enum value must be an instance of str, got {value} of type {type(value)}. The option is {name}.")
    return _one_of("standard", "strict")(value, name)


def _parse_axes(value: Any, name: str) -> frozenset[Any]:
    if not isinstance(value, (set, frozenset)):
        raise TypeError(f"Expected axis name(s) as set or frozenset, got {value} of type {type(value)}")
    return frozenset(value)


OPTIONS: dict[str, Option] = {}


PROGRAM_OPTIONS: list[str] = []  # names of those that are part of a signature


def _option(name: str, default: Any, parse: Callable[..., Any], doc: str, affects_program: bool = False,
            short_name: str = "") -> Option:
    OPTIONS[name] = option = Option(name, default, parse, doc, affects_program, affects_program, short_name)
    if affects_program:
        PROGRAM_OPTIONS.append(name)
    return option


enable_x64 = _option(
    "enable_x64", False, _parse_bool, "Keep 64-bit types; otherwise they become 32-bit.", affects_program=True
)
disable_jit = _option("disable_jit", False, _parse_bool, "Run jit-decorated functions operation by operation.")
numpy_dtype_promotion = _option(
    "numpy_dtype_promotion", "standard", _promotion,
    "'strict' makes implicit promotion between different array dtypes an error.", affects_program=True,
)
numpy_rank_promotion = _option(
    "numpy_rank_promotion", "allow", _one_of("allow", "warn", "raise"),
    "The behaviour for broadcasting of operands of different rank.", affects_program=True,
)
default_prng_impl = _option(
    "default_prng_impl", "threefry2x32",
    _one_of("threefry2x32", "threefry4x32", "rbg", "unsafe_rbg", "philox2x32", "philox4x32"),
    "The default generator of random keys, and that of legacy keys.", affects_program=True,
)
enable_custom_prng = _option("enable_custom_prng", False, _parse_bool, "`random.PRNGKey` makes typed keys, as `key` does.",
                             affects_program=True)
legacy_prng_key = _option("legacy_prng_key", "allow", _one_of("allow", "warn", "error"),
                          "The behaviour for an array of uint32 that is used as a key.", affects_program=True)
high_dynamic_range_gumbel = _option(
    "high_dynamic_range_gumbel", False, _parse_bool,
    "`random.gumbel`, and functions that use it, take twice as many random bits, unless `mode` is given.", affects_program=True)
check_static_indices = _option("check_static_indices", False, _parse_bool,
                               "Reading with a Python int out of bounds raises IndexError.", affects_program=True)
explicit_x64_dtypes = _option(
    "explicit_x64_dtypes", "warn", _one_of("warn", "error"),
    "With enable_x64 off, a 64-bit dtype that is requested explicitly becomes 32-bit with a warning, or raises an error. "
    "JAX's third choice, 'allow', does not exist: turn on enable_x64.",
    affects_program=True)
disallow_mesh_context_manager = _option("disallow_mesh_context_manager", False, _parse_bool,
                                        "`with mesh:` is an error; `set_mesh` is not.")
exec_time_optimization_effort = _option("exec_time_optimization_effort", 0.0, _parse_number,
                                        "XLA's effort to make programs fast, between -1 and 1.",
                                        affects_program=True)
memory_fitting_effort = _option("memory_fitting_effort", 0.0, _parse_number,
                                "XLA's effort to save memory, between -1 and 1.", affects_program=True)
LEVELS = ("UNKNOWN", "O0", "O1", "O2", "O3")
optimization_level = _option("optimization_level", "UNKNOWN", _one_of(*LEVELS),
                             "XLA's optimization level; UNKNOWN: its default.", affects_program=True)
memory_fitting_level = _option("memory_fitting_level", "O2", _one_of(*LEVELS), "XLA's effort to save memory.",
                               affects_program=True)
disable_most_optimizations = _option("disable_most_optimizations", False, _parse_bool,
                                     "XLA compiles with few optimizations: faster compiles, slower programs.",
                                     affects_program=True)
random_seed_offset = _option("random_seed_offset", 0, _parse_int, "A number that is added to the seed of every new key.",
                             affects_program=True)
threefry_partitionable = _option(
    "threefry_partitionable", True, _parse_bool,
    "Threefry hashes a 64-bit counter for each element; off, it hashes pairs of 32-bit counters (JAX's old scheme).",
    affects_program=True,
)
threefry_gpu_kernel_lowering = _option(
    "threefry_gpu_kernel_lowering", False, _parse_bool,
    "On a GPU, threefry uses the kernel of the plugin's package instead of operations that XLA fuses.", affects_program=True,
)
remove_size_one_mesh_axis_from_type = _option(
    "remove_size_one_mesh_axis_from_type", False, _parse_bool,
    "Types omit explicit mesh axes of size 1.", affects_program=True,
)
default_matmul_precision = _option(
    "default_matmul_precision", None, _one_of(None, *PRECISION_NAMES, *DotAlgorithmPreset.__members__),
    "The precision of matrix products without an explicit one.", affects_program=True,
)
default_device = _option(
    "default_device", None, _parse_device, "The device that uncommitted computations use.", affects_program=True
)
debug_nans = _option("debug_nans", False, _parse_bool, "Raise FloatingPointError when a result holds a NaN.",
                     affects_program=True)
debug_infs = _option("debug_infs", False, _parse_bool, "Raise FloatingPointError when a result holds an infinity.",
                     affects_program=True)
OPTIONS["debug_key_reuse"] = debug_key_reuse = Option(
    "debug_key_reuse", False, _parse_bool, "Raise KeyReuseError when a random key is used twice.", in_call_key=True,
    in_trace_key=False)
check_tracer_leaks = _option("check_tracer_leaks", False, _parse_bool,
                             "After each trace, look for tracers that are still referenced.")
enable_checks = _option("enable_checks", False, _parse_bool, "Check every jaxpr after it is made (slow).")
traceback_filtering = _option("traceback_filtering", "auto", _one_of("auto", "off", "tracebackhide",
                                                                      "remove_frames", "quiet_remove_frames"),
                              "Whether errors hide the frames of jaxlite itself.")
platforms = _option("platforms", None, _parse_text, "Comma-separated platforms to use, the first by default.")
num_cpu_devices = _option("num_cpu_devices", -1, _parse_int, "How many CPU devices to make. It is stronger than "
                          "`--xla_force_host_platform_device_count` in XLA_FLAGS.")
cuda_visible_devices = _option("cuda_visible_devices", "all", _parse_text, "The CUDA devices to use, by number: '0,2'.")
rocm_visible_devices = _option("rocm_visible_devices", "all", _parse_text, "The ROCm devices to use, by number: '0,2'.")
cpu_fusion_barriers = _option("cpu_fusion_barriers", True, _parse_bool,
                              "Whether CPU programs get fusion barriers, which make compiles short.", affects_program=True)
cpu_collectives_implementation = _option("cpu_collectives_implementation", "gloo", _one_of("gloo", "mpi", "none", None),
                                         "The library that CPU devices of several processes communicate with.")
distributed_debug = _option("distributed_debug", False, _parse_bool,
                            "Before a program of several processes is compiled, check that all of them have the same.")
enable_recoverability = _option("enable_recoverability", False, _parse_bool,
                                "Whether processes continue when another one has died. Process 0 decides.")
mtls_cert_file = _option("mtls_cert_file", None, _parse_text,
                         "This process' certificates, a file, with which processes of one program know each other.")
mtls_key_file = _option("mtls_key_file", None, _parse_text, "The private key of `mtls_cert_file`, a file.")
mtls_ca_file = _option("mtls_ca_file", None, _parse_text, "The certificates that sign those of other processes, a file.")
mtls_peer_uri_prefix = _option("mtls_peer_uri_prefix", None, _parse_text,
                               "How a URI in the certificates of other processes begins; without it, they name their hosts.")
distributed_verify_secure_credentials = _option("distributed_verify_secure_credentials", False, _parse_bool,
                                                "Whether processes of one program refuse to do without certificates.")
eager_on_host = _option("eager_on_host", True, _parse_bool,
                        "Whether the first calls of an eager operation may run in NumPy, where that gives the same bits.")
log_compiles = _option("log_compiles", False, _parse_bool, "Log one line for each compile.")
enable_compilation_cache = _option("enable_compilation_cache", True, _parse_bool,
                                   "Whether compiled programs are stored for later processes.")
compilation_cache_dir = _option("compilation_cache_dir", _cache_folder(), _parse_folder,
                                "The folder of the persistent cache; the empty string or None: no cache.")
compilation_cache_max_size = _option("compilation_cache_max_size", 2 << 30, _parse_int,
                                     "The limit of the cache in bytes, enforced by LRU eviction. -1: no limit.")
persistent_cache_min_compile_time_secs = _option("persistent_cache_min_compile_time_secs", 0.002,
                                                 _parse_seconds, "Shorter compiles are not stored.")
explain_cache_misses = _option("explain_cache_misses", False, _parse_bool,
                               "Log why each trace and each compile was needed.", short_name="explain")
progress = _option("progress", None, _parse_switch,
                   "Whether long compiles show a line on stderr; None: only on a terminal.")
dump_ir_to = _option("dump_ir_to", None, _parse_any, "Folder that receives every stage of every compile.")
dump_ir_modes = _option("dump_ir_modes", "jaxpr,stablehlo,hlo", _parse_text,
                        "The stages to dump: some of jaxpr, stablehlo, hlo, page; or 'all'.")

# JAX has these as context managers too; here there is one way for each, so they change nothing.
_NOTHING = "Without effect:"
allow_f16_reductions = _option("allow_f16_reductions", True, _parse_bool,
                               f"{_NOTHING} half-precision sums are computed in 32 bits.")
auto_pcast = _option("auto_pcast", True, _parse_bool,
                     f"{_NOTHING} inside shard_map, operands are always cast to the same varying axes.")
jax2tf_associative_scan_reductions = _option("jax2tf_associative_scan_reductions", False, _parse_bool,
                                             f"{_NOTHING} jax2tf exports what is lowered anyway.")
softmax_custom_jvp = _option("softmax_custom_jvp", False, _parse_bool, f"{_NOTHING} softmax has one derivative.")
export_calling_convention_version = _option(
    "export_calling_convention_version", 10, _parse_int, "The calling convention of exported programs: 9 or 10.")
recompilation_limit = _option("recompilation_limit", 10, _parse_int,
                              "The number of compiles of a function that causes a warning; 0: none.")
no_tracing = _option("no_tracing", False, _parse_bool, "Raise an error instead of tracing.")
OPTIONS["no_execution"] = no_execution = Option(
    "no_execution", False, _parse_bool, "Raise an error instead of running a program.", in_call_key=True, in_trace_key=False)
GUARD_LEVELS = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")


class _GuardOption(Option):
    """An option that C++ keeps: the level of the guard of some directions of copies."""

    __slots__ = ("directions",)
    directions: tuple[str, ...]

    def set(self, value: Any) -> None:
        super().set(value)
        xla.set_transfer_guards(dict.fromkeys(self.directions, xla.transfer_guard_level(self.value)), everywhere=True)


for _name, _directions in (
        ("transfer_guard", ("host_to_device", "device_to_device", "device_to_host")),
        ("transfer_guard_host_to_device", ("host_to_device",)),
        ("transfer_guard_device_to_device", ("device_to_device",)),
        ("transfer_guard_device_to_host", ("device_to_host",))):
    _ways = " and ".join(each.replace("_", " ").replace("host to", "from host to").replace("device to", "from device to")
                         for each in _directions)
    _guard = OPTIONS[_name] = _GuardOption(_name, None, _one_of(None, *GUARD_LEVELS),
                                            f"For copies {_ways}: 'allow', 'log', 'disallow', or with '_explicit', also "
                                            "those that are explicit.", False, False)
    _guard.directions = _directions
    if _guard.value is not None:  # from the environment
        _guard.set(_guard.value)



class _ThreadGuardOption(Option):
    """Whether programs of several processes may be run by the thread alone that set it."""

    __slots__ = ()

    def set(self, value: Any) -> None:
        super().set(value)
        xla.set_thread_guard(self.value)


OPTIONS["thread_guard"] = thread_guard = _ThreadGuardOption(
    "thread_guard", False, _parse_bool, "Only the thread that sets it may run programs of several processes.", False,
    False)


class _LogOption(Option):
    """An option of logging: which of jaxlite's loggers say how much."""

    __slots__ = ()

    def set(self, value: Any) -> None:
        super().set(value)
        self.apply()

    def apply(self) -> None:
        """Set the levels of the loggers, and print what they say."""
        import logging  # few programs ask

        own = report.logger_name.partition(".")[0]
        top = logging.getLogger(own)
        names = [re.sub(r"^jax(?=\.|$)", own, each.strip()) for each in (debug_log_modules.value or "").split(",")]
        for name in filter(None, names):
            logging.getLogger(name).setLevel(logging.DEBUG)
        if logging_level.value:
            top.setLevel(logging_level.value)
        if (any(names) or logging_level.value) and not top.handlers and not logging.root.handlers:
            top.addHandler(logging.StreamHandler())


_LOG_LEVELS = ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
OPTIONS["logging_level"] = logging_level = _LogOption(
    "logging_level", None, lambda value, name: _one_of(None, *_LOG_LEVELS)(
        value.upper() or None if isinstance(value, str) else value, name),
    "The lowest level that jaxlite's loggers print.", False, False)
OPTIONS["debug_log_modules"] = debug_log_modules = _LogOption(
    "debug_log_modules", "", _parse_text, "Comma-separated loggers that print everything: 'jaxlite', or one below it.",
    False, False)
if logging_level.value or debug_log_modules.value:
    logging_level.apply()

# Set while a trace is under way in this thread. In the call's key, so that a call with concrete arguments
# inside a trace never takes the compiled path: it has to become part of the program.
tracing = Option("tracing", False, _parse_bool, "A trace is under way.", in_call_key=True, in_trace_key=False)

# The mesh of the context (`jaxlite.devices.mesh`): with its devices, and without where that says something else.
context_mesh = xla.Config("context_mesh", None, include_in_jit_key=True, include_in_trace_context=True)
entered_mesh = xla.Config("entered_mesh", None, include_in_jit_key=True, include_in_trace_context=True)
context_abstract_mesh = xla.Config("context_abstract_mesh", None, include_in_jit_key=True, include_in_trace_context=True)
# Whether types say along which manual axes of that mesh values vary: inside `shard_map`, if it was asked to check that.
check_vma = xla.Config("check_vma", False, include_in_jit_key=True, include_in_trace_context=True)
# Whether an operation over explicit axes may choose among layouts, because what calls it says the layout of its result: True,
# or the sharding with unreduced axes that products are to have.
chooses_layouts = xla.Config("chooses_layouts", False, include_in_jit_key=True, include_in_trace_context=True)
# The frontend attributes that operations get: of the innermost block of `set_xla_metadata`, with those around it.
xla_words = xla.Config("xla_metadata", None, include_in_jit_key=True, include_in_trace_context=True)
# The mesh axes along which operations must not communicate (`jaxlite.lax.no_collectives`).
no_collectives = Option("no_collectives", frozenset(), _parse_axes, "Mesh axes without communication.", True, True)
# In the order of `xla.trace_context()`.
PROGRAM_STATES = [*PROGRAM_OPTIONS, "context_mesh", "entered_mesh", "context_abstract_mesh", "check_vma", "chooses_layouts",
                  "xla_metadata", "no_collectives"]

# C++ reads these three by itself.
_post_hook = xla.Config("post_hook", None)
xla.jit_states.set_disable_jit_state(disable_jit.state)
xla.jit_states.set_enable_x64_state(enable_x64.state)
xla.jit_states.set_post_hook_state(_post_hook)


# Other names of options.
ALIASES = {"platform_name": "platforms", "xla_backend": "platforms"}


class Configuration:
    """`jaxlite.config`: options by name, as attributes (`config.jax_enable_x64`) and through `update`."""

    @staticmethod
    def _find(name: str) -> Option:
        for prefix in ("jaxlite_", "jax_", ""):
            if name.startswith(prefix):
                option = OPTIONS.get(ALIASES.get(name[len(prefix):], name[len(prefix):]))
                if option is not None:
                    return option
        raise AttributeError(f"Unrecognized config option: {name}. Known are: {', '.join(sorted(OPTIONS))}")

    def update(self, name: str, val: Any) -> None:
        """Set an option for the whole process; `name` may carry the prefix `jax_` or `jaxlite_`."""
        name = str(name)
        ignored = name.removeprefix("jax_")
        if ignored in REFUSED and val != REFUSED[ignored][0]:
            raise ValueError(f"{name} is {REFUSED[ignored][0]!r} here and takes no other value; {REFUSED[ignored][1]}")
        if ignored in WITHOUT_MEANING:
            WITHOUT_MEANING[ignored] = _parse_like(WITHOUT_MEANING[ignored], val, name)
        elif ignored not in REFUSED:
            try:
                self._find(name).set(val)
            except Exception as error:
                hide_own_frames(error)
                raise

    def read(self, name: str) -> Any:
        """The value of an option in this thread."""
        ignored = name.removeprefix("jax_")
        if ignored in REFUSED:
            return REFUSED[ignored][0]
        return WITHOUT_MEANING[ignored] if ignored in WITHOUT_MEANING else self._find(name).value

    @property
    def x64_enabled(self) -> bool:
        """Whether 64-bit types are enabled in this thread."""
        return bool(self.jax_enable_x64)

    def parse_flags_with_absl(self) -> None:
        """Set the options that the command line of the process names, `--jax_enable_x64=1`; absl itself is not needed.

        If the program uses it, absl knows these flags from then on, and counts as parsed: the program's own flags can be read.
        """
        own = [argument for argument in takewhile(lambda argument: argument != "--", sys.argv) if argument.startswith("--jax_")]
        for argument in own:
            name, equals, value = argument[2:].partition("=")
            self.update(name, value if equals else "1")
        if "absl.flags" in sys.modules:
            self._define_flags()
            sys.modules["absl.flags"].FLAGS(["", *own], known_only=True)

    def config_with_absl(self) -> None:
        """Define a flag of absl for each option. `absl.app.run` sets those that are on the command line, before `main`."""
        from absl import app, flags  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self._define_flags()

        def take_over() -> None:
            for name in self.values:
                if flags.FLAGS[name].present:
                    self.update(name, flags.FLAGS[name].value)

        app.call_after_init(take_over)

    def _define_flags(self) -> None:
        from absl import flags  # type: ignore[import-not-found, import-untyped, unused-ignore]

        define = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}
        for name, value in self.values.items():
            option = OPTIONS.get(name.removeprefix("jax_"))
            if name not in flags.FLAGS:
                define.get(type(value), flags.DEFINE_string)(name, value, option.doc if option else "An option of JAX's.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.removeprefix("jax_") in REFUSED | WITHOUT_MEANING.keys():
            return self.read(name)
        try:
            state = self._find(name).state
        except AttributeError as error:
            hide_own_frames(error)
            raise
        setattr(Configuration, name, property(lambda self: state.value))  # libraries ask often: no search the next time
        return state.value

    def __setattr__(self, name: str, value: Any) -> None:
        if callable(getattr(type(self), name, None)):  # libraries put a function of their own in the place of a method
            object.__setattr__(self, name, value)
        else:
            self.update(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.values})

    @property
    def values(self) -> dict[str, Any]:
        """All options and their values in this thread."""
        return {f"jax_{name}": value for name, value in WITHOUT_MEANING.items()} \
            | {f"jax_{name}": value for name, (value, _) in REFUSED.items()} \
            | {f"jax_{name}": option.value for name, option in OPTIONS.items()}


config = Configuration()


def _parse_like(now: Any, value: Any, name: str) -> Any:
    """The value of an option without meaning, of the type that it has now."""
    parse = {bool: _parse_bool, int: _parse_int, float: _parse_number, str: _parse_text}.get(type(now), _parse_any)
    return value if value is None and parse is not _parse_bool else parse(value, name)


def _set_foreign(names: Iterable[str]) -> None:
    """Set the options of JAX alone that these variables of the environment name."""
    for variable in names:
        name = variable.removeprefix("JAX_").lower()
        if name in WITHOUT_MEANING:
            WITHOUT_MEANING[name] = _parse_like(WITHOUT_MEANING[name], os.environ[variable], variable)
        elif name in REFUSED:
            config.update(name, os.environ[variable])


def _variables() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith(("JAX_", "JAXLITE_"))}


def read_environment() -> None:
    """Set the options whose variables changed since they were last read: programs set some before they import jax."""
    global _seen
    before, _seen = _seen, _variables()
    changed = {name for name, _ in before.items() ^ _seen.items()}
    for option in OPTIONS.values():
        if changed.intersection(option.variables):
            option.set(option.from_environment())
    _set_foreign(changed & _seen.keys())


_seen = _variables()
_set_foreign(_seen)
