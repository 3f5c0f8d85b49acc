"""Meshes and specs from the texts they print as, for `core.parse_jaxpr`."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

from jaxlite.devices.mesh import AbstractMesh, AxisType, Mesh
from jaxlite.devices.sharding import PartitionSpec
from lowering import platforms

_AXIS = re.compile(r"('[^']*'|\"[^\"]*\"): (\d+)")
_TYPE = re.compile(r"\b(Auto|Explicit|Manual)\b")


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
        return AbstractMesh(sizes, names, types)
    return Mesh(np.array(devices[:math.prod(sizes)], dtype=object).reshape(sizes), names, types)


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
    more = {str(each.arg): set(ast.literal_eval(each.value)) for each in node.keywords}
    return PartitionSpec(*[PartitionSpec.UNCONSTRAINED if isinstance(each, ast.Name) else ast.literal_eval(each)
                           for each in node.args], **more)
