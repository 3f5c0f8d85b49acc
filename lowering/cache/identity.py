"""The identity of a jaxpr: a hash that is equal in two processes if the programs are.

It determines the module that lowering would make, so it includes everything that a rule can read: primitives, params,
types, literals, and the dataflow. It excludes what is not part of a module: source lines, variable names, and derivative
rules, which have already been applied. Some jaxprs have no identity, because equality is not certain: those with effects,
with arrays in the bodies of their equations, with primitives of libraries (whose rules may change without a change of
jaxlite's version), and with functions or other objects of unknown meaning among their params.
"""

from __future__ import annotations

import enum
import functools
import marshal
from typing import Any

import numpy as np

from lowering.partitioning import mesh_text, sharding_text

# Version 2 writes each value by its type and content alone; later ones also by who else refers to it.
PLAIN_MARSHAL = 2
_PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))
# What lowering reads of the primitives that carry rules for derivatives beside, or names.
_READ = {
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",),
    "remat2": ("jaxpr", "prevent_cse", "differentiated"),
    "sow": ("count",),
    "nest": ("jaxpr",),
}
_NAMED = ("Implementation", "KeyDType")


class _Unknown(Exception):
    """Met something whose meaning for the module is not known."""


def identity(jaxpr: Any) -> bytes | None:
    """The identity of a jaxpr as text of any length, or None if it has none."""
    writer = _Writer()
    try:
        writer.program(jaxpr)
        types = [_type(aval) for aval in writer.types]
    except _Unknown:
        return None
    return marshal.dumps([writer.programs, types], PLAIN_MARSHAL)


class _Writer:
    """Collects programs, each once, as plain data: tuples for what is a tuple there, lists for all else."""

    def __init__(self) -> None:
        self.programs: list[Any] = []
        self.types: dict[Any, int] = {}
        self._known: dict[int, int] = {}  # id of a jaxpr -> its place among the programs

    def program(self, jaxpr: Any) -> int:
        """The place of a jaxpr among the programs."""
        found = self._known.get(id(jaxpr))
        if found is not None:
            return found
        if jaxpr.effects:
            raise _Unknown
        numbers: dict[Any, int] = {}
        types, literal, param = self.types, self.literal, self.param

        def define(variables: Any) -> list[int]:
            for var in variables:
                numbers[var] = len(numbers)
            return [types.setdefault(var.aval, len(types)) for var in variables]

        def read(atoms: Any) -> list[Any]:
            return [numbers[atom] if atom in numbers else literal(atom) for atom in atoms]

        inputs = define(jaxpr.constvars), define(jaxpr.invars)
        lines: list[Any] = []
        traceback: Any = None
        for eqn in jaxpr.eqns:
            primitive, params = eqn.primitive, eqn.params
            name = primitive.name
            if not primitive.is_own or eqn.effects:
                raise _Unknown
            if eqn.traceback is not traceback:
                traceback = eqn.traceback
                if getattr(traceback, "words", None):  # attributes of its operations, which are not part of a program
                    raise _Unknown
            if name in _READ:
                params = {each: params[each] for each in _READ[name]}
            # No calls here for what most equations are: this is most of what an identity costs.
            lines.append((name, [numbers[atom] if atom in numbers else literal(atom) for atom in eqn.invars], [
                (each, value if type(value) in _PLAIN else param(value)) for each, value in params.items()
            ] if params else None))
            for var in eqn.outvars:
                numbers[var] = len(numbers)
                lines.append(types.setdefault(var.aval, len(types)))
        written = (inputs, lines, read(jaxpr.outvars))
        place = self._known[id(jaxpr)] = len(self.programs)
        self.programs.append(written)
        return place

    def literal(self, atom: Any) -> list[Any]:
        return ["literal", self.types.setdefault(atom.aval, len(self.types)), self.param(atom.val)]

    def param(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return tuple([each if type(each) in _PLAIN else self.param(each) for each in value])
        if isinstance(value, np.dtype):
            return ["dtype", _dtype_name(value)]
        if isinstance(value, np.generic):
            return ["scalar", _dtype_name(value.dtype), value.tobytes()]
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return ["array", _dtype_name(value.dtype), value.shape, value.tobytes()]
        if isinstance(value, enum.Enum):
            return ["enum", kind.__qualname__, value.name]
        if hasattr(value, "jaxpr") and hasattr(value, "consts") and not value.consts:
            return ["closed", self.program(value.jaxpr)]
        if hasattr(value, "constvars") and not getattr(value, "consts", ()):
            return ["program", self.program(value)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["fields", kind.__qualname__, *map(self.param, value)]
        if hasattr(value, "mesh") and hasattr(value, "spec"):
            return ["sharding", *self.param(value.mesh), sharding_text(value, len(value.spec), "mesh")]
        if hasattr(value, "axis_names") and hasattr(value, "axis_types"):
            order = None if value._internal_device_list is None else tuple([device.id for device in value.devices.flat])
            return ["mesh", mesh_text(value, None), order, tuple([each.name for each in value.axis_types])]
        if kind is frozenset:
            return ["set", sorted(map(repr, map(self.param, value)))]
        if kind is list:
            return ["list", *map(self.param, value)]
        return ["name", kind.__qualname__, _own_name(value)]


def _type(aval: Any) -> Any:
    if not hasattr(aval, "shape"):
        return [type(aval).__qualname__]
    dtype = aval.dtype
    name = _dtype_name(dtype) if isinstance(dtype, np.dtype) else ["name", _own_name(dtype)]
    return aval.shape, name, aval.weak_type


@functools.cache
def _dtype_name(dtype: np.dtype) -> str:
    return dtype.name  # NumPy makes the text each time


def _own_name(value: Any) -> str:
    """The name of a generator of random bits, or of the dtype of its keys: all that it is known by."""
    if type(value).__qualname__ not in _NAMED or type(value).__module__ != "jaxlite.random.prng":
        raise _Unknown
    return value.name
