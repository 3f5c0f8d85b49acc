"""Executables as bytes, for processes on machines of the same kind with the same version of jaxlib.

`jaxlite.export` stores programs, which any later version can compile; this module stores compiled code.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.compilation import execution
from jaxlite.compilation.options import Options
from jaxlite.compilation.program import Program
from jaxlite.compilation.stages import Compiled
from jaxlite.core import array as arrays
from jaxlite.core import config
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, Var
from jaxlite.devices.mesh import AxisType, Mesh
from jaxlite.devices.placement import default_device
from jaxlite.devices.sharding import PartitionSpec
from lowering import platforms, xla
from lowering.cache import keys
from lowering.cache.shortcuts import Found
from lowering.executable import compile_options
from lowering.partitioning import Partitioning, devices_of

__all__ = ["deserialize_and_load", "serialize"]
__dir__ = lambda: __all__

_FORMAT = 3
_CHECKSUM = 32  # bytes before the pickle
_codes: weakref.WeakKeyDictionary[execution.Executable, bytes] = weakref.WeakKeyDictionary()


def serialize(compiled: Compiled) -> tuple[bytes, Any, Any]:
    """A compiled function as bytes, and the trees of its (args, kwargs) and of its result.

    Raises: ValueError for one that calls Python functions, or whose arrays have a sharding that is not over a mesh.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental.serialize_executable import deserialize_and_load, serialize
    >>> compiled = jaxlite.jit(lambda x: x * 2).lower(jnp.ones(3)).compile()
    >>> deserialize_and_load(*serialize(compiled))(jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """
    if not isinstance(compiled, Compiled):
        raise TypeError(f"serialize takes what jit(f).lower(...).compile() gives, got a {type(compiled).__name__}")
    executable, program = compiled._executable, compiled._program
    if executable.calls_python:
        raise ValueError(f"{program.name} cannot be serialized: it calls Python functions")
    consts = [np.asarray(arrays.host_value(const)) for const in executable.const_args]
    fields = (_FORMAT, program.name, _code(program, executable), list(executable.in_avals),
              [var.aval for var in program.runnable.jaxpr.outvars], executable.kept, executable.donated, program.donated,
              consts, executable.device.platform, _placed(program, executable))
    content = pickle.dumps(fields)
    return keys.checksum(content) + content, compiled.in_tree, compiled.out_tree


def _placed(program: Program, executable: Any) -> Any:
    """The shardings of a program over several devices, with the devices' numbers in the meshes. None for one device."""
    place = executable.device
    if type(place) is not Partitioning:
        return None

    def of_mesh(mesh: Any) -> Any:
        kinds = tuple(kind.name for kind in mesh.axis_types)
        return mesh.axis_sizes, mesh.axis_names, kinds, [place.devices.index(device) for device in mesh.devices.flat]

    shardings = [*executable.in_shardings, *executable.out_shardings]
    if not all(each is None or type(each) is xla.NamedSharding for each in shardings):
        raise ValueError(f"{program.name} cannot be serialized: its arrays have shardings that no mesh axes describe")
    entries = [None if each is None else (of_mesh(each.mesh), each.spec, each.memory_kind) for each in shardings]
    count = len(executable.in_shardings)
    return len(place.devices), of_mesh(place.mesh), entries[:count], entries[count:]


def _place(placed: Any, devices: Sequence[Any], num_consts: int) -> Partitioning:
    """The same over devices."""
    _, mesh, arguments, results = placed

    def made(entry: Any) -> Any:
        sizes, names, kinds, numbers = entry
        grid = np.array([devices[number] for number in numbers]).reshape(sizes)
        return Mesh(grid, names, axis_types=tuple(AxisType[kind] for kind in kinds))

    def sharding(entry: Any) -> Any:
        return None if entry is None else xla.NamedSharding(made(entry[0]), entry[1], memory_kind=entry[2])

    whole = [xla.NamedSharding(made(mesh), PartitionSpec())] * num_consts
    return Partitioning(tuple(devices), (*whole, *map(sharding, arguments)), tuple(map(sharding, results)), made(mesh),
                        len(arguments))


def _code(program: Program, executable: execution.Executable) -> bytes:
    """An executable's code. XLA writes the code of what it compiled, and not of what it loaded itself."""
    found = _codes.get(executable)
    if found is None:
        loaded = executable.loaded
        if executable.cached == "hit":
            key = next(key for key, made in program.executables.items() if made is executable)
            with config.enable_compilation_cache(False):
                lowered = program.lower(platforms.target_of(executable.device), executable.device)
                loaded = execution.compile_lowered(lowered, program.runnable, executable.device, executable.committed,
                                                   dict(key[2] or ())).loaded
        found = _codes[executable] = loaded.serialize()
    return found


def deserialize_and_load(serialized: bytes, in_tree: Any, out_tree: Any, backend: str | None = None,
                         execution_devices: Sequence[Any] | None = None) -> Compiled:
    """The compiled function that `serialize` kept, ready to be called.

    Args: the three values that `serialize` gave; the platform or the devices to run on instead of the default.
    Raises: ValueError for bytes of another format or platform. Only load what you trust: it is a pickle, and code.
    """
    content = memoryview(serialized)[_CHECKSUM:]
    if keys.checksum(content) != bytes(serialized[:_CHECKSUM]):  # XLA runs whatever it loads
        raise ValueError("these are not the bytes of a compiled function, or they are damaged: their checksum is another")
    version, *fields = pickle.loads(content)
    if version != _FORMAT:
        raise ValueError(f"the executable is of format {version}, this version of jaxlite reads {_FORMAT}")
    name, code, in_avals, out_avals, kept, donated, flags, consts, platform, placed = fields
    count = 1 if placed is None else placed[0]
    if execution_devices is None:
        execution_devices = [default_device()] if count == 1 and backend is None else platforms.devices(backend)[:count]
    if len(execution_devices) != count:
        raise ValueError(f"the executable runs on {count} device{'s' * (count > 1)}, got {len(execution_devices)}")
    device = execution_devices[0] if placed is None else _place(placed, execution_devices, len(consts))
    if device.platform != platform:
        raise ValueError(f"{name} was compiled for {platform}; it cannot run on {device}")
    xla.register_calls_in(code, device.platform)
    loaded = device.client.deserialize_executable(code, xla.DeviceList(devices_of(device)), compile_options(device, None))
    variables = [Var(aval) for aval in in_avals]
    shape = Jaxpr([Var(arrays.aval_of(const)) for const in consts], variables, [Var(aval) for aval in out_avals], [])
    closed = ClosedJaxpr(shape, consts)
    program = Program(closed, in_tree, out_tree, name, flags, Options((), (), (), (), False, None, False, None), 0.0,
                      DebugInfo("jit", name), "")
    found = Found(loaded, 0.0, name, kept, donated, sets_layouts=True)
    executable = execution._executable(loaded, found, closed, device, False, 0.0, "off")
    _codes[executable] = code
    return Compiled(program, executable)
