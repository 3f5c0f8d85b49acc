"""Parses the printed forms of meshes and specs, for `core.parse_jaxpr`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core.aval import UnreducedKind
from jaxlite.devices.mesh import AbstractDevice, AbstractMesh, AxisType, Mesh
from jaxlite.devices.sharding import NamedSharding, PartitionSpec, check_shape
from lowering import platforms

_AXIS = re.compile(r"('[^']*'|\"[^\"]*\"): (\d+)")
_TYPE = re.compile(r"\b(Auto|Explicit|Manual)\b")
_DEVICE = re.compile(r"device_kind=(.*), num_cores=(\w+), platform=(\w+)")


def read_mesh(text: str) -> Mesh | AbstractMesh:
    """The mesh of a text such as `Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto))`: over the first devices of this process, since
    the text does not say which; abstract if that is what is printed, or if there are too few.

    >>> read_mesh("AbstractMesh('x': 4, 'y': 2, axis_types=(Auto, Explicit))")
    AbstractMesh('x': 4, 'y': 2, axis_types=(Auto, Explicit))
    """
    kind, _, inside = text.partition("(")
    axes, _, kinds = inside.partition("axis_types=")
    names = tuple(ast.literal_eval(name) for name, _ in _AXIS.findall(axes))
    sizes = tuple(int(size) for _, size in _AXIS.findall(axes))
    types = tuple(AxisType[each] for each in _TYPE.findall(kinds))
    if kind not in ("Mesh", "AbstractMesh") or len(types) != len(names):
        raise ValueError(f"no mesh: {text}")
    devices = platforms.devices() if kind == "Mesh" else []
    if len(devices) < math.prod(sizes) or kind == "AbstractMesh":
        found = _DEVICE.search(kinds)
        device = AbstractDevice(found[1], ast.literal_eval(found[2]), found[3]) if found else None
        return AbstractMesh(sizes, names, types, abstract_device=device)
    return Mesh(np.array(devices[:math.prod(sizes)], dtype=object).reshape(sizes), names, types)


def sharding(mesh: Mesh | AbstractMesh, cuts: Sequence[tuple[str, ...]], shape: tuple[int, ...],
             states: dict[str, frozenset[str]]) -> Any:
    """The layout that cuts each array axis along some mesh axes, with others by letter (`U`, `U_max`, `U_min`, `R`).

    Raises: ValueError if it does not fit the shape.
    """
    letter = next((letter for letter in states if letter[0] == "U"), "")
    made = NamedSharding(mesh.abstract_mesh, PartitionSpec(
        *cuts, unreduced=states.get(letter, frozenset()), reduced=states.get("R", frozenset()),
        unreduced_kind=UnreducedKind[letter[2:]] if letter[2:] else None))
    check_shape(made, shape)
    return made


def read_sharding(text: str) -> Any:
    """The sharding of a text such as `NamedSharding(mesh=AbstractMesh(...), spec=P('x'))`.

    >>> read_sharding("NamedSharding(mesh=AbstractMesh('x': 4, axis_types=(Explicit,)), spec=P('x'))").spec
    P('x',)
    """
    found = re.fullmatch(r"NamedSharding\(mesh=(.*), spec=(P\(.*?\))(?:, memory_kind=(\w+))?\)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"no sharding: {text}")
    return NamedSharding(read_mesh(found[1]), read_spec(found[2]), memory_kind=found[3])


def read_spec(text: str) -> PartitionSpec:
    """The spec of a text such as `P('x', None, ('y', 'z'))`.

    >>> read_spec("P('x', None)")
    P('x', None)
    """
    return _spec(ast.parse(text, mode="eval").body)


def read_specs(text: str) -> tuple[Any, ...]:
    """A tuple of specs, nested as the text is.

    >>> read_specs("(P('x',), P())")
    (P('x',), P())
    """
    return _specs(ast.parse(text, mode="eval").body)


def _specs(node: ast.expr) -> Any:
    return tuple(map(_specs, node.elts)) if isinstance(node, ast.Tuple) else _spec(node)


def _spec(node: ast.expr) -> PartitionSpec:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("P", "PartitionSpec")):
        raise ValueError(f"no PartitionSpec: {ast.unparse(node)}")
    more: dict[str, Any] = {str(each.arg): UnreducedKind[each.value.id] if isinstance(each.value, ast.Name) else
                            set(ast.literal_eval(each.value)) for each in node.keywords}
    return PartitionSpec(*[PartitionSpec.UNCONSTRAINED if isinstance(each, ast.Name) else ast.literal_eval(each)
                           for each in node.args], **more)
