"""Platforms: which devices there are, and the clients that own them. Each client starts on first use."""

from __future__ import annotations

import os
import threading
from typing import Any

from lowering import xla

_lock = threading.RLock()
_clients: dict[str, Any] = {}
_order: list[str] | None = None
_settings: dict[str, Any] = {"platforms": None, "num_cpu_devices": None, "aval_class": None}
_ALIASES = {"cuda": "gpu", "rocm": "gpu", "gpu": "gpu", "cpu": "cpu", "tpu": "tpu"}


def configure(**settings: Any) -> None:
    """Say what the first client will be made with: `aval_class`, `platforms` and `num_cpu_devices` (functions
    that give the options' values)."""
    _settings.update(settings)


def _cuda_plugin() -> str | None:
    import importlib.util  # here as it is not free, and a program that computes nothing does not get here

    for version in ("13", "12"):
        try:
            spec = importlib.util.find_spec(f"jax_plugins.xla_cuda{version}")
        except ModuleNotFoundError:
            return None
        if spec is not None and spec.origin:
            library = os.path.join(os.path.dirname(spec.origin), "xla_cuda_plugin.so")
            if os.path.exists(library):
                return library
    return None


def platform_names() -> list[str]:
    """The platforms in use, default first: those asked for by option, else an accelerator before the CPU."""
    global _order
    if _order is None:
        asked = _settings["platforms"]() if _settings["platforms"] else None
        if asked:
            _order = [name.strip() for name in asked.split(",") if name.strip()]
            for name in _order:
                if name not in _ALIASES:
                    unknown, _order = _order, None
                    raise RuntimeError(f"Unknown backend {name!r} in the platforms {unknown}; "
                                       f"known are {sorted(_ALIASES)}")
        else:
            _order = (["cuda"] if _cuda_plugin() is not None else []) + ["cpu"]
    return _order


def client(platform: str | None = None) -> Any:
    """The client of a platform (default: the first in use).

    Raises: RuntimeError if there is no such platform here.
    """
    found = _clients.get(platform or "")
    if found is not None:
        return found
    with _lock:
        names = platform_names()
        name = platform or names[0]
        if name == "gpu":
            name = next((each for each in names if _ALIASES[each] == "gpu"), name)
        if name not in _clients:
            if name not in names and name != "cpu":
                raise RuntimeError(f"Unknown backend: '{platform}' requested, but no platforms that are "
                                   f"instances of {platform} are present. Platforms present are: {','.join(names)}")
            _clients[name] = _start(name, bool(platform), names)
        _clients[platform or ""] = _clients[name]
        return _clients[name]


def _start(name: str, asked: bool, names: list[str]) -> Any:
    if name == "cpu":
        count = _settings["num_cpu_devices"]() if _settings["num_cpu_devices"] else -1
        started = xla.make_cpu_client(count if count and count > 0 else None)
    elif _ALIASES.get(name) == "gpu":
        library = _cuda_plugin()
        if library is None:
            raise RuntimeError(f"Backend {name!r} needs the package jax-cuda13-pjrt (or -cuda12-), which is not installed")
        started = xla.load_plugin("cuda", library)
    else:
        raise RuntimeError(f"Backend {name!r} is not available on this machine")
    xla.prime(_settings["aval_class"], started.local_devices()[0])
    return started


def devices(platform: str | None = None) -> list[Any]:
    """All devices of a platform (default: the first in use)."""
    return client(platform).local_devices()


def default_device() -> Any:
    """The first device of the default platform."""
    return devices()[0]


def platform_of(device: Any) -> str:
    """The platform name that lowering rules ask for: 'cpu', 'gpu' or 'tpu'."""
    return canonical_name(device.platform)


def canonical_name(platform: str) -> str:
    """The name of a platform among 'cpu', 'gpu' and 'tpu': 'cuda' is 'gpu'."""
    return _ALIASES.get(platform, platform)
