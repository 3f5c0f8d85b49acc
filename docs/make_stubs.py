"""Writes the `.pyi` files that type checkers and editors read.

Most public names load on first use, or are made by tables, so a tool that only reads the source sees neither them nor their
types. This script imports each public module, takes the names and signatures as they are at run time, and writes them down
with types: an annotation that is already exact stays; `Any` becomes the type that the parameter's name stands for throughout
this API (`PARAMETERS`). A test compares the files with what this script writes.

    python docs/make_stubs.py            # write the files
    python docs/make_stubs.py --check    # say which are out of date; exit status 1 if any is
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# Modules whose functions compute with arrays, and so return one unless `RESULTS` or the source says otherwise.
OF_ARRAYS = (
    "jaxlite.numpy jaxlite.numpy.linalg jaxlite.numpy.fft jaxlite.lax jaxlite.random jaxlite.nn "
    "jaxlite.nn.initializers jaxlite.scipy.linalg jaxlite.scipy.special jaxlite.scipy.signal jaxlite.scipy.fft jaxlite.ops "
    "jaxlite.image"
).split()
MODULES = ["jaxlite", *OF_ARRAYS]

# What a parameter without an exact annotation takes, by its name.
PARAMETERS = {
    "ArrayLike": "x y z a b x1 x2 a1 a2 v m arr ar ary ar1 ar2 array operand lhs rhs update updates indices scatter_indices "
                 "start_indices start_index condition mask where weights image data segment_ids p q n k c d T Z A B C "
                 "in1 in2 mean cov loc scale lam df minval maxval lower upper sigma alpha initial values val u w e E "
                 "test_elements element on_true on_false pred init_value init_values min max start stop step xp fp period "
                 "logits bias query value keys xi prototype like_arr src ind shift repeats variance lhs_scale rhs_scale "
                 "group_sizes filt discont concentration theta phi logp dfnum dfden update_shape which",
    "Shape": "shape new_shape sample_shape",
    "DTypeLike": "dtype new_dtype index_dtype preferred_element_type",
    "Array": "key",
    "Axis": "axis",
}
_TYPE_OF = {name: kind for kind, names in PARAMETERS.items() for name in names.split()}
# `shape`, `n` and others mean something else there.
OTHERWISE = {
    ("promote_types", "a"): "DTypeLike", ("promote_types", "b"): "DTypeLike", ("lexsort", "keys"): "Any",
    ("dynamic_slice", "start_indices"): "Any", ("dynamic_update_slice", "start_indices"): "Any",
    ("dynamic_slice_in_dim", "start_index"): "Any", ("scan", "init"): "Any", ("clip", "arr"): "ArrayLike | None",
    ("lax.sort", "operand"): "Any", ("pad", "x"): "ArrayLike", ("result_type", "args"): "Any",
    ("where", "x"): "ArrayLike | None",
    ("where", "y"): "ArrayLike | None", ("array", "object"): "Any", ("asarray", "a"): "Any", ("concatenate", "arrays"): "Any",
    ("bincount", "x"): "ArrayLike", ("iscomplexobj", "x"): "Any", ("isrealobj", "x"): "Any", ("isscalar", "element"): "Any",
    ("astype", "x"): "ArrayLike", ("stop_gradient", "x"): "Any", ("optimization_barrier", "operand"): "Any",
    ("reduce", "operands"): "Any", ("split", "key"): "Array", ("psum", "x"): "Any", ("pmax", "x"): "Any", ("pmin", "x"): "Any",
    ("pmean", "x"): "Any", ("all_gather", "x"): "Any", ("all_to_all", "x"): "Any", ("ppermute", "x"): "Any",
    ("psum_scatter", "x"): "Any", ("pswapaxes", "x"): "Any", ("pshuffle", "x"): "Any", ("pbroadcast", "x"): "Any",
    ("pvary", "x"): "Any", ("pcast", "x"): "Any", ("shape", "a"): "Any", ("ndim", "a"): "Any", ("size", "a"): "Any",
    ("with_sharding_constraint", "x"): "Any", ("reshard", "xs"): "Any", ("select", "default"): "ArrayLike",
    ("repeat", "repeats"): "Any", ("block", "arrays"): "Any", ("choose", "a"): "Any",
    ("composite", "name"): "str", ("map", "xs"): "Any",
    ("fft", "n"): "int | None", ("ifft", "n"): "int | None", ("rfft", "n"): "int | None", ("irfft", "n"): "int | None",
    ("hfft", "n"): "int | None", ("ihfft", "n"): "int | None", ("identity", "n"): "int", ("arange", "step"): "ArrayLike | None",
    ("squeeze", "axis"): "Axis", ("lax.reduce", "init_values"): "Any", ("fftfreq", "n"): "int", ("rfftfreq", "n"): "int",
    ("select", "condlist"): "Sequence[ArrayLike]", ("select", "choicelist"): "Sequence[ArrayLike]",
    ("map_coordinates", "coordinates"): "Sequence[ArrayLike]",
    ("wrap_key_data", "key_bits_array"): "ArrayLike", ("empty_like", "prototype"): "ArrayLike",
}
# Results that are no single array. Everything else in a module of arrays gives one.
RESULTS = {
    "Any": "apply_along_axis apply_over_axes load gradient unique intersect1d indices histogram polyfit "
           "trapezoid divmod after_all all_gather all_to_all psum pmax pmin pmean ppermute pshuffle pswapaxes psum_scatter "
           "pbroadcast associative_scan cond switch while_loop fori_loop map custom_linear_solve custom_root create_token sort "
           "optimization_barrier reduce reduce_window platform_dependent stage stop_gradient qr svd eigh eigh_tridiagonal "
           "expm_frechet hessenberg lu cholesky_update svdvals shape_as_value dot_product_attention key clone wrap_key_data "
           "split logsumexp pcast pvary with_sharding_constraint reshard rng_bit_generator dce_sink composite stack "
           "einsum_path",
    "Array": "key clone wrap_key_data split stack svdvals trapezoid",
    "bool": "issubdtype",
    "np.dtype": "result_type lax.dtype",
    "None": "place put save savez set_printoptions",
    "str": "array_repr array_str",
}
_RESULT_OF = {name: kind for kind, names in RESULTS.items() for name in names.split()}

HEADER = '''"""Types for tools; written by docs/make_stubs.py."""
# ruff: noqa
# mypy: disable-error-code="misc, valid-type, no-redef, overload-overlap"

import builtins
import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import numpy as np

from jaxlite.typing import Array, ArrayLike, Axis, DTypeLike, Shape

_P = ParamSpec("_P")
_R = TypeVar("_R")
'''
_KNOWN = set("Any Callable Hashable Iterable Iterator Mapping Sequence Array ArrayLike Axis DTypeLike Shape str int float "
             "bool complex None tuple list dict set type bytes object np dtype ndarray builtins".split())

# Functions whose exact types say more than a signature with `Any`.
EXACT = {
    ("jaxlite", "jit"): '''
class Jitted(Protocol[_P, _R]):
    __wrapped__: Callable[_P, _R]
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def trace(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
    def lower(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
    def eval_shape(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
    def clear_cache(self) -> None: ...

@overload
def jit(fun: Callable[_P, _R], /, **options: Any) -> Jitted[_P, _R]: ...
@overload
def jit(**options: Any) -> Callable[[Callable[_P, _R]], Jitted[_P, _R]]: ...
''',
    ("jaxlite", "checkpoint"): '''
@overload
def checkpoint(fun: Callable[_P, _R], /, **options: Any) -> Callable[_P, _R]: ...
@overload
def checkpoint(**options: Any) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
''',
    ("jaxlite", "remat"): "remat = checkpoint\n",
    ("jaxlite", "NamedSharding"): '''
class NamedSharding:
    mesh: Any
    spec: Any
    memory_kind: str | None
    def __init__(self, mesh: Any, spec: Any, *, memory_kind: str | None = None) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
''',
}


def public_names(module: types.ModuleType) -> list[str]:
    """The names of a module that a stub declares."""
    return [name for name in dir(module) if not name.startswith("_") and name != "annotations"]


def annotation(given: Any, parameter: str = "", function: str = "") -> str:
    """The type of a parameter, or of a result if there is no `parameter`, as text."""
    text = given if isinstance(given, str) else "Any" if given is inspect.Parameter.empty else getattr(given, "__name__", "Any")
    text = text.replace("builtins.bool", "bool").replace("_Any", "Any").replace("Ints", "tuple[int, ...]")
    names = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"'[^']*'", "", text)))
    if not names <= _KNOWN:
        return "Any"
    return re.sub(r"\b(?<!\.)[a-z]+\b", lambda word: f"builtins.{word[0]}" if word[0] in _hidden else word[0], text)


_hidden: set[str] = set()  # names of Python's that the module at hand has a meaning of its own for


def parameter_text(parameter: inspect.Parameter, function: str, exact: bool) -> str:
    kind = annotation(parameter.annotation)
    if not exact and kind in ("Any", "Any | None", "Sequence[int]"):
        short, longer = function.rpartition(".")[2], ".".join(function.split(".")[-2:])
        kind = OTHERWISE.get((longer, parameter.name)) or OTHERWISE.get((short, parameter.name)) or (
            _TYPE_OF.get(parameter.name, kind) if kind != "Sequence[int]" or parameter.name == "shape" else kind)
        if parameter.default is None and kind in ("ArrayLike", "Shape", "DTypeLike", "Array"):
            kind += " | None"
    prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else " = ..."
    return f"{prefix}{parameter.name}: {kind}{default}"


def parameters_text(signature: inspect.Signature, function: str, exact: bool, first: str = "") -> str:
    """The parameter list of a declaration, with its separators."""
    parts, kinds = [first] if first else [], [each.kind for each in signature.parameters.values()]
    for index, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
                kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY) for kind in kinds[:index]):
            parts.append("*")
        parts.append(parameter_text(parameter, function, exact))
        if parameter.kind is parameter.POSITIONAL_ONLY and kinds[index + 1:index + 2] != [parameter.POSITIONAL_ONLY]:
            parts.append("/")
    return ", ".join(parts)


def function_text(module: str, name: str, value: Any) -> str:
    found = EXACT.get((module, name))
    if found:
        return found.lstrip("\n")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"def {name}(*args: Any, **kwargs: Any) -> Any: ...\n"
    arrays = module in OF_ARRAYS
    nin = getattr(value, "nin", None)
    if type(value).__name__ == "ufunc" and nin:
        operands = ", ".join(f"x{index}: ArrayLike" for index in range(1, nin + 1))
        return (f"class _{name}(_Ufunc):\n    def __call__(self, {operands}, /, *, out: None = ..., "
                f"where: None = ...) -> Array: ...  # type: ignore[override]\n{name}: _{name}\n")
    result = annotation(signature.return_annotation)
    if arrays and signature.return_annotation in ("Any", inspect.Signature.empty):
        function = f"{module.rpartition('.')[2]}.{name}"
        result = _RESULT_OF.get(function) or _RESULT_OF.get(name, "Array")
    if not arrays and result.startswith("Iterator["):
        result = f"contextlib.AbstractContextManager{result[len('Iterator'):]}"
    exact = not arrays
    return f"def {name}({parameters_text(signature, f'{module}.{name}', exact)}) -> {result}: ...\n"


def class_home(value: type) -> str:
    return value.__module__


def declaration(module: str, name: str, value: Any) -> str:
    """The text that declares one public name."""
    if isinstance(value, type) and (module, name) in EXACT:
        return EXACT[module, name].lstrip("\n")
    if isinstance(value, types.ModuleType):
        parent, _, last = value.__name__.rpartition(".")
        if not value.__name__.startswith("jaxlite"):
            return ""
        return f"from {parent} import {last} as {name}\n"
    if name == "Array" or name in ("ArrayLike", "DTypeLike"):
        return f"from jaxlite.typing import {name} as {name}\n"
    if isinstance(value, type):
        home = class_home(value)
        if home.startswith(("jaxlite.", "lowering.")) and home != module and value.__name__.isidentifier():
            alias = f"{value.__name__} as {name}"
            return f"from {home} import {alias}\n"
        if home.startswith("numpy") or home == "ml_dtypes":
            return f"{name}: Any\n"
        return (f"class {name}:\n    def __init__(self, *args: Any, **kwargs: Any) -> None: ...\n"
                "    def __getattr__(self, name: str) -> Any: ...\n")
    if callable(value) and not isinstance(value, enum.Enum) and (
            inspect.isroutine(value) or hasattr(value, "__wrapped__") or type(value).__name__ in ("ufunc", "PjitFunction")):
        return function_text(module, name, value)
    kind = type(value).__name__
    return f"{name}: {kind if kind in ('int', 'float', 'str', 'bool') else 'Any'}\n"


def stub(module: str) -> str:
    """The text of a module's stub."""
    found = importlib.import_module(module)
    imports, others = [], []
    _hidden.clear()
    _hidden.update({"bool", "int", "float", "complex", "object", "tuple", "list"} & set(public_names(found)))
    for name in public_names(found):
        text = declaration(module, name, getattr(found, name))
        (imports if text.startswith("from ") else others).append(text)
    header = HEADER
    if any(text.endswith("Array as Array\n") for text in imports):  # else the first import, which is private, counts
        header = header.replace("import Array, ArrayLike", "import ArrayLike")
    if any("_Ufunc" in text for text in others):
        header += "\nclass _Ufunc:\n    nin: int\n    nout: int\n    identity: Any\n" + "".join(
            f"    def {method}(self, *args: Any, **kwargs: Any) -> Array: ...\n"
            for method in ("reduce", "accumulate", "at", "reduceat", "outer"))
    return header + "\n" + "".join(imports) + "\n" + "".join(others)


# --- the array ---------------------------------------------------------------------------------------

_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_PROPERTIES = {
    "shape": "tuple[int, ...]", "dtype": "np.dtype[Any]", "ndim": "int", "size": "int", "itemsize": "int", "nbytes": "int",
    "T": "Array", "mT": "Array", "real": "Array", "imag": "Array", "weak_type": "bool", "committed": "bool",
    "is_fully_addressable": "bool", "is_fully_replicated": "bool", "at": "_At",
}
_METHODS = {
    "item": "def item(self, *args: int) -> Any: ...", "tolist": "def tolist(self) -> Any: ...",
    "tobytes": "def tobytes(self, order: str = ...) -> bytes: ...", "devices": "def devices(self) -> set[Any]: ...",
    "is_deleted": "def is_deleted(self) -> bool: ...", "is_ready": "def is_ready(self) -> bool: ...",
    "delete": "def delete(self) -> None: ...", "nonzero": "def nonzero(self, **options: Any) -> tuple[Array, ...]: ...",
    "block_until_ready": "def block_until_ready(self) -> Array: ...", "clone": "def clone(self) -> Array: ...",
    "copy_to_host_async": "def copy_to_host_async(self) -> None: ...", "platform": "def platform(self) -> str: ...",
    "unsafe_buffer_pointer": "def unsafe_buffer_pointer(self) -> int: ...",
    "on_device_size_in_bytes": "def on_device_size_in_bytes(self) -> int: ...",
}


def array_lines() -> Iterator[str]:
    """The members of `Array`."""
    from jaxlite import numpy as jnp
    from jaxlite.core.array import ArrayImpl

    for name in sorted(set(dir(ArrayImpl))):
        value = inspect.getattr_static(ArrayImpl, name)
        if name.startswith("_"):
            continue
        if name in _METHODS:
            yield _METHODS[name]
        elif isinstance(value, property):
            yield f"@property\n    def {name}(self) -> {_PROPERTIES.get(name, 'Any')}: ..."
        elif callable(value):
            try:
                signature = inspect.signature(value)
            except (TypeError, ValueError):
                continue  # jaxlib's own, in some of its versions
            parameters = list(signature.parameters.values())[1:]
            if [each.kind for each in parameters] == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
                function = getattr(jnp, name, None)  # a method is the function of that name
                if function is not None and not hasattr(function, "nin"):
                    parameters = list(inspect.signature(function).parameters.values())[1:]
                    parameters = [each.replace(kind=each.POSITIONAL_OR_KEYWORD) if each.kind is each.POSITIONAL_ONLY else each
                                  for each in parameters]
            text = parameters_text(signature.replace(parameters=parameters), f"jaxlite.numpy.{name}", False, "self")
            yield f"def {name}({text}) -> Array: ..."
        else:
            yield f"{name}: Any"
    for name in _BINARY:
        yield f"def __{name}__(self, other: ArrayLike) -> Array: ..."
        yield f"def __r{name}__(self, other: ArrayLike) -> Array: ..."
    for name in ("eq", "ne"):
        yield f"def __{name}__(self, other: object) -> Array: ...  # type: ignore[override]"
    for name in ("lt", "le", "gt", "ge"):
        yield f"def __{name}__(self, other: ArrayLike) -> Array: ..."
    for name in ("neg", "pos", "abs", "invert"):
        yield f"def __{name}__(self) -> Array: ..."
    for name, kind in dict(bool="bool", int="int", float="float", complex="complex", index="int", len="int").items():
        yield f"def __{name}__(self) -> {kind}: ..."
    yield "def __divmod__(self, other: ArrayLike) -> tuple[Array, Array]: ..."
    yield "def __round__(self, ndigits: int | None = ...) -> Array: ..."
    yield "def __getitem__(self, index: Any) -> Array: ..."
    yield "def __iter__(self) -> Iterator[Array]: ..."
    yield "def __contains__(self, value: object) -> bool: ..."
    yield "def __array__(self, dtype: Any = ..., copy: bool | None = ...) -> np.ndarray: ..."
    yield "__hash__: None  # type: ignore[assignment]"


TYPING = '''"""Types for tools; written by docs/make_stubs.py."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

class SupportsDType(Protocol):
    @property
    def dtype(self) -> np.dtype[Any]: ...

class _AtIndex:
    def get(self, *, indices_are_sorted: bool = ..., unique_indices: bool = ..., mode: Any = ..., fill_value: Any = ...,
            wrap_negative_indices: bool = ..., out_sharding: Any = ...) -> Array: ...
    def apply(self, func: Callable[[Array], ArrayLike], *, indices_are_sorted: bool = ..., unique_indices: bool = ...,
              mode: Any = ..., wrap_negative_indices: bool = ...) -> Array: ...
{updates}

class _At:
    def __getitem__(self, index: Any) -> _AtIndex: ...

class Array:
{members}

ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike = str | type[Any] | np.dtype[Any] | SupportsDType
Shape = int | Sequence[int]
Axis = int | Sequence[int] | None
'''
_UPDATES = "set add subtract multiply mul divide power min max".split()


def typing_stub() -> str:
    updates = "\n".join(
        f"    def {name}(self, values: ArrayLike, *, indices_are_sorted: bool = ..., unique_indices: bool = ...,\n"
        "            mode: Any = ..., wrap_negative_indices: bool = ..., out_sharding: Any = ...) -> Array: ..."
        for name in _UPDATES)
    return TYPING.replace("{updates}", updates).replace("{members}", "\n".join("    " + line for line in array_lines()))


def all_stubs() -> dict[Path, str]:
    """The text of each stub file."""
    made = {ROOT / "jaxlite" / "typing.pyi": typing_stub()}
    for module in MODULES:
        file = Path(importlib.import_module(module).__file__ or "").resolve()
        made[ROOT / file.relative_to(ROOT).with_suffix(".pyi")] = stub(module)
    return made


def main(check: bool) -> int:
    stale = [file for file, text in all_stubs().items() if not file.exists() or file.read_text() != text]
    for file in stale:
        if check:
            print(f"{file.relative_to(ROOT)} is out of date: run python docs/make_stubs.py")
        else:
            file.write_text(all_stubs()[file])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
