"""Accelerator plugins: which are installed, how each is started, and the options of its client.

A plugin is a library with PJRT's C interface. NVIDIA's and AMD's are wheels in the namespace package `jax_plugins`,
Google's is the package `libtpu`. A package of another vendor names a module in the entry point group `jax_plugins`; its
function `initialize()` calls `register`. A plugin is loaded when its platform is started.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lowering import xla

# Loaded in this order, so that each finds what it needs in the process already.
_NVIDIA_LIBRARIES = ("cudart nvJitLink nvrtc cublasLt cublas cufft cusparse cusolver cudnn nccl cupti nvshmem_host").split()
_GROUP = b"[jax_plugins]"


class Plugin:
    """One way to a platform that is no CPU.

    Attributes: `name` as PJRT has it ('cuda', 'rocm', 'tpu', or a vendor's); `library` the path; `calls` the package with the
    custom calls of a GPU, or ''; `options` gives what the client is made with; `priority` decides between plugins.
    """

    __slots__ = ("name", "library", "calls", "options", "priority", "_loaded")
    fails_quietly: bool = True
    make_topology: Any = None

    def __init__(self, name: str, library: str, calls: str = "", options: Callable[[], dict[str, Any]] = dict,
                 priority: int = 400):
        self.name, self.library, self.calls, self.options, self.priority = name, library, calls, options, priority
        self._loaded: Any = None

    def load(self) -> Any:
        """PJRT's interface of the library, which is loaded and initialized once."""
        if self._loaded is None:
            if self.name == "cuda":
                load_nvidia_libraries()
            if self.name == "tpu" and not _has_tpu():
                os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else it waits for a cloud service that is not there
                os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # without a chip, processes need not take turns
            self._loaded = xla.load_plugin(self.name, self.library)
            if self.calls:
                xla.register_gpu_calls(self.calls, self.name, self._loaded)
            xla.initialize_plugin(self.name)
        return self._loaded

    def start(self, peers: Any = None) -> Any:
        """A client for the devices of this machine and of its peers. Raises: RuntimeError if there are none, or if the library
        fails."""
        self.load()
        return xla.plugin_client(self.name, self.options(), peers)


class Factory:
    """A platform whose client a function of a library makes.

    Attributes: as of a plugin, and `fails_quietly`, whether it is left out where that raises an error; `make_topology`, a
    function of a name and options that describes devices which are not here, or None.
    """

    __slots__ = ("name", "library", "priority", "fails_quietly", "make_topology", "_make")

    def __init__(self, name: str, make: Callable[[], Any], priority: int, fails_quietly: bool, make_topology: Any):
        self.name, self.library, self.priority, self.fails_quietly = name, "", priority, fails_quietly
        self.make_topology, self._make = make_topology, make

    def start(self, peers: Any = None) -> Any:
        """The client that the function gives. Raises: RuntimeError if it gives something else."""
        made = self._make()
        if made is None:
            raise RuntimeError(f"the factory of the platform {self.name!r} gave no client")
        return made


_registered: dict[str, Plugin | Factory] = {}
_settings: dict[str, Callable[..., Any]] = {"visible_devices": lambda name: None, "nodes": lambda: None}


def configure(**settings: Callable[..., Any]) -> None:
    """Say where wishes come from: `visible_devices(name)` gives the text of the option for a platform ('0,2', or None for
    all), `nodes()` gives (id, number) of this process among those that run one program, or None."""
    _settings.update(settings)


def register(name: str, library: str, options: dict[str, Any] | None = None, priority: int = 400) -> None:
    """Make a plugin known, as `initialize()` of a vendor's package does."""
    _registered[name] = Plugin(name, library, "", lambda: dict(options or {}), priority)


def register_factory(factory: Factory) -> None:
    """Make a platform of a library known."""
    _registered[factory.name] = factory


def find() -> dict[str, Plugin | Factory]:
    """The plugins that are installed and the platforms of libraries, by name, the preferred one first."""
    found: dict[str, Plugin | Factory] = {}
    for plugin in (_tpu(), *_gpus()):
        if plugin is not None:
            found.setdefault(plugin.name, plugin)
    for module in _named_by_packages():
        if not module.startswith(("jax_plugins.xla_cuda", "jax_plugins.xla_rocm")):
            importlib.import_module(module).initialize()
    found |= _registered
    return dict(sorted(found.items(), key=lambda item: -item[1].priority))


# --- where they are ----------------------------------------------------------------------------------


def _tpu() -> Plugin | None:
    library = os.environ.get("TPU_LIBRARY_PATH") or _file_in("libtpu", "libtpu.so")
    return Plugin("tpu", library, priority=300) if library and os.path.exists(library) else None


def _gpus() -> Iterator[Plugin]:
    if importlib.util.find_spec("jax_plugins") is None:
        return
    for kind, versions in (("cuda", ("13", "12")), ("rocm", ("7", "60"))):
        for version in versions:
            library = _file_in(f"jax_plugins.xla_{kind}{version}", f"xla_{kind}_plugin.so")
            if library:
                yield Plugin(kind, library, f"jax_{kind}{version}_plugin", functools.partial(_gpu_options, kind), 200)


def _file_in(package: str, name: str) -> str:
    """The path of a file in a package, which is not imported: '' if there is none."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return ""
    path = os.path.join(os.path.dirname(spec.origin), name) if spec is not None and spec.origin else ""
    return path if os.path.exists(path) else ""


def _named_by_packages() -> Iterator[str]:
    """The modules that installed packages name in the group `jax_plugins`.

    `importlib.metadata` would tell, and takes longer to load than the rest of a program's start.
    """
    for folder in sys.path:
        try:
            packages = [name for name in os.listdir(folder or ".") if name.endswith(".dist-info")]
        except OSError:
            continue
        for package in packages:
            try:
                with open(os.path.join(folder, package, "entry_points.txt"), "rb") as opened:
                    _, there, text = opened.read().partition(_GROUP)
            except OSError:
                continue
            if there:
                for line in text.decode().split("[")[0].splitlines():
                    _, equals, module = line.partition("=")
                    if equals:
                        yield module.partition(":")[0].strip()


# --- what their clients are given --------------------------------------------------------------------


def _gpu_options(kind: str) -> dict[str, Any]:
    """Allocator and memory fraction from `XLA_PYTHON_CLIENT_*`, the devices to use, and this process among its peers."""
    options = dict(xla.gpu_client_options())
    visible = _settings["visible_devices"](kind)
    if visible and visible != "all":
        try:
            options["visible_devices"] = [int(number) for number in visible.split(",")]
        except ValueError:
            raise ValueError(f"jax_{kind}_visible_devices is {visible!r}; it takes numbers, as in '0,2', or 'all'") from None
    nodes = _settings["nodes"]()
    if nodes is not None:
        options |= nodes
    return options


def load_nvidia_libraries() -> None:
    """Load CUDA's libraries from NVIDIA's wheels, where they are installed, so that the plugin finds them in the process.

    There may be wheels of two versions of CUDA: the plugin takes those of its own.
    """
    import glob

    for name in _NVIDIA_LIBRARIES:
        for folder in _nvidia_folders():
            for library in sorted(glob.glob(os.path.join(glob.escape(folder), "*", "lib", f"lib{name}.so*"))):
                try:
                    ctypes.CDLL(library)
                except OSError:
                    continue  # the system may have it: the plugin reports what is missing


@functools.cache
def cuda_folder() -> str:
    """The folder with CUDA's assembler and its library for devices, where XLA would not look for it; '' if there is none."""
    asked = os.environ.get("CUDA_ROOT")
    if asked:
        return asked
    candidates = [os.path.join(folder, name) for name in ("cu13", "cuda_nvcc") for folder in _nvidia_folders()]
    return next((each for each in candidates if os.path.exists(os.path.join(each, "bin", "ptxas"))), "")


def _nvidia_folders() -> list[str]:
    spec = importlib.util.find_spec("nvidia")
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _has_tpu() -> bool:
    """Whether this machine has a chip: its device files."""
    import glob

    return bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))
