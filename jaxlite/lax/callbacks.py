"""Host callbacks: primitives that call Python functions from traced and compiled programs.

`pure_callback` computes values, `io_callback` may have side effects, `debug_callback` and `debug_print` only read values,
and derivatives and batching do not change them. Outside traced functions the Python function is called immediately.
`jaxlite.compilation.effects` has the calls from compiled programs.
"""

from __future__ import annotations

import builtins
import logging
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jaxlite.compilation import effects
from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.effects import DEBUG, IO
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import no_effects
from jaxlite.core.primitive import Primitive
from jaxlite.core.refs import Ref
from jaxlite.core.tree import tree_flatten, tree_leaves
from jaxlite.core.values import aval_of
from jaxlite.devices.placement import default_device
from jaxlite.lax import shaping, slicing
from jaxlite.lax.control_flow import scan
from jaxlite.traces.batching import Axis, bring_to_front, move
from lowering import platforms, xla
from lowering.rules import register_host_function

pure_callback_p = Primitive("pure_callback", multiple_results=True, memoise=False)
io_callback_p = Primitive("io_callback", multiple_results=True, memoise=False)
pure_callback_p.knows_spaces = io_callback_p.knows_spaces = True
debug_callback_p = Primitive("debug_callback", multiple_results=True, memoise=False)
debug_print_p = Primitive("debug_print", multiple_results=True, memoise=False)

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None)


# --- functions of flat arguments ---------------------------------------------------------------------


@dataclass(frozen=True)
class FlatCallback:
    """A Python function of pytrees as one of their leaves that returns leaves.

    `static_args` are leaves that are not arrays, with their positions.
    """

    callback_func: Callable
    in_tree: Any
    static_args: tuple[tuple[int, Any], ...] = ()

    def __repr__(self) -> str:
        static = f", static_args={self.static_args}" if self.static_args else ""
        return f"_FlatCallback(callback_func={self.callback_func}, in_tree={self.in_tree}{static})"

    def __call__(self, *leaves) -> list[Any]:
        args, kwargs = _unflatten(self.in_tree, leaves, self.static_args)
        return tree_leaves(self.callback_func(*args, **kwargs))


def _unflatten(in_tree, leaves: Sequence[Any], static_args: Sequence[tuple[int, Any]]):
    values = list(leaves)
    for index, value in static_args:
        values.insert(index, value)
    return in_tree.unflatten(values)


def _split_static(args, kwargs) -> tuple[list[Any], tuple[tuple[int, Any], ...], Any]:
    """The leaves that are arrays or scalars, the others with their positions, and the tree of all. Of a Ref, its value now."""
    leaves, tree = tree_flatten((args, kwargs))
    leaves = [leaf[...] if isinstance(leaf, Ref) else leaf for leaf in leaves]
    dynamic, static = [], []
    for index, leaf in enumerate(leaves):
        try:
            aval_of(leaf)
        except (TypeError, ValueError, OverflowError):
            static.append((index, leaf))
        else:
            dynamic.append(leaf)
    return dynamic, tuple(static), tree


def _result_types(tree) -> tuple[tuple[Any, ...], Any]:
    leaves, treedef = tree_flatten(tree)
    return tuple(map(type_of_result, leaves)), treedef


def type_of_result(leaf, what: str = "") -> ShapedArray:
    """The type that is asked for a result. Raises: ValueError, which begins with `what`, for a dtype that is switched off."""
    dtype = np.dtype(leaf.dtype)
    if dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(f"{what}result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is disabled, got "
                         f"{dtype}")
    return ShapedArray(tuple(leaf.shape), dtype)


def _flat_callback(what: str, callback: Callable, args, kwargs) -> tuple[list[Any], FlatCallback]:
    leaves, tree = tree_flatten((args, kwargs))
    for leaf in leaves:
        try:
            aval_of(leaf)
        except TypeError as error:
            raise TypeError(f"{what}: an argument of the callback is neither an array nor a scalar; close over it instead. "
                            f"({error})") from None
    return leaves, FlatCallback(callback, tree)


def _check_sharding(what: str, sharding: Any) -> None:
    if sharding is not None and not isinstance(sharding, xla.SingleDeviceSharding):
        raise NotImplementedError(f"{what} only supports SingleDeviceSharding, but got {type(sharding)}")


def _check_operands(avals: Sequence[Any]) -> None:
    for aval in avals:
        if not isinstance(aval, ShapedArray):
            raise TypeError(f"a callback takes arrays, got a value of type {aval}")


# --- callbacks that give arrays ----------------------------------------------------------------------


@boundary
def pure_callback(callback: Callable[..., Any], result_shape_dtypes, *args, sharding=None,
                  vmap_method: str | None = None, **kwargs):
    """Call a Python function without side effects from a traced function.

    Args:
      callback: gets the arguments as arrays on the CPU and returns a pytree of arrays. It may be called more often than
        it seems, or not at all if nobody reads its results.
      result_shape_dtypes: a pytree of objects with `shape` and `dtype`: what the callback will return.
      args, kwargs: pytrees of arrays, the callback's arguments.
      sharding: a `SingleDeviceSharding`, or None; the callback is called on the host in any case.
      vmap_method: what `vmap` does: "sequential" calls it for one example after the other, "sequential_unrolled" does
        without a loop, "expand_dims" calls it once with a leading axis for the batch (of size 1 in arguments that have
        none), "broadcast_all" repeats these arguments, "legacy_vectorized" leaves them as they are. None: an error.
    Returns: the arrays, as a pytree like `result_shape_dtypes`.
    Raises: JaxRuntimeError if the callback raises, or returns something else than was promised. ValueError under
      differentiation: give it a derivative with `custom_jvp`.

    >>> import jaxlite, numpy as np
    >>> @jaxlite.jit
    ... def median(x):
    ...     return jaxlite.pure_callback(np.median, jaxlite.ShapeDtypeStruct((), x.dtype), x) + 1
    >>> print(median(np.array([3.0, 9.0, 4.0], np.float32)))
    5.0
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be one of {list(VMAP_METHODS)}, got: {vmap_method}")
    _check_sharding("pure_callback", sharding)
    leaves, flat = _flat_callback("pure_callback", callback, args, kwargs)
    avals, tree = _result_types(result_shape_dtypes)
    if not avals:  # what nobody reads is not computed
        return tree.unflatten([])
    return tree.unflatten(pure_callback_p.bind(
        *leaves, callback=flat, result_avals=avals, sharding=sharding, vmap_method=vmap_method))


@boundary
def io_callback(callback: Callable[..., Any], result_shape_dtypes, *args, sharding=None, ordered: bool = False,
                **kwargs):
    """Call a Python function with side effects from a traced function, once per run.

    Args:
      callback: gets the arguments as arrays on the CPU and returns a pytree of arrays.
      result_shape_dtypes: a pytree of objects with `shape` and `dtype`: what the callback will return; None for nothing.
      args, kwargs: pytrees of arrays, the callback's arguments.
      sharding: a `SingleDeviceSharding`, or None; the callback is called on the host in any case.
      ordered: whether it is called in the order of the program with respect to other ordered callbacks. It cannot be
        batched then.
    Returns: the arrays, as a pytree like `result_shape_dtypes`.
    Raises: JaxRuntimeError if the callback raises, or returns something else than was promised. ValueError under
      differentiation.

    >>> import jaxlite
    >>> from jaxlite.experimental import io_callback
    >>> seen = []
    >>> @jaxlite.jit
    ... def f(x):
    ...     io_callback(lambda x: seen.append(float(x)), None, x, ordered=True)
    ...     return x + 1
    >>> f(f(1.0)).block_until_ready()
    Array(3., dtype=float32, weak_type=True)
    >>> seen
    [1.0, 2.0]
    """
    _check_sharding("io_callback", sharding)
    leaves, flat = _flat_callback("io_callback", callback, args, kwargs)
    avals, tree = _result_types(result_shape_dtypes)
    return tree.unflatten(io_callback_p.bind(
        *leaves, callback=flat, result_avals=avals, sharding=sharding, ordered=bool(ordered)))


@pure_callback_p.def_effectful_abstract_eval
def _pure_callback_aval(*avals, result_avals, **params):
    _check_operands(avals)
    return list(result_avals), no_effects


@io_callback_p.def_effectful_abstract_eval
def _io_callback_aval(*avals, result_avals, ordered: bool, **params):
    _check_operands(avals)
    return list(result_avals), frozenset((IO[ordered],))


def _on_host(args: Sequence[Any], weak: bool = False) -> list[Any]:
    device = platforms.devices("cpu")[0]
    return [arrays.put_array(arg, device, False, aval=aval if weak else aval.strip_weak_type())
            for arg, aval in zip(args, map(aval_of, args), strict=True)]


def _call_now(name: str, *args, callback: FlatCallback, result_avals: Sequence[Any], ordered: bool = False,
              **params) -> list[Any]:
    if ordered:
        effects.wait_for_ordered()
    try:
        with effects.logging_failure(name):
            results = callback(*_on_host(args))
        results = effects.checked_results(results, result_avals)
    except Exception as error:  # as it comes from a compiled program
        raise xla.XlaRuntimeError(f"INTERNAL: error calling callback: {type(error).__name__}: {error}") from error
    return [arrays.put_array(result, default_device(), False, copy=True) for result in results]


pure_callback_p.def_eager(partial(_call_now, "pure_callback"))
io_callback_p.def_eager(partial(_call_now, "io_callback"))


@pure_callback_p.def_jvp
def _pure_callback_jvp(primals, tangents, **params):
    raise ValueError("Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while taking gradients.")


@io_callback_p.def_jvp
def _io_callback_jvp(primals, tangents, **params):
    raise ValueError("IO callbacks do not support JVP. Hide their arguments with lax.stop_gradient, or use "
                     "`jax.custom_jvp`.")


for _primitive in (pure_callback_p, io_callback_p):
    _primitive.no_transpose("a callback is not linear")


def _one_by_one(primitive: Primitive, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], params: dict[str, Any],
                unroll: int = 1) -> tuple[list[Any], list[int]]:
    batched = [move(arg, dim, 0) for arg, dim in zip(args, dims, strict=True) if dim is not None]

    def step(_: None, elements: Sequence[Any]) -> tuple[None, list[Any]]:
        element = iter(elements)
        return None, primitive.bind(*[arg if dim is None else next(element) for arg, dim in zip(args, dims, strict=True)],
                                    **params)

    _, outs = scan(step, None, batched, length=axis.size, unroll=unroll)
    return outs, [0] * len(outs)


def batch_by_method(primitive: Primitive, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], params: dict[str, Any],
                    changed: dict[str, Any]) -> tuple[list[Any], list[int]]:
    """The batching rule of what calls foreign code, by its param `vmap_method`; `changed` are params of a call with whole
    batches."""
    method = params["vmap_method"]
    if method is None:
        *known, last = map(repr, VMAP_METHODS[:-1])
        raise NotImplementedError(f"vmap is only supported for the {primitive} primitive when vmap_method is one of "
                                  f"{', '.join(known)}, or {last}. Got vmap_method=None.")
    if method.startswith("sequential"):
        return _one_by_one(primitive, axis, args, dims, params,
                           unroll=max(axis.size, 1) if method == "sequential_unrolled" else 1)
    whole = []
    for arg, dim in zip(args, dims, strict=True):
        if dim is not None or method == "broadcast_all":
            arg = bring_to_front(arg, dim, axis.size)
        elif method == "expand_dims":
            arg = shaping.expand_dims(arg, (0,))
        whole.append(arg)
    avals = tuple(aval.update(shape=(axis.size, *aval.shape)) for aval in params["result_avals"])
    outs = primitive.bind(*whole, **{**params, **changed, "result_avals": avals})
    return outs, [0] * len(outs)


@pure_callback_p.def_batching
def _pure_callback_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params):
    return batch_by_method(pure_callback_p, axis, args, dims, params, {})


@io_callback_p.def_batching
def _io_callback_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params):
    if params["ordered"]:
        raise ValueError("Cannot `vmap` ordered IO callback.")
    return _one_by_one(io_callback_p, axis, args, dims, params)


def _host_callback(name: str, avals, params: dict[str, Any]) -> Callable:
    return effects.host_function(name, params["callback"], params["result_avals"])


register_host_function("pure_callback", partial(_host_callback, "pure_callback"))
register_host_function("io_callback", partial(_host_callback, "io_callback"))


# --- callbacks that look on --------------------------------------------------------------------------


@boundary
def debug_callback(callback: Callable[..., Any] | None = None, *args, ordered: bool = False, partitioned: bool = False,
                   **kwargs):
    """Call a Python function with values of a traced function, for debugging.

    It does not take part in what transformations make of the function: derivatives pass it by, under `vmap` it is called
    for each example, and what is computed twice calls it twice.

    Args:
      callback: a function whose result is not used. Without it, a function is returned that takes it and its arguments.
      args, kwargs: its arguments: pytrees of arrays, and of other objects, which are passed on as they are.
      ordered: whether it is called in the order of the program with respect to other ordered callbacks.
      partitioned: whether to call it on each device, with the parts of arrays that are there, and not once.
    Raises: TypeError if `callback` cannot be called. What the callback raises comes out of traced functions as
      JaxRuntimeError, at the call or when its effects are waited for.

    >>> import jaxlite
    >>> seen = []
    >>> @jaxlite.jit
    ... def f(x):
    ...     jaxlite.debug.callback(lambda x, name: seen.append((name, float(x))), x, "x")
    ...     return 2 * x
    >>> jaxlite.grad(f)(3.0)
    Array(2., dtype=float32, weak_type=True)
    >>> jaxlite.effects_barrier()
    >>> seen
    [('x', 3.0)]
    """

    def call(callback: Callable[..., Any], *args, **kwargs) -> None:
        if not callable(callback):
            raise TypeError("first argument to jax.debug.callback must be callable, but got an object of type "
                            f"{type(callback)}")
        leaves, static, tree = _split_static(args, kwargs)
        debug_callback_p.bind(*leaves, callback=FlatCallback(callback, tree, static), effect=DEBUG[bool(ordered)],
                              partitioned=bool(partitioned))

    return call if callback is None else call(callback, *args, **kwargs)


@boundary
def debug_print(fmt: str | None = None, *args, ordered: bool = False, partitioned: bool = False,
                skip_format_check: bool = False, **kwargs):
    """Print values inside a traced function: when it runs, each time.

    Args:
      fmt: a format string as for `str.format`; no f-string, which would be formatted while the function is traced.
        A text without fields is printed as it is, with all its braces. Without `fmt`, a function is returned that takes it and
        what it formats.
      args, kwargs: what it formats: pytrees of arrays and of other objects.
      ordered: whether lines come in the order of the program with respect to other ordered callbacks.
      partitioned: as in `debug_callback`.
      skip_format_check: do not check that the format string names just these arguments.
    Raises: ValueError for arguments that the format string does not use, IndexError and KeyError for those it lacks.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> @jaxlite.jit
    ... def f(x):
    ...     jaxlite.debug.print("x is {}, its mean {mean:.2f}", x, mean=x.mean())
    ...     return x
    >>> _ = f(jnp.arange(3.0)); jaxlite.effects_barrier()
    x is [0. 1. 2.], its mean 1.00
    """

    def call(fmt: str, *args, **kwargs) -> None:
        _check_format("print", fmt, args, kwargs, skip_format_check)
        leaves, static, tree = _split_static(args, kwargs)
        debug_print_p.bind(
            *leaves, fmt=fmt, ordered=bool(ordered), partitioned=bool(partitioned), in_tree=tree, static_args=static,
            np_printoptions=tuple(np.get_printoptions().items()), logging_record=None,
            has_placeholders=any(field is not None for _, field, _, _ in string.Formatter().parse(fmt)))

    return call if fmt is None else call(fmt, *args, **kwargs)


def _check_format(name: str, fmt: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_string_only: bool = False) -> None:
    if not isinstance(fmt, str):
        raise TypeError(f"debug.{name}: expected a format string, got {fmt!r} of type {type(fmt)}")
    if not is_string_only:
        _FormatCheck().vformat(fmt, args, kwargs)


class _FormatCheck(string.Formatter):
    """Goes through a format string as `str.format` does, but looks only at which arguments it names."""

    def get_field(self, field_name: str, args, kwargs):
        name = re.split(r"[.\[]", field_name, maxsplit=1)[0]
        key = int(name) if name.isdigit() else name
        return self.get_value(key, args, kwargs), key

    def convert_field(self, value, conversion):
        return value

    def format_field(self, value, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args, args, kwargs) -> None:
        positional = [arg for index, arg in enumerate(args) if index not in used_args]
        if positional:
            raise ValueError(f"Unused positional arguments to `jax.debug.print`: {positional}")
        keywords = [name for name in kwargs if name not in used_args]
        if keywords:
            raise ValueError(f"Unused keyword arguments to `jax.debug.print`: {keywords}. You may be passing an f-string "
                             "(i.e, `f\"{x}\"`) into `jax.debug.print` and instead should pass in a regular string.")


def debug_log(fmt: str, *args, ordered: bool = False, partitioned: bool = False, **kwargs) -> None:
    """Log values inside a traced function: as `debug.print`, but to Python's logger "jaxlite.debug", with the level INFO."""
    _check_format("log", fmt, args, kwargs)

    def log(*args, **kwargs) -> None:
        logging.getLogger("jaxlite.debug").info(fmt.format(*args, **kwargs))

    debug_callback(log, *args, ordered=ordered, partitioned=partitioned, **kwargs)


def _printer(params: dict[str, Any]) -> Callable[..., list[Any]]:
    def show(*leaves) -> list[Any]:
        args, kwargs = _unflatten(params["in_tree"], leaves, params["static_args"])
        with np.printoptions(**dict(params["np_printoptions"])):
            text = (params["fmt"].format(*args, **kwargs) if params["has_placeholders"] else
                    " ".join(map(str, (params["fmt"], *args))))
        builtins.print(f"{text}\n", end="")  # in one piece: devices print at the same time
        return []

    return show


@debug_callback_p.def_effectful_abstract_eval
def _debug_callback_aval(*avals, effect, **params):
    _check_operands(avals)
    return [], frozenset((effect,))


@debug_print_p.def_effectful_abstract_eval
def _debug_print_aval(*avals, ordered: bool, **params):
    _check_operands(avals)
    return [], frozenset((DEBUG[ordered],))


@debug_callback_p.def_eager
def _debug_callback_eager(*args, callback: FlatCallback, effect, **params) -> list[Any]:
    if effect.ordered:
        effects.wait_for_ordered()
    with effects.logging_failure("debug.callback"):
        callback(*_on_host(args, weak=True))
    return []


@debug_print_p.def_eager
def _debug_print_eager(*args, **params) -> list[Any]:
    if params["ordered"]:
        effects.wait_for_ordered()
    with effects.logging_failure("debug.print"):
        return _printer(params)(*_on_host(args, weak=True))


def _ignoring_results(name: str, function: Callable) -> Callable:
    def call(*leaves) -> list[Any]:
        function(*leaves)
        return []

    return effects.host_function(name, call, ())


register_host_function("debug_callback", lambda avals, params: _ignoring_results("debug.callback", params["callback"]))
register_host_function("debug_print", lambda avals, params: _ignoring_results("debug.print", _printer(params)))


def _def_looking_on(primitive: Primitive) -> None:
    @primitive.def_jvp
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[list[Any], list[Any]]:
        return primitive.bind(*primals, **params), []

    @primitive.def_batching
    def batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params) -> tuple[list[Any], list[Any]]:
        for index in range(axis.size):
            primitive.bind(*[arg if dim is None else slicing.index_in_dim(arg, index, dim, keepdims=False)
                             for arg, dim in zip(args, dims, strict=True)], **params)
        return [], []

    primitive.no_transpose("it has no results")


for _primitive in (debug_callback_p, debug_print_p):
    _def_looking_on(_primitive)
