"""What kernels are written with beside Refs: conditions, loops, scoped memory, hints, messages, sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import DebugInfo, jaxprs_in_params, once_for_each
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.experimental.pallas import primitives as p
from jaxlite.experimental.pallas.discharge import unknown
from jaxlite.experimental.pallas.specs import CostEstimate, MemoryRef
from jaxlite.lax.callbacks import debug_print as lax_debug_print
from jaxlite.lax.control_flow.cond import cond
from jaxlite.lax.control_flow.while_loop import fori_loop
from jaxlite.lax.elementwise import bitwise_not
from jaxlite.state.api import freeze, new_ref

# --- control flow ------------------------------------------------------------------------------------


def when(condition: Any, /) -> Callable[[Callable[[], None]], None]:
    """Decorator: call a function if a condition holds.

    Args: `condition` a bool, or a boolean scalar that is known when the kernel runs.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental import pallas as pl
    >>> def kernel(x_ref, o_ref):
    ...     @pl.when(pl.program_id(0) == 0)
    ...     def _():
    ...         o_ref[...] = jnp.zeros_like(o_ref)
    ...     o_ref[...] += x_ref[...]
    >>> total = pl.pallas_call(kernel, jaxlite.ShapeDtypeStruct((2,), jnp.float32), grid=(3,), interpret=True,
    ...                        in_specs=[pl.BlockSpec((None, 2), lambda i: (i, 0))],
    ...                        out_specs=pl.BlockSpec((2,), lambda i: (0,)))
    >>> total(jnp.ones((3, 2)))
    Array([3., 3.], dtype=float32)
    """

    def run(fun: Callable[[], None]) -> None:
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                fun()
        else:
            cond(condition, fun, lambda: None)

    return run


def loop(lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1,
         unroll: int | bool | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: call a function for each index of a range.

    Args: `lower`, `upper` and `step` integer scalars; with `init_carry` the function takes the index and a carry, and returns
    the next carry; `unroll` as in `fori_loop`.
    Returns: the last carry in place of the function; None without one.
    """

    def run(fun: Callable[..., Any]) -> Any:
        def body(index: Any, carry: Any) -> Any:
            place = lower + index * step
            return fun(place) if init_carry is None else fun(place, carry)

        return fori_loop(0, cdiv(upper - lower, step), body, init_carry, unroll=unroll)

    return run


# --- scoped memory -----------------------------------------------------------------------------------


@boundary
def run_scoped(f: Callable[..., Any], *types: Any, collective_axes: Any = (), **kw_types: Any) -> Any:
    """Call a function with Refs to memory that lasts as long as the call.

    Args: `types` and `kw_types` trees of `MemoryRef`, the function's arguments; `collective_axes` is accepted.
    Returns: what the function returns, a tree of arrays. Raises: TypeError for what is no `MemoryRef`.
    """
    flat_types, tree = tree_flatten((types, kw_types), is_leaf=lambda each: hasattr(each, "get_ref_aval"))
    for each in flat_types:
        if not hasattr(each, "get_ref_aval"):
            raise TypeError(f"run_scoped takes kinds of memory, such as tpu.VMEM(shape, dtype), got {each!r}")
    out_tree: Any = None

    def flat(*refs: Any) -> list[Any]:
        nonlocal out_tree
        args, kwargs = tree_unflatten(tree, refs)
        leaves, out_tree = tree_flatten(f(*args, **kwargs))
        return leaves

    jaxpr, consts = trace_to_jaxpr(flat, [each.get_ref_aval() for each in flat_types], DebugInfo("run_scoped", "run_scoped"))
    outs = p.run_scoped_p.bind(*consts, jaxpr=hoist_consts(jaxpr), num_consts=len(consts),
                               collective_axes=collective_axes if isinstance(collective_axes, tuple) else (collective_axes,))
    return tree_unflatten(out_tree, outs)


def with_scoped(*types: Any, collective_axes: Any = (), **kw_types: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: `run_scoped`, behind the arguments that the function is called with."""

    def decorate(fun: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return run_scoped(lambda *refs, **named: fun(*args, *refs, **kwargs, **named), *types,
                              collective_axes=collective_axes, **kw_types)

        return call

    return decorate


def run_state(f: Callable[..., None]) -> Callable[[Any], Any]:
    """A function of arrays from one that changes a tree of Refs: it gives their last values."""

    def call(values: Any) -> Any:
        def run(values: Any) -> Any:
            refs = tree_map(new_ref, values)
            f(refs)
            return tree_map(freeze, refs)

        return jit(run)(values)

    return call


# --- hints and messages ------------------------------------------------------------------------------


def multiple_of(x: Any, values: Sequence[int] | int) -> Any:
    """The same integers, with the promise that they are multiples of ints: compilers may use it."""
    return p.multiple_of_p.bind(x, values=(values,) if isinstance(values, int) else tuple(values))


def debug_print(fmt: str, *args: Any) -> None:
    """Print values from a kernel when it runs.

    Args: `fmt` as for `str.format`; without placeholders the values follow it. On a GPU it has them at its end alone.
    """
    lax_debug_print(fmt if "{" in fmt else fmt + " {}" * len(args), *args)


_checks_on = False


@contextlib.contextmanager
def enable_debug_checks(new_val: bool = True) -> Iterator[None]:
    """A context in which `debug_check` checks."""
    global _checks_on
    saved, _checks_on = _checks_on, bool(new_val)
    try:
        yield
    finally:
        _checks_on = saved


def debug_checks_enabled() -> bool:
    """Whether `debug_check` checks."""
    return _checks_on


@contextlib.contextmanager
def enable_poison_buffers(new_val: bool = True) -> Iterator[None]:
    """A context for backends that fill new memory with a value that is noticed; interpret mode always does."""
    yield


def debug_check(condition: Any, message: str) -> None:
    """Check a condition in a kernel, if `enable_debug_checks` is on when it is traced; else nothing.

    Raises: AssertionError for a condition that is known when the kernel is traced; one that is not is reported by a print.
    """
    if not _checks_on:
        return
    if isinstance(condition, Tracer):
        when(bitwise_not(condition))(lambda: debug_print("check failed: " + message.replace("{", "{{").replace("}", "}}")))
    elif not condition:
        raise AssertionError(message)


def delay(nanos: Any) -> None:
    """Wait for a number of nanoseconds, where a backend can."""
    p.delay_p.bind(nanos)


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Any:
    """1 / x. Args: `approx` allows a faster instruction of less precision, `full_range=False` one that fails at extremes."""
    return p.reciprocal_p.bind(x, approx=approx, full_range=full_range)


# --- sizes -------------------------------------------------------------------------------------------


def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up.

    >>> from jaxlite.experimental import pallas as pl
    >>> pl.cdiv(9, 4)
    3
    """
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return (a + (b - 1)) // b


def align_to(a: Any, alignment: Any) -> Any:
    """The next multiple of `alignment`, from `a` on."""
    return cdiv(a, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The next power of two, from an int on. Raises: ValueError for a negative one.

    >>> from jaxlite.experimental import pallas as pl
    >>> pl.next_power_of_2(100)
    128
    """
    if x < 0:
        raise ValueError("`next_power_of_2` requires a non-negative integer.")
    return 1 if x == 0 else 1 << (x - 1).bit_length()


def strides_from_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """How many elements are between neighbours along each axis of an array that is stored row by row."""
    return tuple(int(np.prod(shape[axis + 1:])) for axis in range(len(shape)))


def empty_like(x: Any) -> Any:
    """A tree of arrays like those given, whose values mean nothing."""
    return tree_map(lambda leaf: unknown(leaf.shape, leaf.dtype), x)


def empty_ref_like(x: Any) -> Any:
    """A Ref of the shape and dtype of something, whose value means nothing."""
    space = x.memory_space if isinstance(x, MemoryRef) else None
    return new_ref(unknown(x.shape, x.dtype), memory_space=space)


def select_ref(idx: Any, *refs: Any) -> Any:
    """One of several Refs by an index, which has to be an int here.

    Raises: TypeError for a traced index: which memory a kernel uses is settled when it is traced.
    """
    if isinstance(idx, Tracer):
        raise TypeError("select_ref needs an index that is known when the kernel is traced; branch with jax.lax.switch instead")
    return refs[int(idx)]


# --- costs -------------------------------------------------------------------------------------------

_TRANSCENDENTAL = frozenset(
    "sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log1p logistic pow rsqrt sqrt cbrt "
    "erf erfc erf_inv lgamma digamma".split())
_FREE = frozenset("broadcast_in_dim reshape squeeze transpose convert_element_type slice iota copy pad concatenate "
                  "dynamic_slice dynamic_update_slice gather stop_gradient get swap".split())


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """A `CostEstimate` of a function of arrays: operations by the sizes of results, bytes of its arguments and results.

    Args: as the function's; objects with `shape` and `dtype` are accepted instead of arrays. Keywords are fixed: they may be
    anything, and do not count as arguments.
    """
    jaxpr = jit(partial(fun, **kwargs)).trace(*args).jaxpr.jaxpr
    flops, transcendentals = _operations(jaxpr)
    moved = sum(var.aval.size * var.aval.dtype.itemsize for var in (*jaxpr.invars, *jaxpr.outvars))
    return CostEstimate(flops, transcendentals, moved)


@once_for_each
def _operations(jaxpr: Any) -> tuple[int, int]:
    flops = transcendentals = 0
    for eqn in jaxpr.eqns:
        name, size = eqn.primitive.name, sum(getattr(var.aval, "size", 0) for var in eqn.outvars)
        inner = [_operations(each) for each in jaxprs_in_params(eqn.params)]
        if inner:
            times = eqn.params.get("length", 1) if name == "scan" else 1
            best = max(inner) if name == "cond" else (sum(each for each, _ in inner), sum(each for _, each in inner))
            flops, transcendentals = flops + times * best[0], transcendentals + times * best[1]
        elif name in _TRANSCENDENTAL:
            transcendentals += size
        elif name == "dot_general":
            (contracting, _), _ = eqn.params["dimension_numbers"]
            flops += 2 * size * int(np.prod([eqn.invars[0].aval.shape[axis] for axis in contracting]))
        elif name.startswith("reduce_"):
            flops += eqn.invars[0].aval.size
        elif name not in _FREE:
            flops += size
    return flops, transcendentals


def lower_as_mlir(f: Callable[..., Any], *args: Any, dynamic_shapes: bool = False, device: Any = None,
                  static_argnames: Any = (), platforms: Sequence[str] | None = None, **kwargs: Any) -> str:
    """The module that a function lowers to, as text.

    Args: `platforms` names the one platform to lower for; `static_argnames` as for `jit`. Shapes are static.
    """
    if dynamic_shapes:
        raise ValueError("lower_as_mlir: dynamic_shapes is not supported; use jax.export with symbolic shapes")
    traced = jit(f, static_argnames=static_argnames).trace(*args, **kwargs)
    return traced.lower(lowering_platforms=tuple(platforms) if platforms else None).as_text()
