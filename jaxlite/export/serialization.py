"""`Exported` objects to and from bytes, in JAX's file format, versions 2 to 12.

The schema's tables are written with the numbers of their fields. Files have version 11, which JAX 0.10 can read. It stores
each type and sharding once, and refers to them by index.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray, layout_of, require_sum, with_layout
from jaxlite.core.symbolic import SymbolicScope
from jaxlite.devices.mesh import AbstractMesh, AxisType
from jaxlite.devices.sharding import PartitionSpec
from jaxlite.export import flatbuffers as fb
from jaxlite.export.symbolic_shapes import symbolic_shape
from lowering import xla

_VERSION = 11
_OLDEST, _NEWEST = 2, 12
_JAX_VERSION = "0.10.2"  # whose format this is

# --- dtypes ------------------------------------------------------------------------------------------

_NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
          "complex64", "complex128", "bfloat16", "int4", "uint4", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
          "float8_e5m2", "float8_e5m2fnuz", None, "float8_e4m3", "float8_e3m4", "float8_e8m0fnu", "float4_e2m1fn"]
_DTYPES: list[Any] = [dtypes.float0 if name is None else np.dtype(getattr(ml_dtypes, name, name)) for name in _NAMES]
_KEYS = ["fry", "rbg", "urbg"]


def _dtype_code(dtype: Any) -> int:
    if isinstance(dtype, dtypes.ExtendedDType):
        short = dtypes.short_name(dtype).removeprefix("key<").removesuffix(">")
        if short not in _KEYS:
            raise NotImplementedError(f"values of dtype {dtype.name} cannot be serialized")
        return len(_DTYPES) + _KEYS.index(short)
    if dtype not in _DTYPES:
        raise NotImplementedError(f"values of dtype {dtype} cannot be serialized")
    return _DTYPES.index(dtype)


def _dtype(code: int) -> Any:
    if code < len(_DTYPES):
        return _DTYPES[code]
    from jaxlite.random import key_dtype  # with all of random: only where a file has keys

    return key_dtype({"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}[_KEYS[code - len(_DTYPES)]])


# --- types -------------------------------------------------------------------------------------------


def _write_aval(aval: Any) -> fb.Fields:
    return {0: fb.number("b", 0), 1: fb.texts([str(size) for size in aval.shape]), 2: fb.number("b", _dtype_code(aval.dtype)),
            3: fb.number("b", 1)}


def _read_aval(table: fb.Table, scope: Any) -> Any:
    if table.number(0, "b"):
        raise ValueError("the file has a value of a kind that is not known here")
    sizes = table.texts(1)
    shape: tuple[Any, ...]
    if all(size.isdigit() for size in sizes):
        shape = tuple(map(int, sizes))
    else:
        shape = tuple(symbolic_shape(f"({','.join(sizes)},)", scope=scope()))
    return ShapedArray(shape, _dtype(table.number(2, "b")))


# --- shardings ---------------------------------------------------------------------------------------

_AXIS_TYPES = {1: AxisType.Auto, 2: AxisType.Explicit, 3: AxisType.Manual}


def _write_mesh(mesh: Any) -> fb.Fields:
    codes = {kind: code for code, kind in _AXIS_TYPES.items()}
    return {0: fb.numbers("I", mesh.axis_sizes), 1: fb.texts(mesh.axis_names),
            2: fb.numbers("b", [codes[kind] for kind in mesh.axis_types])}


def _read_mesh(table: fb.Table) -> AbstractMesh:
    return AbstractMesh(tuple(table.numbers(0, "I")), tuple(table.texts(1)),
                        axis_types=tuple(_AXIS_TYPES[code] for code in table.numbers(2, "b")))


def _write_sharding(sharding: Any, mesh: int) -> fb.Fields:
    def axes(entry: Any) -> fb.Fields:
        return {} if entry is None else {0: fb.texts(entry if isinstance(entry, tuple) else (entry,))}

    spec: fb.Fields = {0: fb.tables([axes(entry) for entry in sharding.spec])}
    require_sum(sharding.spec.unreduced_kind)  # the format has no word for others
    for slot, names in ((1, sharding.spec.reduced), (2, sharding.spec.unreduced)):
        if names:
            spec[slot] = fb.texts(sorted(names))
    return {1: fb.table(spec), 3: fb.number("I", mesh)}


def _read_sharding(table: fb.Table, meshes: Sequence[AbstractMesh]) -> Any:
    spec = table.table(1)
    entries: list[Any] = []
    for each in spec.tables(0) if spec is not None else ():
        names = tuple(each.texts(0))
        entries.append(names[0] if len(names) == 1 else names or None)
    reduced, unreduced = map(frozenset, (spec.texts(1), spec.texts(2)) if spec is not None else ((), ()))
    return xla.NamedSharding(meshes[table.number(3, "I")], PartitionSpec(*entries, unreduced=unreduced, reduced=reduced))


# --- trees -------------------------------------------------------------------------------------------

_LEAF, _NONE, _TUPLE, _LIST, _DICT, _CUSTOM = range(6)
_registry = xla.pytree_registry
_make_tree = xla.pytree.PyTreeDef.from_node_data_and_children


class _Kind(NamedTuple):
    """How nodes of a type are kept."""

    node_type: type
    name: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


_by_type: dict[type, _Kind] = {}
_by_name: dict[str, _Kind] = {}


def register_pytree_node_serialization(nodetype: type, *, serialized_name: str, serialize_auxdata: Callable[[Any], bytes],
                                       deserialize_auxdata: Callable[[bytes], Any], from_children: Any = None) -> type:
    """Register how pytree nodes of a type are stored in files.

    Args: `serialized_name` the name in the file; `serialize_auxdata` and `deserialize_auxdata` turn the node's auxiliary
      data into
      bytes and back; `from_children(aux, children)` is accepted and not needed.
    Returns: `nodetype`. Raises: ValueError if the type or the name was registered before.
    """
    if nodetype in _by_type:
        raise ValueError(f"Duplicate serialization registration for type `{nodetype}`. Previous registration was with "
                         f"serialized_name `{_by_type[nodetype].name}`.")
    if serialized_name in _by_name:
        raise ValueError(f"Duplicate serialization registration for serialized_name `{serialized_name}`. Previous registration "
                         f"was for type `{_by_name[serialized_name].node_type}`.")
    _by_type[nodetype] = _by_name[serialized_name] = _Kind(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata)
    return nodetype


def register_namedtuple_serialization(nodetype: type, *, serialized_name: str) -> type:
    """Register the name of a named tuple in files.

    >>> import collections
    >>> from jaxlite import export
    >>> Point = export.register_namedtuple_serialization(collections.namedtuple("Point", "x y"), serialized_name="my.Point")
    """
    if not (issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")):
        raise ValueError("Use `jax.export.register_pytree_node_serialization` for types other than `collections.namedtuple`.\n"
                         f"Got {nodetype}.")

    def write(aux: Any) -> bytes:
        return json.dumps(list(nodetype._fields)).encode()  # type: ignore[attr-defined]

    return register_pytree_node_serialization(nodetype, serialized_name=serialized_name, serialize_auxdata=write,
                                              deserialize_auxdata=lambda data: None)


register_pytree_node_serialization(
    OrderedDict, serialized_name="collections.OrderedDict", serialize_auxdata=lambda keys: json.dumps(list(keys)).encode(),
    deserialize_auxdata=lambda data: tuple(json.loads(data)))


def _write_tree(tree: Any) -> fb.Fields:
    data = tree.node_data()
    if data is None:
        return {0: fb.number("b", _LEAF)}
    node_type, aux = data
    if node_type is type(None):
        return {0: fb.number("b", _NONE)}
    fields: fb.Fields = {1: fb.tables([_write_tree(child) for child in tree.children()]) if tree.children() else None}
    if node_type is dict:
        for key in aux:
            if not isinstance(key, str):
                raise TypeError("Serialization is supported only for dictionaries with string keys. Found key "
                                f"{key} of type {type(key)}.")
        return {**fields, 0: fb.number("b", _DICT), 2: fb.texts(aux) if aux else None}
    if node_type in (tuple, list):
        return {**fields, 0: fb.number("b", _TUPLE if node_type is tuple else _LIST)}
    kind = _by_type.get(node_type)
    if kind is None:
        raise ValueError(f"Cannot serialize PyTreeDef containing an unregistered type `{node_type}`. Use "
                         "`export.register_pytree_node_serialization` or `export.register_namedtuple_serialization`.")
    return {**fields, 0: fb.number("b", _CUSTOM), 3: fb.text(kind.name), 4: fb.raw(kind.write(aux))}


def _read_tree(table: fb.Table) -> Any:
    code = table.number(0, "b")
    children = [_read_tree(child) for child in table.tables(1)]
    if code == _LEAF:
        return _registry.flatten(0)[1]
    if code == _NONE:
        return _registry.flatten(None)[1]
    if code == _DICT:
        if len(table.texts(2)) != len(children) or sorted(table.texts(2)) != table.texts(2):
            raise struct.error("the keys of a dictionary do not fit its values")
        return _make_tree(_registry, (dict, table.texts(2)), children)
    if code in (_TUPLE, _LIST):
        return _make_tree(_registry, (tuple if code == _TUPLE else list, None), children)
    kind = _by_name.get(table.text(3))
    if kind is None:
        raise ValueError(f"Cannot deserialize a PyTreeDef containing an unregistered type `{table.text(3)}`. Use "
                         "`export.register_pytree_node_serialization` or `export.register_namedtuple_serialization`.")
    return _make_tree(_registry, (kind.node_type, kind.read(table.raw(4))), children)


# --- the whole ---------------------------------------------------------------------------------------


def write(exported: Any, vjp_order: int = 0) -> bytes:
    """The file of an exported function, with the functions of its derivatives up to an order.

    Behind what JAX reads stands a checksum: MLIR's reader ends the process for some damaged programs.
    """
    data = fb.write(_write_exported(exported, vjp_order))
    return data + _CHECKED + zlib.crc32(data).to_bytes(4, "little")


_CHECKED = b"\0crc-32\0"


def _write_exported(exported: Any, vjp_order: int) -> fb.Fields:
    unique = list(dict.fromkeys((*exported.in_avals, *exported.out_avals)))
    positions = {aval: index for index, aval in enumerate(unique)}
    vjp = _write_exported(exported.vjp(), vjp_order - 1) if vjp_order > 0 else None
    named = dict.fromkeys(each for each in (*exported._in_named_shardings, *exported._out_named_shardings) if each is not None)
    meshes = list(dict.fromkeys(each.mesh for each in named))
    numbers = {None: 0, **{each: index for index, each in enumerate(named, 1)}}
    of_inputs = exported._in_named_shardings or [None] * len(exported.in_avals)
    of_outputs = exported._out_named_shardings or [None] * len(exported.out_avals)
    return {
        0: fb.number("H", _VERSION), 1: fb.text(exported.fun_name), 2: fb.table(_write_tree(exported.in_tree)),
        4: fb.table(_write_tree(exported.out_tree)), 9: fb.texts(exported.platforms),
        10: fb.tables([{0: fb.text(name)} for name in exported.ordered_effects]),
        11: fb.tables([{0: fb.text(name)} for name in exported.unordered_effects]),
        12: fb.tables([_write_check(check) for check in exported.disabled_safety_checks]),
        13: fb.raw(exported.mlir_module_serialized), 14: fb.number("H", exported.calling_convention_version),
        15: fb.numbers("H", exported.module_kept_var_idx), 16: fb.number("?", exported.uses_global_constants),
        17: fb.table(vjp), 18: fb.number("I", exported.nr_devices), 19: fb.tables([_write_aval(aval) for aval in unique]),
        20: fb.tables(list(map(_write_mesh, meshes))),
        21: fb.tables([_write_sharding(each, meshes.index(each.mesh)) for each in named]),
        22: fb.numbers("I", [positions[aval] for aval in exported.in_avals]),
        23: fb.numbers("I", [positions[aval] for aval in exported.out_avals]),
        24: fb.numbers("I", [numbers[each] for each in of_inputs]),
        25: fb.numbers("I", [numbers[each] for each in of_outputs]), 26: fb.text(_JAX_VERSION)}


def _write_check(check: Any) -> fb.Fields:
    target = check.is_custom_call()
    return {0: fb.number("b", 0 if target is None else 1), 1: None if target is None else fb.text(target)}


def read(blob: bytes, make: Callable[..., Any], make_check: Callable[[str], Any]) -> Any:
    """What `make` makes of the fields of a file. Raises: ValueError for what is no such file, or is damaged."""
    if blob[-12:-4] == _CHECKED and zlib.crc32(blob[:-12]).to_bytes(4, "little") != blob[-4:]:
        raise ValueError("the file of the exported function is damaged: its checksum is another")
    try:
        return _read_exported(fb.Table.root(bytes(blob)), make, make_check)
    except (struct.error, UnicodeDecodeError, IndexError, RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(f"this is not a file of an exported function: {error}") from None


def _read_exported(table: fb.Table, make: Callable[..., Any], make_check: Callable[[str], Any]) -> Any:
    version = table.number(0, "H")
    if not _OLDEST <= version <= _NEWEST:
        raise NotImplementedError(f"deserialize unsupported version {version}; versions {_OLDEST} to {_NEWEST} are known")
    scope: list[Any] = []

    def one_scope() -> Any:
        if not scope:
            scope.append(SymbolicScope())
        return scope[0]

    if table.has(19):
        unique = [_read_aval(each, one_scope) for each in table.tables(19)]
        in_avals = [unique[index] for index in table.numbers(22, "I")]
        out_avals = [unique[index] for index in table.numbers(23, "I")]
    else:
        in_avals = [_read_aval(each, one_scope) for each in table.tables(3)]
        out_avals = [_read_aval(each, one_scope) for each in table.tables(5)]
    meshes = [_read_mesh(each) for each in table.tables(20)]
    named = [None, *(_read_sharding(each, meshes) for each in table.tables(21))]
    in_named = tuple(named[index] for index in table.numbers(24, "I"))
    out_named = tuple(named[index] for index in table.numbers(25, "I"))
    vjp = table.table(17)
    in_tree, out_tree = table.table(2), table.table(4)
    if in_tree is None or out_tree is None:
        raise ValueError("this is not a file of an exported function: it has no trees")
    later = None if vjp is None else _read_exported(vjp, make, make_check)
    checks = [make_check(f"custom_call:{each.text(1)}" if each.number(0, "b") else "platform")
              for each in table.tables(12)]
    return make(
        fun_name=table.text(1), in_tree=_read_tree(in_tree), in_avals=_laid_out(in_avals, in_named),
        out_tree=_read_tree(out_tree),
        out_avals=_laid_out(out_avals, out_named), nr_devices=table.number(18, "I") or table.number(6, "h") or 1,
        platforms=tuple(table.texts(9)), ordered_effects=tuple(each.text(0) for each in table.tables(10)),
        unordered_effects=tuple(each.text(0) for each in table.tables(11)), disabled_safety_checks=tuple(checks),
        mlir_module_serialized=table.raw(13), calling_convention_version=table.number(14, "H"),
        module_kept_var_idx=tuple(table.numbers(15, "H")), uses_global_constants=table.number(16, "?", False),
        _in_named_shardings=in_named, _out_named_shardings=out_named,
        _get_vjp=None if later is None else lambda _: later)


def _laid_out(avals: Sequence[Any], named: Sequence[Any]) -> tuple[Any, ...]:
    """Types with the layouts that shardings over explicit mesh axes give them."""
    if not named:
        return tuple(avals)
    return tuple(aval if sharding is None else with_layout(aval, layout_of(sharding, len(aval.shape)))
                 for aval, sharding in zip(avals, named, strict=True))
