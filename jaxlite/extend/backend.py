"""Clients of platforms, for libraries that use XLA directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.compilation.caches import clear_caches as clear_in_memory_compilation_cache
from jaxlite.compilation.caches import clear_hooks
from jaxlite.core.missing import missing
from jaxlite.devices.api import effects_barrier
from jaxlite.devices.placement import default_device as get_default_device
from lowering import platforms, xla
from lowering.executable import compile_options

__all__ = [
    "backend_xla_version", "backends", "clear_backends", "clear_in_memory_compilation_cache", "get_backend",
    "get_compile_options", "get_default_device", "register_backend_cache", "register_backend_factory",
]
__dir__ = lambda: __all__


def __getattr__(name: str) -> Any:
    if name == "ifrt_proxy":  # for users of Pathways; others need not load it
        return xla.proxy_module()
    raise missing(__name__, name)


def get_backend(platform: Any = None) -> Any:
    """The client of a platform, by name; of the default one without a name. Raises: RuntimeError if there is none."""
    return platforms.client(platform) if platform is None or isinstance(platform, str) else platform


def clear_backends() -> None:
    """Let go of all clients, with what is compiled for them: new ones start when they are needed, by the options of then.

    Arrays and devices from before belong to the old clients, which end with the last of them.
    """
    effects_barrier()
    clear_in_memory_compilation_cache()
    platforms.forget()


def backends() -> dict[str, Any]:
    """The clients of all platforms in use, by name."""
    return {name: platforms.client(name) for name in platforms.platform_names()}


def backend_xla_version(platform: Any = None) -> int | None:
    """The version of XLA that a platform's plugin says it has; None for the CPU, which is part of jaxlib."""
    return getattr(get_backend(platform), "xla_version", None)


def get_compile_options(num_replicas: int, num_partitions: int, device_assignment: Any = None,
                        env_options_overrides: dict[str, Any] | None = None, fdo_profile: bytes | None = None,
                        detailed_logging: bool = True, backend: Any = None) -> Any:
    """XLA's options for a compile that a library does itself, with `client.compile_and_load`.

    Args:
      num_replicas, num_partitions: how many devices run the program, each the whole of it or a part.
      device_assignment: their numbers, (num_replicas, num_partitions); the first ones of the platform by default.
      env_options_overrides: XLA's flags by name.
      fdo_profile: a profile for XLA to optimise by.
      detailed_logging, backend: whether XLA may log much; the client.
    """
    if device_assignment is None:
        device_assignment = [each.id for each in get_backend(backend).devices()[:num_replicas * num_partitions]]
    ids = np.asarray(device_assignment, dtype=object).reshape(num_replicas, num_partitions)
    ids = np.vectorize(lambda each: getattr(each, "id", each), otypes=[int])(ids)
    options = compile_options(platforms.default_device(), env_options_overrides)
    options.num_replicas, options.num_partitions = num_replicas, num_partitions
    options.device_assignment = xla.DeviceAssignment.create(ids)
    build = options.executable_build_options
    build.use_spmd_partitioning = build.use_shardy_partitioner = num_partitions > 1
    if fdo_profile is not None:
        build.fdo_profile = fdo_profile
    return options


def register_backend_factory(name: str, factory: Callable[[], Any], *, priority: int = 0, fail_quietly: bool = True,
                             experimental: bool = False, make_topology: Callable[..., Any] | None = None,
                             c_api: Any = None) -> None:
    """Make a platform known, such as a PJRT plugin that a library loads itself.

    Args:
      name: of the platform, as `jax.devices(name)` and the option `platforms` name it.
      factory: gives a client; called when a device of the platform is first needed.
      priority: the platform with the greatest is the default one; the CPU's is 0.
      fail_quietly: whether the platform is left out where the factory raises an error; else that is an error.
      make_topology: `make_topology(topology_name, **options)` gives XLA's description of devices that are not here, for
        `experimental.topologies`.
      experimental, c_api: for compatibility.
    Raises: RuntimeError if the client has started.
    """
    platforms.register(name, factory, priority, fail_quietly, make_topology)


def register_backend_cache(cache: Any, for_what: str) -> Callable[..., Any]:
    """Have `clear_caches` clear a cache too, which has a method `cache_clear`; `for_what` says what is in it."""
    clear_hooks.append(cache.cache_clear)
    return cache
