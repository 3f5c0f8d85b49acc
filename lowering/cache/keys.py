"""Keys of the persistent cache: a hash of everything that an executable depends on, and the settings of the cache.

These are the module that XLA gets (with fusion barriers), in MLIR bytecode without source locations; the compile options
(with XLA_FLAGS, as parsed by XLA) and the device; the versions of jaxlib and jaxlite; and the machine: platform, device
kind, the processor's name and features, and the number of processors (XLA divides work among them at compile time). A
comment or a moved file changes nothing. Not cached: programs with custom calls into this process (host callbacks), and
compiles with a dump.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lowering import report, xla
from lowering.partitioning import devices_of

FORMAT = b"jaxlite1"  # of entries; a part of every key
_MUCH = 1 << 18  # bytes to hash
# The custom calls that mean the same in every process: XLA's own, and those of jaxlib and of its package for a GPU.
_PORTABLE_CALL = (r'custom_call @"?(lapack_|mhlo\.|tridiagonal_solve_|annotate_device_placement|__cudnn\$|__gpu\$xla|'
                  r'(cu|hip)(solver_|sparse_|hybrid_|_lu_pivots|_cholesky_update|_threefry2x32|_tridiagonal_solve))')

settings: dict[str, Callable[[], Any]] = {
    "folder": lambda: None,
    "limit": lambda: -1,
    "threshold": lambda: 0.0,
    "version": lambda: "",
}


def configure(**wishes: Callable[[], Any]) -> None:
    """Say where the wishes come from, as functions: `folder` to keep entries in or None for no cache, `limit` of all
    entries in bytes (negative: none), `threshold` in seconds, above which a compile is stored, `version` of what makes
    the modules."""
    settings.update(wishes)


class Key(NamedTuple):
    """The key of a module's executable, and whether the module calls what XLA does not have itself."""

    digest: bytes
    has_custom_calls: bool


def key_of(module: Any, device: Any, options: Any, overrides: dict[str, Any]) -> Key | None:
    """The key of what XLA would make of a module; None if the cache is off or not for this program."""
    surroundings = surroundings_of(device, options, overrides)
    if surroundings is None:
        return None
    code = xla.canonical_bytecode(module)
    has_custom_calls = b"custom_call" in code
    if has_custom_calls and not _is_portable(module):
        return None
    return Key(digest(code, *surroundings), has_custom_calls)


def surroundings_of(device: Any, options: Any, overrides: dict[str, Any]) -> tuple[bytes, ...] | None:
    """All that an executable depends on beside its program; None if the cache is off, or not for such compiles."""
    if not settings["folder"]() or "xla_dump" in os.environ.get("XLA_FLAGS", "") or any(
            name.startswith("xla_dump") for name in overrides):
        return None
    devices = devices_of(device)
    own = next((each for each in devices if each.process_index == each.client.process_index()), devices[0])
    machine = _machine(own)
    if machine is None:
        return None
    if own.process_index and all(each.process_index == own.process_index for each in devices):
        # A program of one process alone is the same in all of them: its devices have the numbers that they have in process 0.
        first = own.client.local_devices()[0].id
        given = options.device_assignment
        options.device_assignment = xla.DeviceAssignment.create(np.array([[each.id - first for each in devices]]))
        text = options.SerializeAsString()
        options.device_assignment = given
    else:
        text = options.SerializeAsString()
    if toolkit := options.executable_build_options.debug_options.xla_gpu_cuda_data_dir:
        text = text.replace(toolkit.encode(), b"")  # where CUDA is installed does not matter
    return text, machine, settings["version"]().encode()


def digest(*parts: bytes) -> bytes:
    """A hash that is different for any two sequences of parts."""
    whole = _sha256(sum(map(len, parts)))
    whole.update(FORMAT)
    for part in parts:
        whole.update(struct.pack("<Q", len(part)))
        whole.update(part)
    return whole.digest()


def checksum(content: Any) -> bytes:
    whole = _sha256(len(content))
    whole.update(content)
    return whole.digest()


def _sha256(size: int) -> Any:
    """A hash for so many bytes. Python's own is there at once; OpenSSL's takes 4 ms to load, and is five times as fast."""
    return _sha256_of(*(("_sha2", "_sha256") if size < _MUCH else ()), "hashlib")()


@functools.cache
def _sha256_of(*modules: str) -> Any:
    """The first of some modules' SHA-256; to look for one that this Python lacks takes longer than to hash a little."""
    for name in modules:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name).sha256
    raise ImportError(f"no SHA-256 in {modules}")


def _is_portable(module: Any) -> bool:
    text = module.operation.get_asm(enable_debug_info=False)
    return text.count("custom_call") == len(re.findall(_PORTABLE_CALL, text))


def processors() -> int | None:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@functools.cache
def _machine(device: Any) -> bytes | None:
    """What an executable for this device depends on of the machine and of XLA; None if that cannot be known."""
    hardware = xla.hardware_description(device)
    if hardware is None:
        report.complain("cache machine", "the persistent compile cache is off: this jaxlib does not tell the features of "
                                         "this machine's processor")
        return None
    names = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "PJRT_NPROC")
    facts = (*xla.VERSIONS, device.platform, device.device_kind, device.client.platform_version, sys.platform, processors(),
             *(os.environ.get(name) for name in names))
    return repr(facts).encode() + hardware
