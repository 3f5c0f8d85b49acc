"""Platforms: their devices and the clients that own them. Each client starts on first use."""

from __future__ import annotations

import _thread
import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowering import report, xla
from lowering.this_process import forced_devices

if TYPE_CHECKING:
    from lowering import plugins

_lock = threading.RLock()
clients: dict[str, Any] = {}  # that have started, by name; "" for the default one
_order: list[str] | None = None
_settings: dict[str, Any] = {"platforms": None, "num_cpu_devices": None, "aval_class": None,
                             "peers": lambda: None, "visible_devices": lambda name: None, "nodes": lambda: None}
_ALIASES = {"cuda": "gpu", "rocm": "gpu", "gpu": "gpu", "cpu": "cpu", "tpu": "tpu"}
_WHEELS = {
    "cuda": "pip install jaxlite[cuda13] (or [cuda12])", "gpu": "pip install jaxlite[cuda13] (or [cuda12], [rocm])",
    "rocm": "pip install jaxlite[rocm]", "tpu": "pip install jaxlite[tpu]",
}


def configure(**settings: Any) -> None:
    """Say what the first client will be made with: `aval_class`, `platforms` and `num_cpu_devices` (functions
    that give the options' values), `peers` (a function that gives the processes that this one runs programs with, or None)."""
    _settings.update(settings)


def platform_names() -> list[str]:
    """The platforms in use, default first: those asked for by option, else accelerators before the CPU."""
    global _order
    if _order is None:
        asked = _settings["platforms"]() if _settings["platforms"] else None
        if asked:
            names = [name.strip() for name in asked.split(",") if name.strip()]
            for name in names:
                if name not in _ALIASES and name not in installed():  # plugins are not sought for names that are known
                    raise RuntimeError(f"Unknown backend {name!r} in the platforms {names}; known are {known_names()}")
            _order = names
        else:
            before = [name for name, plugin in installed().items() if plugin.priority > 0]
            _order = [*before, "cpu", *(name for name in installed() if name not in before)]
    return _order


def known_names() -> list[str]:
    """All names of platforms that mean something here, in use or not."""
    return sorted({*_ALIASES, *installed()})


@functools.cache
def installed() -> dict[str, plugins.Plugin | plugins.Factory]:
    """The plugins that are installed and the platforms of libraries, by name."""
    from lowering import plugins  # it searches for files: only for programs that use devices

    # Asked when a client starts: what is set between now and then counts.
    plugins.configure(visible_devices=lambda name: _settings["visible_devices"](name), nodes=lambda: _settings["nodes"]())
    return plugins.find()


def register(name: str, make: Callable[[], Any], priority: int = 0, fails_quietly: bool = True,
             make_topology: Callable[..., Any] | None = None) -> None:
    """Make a platform known whose client `make` gives when it is needed; it is the default if its `priority` is the greatest.

    The CPU's is 0. Raises: RuntimeError if its client has started.
    """
    global _order
    from lowering import plugins

    with _lock:
        if name in clients:
            raise RuntimeError(f"Backend {name} already initialized")
        plugins.register_factory(plugins.Factory(name, make, priority, fails_quietly, make_topology))
        installed.cache_clear()
        _order = None


def client(platform: str | None = None) -> Any:
    """The client of a platform (default: the first in use that starts).

    Raises: RuntimeError if there is no such platform here.
    """
    found = clients.get(platform or "")
    if found is not None:
        return found
    with _lock:
        if not platform:
            found = _first_that_starts()
        else:
            names = platform_names()
            name = next((each for each in names if _ALIASES.get(each, each) == platform), platform)
            if name not in clients:
                if name not in names and name != "cpu":
                    raise RuntimeError(f"Unknown backend: '{platform}' requested, but no platforms that are "
                                       f"instances of {platform} are present. Platforms present are: {','.join(names)}")
                try:
                    clients[name] = _start(name)
                except xla.XlaRuntimeError as error:
                    raise _failed(name, error) from error
            found = clients[name]
        clients[platform or ""] = found
        return found


def forget() -> None:
    """Let go of all clients, so that others start when they are needed. One lives as long as what belongs to it."""
    global _order
    with _lock:
        clients.clear()
        _ready.clear()
        _order = None


def in_advance() -> Any | None:
    """The default client before anything has asked for it: one that has started, or one of the CPU that counts as not started
    until then. None if the default is not a plain CPU.

    What is set until it is asked for still counts: then another one starts.
    """
    with _lock:
        if clients:
            return clients.get("")
        wishes = _plain_wishes()
        if wishes is not None and not _ready:
            _ready[wishes] = xla.make_cpu_client()
        return _ready.get(wishes)


_ready: dict[Any, Any] = {}  # a client of the CPU by what it was made with


def _wishes() -> tuple[int | None, Any, str | None]:
    """What the client of the CPU depends on: the number of its devices, its peers, and XLA's flags."""
    count = _settings["num_cpu_devices"]() if _settings["num_cpu_devices"] else None
    return count if count and count > 0 else None, _settings["peers"](), os.environ.get("XLA_FLAGS")


def _plain_wishes() -> Any | None:
    """What the default client depends on, if that is a plain one of the CPU."""
    asked = _settings["platforms"]() if _settings["platforms"] else None
    count, peers, _ = wishes = _wishes()
    is_plain = (count is None and peers is None and (asked == "cpu" or not asked and not installed())
                and not (xla.LACKS_THREADS and forced_devices()))  # its start changes the environment
    return wishes if is_plain else None


def start_beside(work: Callable[[], Any]) -> None:
    """Do some work of Python's while the default client starts, which is C++, if it is a plain one of the CPU."""
    with _lock:
        wishes = None if clients or _ready else _plain_wishes()
        if wishes is None:
            work()
            return
        done = _thread.allocate_lock()
        done.acquire()

        def start() -> None:
            try:
                _ready[wishes] = xla.make_cpu_client()
            except Exception:
                pass  # it is raised again where the client is asked for
            finally:
                done.release()

        _thread.start_new_thread(start, ())  # not one that counts: MLIR's import looks for others that run Python
        try:
            work()
        finally:
            done.acquire()


def has_threads() -> bool:
    """Whether a client has started, in advance or not."""
    return bool(clients or _ready)


def _first_that_starts() -> Any:
    """The client that is used by default. A plugin that fails is left out with one line in the log, unless it was requested."""
    names = platform_names()
    asked = bool(_settings["platforms"] and _settings["platforms"]())
    if names == ["cpu"] and not asked:
        _hint_at_plugins()
    while names:
        name = names[0]
        try:
            clients[name] = clients.get(name) or _start(name)
            return clients[name]
        except Exception as error:
            if asked or name == "cpu" or not getattr(plugin_of(name), "fails_quietly", True):
                raise _failed(name, error) from error
            report.complain(f"platform {name}", f"the platform {name} does not start and is left out: {error}")
            names.pop(0)
    raise RuntimeError("no platform is left to run on")


def _failed(name: str, error: Exception) -> RuntimeError:
    return RuntimeError(f"Unable to initialize backend '{name}': {error} (set JAX_PLATFORMS='' to automatically choose an "
                        "available backend)")


def _hint_at_plugins() -> None:
    """One line in the log where a GPU's device files are and no plugin for it."""
    try:
        files = os.listdir("/dev")
    except OSError:
        return
    present = (("An NVIDIA GPU", "cuda", any([file[:6] == "nvidia" and file[6:7].isdigit() for file in files])),
               ("An AMD GPU", "rocm", "kfd" in files),
               ("A Google TPU", "tpu", any([file[:5] == "accel" for file in files])))
    for device, name, is_present in present:
        if is_present and name not in installed():
            report.complain(f"platform {name}", f"{device} may be present on this machine, but its plugin is not installed "
                                                f"({wheel_for(name)}). Falling back to cpu.")


def _start(name: str) -> Any:
    if name == "cpu":
        count, peers, _ = wishes = _wishes()
        started = _ready.pop(wishes, None) or xla.make_cpu_client(count, peers)
        _ready.clear()
    else:
        plugin = plugin_of(name)
        if plugin is None:
            raise RuntimeError(f"Backend {name!r} needs a plugin that is not installed: {wheel_for(name)}")
        started = plugin.start(_settings["peers"]())
    with xla.unguarded():
        xla.prime(_settings["aval_class"], started.local_devices()[0])
    return started


def is_started(platform: str) -> bool:
    """Whether the client of a platform has started."""
    return platform in clients


def plugin_of(name: str) -> plugins.Plugin | plugins.Factory | None:
    """The installed plugin of a platform: 'gpu' is the first of 'cuda' and 'rocm'."""
    return next((plugin for plugin in installed().values() if name in (plugin.name, _ALIASES.get(plugin.name))), None)


def wheel_for(platform: str) -> str:
    """How to install a platform's plugin."""
    return _WHEELS.get(platform, "see its vendor")


def gpu_vendor(platform: str) -> str:
    """Whose GPU a platform is, 'cuda' or 'rocm': for 'gpu' AMD's where its plugin alone is installed."""
    return platform if platform != "gpu" else "rocm" if "rocm" in installed() and "cuda" not in installed() else "cuda"


def devices(platform: str | None = None) -> list[Any]:
    """The devices of a platform (default: the first in use) that this process owns."""
    return client(platform).local_devices()


def all_devices(platform: str | None = None) -> list[Any]:
    """The devices of a platform (default: the first in use), those of other processes among them."""
    return client(platform).devices()


def default_device() -> Any:
    """The first device of the default platform."""
    return devices()[0]


def platform_of(device: Any) -> str:
    """The platform name that lowering rules use: 'cpu', 'gpu' or 'tpu'."""
    return canonical_name(device.platform)


def target_of(device: Any) -> str:
    """What to lower for a device: 'cpu', 'cuda', 'rocm', 'tpu'."""
    platform = platform_of(device)
    if platform != "gpu":
        return platform
    version = device.client.platform_version.lower()
    return "rocm" if "rocm" in version or version.startswith("amd") else "cuda"


def canonical_name(platform: str) -> str:
    """The name of a platform among 'cpu', 'gpu' and 'tpu': 'cuda' is 'gpu'."""
    return _ALIASES.get(platform, platform)
