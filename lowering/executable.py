"""From a module to a loaded executable: XLA's options, and the compile, or what the persistent cache has of an earlier one.

The module is that of a `lowering.lowered.Lowered`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering import platforms, xla
from lowering.cache import entries, keys
from lowering.partitioning import Partitioning, devices_of

BARRIERS = "jaxlite_cpu_fusion_barriers"  # the one compile option that is not XLA's
OF_LLVM = "--"  # what its options begin with
_DISABLED = "xla_disable_hlo_passes"

# No debug flags of XLA: what they are in Python.
_BUILD_OPTIONS = {"exec_time_optimization_effort": float, "memory_fitting_effort": float, "optimization_level": int,
                  "memory_fitting_level": int}


def compile_options(device: Any, overrides: dict[str, Any] | None, keep_barriers: bool = False,
                    flags: Sequence[str] = ()) -> Any:
    """XLA's options for a device or a partitioning, with debug-option overrides by flag name (`xla_...`), and with `flags`
    that have no such name, or one and a value. Names in `XLA_FLAGS` are the user's."""
    set_by_user = os.environ.get("XLA_FLAGS", "")
    named = [flag for flag in flags if "=" in flag and not flag.startswith(OF_LLVM)]
    options = xla.with_backend_options(xla.CompileOptions(), [flag for flag in flags if flag not in named])
    devices = devices_of(device)
    options.num_replicas, options.num_partitions = 1, len(devices)
    options.device_assignment = xla.DeviceAssignment.create(np.array([[each.id for each in devices]]))
    if type(device) is Partitioning:
        options.executable_build_options.use_spmd_partitioning = True
        options.executable_build_options.use_shardy_partitioner = True
    if platforms.platform_of(devices[0]) == "gpu":
        from lowering import plugins

        toolkit, debug_options = plugins.cuda_folder(), options.executable_build_options.debug_options
        if toolkit and "xla_gpu_cuda_data_dir" not in set_by_user:
            debug_options.xla_gpu_cuda_data_dir = toolkit
    chosen = (flag.split("=") for flag in named)
    overrides = {name: value for name, value in chosen if name not in set_by_user} | (overrides or {})
    for name in _BUILD_OPTIONS.keys() & overrides.keys():
        value = _BUILD_OPTIONS[name](overrides.pop(name))
        if hasattr(options.executable_build_options, name):  # jaxlib 0.12 does not have the efforts
            setattr(options.executable_build_options, name, value)
    if keep_barriers and xla.BARRIER_DROPPER:
        disabled = overrides.get(_DISABLED, options.executable_build_options.debug_options.xla_disable_hlo_passes)
        overrides[_DISABLED] = f"{disabled},{xla.BARRIER_DROPPER}".lstrip(",")
    if overrides:
        options.env_option_overrides = [
            (name, str(value) if isinstance(value, bool) else value) for name, value in sorted(overrides.items())
            if name != BARRIERS
        ]
    return options


def compile_lowered(lowered: Any, device: Any, overrides: dict[str, Any] | None = None,
                    shortcut: Any = None) -> tuple[Any, float, str]:
    """Compile a `Lowered` for a device or a partitioning, or find it in the persistent cache; a `shortcut` then leads to it.

    Returns: the loaded executable, the seconds it took, and what the cache said: "hit", "miss", or "off".
    """
    start = time.perf_counter()
    options = compile_options(device, overrides, bool(lowered.barriers), lowered.flags)
    functions = lowered.host_functions  # of this process: nothing to keep on a disk
    key = None if functions or xla.is_compile_only(device) else keys.key_of(lowered.module, device, options, overrides or {})
    executable, cached, is_kept = None if key is None else entries.load(key.digest, device, options), "hit", True
    if executable is None:
        compiling = time.perf_counter()
        executable = xla.compile_module(lowered.module, xla.DeviceList(devices_of(device)), options, functions)
        if key is None:
            return executable, time.perf_counter() - start, "off"
        first = devices_of(device)[0]
        is_kept = first.process_index == first.client.process_index() and entries.store(  # one process for all
            key.digest, executable, lowered.name, lowered.platform, time.perf_counter() - compiling)
        cached = "miss"
    if is_kept and key is not None and shortcut is not None:
        shortcut.lay(key, lowered)
    return executable, time.perf_counter() - start, cached
