"""checkify: value-dependent errors of traced functions, as values.

`checkify(f)` traces `f` and evaluates its program with an additional number: the index of the first check that failed.
Checks are those of the user (`check`), and on request those of operations: NaN, division by zero, index out of bounds. A
program's checks are enumerated first (`_Plan`), so that loops and branches know what to carry: the number, and the values
that each message needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.dispatch import constrained, said_of
from jaxlite.compilation.jit import jit
from jaxlite.compilation.program import trace_call
from jaxlite.core import config, dtypes, source
from jaxlite.core.array import make_array
from jaxlite.core.aval import ShapedArray
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import Jaxpr, JaxprEqn, Literal, jaxprs_in_params
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import tree_flatten
from jaxlite.core.tree_nodes import register_pytree_node
from jaxlite.core.values import aval_of
from jaxlite.devices.sharding import P
from jaxlite.lax.checks import Site, check_p, zeros_of
from jaxlite.lax.control_flow.cond import switch
from jaxlite.lax.control_flow.loop_rules import until_all_stop
from jaxlite.lax.control_flow.scan import scan
from jaxlite.lax.control_flow.while_loop import while_loop
from jaxlite.lax.elementwise import add, bitwise_or, eq, gt, lt, ne, select
from jaxlite.lax.elementwise import min as minimum
from jaxlite.lax.parallel import mesh_axes, pcast
from jaxlite.lax.reductions import argmax, argmin, reduce_or
from jaxlite.lax.shaping import (
    broadcast_in_dim,
    concatenate,
    convert_element_type,
    optimization_barrier,
    reshape,
    stop_gradient,
)
from jaxlite.lax.shard_map import inside, shard_map_p
from jaxlite.lax.sharding import reshard
from jaxlite.lax.slicing import dynamic_index_in_dim
from jaxlite.numpy.api import as_array, is_array_like
from jaxlite.transforms.checkpoint import checkpoint

__all__ = ["Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check", "check_error", "checkify",
           "debug_check", "div_checks", "float_checks", "index_checks", "init_error", "nan_checks", "user_checks"]
__dir__ = lambda: __all__

_i32 = np.dtype(np.int32)

# --- what failed -------------------------------------------------------------------------------------


class JaxRuntimeError(ValueError):
    """A check failed."""


class JaxException(Exception):
    """The base of the kinds of errors that `checkify` finds."""


class NaNError(JaxException):
    """An operation gave a NaN."""


class DivisionByZeroError(JaxException):
    """A division by zero."""


class OOBError(JaxException):
    """An index out of bounds."""


class FailedCheckError(JaxException):
    """A `check` of the user's failed."""


ErrorCategory = type[JaxException]
_KINDS: dict[str, ErrorCategory] = {"user": FailedCheckError, "nan": NaNError, "div": DivisionByZeroError, "oob": OOBError}

user_checks = frozenset({FailedCheckError})
nan_checks = frozenset({NaNError})
index_checks = frozenset({OOBError})
div_checks = frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


class Error:
    """An error value: whether a check failed, which one, and its message; a pytree.

    It comes from `checkify`. Batched by `vmap` it holds an error for each example.
    """

    __slots__ = ("_code", "_payload", "_sites")

    def __init__(self, _code: Any, _payload: Sequence[Any], _sites: tuple[Site, ...]):
        self._code, self._payload, self._sites = _code, list(_payload), _sites

    def _failures(self) -> list[tuple[str, str, ErrorCategory]]:
        """For each failure the example of a batch that it is of, what it says, and its kind."""
        if not self._sites:
            return []
        if isinstance(self._code, Tracer):
            raise ValueError("a traced error has no message yet: return it from the traced function, or hand it to "
                             "checkify.check_error")
        codes = np.asarray(self._code)
        found = []
        for index in zip(*np.nonzero(np.atleast_1d(codes)), strict=True):
            place = index if codes.shape else ()
            number = int(codes[place]) - 1
            site = self._sites[number]
            first = sum(len(each.avals) for each in self._sites[:number])
            values = [make_array(value) if isinstance(value, (np.generic, np.ndarray)) else value
                      for value in self._payload[first:first + len(site.avals)]]
            values = [value[place] for value in values] if place else values
            place = (*place, *map(int, values[len(values) - site.mapped:]))
            where = f"at mapped index {', '.join(map(str, place))}: " if place else ""
            found.append((where, _message(site, values), _KINDS[site.kind]))
        return found

    def get(self) -> str | None:
        """The message of the first check that failed, or None; of a batch, one line or more for each failure."""
        return "\n".join(where + message for where, message, _ in self._failures()) or None

    def get_exception(self) -> JaxException | None:
        """An exception of the kind of error that was found, or None."""
        failures = self._failures()
        return failures[0][2](self.get()) if failures else None

    def throw(self) -> None:
        """Raises JaxRuntimeError if a check failed; of a batch, with what the first failure says."""
        for _, message, _ in self._failures():
            raise JaxRuntimeError(message)

    def __repr__(self) -> str:
        return f"Error({'traced' if isinstance(self._code, Tracer) else self.get()})"


def _formatted(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    try:
        return text.format(*args, **kwargs)
    except (LookupError, ValueError):
        if args or kwargs:
            raise
        return text  # braces that are no fields, as in "x is in {0, 1}"


def _message(site: Site, values: list[Any]) -> str:
    if site.kind == "user":
        args, kwargs = site.tree.unflatten(values[:len(values) - site.mapped])
        text = f"{_formatted(site.text, args, kwargs)} (`check` failed)"
    elif site.kind == "oob":
        shape = site.tree
        index, axis = map(int, values[:2])
        text = f"out-of-bounds indexing for array of shape {shape}: index {index} is out of bounds for axis {axis} with size " \
               f"{shape[axis]}. "
    else:
        text = site.text
    return f"{text}\nat {site.location}" if site.location else text


register_pytree_node(Error, lambda error: ((error._code, *error._payload), error._sites),
                     lambda sites, children: Error(children[0], children[1:], sites))

init_error = Error(np.int32(0), [], ())


# --- what users call ---------------------------------------------------------------------------------


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Check a condition: the error has the message if it is false.

    Args:
      pred: a scalar bool.
      msg: what is said if it does not; with fields, as for `str.format`. Without values for them, braces may stand for
        themselves.
      fmt_args, fmt_kwargs: pytrees of arrays for the fields.

    With a concrete `pred` it raises JaxRuntimeError at once. In a traced function it becomes part of the program, which has to
    go through `checkify` before it is compiled.
    Raises: TypeError if `pred` is not a scalar bool, or an argument is not an array.
    """
    if not isinstance(msg, str):
        raise TypeError(f"check takes a string as message, got {msg!r}")
    aval = aval_of(pred) if is_array_like(pred) else None
    if aval is None or aval.shape or aval.dtype != np.dtype(bool):
        raise TypeError(f"check takes a scalar pred as argument, got {pred}")
    leaves, tree = tree_flatten((fmt_args, fmt_kwargs))
    try:
        avals = tuple(aval_of(leaf).strip_weak_type() for leaf in leaves)
    except TypeError as error:
        raise TypeError(f"Formatting arguments to checkify.check need to be PyTrees of arrays: {error}") from None
    site = Site("user", msg, tree, avals, source.summarize(source.here()))
    if not is_eager():
        check_p.bind(pred, np.int32(1), *leaves, sites=(site,), debug=debug)
    else:
        _check_values(pred, np.int32(1), *leaves, sites=(site._replace(location=""),), debug=debug)


@check_p.def_eager
def _check_values(ok: Any, code: Any, *payload: Any, sites: tuple[Site, ...], debug: bool) -> list[Any]:
    if not debug:
        Error(np.where(ok, 0, code), payload, sites).throw()
    return []


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A `check` that only has an effect under `checkify`."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise an error value: eagerly, or in a traced function as a check for an outer `checkify`."""
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error from checkify, got {error!r}")
    code = error._code
    if is_eager() and not isinstance(code, Tracer):
        error.throw()
    elif error._sites:
        if aval_of(code).shape:
            raise ValueError("check_error takes one error inside a traced function, not a batch; call it under the same vmap")
        check_p.bind(eq(code, np.int32(0)), code, *error._payload, sites=error._sites, debug=False)


def checkify(f: Callable, errors: Iterable[ErrorCategory] = user_checks) -> Callable[..., tuple[Error, Any]]:
    """A function that returns an error value and the result of `f`.

    Args:
      f: a function of pytrees.
      errors: which errors are looked for: one of `user_checks` (the default), `nan_checks`, `div_checks`, `index_checks`,
        `float_checks`, `automatic_checks`, `all_checks`, or a union of them.

    Returns: `checked(*args, **kwargs) -> (error, result)`, a function for `jit`, `vmap`, `grad` as any other. The error is
      that of the first check that failed; the computation goes on after it.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental import checkify
    >>> def f(x, i):
    ...     checkify.check(i >= 0, "i is negative: {i}", i=i)
    ...     return jnp.log(x[i])
    >>> checked = jaxlite.jit(checkify.checkify(f, errors=checkify.all_checks))
    >>> error, y = checked(jnp.array([1.0, -1.0]), 1)
    >>> print(error.get().splitlines()[0])
    nan generated by primitive: log.
    >>> print(checked(jnp.array([1.0, -1.0]), -1)[0].get().splitlines()[0])
    i is negative: -1 (`check` failed)
    """
    if not callable(f):
        raise TypeError(f"checkify takes a function, got {f!r}")
    enabled = frozenset(errors)
    unknown = enabled - all_checks
    if unknown:
        raise ValueError(f"checkify: errors must be sets of checks such as checkify.all_checks, got {unknown}")

    @source.wraps(f)
    @boundary
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        def called() -> Any:  # the arguments are known, unless they are traced outside
            return f(*args, **kwargs)

        jaxpr, consts, _, (_, out_tree) = trace_call("checkify", functools.update_wrapper(called, f), (), {})
        plan = _Plan(jaxpr, enabled, {})
        outs, code, payload = _run(plan, consts, [])
        outs = list(map(as_array, outs))
        return Error(select(eq(code, _NONE), np.int32(0), code), payload, tuple(plan.sites)), out_tree.unflatten(outs)

    return checked


# --- the plan: the checks of a program ---------------------------------------------------------------

# Operations that make no NaN of other values: where they give one, there was one.
_MAKE_NO_NAN = frozenset(
    "abs neg sign round ceil floor square max min clamp nextafter reduce_window_max reduce_window_min approx_top_k "
    "broadcast_in_dim reshape squeeze transpose rev slice dynamic_slice dynamic_update_slice gather scatter concatenate "
    "pad select_n copy convert_element_type bitcast_convert_type reduce_precision split stack unstack tile iota empty "
    "stop_gradient sort optimization_barrier name sow real imag complex conj device_put reduce_max reduce_min argmax "
    "argmin top_k rng_bit_generator random_bits all_gather ppermute all_to_all pure_callback io_callback while scan cond "
    "jit nest remat2 shard_map custom_jvp_call custom_vjp_call".split())
_LOOPS = frozenset("jit nest remat2 scan while cond shard_map custom_jvp_call custom_vjp_call".split())


class _Plan:
    """The checks of a program in their order: for each equation its own sites, and the plans of the programs in it.

    `known` are the plans of programs that were seen before: one that is called again stays one function.
    """

    def __init__(self, jaxpr: Jaxpr, enabled: frozenset[Any], known: dict[Jaxpr, _Plan]):
        self.jaxpr = jaxpr = jaxpr.replace(eqns=list(map(until_all_stop, jaxpr.eqns)))
        self.own: list[list[Site]] = []
        self.inner: list[list[_Plan]] = []
        self.sites: list[Site] = []
        self.has_checks = False  # of the user's, which have to go even where they are not looked for
        for eqn in jaxpr.eqns:
            own = _sites_of(eqn, enabled)
            inner = []
            if eqn.primitive.name in _LOOPS:
                for sub in jaxprs_in_params(_in_order(eqn)):
                    if sub not in known:
                        known[sub] = _Plan(sub, enabled, known)
                    inner.append(known[sub])
                if not any(plan.sites or plan.has_checks for plan in inner):
                    inner = []
            self.own.append(own)
            self.inner.append(inner)
            self.sites += own
            self.has_checks |= eqn.primitive is check_p or any(plan.has_checks for plan in inner)
            for plan in inner:
                self.sites += map(_mapped, plan.sites) if eqn.primitive is shard_map_p else plan.sites

    @functools.cached_property
    def as_function(self) -> Callable[..., State]:
        """The program with its checks, of its operands."""
        return lambda *args: _run(self, [], args)

    @functools.cached_property
    def as_jitted(self) -> Callable[..., State]:
        return jit(self.as_function)


def _mapped(site: Site) -> Site:
    """A site in a `shard_map`, for the program around it: which device it is about becomes part of what it says."""
    return site._replace(avals=(*site.avals, ShapedArray((), _i32)), mapped=site.mapped + 1)


def _in_order(eqn: JaxprEqn) -> dict[str, Any]:
    """The params, those of a `while` with the condition first."""
    if eqn.primitive.name == "while":
        return {name: eqn.params[name] for name in ("cond_jaxpr", "body_jaxpr")}
    return {name: value for name, value in eqn.params.items() if name in ("jaxpr", "branches", "call_jaxpr")}


def _sites_of(eqn: JaxprEqn, enabled: frozenset[Any]) -> list[Site]:
    name = eqn.primitive.name
    if eqn.primitive is check_p:
        sites = list(eqn.params["sites"])
        return sites if any(_KINDS[site.kind] in enabled for site in sites) else []
    sites = []
    if OOBError in enabled and name in _INDEXED:
        shape = getattr(eqn.invars[0].aval, "shape", ())
        sites.append(Site("oob", "", shape, (ShapedArray((), _i32), ShapedArray((), _i32)), eqn.source_line))
    if DivisionByZeroError in enabled and name == "div":
        sites.append(Site("div", "division by zero", None, (), eqn.source_line))
    if NaNError in enabled and name not in _MAKE_NO_NAN and any(
            isinstance(var.aval, ShapedArray) and dtypes.issubdtype(var.aval.dtype, np.inexact) for var in eqn.outvars):
        sites.append(Site("nan", f"nan generated by primitive: {name}.", None, (), eqn.source_line))
    return sites


# --- running a program with its checks ---------------------------------------------------------------

# Results, code, payload. The code is the number of the first site that failed, from 1 on, or `_NONE`, so that the least of
# several codes is that of the first.
State = tuple[list[Any], Any, list[Any]]
_NONE = np.int32(np.iinfo(np.int32).max)
_TOGETHER = 16


def _least(codes: list[Any]) -> Any:
    """The least of codes, some at a time: XLA would fuse all of them, and takes quadratic time for a fusion of hundreds."""
    while len(codes) > _TOGETHER:
        codes = [optimization_barrier(_least(codes[start:start + _TOGETHER])) for start in range(0, len(codes), _TOGETHER)]
    return functools.reduce(minimum, codes)


def _shifted(code: Any, count: int) -> Any:
    """A code for a program in which so many sites come before."""
    return code if count == 0 else add(minimum(code, _NONE - np.int32(count)), np.int32(count))


def _later(code: Any, new: Any) -> Any:
    """The code after what came later in time, not in the program."""
    return select(eq(code, _NONE), new, code)


def _run(plan: _Plan, consts: Sequence[Any], args: Sequence[Any]) -> State:
    """Run a program with its checks."""
    jaxpr = plan.jaxpr
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    codes: list[Any] = []
    payload: list[Any] = []
    count = 0
    for eqn, own, inner in zip(jaxpr.eqns, plan.own, plan.inner, strict=True):
        values = [atom.val if type(atom) is Literal else env[atom] for atom in eqn.invars]
        found: list[tuple[Any, list[Any]]] = []  # codes and payloads
        if eqn.primitive is check_p:
            outs: Any = []
            if own:
                each, data = _check_of(values, own)
                found.append((_shifted(each, count), data))
        else:
            found += [_fail(_RULES[site.kind], count + place, eqn, values) for place, site in enumerate(own)
                      if site.kind != "nan"]
            if inner:
                outs, inside, data = _ON_CALLS[eqn.primitive.name](eqn, values, inner)
                found.append((_shifted(inside, count), data))
            else:
                outs = eqn.primitive.bind(*values, **eqn.params)
                outs = outs if eqn.primitive.multiple_results else [outs]
            found += [_fail(_has_nan, count + place, eqn, outs) for place, site in enumerate(own) if site.kind == "nan"]
        for each, data in found:
            codes.append(each)
            payload += data
        count += len(own) + sum(len(sub.sites) for sub in inner)
        env.update(zip(eqn.outvars, outs, strict=True))
    return ([atom.val if type(atom) is Literal else env[atom] for atom in jaxpr.outvars],
            _least(codes) if codes else broadcast_in_dim(_NONE, (), ()), payload)


def _fail(rule: Callable, before: int, eqn: JaxprEqn, values: list[Any]) -> tuple[Any, list[Any]]:
    failed, data = rule(eqn, values)
    return select(failed, np.int32(before + 1), _NONE), data


def _check_of(values: list[Any], own: list[Site]) -> tuple[Any, list[Any]]:
    """A `check`: of a batch, the first example that fails."""
    ok, code, *payload = values
    if aval_of(ok).shape:
        size = aval_of(ok).size
        flat = reshape(ok, (size,))
        if size == 0:
            return broadcast_in_dim(_NONE, (), ()), [zeros_of(aval) for site in own for aval in site.avals]
        at = argmax(~flat, 0, _i32)
        rank = len(aval_of(ok).shape)
        ok, code, *payload = [
            dynamic_index_in_dim(reshape(value, (size, *aval_of(value).shape[rank:])), at, 0, keepdims=False)
            if aval_of(value).shape[:rank] == aval_of(flat).shape or aval_of(value).shape else value
            for value in (ok, code, *payload)]
    return select(ok, _NONE, convert_element_type(code, _i32)), payload


def _any(flags: Any) -> Any:
    return reduce_or(flags, tuple(range(len(aval_of(flags).shape)))) if aval_of(flags).shape else flags


def _has_nan(eqn: JaxprEqn, outs: list[Any]) -> tuple[Any, list[Any]]:
    flags = [_any(ne(out, out)) for out in outs if dtypes.issubdtype(getattr(aval_of(out), "dtype", bool), np.inexact)]
    return functools.reduce(bitwise_or, flags), []


def _divides_by_zero(eqn: JaxprEqn, values: list[Any]) -> tuple[Any, list[Any]]:
    divisor = values[1]
    aval = aval_of(divisor)
    return _any(eq(divisor, broadcast_in_dim(np.zeros((), aval.dtype)[()], aval.shape, ()))), []


def _gathered(eqn: JaxprEqn, values: list[Any]) -> tuple[Any, list[int], list[int]]:
    numbers, sizes, shape = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], aval_of(values[0]).shape
    axes = list(numbers.start_index_map)
    return values[1], axes, [shape[axis] - sizes[axis] for axis in axes]


def _scattered(eqn: JaxprEqn, values: list[Any]) -> tuple[Any, list[int], list[int]]:
    numbers, shape, updates = eqn.params["dimension_numbers"], aval_of(values[0]).shape, aval_of(values[2]).shape
    fixed = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = iter(numbers.update_window_dims)
    sizes = [1 if axis in fixed else updates[next(windows)] for axis in range(len(shape))]
    axes = list(numbers.scatter_dims_to_operand_dims)
    return values[1], axes, [shape[axis] - sizes[axis] for axis in axes]


def _sliced(eqn: JaxprEqn, values: list[Any]) -> tuple[Any, list[int], list[int]]:
    shape = aval_of(values[0]).shape
    taken = eqn.params["slice_sizes"] if eqn.primitive.name == "dynamic_slice" else aval_of(values[1]).shape
    starts = values[len(values) - len(shape):]
    if not starts:
        return np.zeros((0,), np.int32), [], []
    joined = [broadcast_in_dim(convert_element_type(start, _i32), (1,), ()) for start in starts]
    return concatenate(joined, 0), list(range(len(shape))), [size - width for size, width in zip(shape, taken, strict=True)]


_INDEXED: dict[str, Callable] = {
    "gather": _gathered, "dynamic_slice": _sliced, "dynamic_update_slice": _sliced,
} | dict.fromkeys(("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"), _scattered)


def _out_of_bounds(eqn: JaxprEqn, values: list[Any]) -> tuple[Any, list[Any]]:
    indices, axes, bounds = _INDEXED[eqn.primitive.name](eqn, values)
    shape = aval_of(indices).shape
    if 0 in shape:
        return broadcast_in_dim(np.False_, (), ()), [broadcast_in_dim(np.int32(0), (), ())] * 2
    indices = convert_element_type(indices, _i32)
    limit = broadcast_in_dim(np.array(bounds, np.int32), shape, (len(shape) - 1,))
    bad = bitwise_or(lt(indices, broadcast_in_dim(np.int32(0), shape, ())), gt(indices, limit))
    flat = reshape(bad, (aval_of(bad).size,))
    at = argmax(flat, 0, _i32)
    pick = lambda array: dynamic_index_in_dim(reshape(array, aval_of(flat).shape), at, 0, keepdims=False)
    return _any(flat), [pick(indices), pick(broadcast_in_dim(np.array(axes, np.int32), shape, (len(shape) - 1,)))]


_RULES: dict[str, Callable] = {"oob": _out_of_bounds, "div": _divides_by_zero}


# --- calls, loops, branches: each gives results, a code that counts from its first site on, and the payload of all


def _on_jit(eqn: JaxprEqn, values: list[Any], inner: list[_Plan]) -> Any:
    run = inner[0].as_function
    run.__name__ = str(eqn.params["name"])
    ins, made = said_of(eqn.params, len(eqn.invars), len(eqn.outvars))
    outs, *found = inner[0].as_jitted(*constrained(values, ins))
    return (constrained(outs, made), *found)


def _on_checkpoint(eqn: JaxprEqn, values: list[Any], inner: list[_Plan]) -> Any:
    return checkpoint(inner[0].as_function, prevent_cse=eqn.params["prevent_cse"], policy=eqn.params["policy"])(*values)


def _varying(value: Any, axes: Iterable[Any] | None = None) -> Any:
    """In a `shard_map`, a value as one that varies along axes of the mesh, by default along all: what loops and branches carry
    is of one type."""
    missing = tuple(name for name in (mesh_axes() if axes is None else axes) if name not in aval_of(value).vma)
    return pcast(value, missing, to="varying") if missing and config.check_vma.value else value


def _zeros(plan: _Plan) -> list[Any]:
    return [_varying(zeros_of(aval)) for site in plan.sites for aval in site.avals]


def _carry(plan: _Plan, place: int, init: Sequence[Any]) -> list[Any]:
    """The initial carry of a loop, with the types that its body takes from `place` on."""
    variables = plan.jaxpr.invars[place:place + len(init)]
    return [_varying(value, var.aval.vma) if isinstance(var.aval, ShapedArray) else value
            for value, var in zip(init, variables, strict=True)]


def _keep(code: Any, old: list[Any], new: list[Any]) -> list[Any]:
    """Payloads: the old ones where a check had failed before."""
    failed = ne(code, _NONE)
    return [select(broadcast_in_dim(failed, aval_of(before).shape, ()), before,
                   convert_element_type(after, aval_of(before).dtype))
            for before, after in zip(old, new, strict=True)]


def _step(plan: _Plan, code: Any, payload: list[Any], args: Sequence[Any]) -> State:
    outs, new, data = _run(plan, [], args)
    return outs, _later(code, new), _keep(code, payload, data)


def _on_scan(eqn: JaxprEqn, values: list[Any], inner: list[_Plan]) -> Any:
    params, plan = eqn.params, inner[0]
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, xs = values[:num_consts], values[num_consts + num_carry:]
    init = _carry(plan, num_consts, values[num_consts:num_consts + num_carry])

    def body(carry: Any, x: Any) -> Any:
        current, code, payload = carry
        outs, code, payload = _step(plan, code, payload, [*consts, *current, *x])
        return (outs[:num_carry], code, payload), outs[num_carry:]

    (carry, code, payload), ys = scan(body, (init, _varying(_NONE), _zeros(plan)), xs, params["length"],
                                      params["reverse"], params["unroll"])
    return [*carry, *ys], code, payload


def _on_while(eqn: JaxprEqn, values: list[Any], inner: list[_Plan]) -> Any:
    params = eqn.params
    test, body = inner
    split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    test_consts, consts = values[:split[0]], values[split[0]:split[1]]
    init = _carry(body, len(consts), values[split[1]:])
    (going,), code, payload = _run(test, [], [*test_consts, *init])
    code, payload = _varying(code), [_varying(value) for value in payload]

    def step(carry: Any) -> Any:
        _, current, code, test_payload, body_payload = carry
        shift = len(test.sites)
        outs, new, data = _run(body, [], [*consts, *current])
        body_payload = _keep(code, body_payload, data)
        code = _later(code, _shifted(new, shift))
        (going,), code, test_payload = _step(test, code, test_payload, [*test_consts, *outs])
        return going, outs, code, test_payload, body_payload

    _, outs, code, payload, body_payload = while_loop(lambda carry: carry[0], step,
                                                      (going, init, code, payload, _zeros(body)))
    return outs, code, [*payload, *body_payload]


def _on_cond(eqn: JaxprEqn, values: list[Any], inner: list[_Plan]) -> Any:
    varies = [getattr(var.aval, "vma", ()) for var in eqn.outvars]

    def branch(number: int) -> Callable:
        def run(*args: Any) -> State:
            outs, code, payload = _run(inner[number], [], args)
            shift = sum(len(plan.sites) for plan in inner[:number])
            data = [payload if place == number else _zeros(plan) for place, plan in enumerate(inner)]
            payload = [convert_element_type(value, aval.dtype) for value, aval in zip(
                sum(data, []), [aval for plan in inner for site in plan.sites for aval in site.avals], strict=True)]
            outs = [_varying(out, vma) for out, vma in zip(outs, varies, strict=True)]
            return outs, _varying(_shifted(code, shift)), [
                _varying(value) for value in payload]

        return run

    index, *operands = values
    return switch(convert_element_type(index, _i32), [branch(number) for number in range(len(inner))], *operands)


def _on_custom_rule(eqn: JaxprEqn, values: list[Any], inner: list[_Plan]) -> Any:
    """The call without the user's checks, so that its rule stays; all checks beside it, with nothing to differentiate."""
    params, plan = eqn.params, inner[0]
    if plan.has_checks:
        call = params["call_jaxpr"]
        unchecked, consts = trace_to_jaxpr(lambda *args: plan.as_function(*args)[0], call.in_avals, call.jaxpr.debug_info)
        assert not consts  # those of the program are among the values
        params = {**params, "call_jaxpr": hoist_consts(unchecked)}
    outs = eqn.primitive.bind(*values, **params)
    _, code, payload = _run(plan, [], [stop_gradient(value) for value in values])
    return outs, code, payload


def _on_shard_map(eqn: JaxprEqn, values: list[Any], inner: list[_Plan]) -> Any:
    """Each device gives its code and payload; that of the check that failed first in the program counts."""
    params, plan = eqn.params, inner[0]
    mesh, axes = params["mesh"], params["newly_manual_axes"]

    def run(*args: Any) -> list[Any]:
        outs, code, payload = _run(plan, [], args)
        return [*outs, *(broadcast_in_dim(value, (1, *aval_of(value).shape), range(1, 1 + len(aval_of(value).shape)))
                         for value in (code, *payload))]

    jaxpr = params["jaxpr"]
    with inside(mesh, axes, params["check_vma"]):
        traced, consts = trace_to_jaxpr(run, jaxpr.in_avals, jaxpr.jaxpr.debug_info)
    count = len(jaxpr.out_avals)
    stacked = P(tuple(name for name in mesh.axis_names if name in axes))
    outs = shard_map_p.bind(*consts, *values, **{
        **params, "jaxpr": hoist_consts(traced), "in_specs": (*(P(),) * len(consts), *params["in_specs"]),
        "out_specs": (*params["out_specs"], *(stacked,) * (len(traced.outvars) - count))})
    codes, *payload = [out if aval_of(out).layout is None else reshard(out, aval_of(out).layout.update(spec=P()))
                       for out in outs[count:]]
    at = argmin(codes, 0, _i32)
    code, *payload = [dynamic_index_in_dim(value, at, 0, keepdims=False) for value in (codes, *payload)]
    parts = iter(payload)
    return outs[:count], code, [each for site in plan.sites for each in (*(next(parts) for _ in site.avals), at)]


_ON_CALLS: dict[str, Callable] = {
    "jit": _on_jit, "nest": _on_jit, "remat2": _on_checkpoint, "scan": _on_scan, "while": _on_while, "cond": _on_cond,
    "shard_map": _on_shard_map,
    "custom_jvp_call": _on_custom_rule, "custom_vjp_call": _on_custom_rule,
}
