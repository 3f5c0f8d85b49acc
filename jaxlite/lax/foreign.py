"""Native calls: the primitive `ffi_call`, to a handler that is registered with XLA, and `buffer_callback`, to a Python
function that gets the buffers. The public names are in `jaxlite.ffi` and `jaxlite.experimental`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from jaxlite.core.aval import AbstractToken, abstract_token
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import no_effects
from jaxlite.core.primitive import Primitive
from jaxlite.core.tree import tree_flatten
from jaxlite.core.values import aval_of
from jaxlite.lax.callbacks import VMAP_METHODS, batch_by_method, type_of_result
from jaxlite.traces.batching import Axis

ffi_call_p = Primitive("ffi_call", multiple_results=True)
buffer_callback_p = Primitive("buffer_callback", multiple_results=True, memoise=False)

_acts = frozenset({"ffi"})


def _result_types(what: str, results) -> tuple[tuple[Any, ...], Any]:
    """The types of results and their tree."""
    leaves, tree = tree_flatten(results, is_leaf=lambda leaf: hasattr(leaf, "shape") or isinstance(leaf, AbstractToken))
    avals: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, AbstractToken):
            avals.append(abstract_token)
            continue
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise TypeError(f"{what}: result_shape_dtypes must hold objects with a shape and a dtype, got {leaf!r}")
        avals.append(type_of_result(leaf, f"{what}: "))
    return tuple(avals), tree


def _static(name: str, value):
    """An attribute as a hashable value with its MLIR type: Python numbers, NumPy scalars, strings, tuples of pairs for
    dictionaries, `_Array` for arrays."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        if value.dtype.kind in "OSUMmc" and not (value.dtype.kind == "c" and value.ndim):  # scalars are not complex numbers
            raise TypeError(f"ffi_call: the attribute {name} is of dtype {value.dtype}, which handlers do not take; attributes "
                            "are numbers, strings, arrays, and dictionaries and sequences of them")
        return value if isinstance(value, np.generic) else ArrayAttribute(value)
    if isinstance(value, Mapping):
        return Attributes((str(key), _static(name, each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_static(name, each) for each in value)
    if hasattr(value, "shape") and hasattr(value, "__array__"):
        return ArrayAttribute(np.asarray(value))
    raise TypeError(f"ffi_call: the attribute {name} is of type {type(value)}; attributes are numbers, strings, arrays, and "
                    "dictionaries and sequences of them")


def attribute_pairs(attributes: Mapping[str, Any]) -> Attributes:
    """Attributes as a hashable value."""
    return Attributes((name, _static(name, value)) for name, value in sorted(attributes.items()))


class Attributes(tuple[Any, ...]):
    """A dictionary as pairs."""

    __slots__ = ()


class ArrayAttribute:
    """An array as an attribute: compared by what it holds."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __repr__(self) -> str:
        return f"array({self.array.tolist()}, shape={self.array.shape}, dtype={self.array.dtype.name})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self.array.tobytes(), self.array.shape, self.array.dtype))


def _layouts(what: str, given, avals: Sequence[Any]) -> tuple[Any, ...]:
    """Axes from the slowest to the fastest, for each array; row-major order where nothing is given."""
    default = [tuple(range(len(getattr(aval, "shape", ())))) for aval in avals]
    if given is None:
        return tuple(default)
    if len(given) != len(avals):
        arrays = "input arguments" if what == "input_layouts" else "outputs"
        raise ValueError(f"The number of {arrays} ({len(avals)}) must equal the number of {what.replace('_', ' ')} "
                         f"({len(given)}).")
    found = []
    for layout, axes in zip(given, default, strict=True):
        order = axes if layout is None else tuple(getattr(layout, "major_to_minor", layout))
        if sorted(order) != list(axes):
            raise ValueError(f"{what}: {order} does not name each of the {len(axes)} axes once")
        found.append(order)
    return tuple(found)


def ffi_call(target_name: str, result_shape_dtypes, *, has_side_effect: bool = False, vmap_method: str | None = None,
             input_layouts: Sequence[Any] | None = None, output_layouts=None,
             input_output_aliases: dict[int, int] | None = None, custom_call_api_version: int = 4,
             legacy_backend_config: str | None = None) -> Callable[..., Any]:
    """A function that calls native code: a handler that was registered with XLA under a name.

    Args:
      target_name: the name it was registered by (`jaxlite.ffi.register_ffi_target`).
      result_shape_dtypes: an object with `shape` and `dtype` for the result, or a sequence of them; a token type where the
        handler gives a token.
      has_side_effect: call it even where nobody reads its results.
      vmap_method: what `vmap` makes of it, as for `pure_callback`.
      input_layouts, output_layouts: for each array None for row-major order, or its axes from the slowest to the fastest.
      input_output_aliases: input number -> number of the output that may take its memory.
      custom_call_api_version: 4 is XLA's typed interface; lower ones are for handlers of old.
      legacy_backend_config: the options of such a handler, as text.

    Returns: a function of arrays; keyword arguments become attributes, with the types that they have: a Python int is an
      int64 there, a float a double, np.float32(2) a float.
    Raises: JaxRuntimeError at the call for an unknown target, and for what the handler reports; ValueError for derivatives.
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be on of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")
    single = not isinstance(result_shape_dtypes, (list, tuple))
    for position, each in enumerate([result_shape_dtypes] if single else result_shape_dtypes):
        if not isinstance(each, AbstractToken) and not (hasattr(each, "shape") and hasattr(each, "dtype")):
            raise ValueError("All elements of result_shape_dtypes must have 'shape' and 'dtype' attributes. Got "
                             f"{each} at position {position}.")
    avals, _ = _result_types("ffi_call", [result_shape_dtypes] if single else list(result_shape_dtypes))
    if legacy_backend_config is not None and custom_call_api_version >= 4:
        raise ValueError("The use of the legacy_backend_config parameter requires custom_call_api_version < 4; got "
                         f"{custom_call_api_version}.")

    @boundary
    def call(*args, **attributes):
        operands = [aval_of(arg) for arg in args]
        layouts_in = _layouts("input_layouts", input_layouts, operands)
        layouts_out = _layouts("output_layouts", [output_layouts] if single and output_layouts is not None else output_layouts,
                               avals)
        aliases = _checked_aliases(input_output_aliases, operands, avals, layouts_in, layouts_out)
        if custom_call_api_version < 4 and attributes:
            raise ValueError("The use of ffi_call attributes requires a custom call API version of at least 4; got "
                             f"api_version={custom_call_api_version}.")
        outs = ffi_call_p.bind(
            *args, target_name=target_name, result_avals=avals, has_side_effect=bool(has_side_effect),
            vmap_method=vmap_method, input_layouts=layouts_in, output_layouts=layouts_out, input_output_aliases=aliases,
            custom_call_api_version=custom_call_api_version, legacy_backend_config=legacy_backend_config,
            attributes=attribute_pairs(attributes))
        return outs[0] if single else type(result_shape_dtypes)(outs)

    return call


def _checked_aliases(given: dict[int, int] | None, operands: Sequence[Any], results: Sequence[Any], layouts_in: Sequence[Any],
                     layouts_out: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    for source, target in (given or {}).items():
        where = f"input_output_aliases contains the mapping '{source}:{target}'"
        if not 0 <= source < len(operands):
            raise ValueError(f"{where} with input index {source} outside the range [0, {len(operands)}).")
        if not 0 <= target < len(results):
            raise ValueError(f"{where} with output index {target} outside the range [0, {len(results)}).")
        if (operands[source].shape, operands[source].dtype) != (results[target].shape, results[target].dtype):
            raise ValueError(f"{where} referring to an input with abstract value {operands[source]!s} and an output "
                             f"with a different abstract value {results[target]!s}.")
        if layouts_in[source] != layouts_out[target]:
            raise ValueError(f"{where} referring to an input with layout {layouts_in[source]} and an output with a different "
                             f"layout {layouts_out[target]}.")
    return tuple((given or {}).items())


# What XLA makes itself, and what it reads as a mark on one array: it ends the process where they are anything else.
_ITS_OWN = frozenset({"PadToStatic", "SliceToDynamic", "TopK"})
_ITS_KINDS = ("__onednn$", "xla.sdy.", "xla_buffer_python_", "xla_ffi_partitioned_python_", "xla_ffi_python_", "xla_python_")
_MARKS = frozenset("""AllocateBuffer CustomSPMDPartitioning LayoutConstraint MoveToDevice MoveToHost PinToDevice PinToDeviceSram
    SPMDFullToShardShape SPMDShardToFullShape Sharding X64Combine X64SplitHigh X64SplitLow annotate_device_placement""".split())


@ffi_call_p.def_effectful_abstract_eval
def _ffi_avals(*avals, result_avals: tuple[Any, ...], has_side_effect: bool, target_name: str = "", **params):
    if target_name in _ITS_OWN or target_name.startswith(_ITS_KINDS):
        raise ValueError(f"ffi_call: {target_name!r} is an operation of XLA's own, no handler")
    if target_name in _MARKS and not (len(avals) == len(result_avals) == 1 and avals[0].shape == result_avals[0].shape):
        raise ValueError(f"ffi_call: {target_name!r} is a mark of XLA's on one array, and gives an array of its shape; got "
                         f"{len(avals)} arguments and {len(result_avals)} results, or another shape")
    return list(result_avals), _acts if has_side_effect else no_effects


@ffi_call_p.def_jvp
def _ffi_jvp(primals, tangents, **params):
    _no_derivative(**params)


@ffi_call_p.def_transpose
def _ffi_transpose(cotangents, *operands, **params):
    _no_derivative(**params)


def _no_derivative(*, target_name: str, **params) -> NoReturn:
    raise ValueError(f"The FFI call to `{target_name}` cannot be differentiated. You can use `jax.custom_jvp` or "
                     "`jax.custom_vjp` to add support.")


@ffi_call_p.def_batching
def _ffi_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params):
    whole = ("input_layouts", "output_layouts")
    batched = {name: tuple((0, *(axis + 1 for axis in layout)) for layout in params[name]) for name in whole}
    return batch_by_method(ffi_call_p, axis, args, dims, params, batched)


# --- Python functions on buffers ---------------------------------------------------------------------


def buffer_callback(callback: Callable[..., None], result_shape_dtypes, *, has_side_effect: bool = False,
                    vmap_method: str | None = None, input_output_aliases: dict[int, int] | None = None,
                    command_buffer_compatible: bool = False) -> Callable[..., Any]:
    """A function that has Python fill the buffers of its results, without a copy. CPU and GPU only.

    Args:
      callback: `callback(ctx, out, *args)` is called with an execution context (`ctx.stream` on a GPU), the results' buffers,
        which it overwrites, and the arguments' buffers, both as pytrees. `np.asarray(buffer)` is a view on the CPU;
        `__dlpack__` works on both, `__cuda_array_interface__` on a GPU. What it returns is not used.
      result_shape_dtypes: a pytree of objects with `shape` and `dtype`.
      has_side_effect, vmap_method, input_output_aliases: as for `ffi_call`, inputs and outputs counted as leaves.
      command_buffer_compatible: on a GPU, whether its work may be recorded once and played back.

    Returns: a function of pytrees of arrays.

    >>> import jaxlite, jaxlite.numpy as jnp, numpy as np
    >>> from jaxlite.experimental.buffer_callback import buffer_callback
    >>> def double(ctx, out, x):
    ...     np.multiply(np.asarray(x), 2, out=np.asarray(out))
    >>> x = jnp.arange(3)
    >>> print(jaxlite.jit(buffer_callback(double, x))(x))
    [0 2 4]
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be on of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")
    avals, out_tree = _result_types("buffer_callback", result_shape_dtypes)

    @boundary
    def call(*args):
        leaves, in_tree = tree_flatten(args)
        operands = [aval_of(leaf) for leaf in leaves]
        plain_in, plain_out = _layouts("", None, operands), _layouts("", None, avals)
        outs = buffer_callback_p.bind(
            *leaves, callback=_OnBuffers(callback, in_tree, out_tree, len(avals)), result_avals=avals,
            has_side_effect=bool(has_side_effect), vmap_method=vmap_method,
            input_output_aliases=_checked_aliases(input_output_aliases, operands, avals, plain_in, plain_out),
            command_buffer_compatible=bool(command_buffer_compatible))
        return out_tree.unflatten(outs)

    return call


class _OnBuffers:
    """The function that the program calls: with the context, then the buffers of arguments and results."""

    def __init__(self, callback: Callable, in_tree, out_tree, count: int):
        self.callback, self.in_tree, self.out_tree, self.count = callback, in_tree, out_tree, count
        self.__name__ = getattr(callback, "__name__", "callback")

    def __call__(self, context, *buffers) -> None:
        split = len(buffers) - self.count
        self.callback(context, self.out_tree.unflatten(buffers[split:]), *self.in_tree.unflatten(buffers[:split]))


@buffer_callback_p.def_effectful_abstract_eval
def _buffer_avals(*avals, result_avals: tuple[Any, ...], has_side_effect: bool, **params):
    return list(result_avals), _acts if has_side_effect else no_effects


@buffer_callback_p.def_jvp
def _buffer_jvp(primals, tangents, **params):
    raise ValueError("Buffer callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while taking "
                     "gradients.")


buffer_callback_p.no_transpose("a callback is not linear")


@buffer_callback_p.def_batching
def _buffer_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params):
    return batch_by_method(buffer_callback_p, axis, args, dims, params, {})
