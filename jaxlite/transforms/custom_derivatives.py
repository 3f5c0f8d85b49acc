"""Functions with derivatives given by the user: custom_jvp, custom_vjp, custom_gradient; and closure_convert."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from jaxlite.compilation.program import flatten_outputs, trace_call
from jaxlite.core import dtypes, source
from jaxlite.core.array import make_array
from jaxlite.core.errors import UnexpectedTracerError
from jaxlite.core.jaxpr import DebugInfo, eval_jaxpr, pick
from jaxlite.core.lazy import loader
from jaxlite.core.shape_dtype import abstract
from jaxlite.core.tracing import Tracer, is_eager, state
from jaxlite.core.tree import (
    keystr,
    leaf_paths,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_structure,
    tree_unflatten,
    with_places,
)
from jaxlite.core.values import aval_of, is_array_like
from jaxlite.lax import shaping
from jaxlite.lax.reductions import reduce_sum
from jaxlite.lax.shaping import convert
from jaxlite.traces import custom_rules
from jaxlite.traces.backward_logs import log
from jaxlite.traces.custom_rules import custom_jvp_call_p, custom_linear_p, custom_vjp_call_p
from jaxlite.traces.jvp import Zero, instantiate, tangent_aval

_remat_opt = loader("jaxlite.traces.remat_opt")
_own_residuals = loader("jaxlite.traces.own_residuals")
_accumulators = loader("jaxlite.transforms.accumulators")
_parallel = loader("jaxlite.lax.parallel")



def _for_the_first(value: Any, size: Any) -> Any:
    aval = aval_of(value)
    edges = [(0, size - 1, 0), *[(0, 0, 0)] * aval.ndim]
    return shaping.pad(shaping.expand_dims(value, (0,)), np.zeros((), aval.dtype)[()], edges)


custom_rules.set_summation(lambda value, axis: reduce_sum(value, (axis,)), _for_the_first)


class SymbolicZero(Zero):
    """A tangent or cotangent that is known to vanish, as rules with `symbolic_zeros=True` get and may return it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SymbolicZero"


def _symbolic(values: Sequence[Any]) -> list[Any]:
    return [SymbolicZero(value.aval) if type(value) is Zero else value for value in _arrays(values)]


def bound_arguments(fun: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments by position, keywords and defaults included. Keyword-only arguments that have a default keep it."""
    if not kwargs and type(fun) is FunctionType and not fun.__dict__ and not fun.__kwdefaults__ and (
            len(args) == fun.__code__.co_argcount and not fun.__code__.co_kwonlyargcount):
        return args  # a plain function that is given all it takes: no need to look at its signature, which takes 10 us
    try:
        signature = inspect.signature(fun)
    except (ValueError, TypeError):
        if kwargs:
            raise TypeError(f"keyword arguments could not be resolved to positions for {fun}") from None
        return args
    bound = signature.bind(*args, **kwargs)
    given = bound.kwargs
    bound.apply_defaults()
    if any(name in given for name in bound.kwargs):
        raise TypeError("keyword arguments could not be resolved to positions")
    return bound.args


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Host scalars and NumPy arrays as arrays: user's rules may ask for shapes and dtypes. No equation is recorded."""
    return [make_array(value) if isinstance(value, (bool, int, float, complex, np.ndarray, np.generic))
            and getattr(value, "dtype", None) != dtypes.float0 else value for value in values]


def _split(args: Sequence[Any], nondiff: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    return [args[index] for index in nondiff], [arg for index, arg in enumerate(args) if index not in nondiff]


def _merged(nondiff: tuple[int, ...], static: Sequence[Any], dynamic: Sequence[Any]) -> list[Any]:
    full: list[Any] = list(dynamic)
    for index, value in zip(nondiff, static, strict=True):
        full.insert(index, value)
    return full


class _Result:
    """What is known of a call's result: its tree, and its types if the function itself ran."""

    tree: Any = None
    avals: list[Any] | None = None


def rule_inside(custom: Any, name: str) -> Any:
    """An attribute that a function with rules lacks: what sets another kind of rule sets that of the function inside."""
    if name in ("defjvp", "defjvps", "defvjp", "defvjp_with_logs", "defvjp_with_accums", "defremat", "defremat_with_logs",
                "def_vmap"):
        return getattr(custom.fun, name)
    raise AttributeError(f"{type(custom).__name__!r} object has no attribute {name!r}")


class _Custom:
    """What custom_jvp and custom_vjp share: how a call becomes an equation."""

    _kind = ""
    __name__: str

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        source.wraps(fun)(self)  # type: ignore[arg-type]
        self.fun = fun
        if nondiff_argnames:
            names = list(inspect.signature(fun).parameters)
            nondiff_argnums = (*nondiff_argnums, *(names.index(name) for name in nondiff_argnames))
        self.nondiff_argnums = tuple(sorted(nondiff_argnums))

    __getattr__ = rule_inside

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)  # type: ignore[misc, operator, arg-type]

    def _flat(self, static: list[Any], in_tree: Any, result: _Result) -> Callable[..., list[Any]]:
        """The function, of flat values."""
        debug = DebugInfo(self._kind, source.function_location(self.fun))

        def flat(*values: Any) -> list[Any]:
            dynamic = tree_unflatten(in_tree, values)
            outs, result.tree = flatten_outputs(self.fun(*_merged(self.nondiff_argnums, static, dynamic)), debug)
            result.avals = list(map(aval_of, outs))
            return outs

        flat.debug = debug  # type: ignore[attr-defined]
        return flat

    def __repr__(self) -> str:
        return f"<{self._kind} of {source.function_location(self.fun)}>"


class custom_jvp(_Custom):
    """A function with a custom JVP rule.

    Args:
      fun: the function.
      nondiff_argnums: positions of arguments that are not arrays, or not differentiated; they come first in the rule.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> @jaxlite.custom_jvp
    ... def safe_log(x):
    ...     return jnp.log(x)
    >>> @safe_log.defjvp
    ... def _(primals, tangents):
    ...     (x,), (g,) = primals, tangents
    ...     return safe_log(x), g / jnp.maximum(x, 1.0)
    >>> print(jaxlite.grad(safe_log)(0.5))
    1.0
    """

    _kind = "custom_jvp"

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Set the rule: `jvp(*nondiff_args, primals, tangents)` gives (output, tangent of the output).

        With `symbolic_zeros`, vanishing tangents come as `SymbolicZero` instead of arrays.
        """
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Set the rule from one per argument: `jvp(tangent, output, *args)` gives that argument's share; None for 0."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals: Any, tangents: Any) -> Any:
            out = self(*primals)
            total = None
            for rule, tangent in zip(jvps, tangents, strict=True):
                if rule is not None:
                    share = rule(tangent, out, *primals)
                    total = share if total is None else tree_map(lambda x, y: x + y, total, share)
            return out, tree_map(lambda x: x * 0, out) if total is None else total

        self.defjvp(jvp)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {source.function_name(self.fun)} using defjvp.")
        args = bound_arguments(self.fun, args, kwargs)
        if is_eager():
            return self.fun(*args)
        static, dynamic = _split(args, self.nondiff_argnums)
        leaves, in_tree = tree_flatten(tuple(dynamic))
        result = _Result()
        outs = custom_jvp_call_p.bind(*leaves, name=source.function_name(self.fun), num_consts=0,
                                      call_jaxpr=self._flat(static, in_tree, result),
                                      jvp=self._flat_rule(static, in_tree, result), symbolic_zeros=self.symbolic_zeros)
        return tree_unflatten(result.tree, outs)

    def _flat_rule(self, static: list[Any], in_tree: Any, expected: _Result) -> Callable:
        jvp = self.jvp
        assert jvp is not None
        name, symbolic = source.function_name(self.fun), self.symbolic_zeros
        rule_name = source.function_name(jvp)

        def rule(*values: Any) -> list[Any]:
            half = len(values) // 2
            primals = _arrays(values[:half])
            tangents = _symbolic(values[half:]) if symbolic else _arrays(values[half:])
            result = jvp(*static, tree_unflatten(in_tree, primals), tree_unflatten(in_tree, tangents))
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(f"Custom JVP rule {rule_name} for function {name} must produce a pair (list or tuple of length "
                                f"two) representing primal and tangent outputs, but got {result}.")
            outs, tree = tree_flatten(result[0])
            tangents_out, tangent_tree = tree_flatten(result[1])
            if tree != tangent_tree:
                raise TypeError(f"Custom JVP rule {rule_name} for function {name} must produce primal and tangent outputs with "
                                f"equal container (pytree) structures, but got {tree} and {tangent_tree} respectively.")
            if expected.tree is None:
                expected.tree = tree
            elif tree != expected.tree:
                raise TypeError(f"Custom JVP rule {rule_name} for function {name} must produce a pair (list or tuple of length "
                                f"two) where the first element represents the primal output (equal in value to the output of "
                                f"the custom_jvp-decorated function {name}, and in particular of the same container/pytree "
                                f"structure), but instead the JVP rule output's first element had container/pytree structure "
                                f"{tree}, and the function's output {expected.tree}.")
            avals = list(map(aval_of, outs))
            for given, aval in zip(avals, expected.avals or avals, strict=True):
                if (given.shape, given.dtype) != (aval.shape, aval.dtype):
                    raise TypeError(f"Custom JVP rule {rule_name} for function {name} must produce a pair whose first element "
                                    f"has the types of the output of the function: expected {aval}, got {given}.")
            return [*outs, *map(checked, _arrays(tangents_out), avals)]

        def checked(tangent: Any, aval: Any) -> Any:
            wanted = tangent_aval(aval)
            vanishes = isinstance(tangent, Zero)
            if wanted.dtype == dtypes.float0:
                return Zero(wanted)
            given = tangent.aval if vanishes else aval_of(tangent)
            if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
                raise TypeError("Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes. "
                                f"Expected {wanted} (tangent type of {aval}) but got {given}.\n"
                                f"The rule is {rule_name} for function {name}.")
            return Zero(wanted) if vanishes else tangent

        rule.__name__ = rule_name
        return rule


class CustomVJPPrimal:
    """With symbolic_zeros, an argument of the forward function: its value, and whether it is differentiated."""

    __slots__ = ("value", "perturbed")

    def __init__(self, value: Any, perturbed: bool):
        self.value, self.perturbed = value, perturbed


class custom_vjp(_Custom):
    """A function with a custom reverse-mode rule.

    Args:
      fun: the function.
      nondiff_argnums: positions of arguments that are not arrays, or not differentiated; they come first in the
        backward function.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> @jaxlite.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda residuals, g: (jnp.clip(g, -1, 1),))
    >>> jaxlite.grad(lambda x: 5 * clipped(x))(2.0)
    Array(1., dtype=float32, weak_type=True)
    """

    _kind = "custom_vjp"

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable | None = None
        self.bwd: Callable | None = None
        self.symbolic_zeros = self.optimize_remat = self.with_logs = self.with_accums = False
        self.recomputing: custom_vjp | None = None

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False,
               generic_batching: bool = False) -> None:
        """Set the rules.

        Args:
          fwd: takes the arguments of the function, gives (output, residuals).
          bwd: takes the nondiff arguments, the residuals and the output's cotangent, gives a tuple with a cotangent (or
            None) for each differentiated argument.
          symbolic_zeros: give vanishing cotangents as `SymbolicZero`, and arguments of `fwd` with a flag `perturbed`.
          optimize_remat: where a `checkpoint` needs no residuals, it runs the function instead of `fwd`.
          generic_batching: for JAX, where without it some batches of `bwd` are an error; here none are.
        Raises: NotImplementedError for both of these at once.
        """
        if symbolic_zeros and optimize_remat:
            raise NotImplementedError("remat optimization for custom_vjp does not support symbolic zeros: set one of the two")
        self.fwd, self.bwd, self.symbolic_zeros, self.optimize_remat = fwd, bwd, symbolic_zeros, optimize_remat
        self.with_logs = self.with_accums = False

    def defvjp_with_logs(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False,
                         generic_batching: bool = False) -> None:
        """Set the rules, of which `bwd` can also log: it gives (cotangents, log).

        A log is a dict of pytrees by names that are unique in a backward pass, or None. Who calls `with_logs` of the function
        that `vjp` gives gets it; others do not, and under `jit` what is logged is not computed for them.

        >>> import jaxlite
        >>> @jaxlite.custom_vjp
        ... def watched(x):
        ...     return x
        >>> watched.defvjp_with_logs(lambda x: (x, None), lambda _, g: ((g,), {"cotangent": g}))
        >>> _, pull = jaxlite.vjp(lambda x: watched(x) * 3, 2.0)
        >>> cotangents, log = pull.with_logs(1.0)
        >>> print(log["cotangent"])
        3.0
        """
        self.defvjp(fwd, bwd, symbolic_zeros, optimize_remat, generic_batching)
        self.with_logs = True

    def defvjp_with_accums(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False,
                           generic_batching: bool = False) -> None:
        """Set the rules, of which `bwd(residuals, cotangent, *accumulators)` adds to accumulators instead of giving cotangents.

        There is one for each array of the arguments, in their structure; its method `accum` adds a cotangent. It is a
        `ValAccum`; a `RefAccum`, whose attribute `ref` is the Ref, where `with_refs` of a `vjp` function was given one for the
        argument; or a `NullAccum`, where no cotangent is wanted (`jaxlite.experimental.hijax` has these classes). `bwd` gives
        None, or a log as in `defvjp_with_logs`.

        >>> import jaxlite, jaxlite.numpy as jnp
        >>> @jaxlite.custom_vjp
        ... def first(x):
        ...     return x[0]
        >>> def bwd(_, g, of_x):
        ...     of_x.accum(jnp.zeros(3).at[0].set(g))
        >>> first.defvjp_with_accums(lambda x: (x[0], None), bwd)
        >>> jaxlite.grad(first)(jnp.ones(3))
        Array([1., 0., 0.], dtype=float32)
        """
        self.defvjp(fwd, bwd, symbolic_zeros, optimize_remat, generic_batching)
        self.with_accums = True

    def defremat(self, fwd: Callable, rem: Callable, bwd: Callable, generic_batching: bool = False) -> None:
        """Set the rules for recomputation: they apply under `checkpoint`, and elsewhere if `defvjp` sets none.

        Args:
          fwd: takes the arguments of the function, gives (output, values to keep): these are kept whatever the policy says.
          rem: takes the kept values and the arguments of the function, gives (output, residuals). It runs in the backward
            pass, outside of a `checkpoint` after `fwd`.
          bwd: as in `defvjp`, with the residuals that `rem` gives.

        >>> import jaxlite, jaxlite.numpy as jnp
        >>> @jaxlite.custom_vjp
        ... def f(x):
        ...     return jnp.exp(jnp.sin(x))
        >>> def fwd(x):
        ...     return f(x), jnp.sin(x)
        >>> def rem(sine, x):
        ...     return jnp.exp(sine), (jnp.exp(sine), jnp.cos(x))
        >>> f.defremat(fwd, rem, lambda kept, g: (g * kept[0] * kept[1],))
        >>> print(jaxlite.grad(jaxlite.checkpoint(f))(0.0))
        1.0
        """
        self._recompute("defvjp", fwd, rem, bwd)

    def defremat_with_logs(self, fwd: Callable, rem: Callable, bwd: Callable, generic_batching: bool = False) -> None:
        """Set the rules for recomputation, of which `bwd` can also log, as in `defvjp_with_logs`."""
        self._recompute("defvjp_with_logs", fwd, rem, bwd)

    def _recompute(self, how: str, fwd: Callable, rem: Callable, bwd: Callable) -> None:
        self.recomputing = custom_vjp(self.fun, self.nondiff_argnums)
        getattr(self.recomputing, how)(_with_recomputation(fwd, rem), bwd)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.recomputing is not None and (self.fwd is None or state.recomputes):
            return self.recomputing(*args, **kwargs)
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {source.function_name(self.fun)} using defvjp.")
        args = bound_arguments(self.fun, args, kwargs)
        if is_eager():
            return self.fun(*args)
        for index in self.nondiff_argnums:
            if any(isinstance(leaf, Tracer) for leaf in tree_leaves(args[index])):
                raise UnexpectedTracerError(
                    "Found a JAX Tracer object passed as an argument to a custom_vjp function in a position indicated by "
                    "nondiff_argnums as non-differentiable. Tracers cannot be passed as non-differentiable arguments to "
                    "custom_vjp functions; instead, nondiff_argnums should only be used for arguments that can't be or contain "
                    "JAX tracers, e.g. function-valued arguments. In particular, array-valued arguments should typically not "
                    f"be indicated as nondiff_argnums.\nThe function is {source.function_name(self.fun)}, the argument's "
                    f"position {index}: remove it from nondiff_argnums, and return None for its cotangent.")
        static, dynamic = _split(args, self.nondiff_argnums)
        leaves, in_tree = tree_flatten(tuple(dynamic))
        result = _Result()
        fwd, bwd = self._flat_rules(static, in_tree, result, list(map(aval_of, leaves)))
        if self.optimize_remat:
            fwd = _as_one_equation(fwd, self._flat(static, in_tree, result))
        outs = custom_vjp_call_p.bind(*leaves, name=source.function_name(self.fun), num_consts=0, fwd=fwd, bwd=bwd,
                                      call_jaxpr=self._flat(static, in_tree, result), symbolic_zeros=self.symbolic_zeros)
        return tree_unflatten(result.tree, outs)

    def _flat_rules(self, static: list[Any], in_tree: Any, expected: _Result, in_avals: list[Any],
                    ) -> tuple[Callable, Callable]:
        user_fwd, user_bwd, nondiff, symbolic = self.fwd, self.bwd, self.nondiff_argnums, self.symbolic_zeros
        assert user_fwd is not None and user_bwd is not None
        name = source.function_name(self.fun)
        residual_tree: Any = None
        out_axes: list[Any] = []

        def fwd(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], list[Any]]:
            nonlocal residual_tree, out_axes
            primals = _arrays(primals)
            values: Sequence[Any] = primals
            if symbolic:
                values = [CustomVJPPrimal(value, flag) for value, flag in zip(primals, perturbed, strict=True)]
            result = user_fwd(*_merged(nondiff, static, tree_unflatten(in_tree, values)))
            outs = _checked_forward(result, expected, name, fwd.__name__)
            residuals, residual_tree = tree_flatten(result[1])
            out_axes = [aval_of(out).vma for out in outs]
            return outs, residuals

        with_logs, with_accums = self.with_logs, self.with_accums

        def bwd(residuals: Sequence[Any], cotangents: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
            given = _symbolic(cotangents) if symbolic else [instantiate(cotangent) for cotangent in cotangents]
            if any(out_axes):  # those that are the same on all devices, such as ones, are given as the results' types say
                given = [_parallel().vary(each, axes) if axes and type(each) is not SymbolicZero else each
                         for each, axes in zip(given, out_axes, strict=True)]
            operands = (*static, tree_unflatten(residual_tree, residuals), tree_unflatten(expected.tree, given))
            if with_accums:
                accums = list(map(_accumulators().accumulator, in_avals, targets))
                entries = user_bwd(*operands, *tree_unflatten(in_tree, accums))
                if entries is not None and type(entries) is not dict:
                    raise TypeError("Custom VJP bwd rule was registered with defvjp_with_accums, and so must return None or a "
                                    f"dict of backward-pass log entries, but got {type(entries).__name__}.")
                outs = _accumulators().values_of(accums)
            else:
                result, entries = user_bwd(*operands), None
                if with_logs:
                    result, entries = with_entries(result, "Custom VJP bwd rule was registered with defvjp_with_logs and so "
                                                   "must produce", "the pair it returns")
                outs = _spread_cotangents(result, in_tree, name, source.function_name(user_bwd))
            log(entries, custom_linear_p)
            return _checked_cotangents(outs, in_tree, in_avals, name, source.function_name(user_bwd))

        fwd.__name__, bwd.__name__ = source.function_name(user_fwd), source.function_name(user_bwd)
        return fwd, bwd


def _checked_forward(result: Any, expected: _Result, name: str, rule: str) -> list[Any]:
    """The outputs that a forward rule gave, beside residuals. Raises: TypeError for those that are not the function's."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"Custom VJP fwd rule {rule} for function {name} must produce a pair (list or tuple of length two) "
                        "where the first element represents the primal output (equal to those of the custom_vjp-decorated "
                        f"function {name}) and the second element represents residuals (i.e. values stored from the forward "
                        f"pass for use on the backward pass), but instead of a pair the fwd rule {rule} produced {result}.")
    outs, tree = tree_flatten(result[0])
    if expected.tree is None:
        expected.tree = tree
    elif tree != expected.tree:
        raise TypeError(f"Custom VJP fwd rule {rule} for function {name} must produce a pair whose first element has the "
                        f"container structure of the function's output, {expected.tree}; got {tree}.")
    for out, aval in zip(outs, expected.avals or map(aval_of, outs), strict=False):
        given = aval_of(out)
        if (given.shape, given.dtype) != (aval.shape, aval.dtype):
            raise TypeError(f"Custom VJP fwd rule {rule} for function {name} must produce outputs of the function's own types: "
                            f"got {given}, expected {aval}.")
    return outs


def with_entries(result: Any, demand: str, pair: str) -> tuple[Any, Any]:
    """The cotangents and the log that a rule gave. Raises: TypeError for other things."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"{demand} a pair (in_cts, logs), but got {result}.")
    cotangents, entries = result
    if entries is not None and type(entries) is not dict:
        raise TypeError(f"{demand} a pair (in_cts, logs): the second element of {pair} must be None or a dict of backward-pass "
                        f"log entries, but got {type(entries).__name__}.")
    return cotangents, entries


def _with_recomputation(fwd: Callable, rem: Callable) -> Callable:
    """A forward function whose residuals are those that `rem` computes, in the backward pass if that recomputes."""
    own = _own_residuals()
    own.rules.exist = True

    def forward(*args: Any) -> Any:
        first = fwd(*args)
        if not isinstance(first, (tuple, list)) or len(first) != 2:
            return first  # no pair: the error says so
        second = rem(tree_map(own.kept_p.bind, first[1]), *args)
        if not isinstance(second, (tuple, list)) or len(second) != 2:
            raise TypeError(f"the rematerialization rule {source.function_name(rem)} of a custom_vjp function must give a pair "
                            f"of the output and residuals, got {second}")
        return tree_map(own.chosen_p.bind, first[0], second[0]), second[1]

    source.wraps(fwd)(forward)
    return forward


def _as_one_equation(fwd: Callable, fun: Callable[..., list[Any]]) -> Callable:
    """The forward function as an equation that becomes one of the function where nobody reads the residuals."""

    def wrapped(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[Sequence[Any], Sequence[Any]]:
        split = 0

        def flat(*values: Any) -> list[Any]:
            nonlocal split
            outs, residuals = fwd(values, perturbed)
            split = len(residuals)
            return [*residuals, *outs]

        found = _remat_opt().forward(flat, fun, primals, lambda: split)
        return found[split:], found[:split]

    wrapped.__name__ = fwd.__name__
    return wrapped


def _add_cotangents(outs: list[Any], value: Any, expected: Any) -> bool:
    """Add a cotangent for each leaf of the expected tree. False if the given tree is not a prefix of it.

    A leaf in the place of a subtree, such as None, applies to each of its leaves.
    """
    leaves, tree = tree_flatten(value, is_leaf=lambda each: each is None)
    try:
        parts = tree.flatten_up_to(with_places(expected))
    except (ValueError, TypeError):
        return False
    for leaf, part in zip(leaves, map(tree_structure, parts), strict=True):
        outs += [leaf] * part.num_leaves
    return True


def _long(aval: Any) -> str:
    return aval.str_short()


def _spread_cotangents(result: Any, in_tree: Any, name: str, bwd_name: str) -> list[Any]:
    """A cotangent for each leaf of the arguments, from the tuple that a rule gives."""
    children = in_tree.children()
    outs: list[Any] = []
    if not isinstance(result, (tuple, list)) or len(children) != len(result) or not all(
            _add_cotangents(outs, value, child) for child, value in zip(children, result, strict=True)):
        raise TypeError("Custom VJP bwd rule must produce an output with the same container (pytree) structure as the args "
                        "tuple of the primal function, and in particular must produce a tuple of length equal to the number of "
                        f"arguments to the primal function, but got bwd output structure {tree_structure(result)} for primal "
                        f"input structure {in_tree}.\n"
                        f"The rule is {bwd_name}, of the function {name}. None means no cotangent of an argument.")
    return outs


def _checked_cotangents(outs: list[Any], in_tree: Any, in_avals: list[Any], name: str, bwd_name: str) -> list[Any]:
    paths = [keystr(path) for path in leaf_paths(in_tree)]
    checked: list[Any] = []
    for out, aval, path in zip(outs, in_avals, paths, strict=True):
        expected = tangent_aval(aval)
        if out is None or isinstance(out, Zero) or expected.dtype == dtypes.float0:
            checked.append(None)
            continue
        if not is_array_like(out):
            raise TypeError(f"Argument {out!r} of type {type(out)} is not a valid JAX type\n"
                            f"The bwd rule {bwd_name} of the function {name} gave it at output{path}.")
        given = aval_of(out)
        kind, own = dtypes.kind(expected.dtype), dtypes.kind(given.dtype)
        if given.shape == expected.shape and given.dtype != expected.dtype and kind in "fc" and own in "biuf" + kind:
            out, given = convert(out, expected.dtype, False), expected  # mixed precision gives other widths, and many give a 0
        differing = next((word for word, ours, theirs in (
            ("shapes", given.shape, expected.shape), ("dtypes", given.dtype, expected.dtype),
            ("manual axis types", given.vma, expected.vma)) if ours != theirs), None)
        if differing is not None:
            hint = ("" if differing != "manual axis types" else " An argument that is the same along a mesh axis needs "
                    "jax.lax.psum of its cotangent; a cotangent that is the same becomes one that varies by jax.lax.pcast.")
            raise ValueError("Custom VJP bwd rule must produce an output with the same type as the args tuple of the "
                             f"primal function, but at output{path} the bwd rule produced an output of type {_long(given)} "
                             f"corresponding to an input of type {_long(aval)}, so the {differing} do not match\n"
                             f"The rule is {bwd_name}, of the function {name}.{hint}")
        checked.append(out)
    return checked


def closure_convert(fun: Callable, *example_args: Any) -> tuple[Callable, list[Any]]:
    """A function whose closed-over, differentiable tracers have become arguments: `converted(*args, *hoisted)`.

    Args: `example_args` arrays, or their types.
    Returns: the function, and the values that it closed over.
    """
    jaxpr, consts, _, (trees, out_tree) = trace_call("closure_convert", fun, example_args, {}, abstract)
    in_tree = trees.children()[0]
    hoisted = [isinstance(const, Tracer) and dtypes.kind(aval_of(const).dtype) in "fc" for const in consts]
    fixed = [None if flag else const for const, flag in zip(consts, hoisted, strict=True)]

    def converted_fun(*args: Any) -> Any:
        count = sum(hoisted)
        own, given = (args[:-count], args[-count:]) if count else (args, ())
        rest = iter(given)
        values = [next(rest) if flag else const for const, flag in zip(fixed, hoisted, strict=True)]
        flat_args, tree = tree_flatten(tuple(own))
        if tree != in_tree:
            raise TypeError(f"closure_convert: the function was converted for arguments {in_tree}, called with {tree}")
        return tree_unflatten(out_tree, eval_jaxpr(jaxpr, values, *flat_args))

    return converted_fun, pick(consts, hoisted)


# --- helpers for rules -------------------------------------------------------------------------------


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The plain values of the arguments that a forward rule gets with `symbolic_zeros=True`."""
    return tree_map(lambda leaf: leaf.value if isinstance(leaf, CustomVJPPrimal) else leaf, tree)


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The vanishing tangent of a value, or of each leaf of a pytree: zeros, or a `SymbolicZero`.

    >>> import jaxlite.numpy as jnp
    >>> zero_from_primal(jnp.arange(2.0))
    Array([0., 0.], dtype=float32)
    """
    def of_leaf(leaf: Any) -> Any:
        zero = SymbolicZero(tangent_aval(aval_of(leaf)))
        return zero if symbolic_zeros else zero.instantiate()

    return tree_map(of_leaf, val)
