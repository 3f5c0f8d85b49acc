"""Bodies: tracing the functions of control flow for given types, and the errors if types do not match.

A function is traced once per signature, and the result is cached for the lifetime of the function. `cond.py`,
`while_loop.py` and `scan.py` make equations from traced bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.caches import PerFunction, clear_hooks
from jaxlite.compilation.options import argument_names
from jaxlite.compilation.program import flatten_outputs
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import Ints, ShapedArray, high_types, typematch, varying
from jaxlite.core.errors import JaxprTypeError
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, Remembering, derived, subjaxprs
from jaxlite.core.staging import StagingTrace, high, pvary_p, trace_to_jaxpr, varying_inputs, varying_outputs
from jaxlite.core.tracing import Tracer, state
from jaxlite.core.tree import keystr, leaf_paths, tree_differences, tree_flatten, tree_flatten_with_path, tree_map
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices import placement
from jaxlite.lax.shaping import convert
from lowering import xla

# --- tracing -----------------------------------------------------------------------------------------


class Body(Remembering):
    """A function traced for given types. `jaxpr` has the values that it closes over, `consts`, as constvars.

    What callers make of the jaxpr is remembered here, so that one body gives one and the same equation: compiled code
    is found again by the identity of its jaxpr.
    """

    __slots__ = ("jaxpr", "consts", "out_tree")

    def __init__(self, jaxpr: Jaxpr, consts: list[Any], out_tree):
        self.jaxpr, self.consts, self.out_tree = jaxpr, consts, out_tree

    def is_stale(self) -> bool:
        """Whether it closes over tracers of a trace that has ended."""
        if high_types.exist and high().have_changed(self.jaxpr.constvars, self.consts):
            return True
        return any(isinstance(const, Tracer) and not const._trace.alive for const in self.consts)

    @property
    def out_avals(self) -> list[Any]:
        return self.jaxpr.out_avals

    def derive(self, make: Callable[..., Any], *args):
        """`make(self, *args)`, remembered."""
        return derived(self, (make, *args), lambda: make(self, *args))


_bodies: PerFunction[Body] = PerFunction()  # by what it was traced for, and its signature


def trace_body(fun: Callable, in_tree, avals: Sequence[Any], traced_for: str,
               call: Callable[..., Any] | None = None) -> Body:
    """Trace a function, or find the trace that was made before.

    Args:
      in_tree: the tree of `(args, {})`.
      avals: the types of its leaves.
      traced_for: a word for messages. It also says which `call` is used.
      call: `call(fun, *args)` runs the function in place of `fun(*args)`; its result is what the body returns.
    """
    key = (traced_for, in_tree, tuple(avals), xla.trace_context(), tuple(state.axis_sizes.items()))
    bodies = _bodies.of(fun)
    body = bodies.get(key)
    if body is None or body.is_stale():
        body = bodies[key] = _trace(fun, in_tree, avals, traced_for, call)
    return body


def _trace(fun: Callable, in_tree, avals: Sequence[Any], traced_for: str, call: Callable | None) -> Body:
    debug = DebugInfo(traced_for, source.function_location(fun), argument_names(fun, in_tree, None))
    out_tree: Any = None

    def flat(*tracers) -> list[Any]:
        nonlocal out_tree
        args, _ = in_tree.unflatten(tracers)
        outs, out_tree = flatten_outputs(call(fun, *args) if call else fun(*args), debug)
        return outs

    jaxpr, consts = trace_to_jaxpr(flat, avals, debug)
    return Body(jaxpr, consts, out_tree)


def runs_in_python() -> bool:
    """Whether `disable_jit` requires Python loops and branches."""
    return config.disable_jit.value


def without_numpy(carry):
    """A carry of a scan in Python: NumPy arrays become arrays, which a body cannot change in place."""
    return tree_map(lambda leaf: as_result(leaf) if isinstance(leaf, np.ndarray) else leaf, carry)


# --- values ------------------------------------------------------------------------------------------


def flatten_values(what: str, value) -> tuple[list[Any], Any, list[Any]]:
    """Leaves, tree and avals of a pytree of values.

    Raises: TypeError that names the leaf which is not an array or scalar; `what` names the tree.
    """
    leaves, tree = tree_flatten(value)
    avals = []
    for index, leaf in enumerate(leaves):
        try:
            avals.append(aval_of(leaf))
        except TypeError as error:
            path = keystr(tree_flatten_with_path(value)[0][index][0])
            raise TypeError(f"{what}{path}: {error}") from None
    if high_types.exist:
        avals = high().with_states(avals, leaves)
    return leaves, tree, avals


def as_result(value):
    """An operand that is returned as it came: an array, also where it was a Python or NumPy value. Scalars stay what
    they are inside a trace, where they are literals."""
    if isinstance(value, Tracer) or type(value) is ArrayImpl or high_types.exist and high().is_high_value(value):
        return value
    if hasattr(value, "__jax_array__"):
        return as_result(value.__jax_array__())
    trace = state.trace
    if isinstance(trace, StagingTrace):
        return trace.lift(value) if np.ndim(value) else value  # the same constant of the program as the operand
    return arrays.put_array(value, placement.default_device(), False)


clear_hooks.append(_bodies.clear)

# --- jaxprs ------------------------------------------------------------------------------------------


def check_operands(name: str, avals: Sequence[Any], expected: Sequence[Any]) -> None:
    """For type rules: operands have the types that the sub-jaxpr takes. Raises: JaxprTypeError."""
    if len(avals) != len(expected):
        raise JaxprTypeError(f"{name} has {len(avals)} operands, its sub-jaxpr takes {len(expected)}")
    for index, (aval, wanted) in enumerate(zip(avals, expected, strict=True)):
        if not typematch(aval, wanted):
            raise JaxprTypeError(f"{name}: operand {index} is {aval}, its sub-jaxpr takes {wanted}")


# --- values that vary along axes of a mesh ------------------------------------------------------------


def check_same_way(what: str, vma: frozenset[Any], programs: Iterable[Jaxpr], checked: set[Jaxpr] | None = None) -> None:
    """Inside `shard_map`: devices that may go different ways must not wait for each other on one of them.

    Args: `vma` the axes along which the choice varies; `programs` what it chooses from; those in `checked` were.
    Raises: ValueError for a collective over one of these axes.
    """
    checked = set() if checked is None else checked
    for jaxpr in programs:
        if jaxpr in checked:
            continue
        checked.add(jaxpr)
        for eqn in jaxpr.eqns:
            if getattr(eqn.primitive, "is_collective", False) and eqn.invars:
                axes = eqn.params.get("axes", eqn.params.get("axis_name"))
                names = [name for name in (axes if isinstance(axes, tuple) else (axes,)) if name in vma]
                if names:
                    raise ValueError(
                        f"{eqn.primitive} over the mesh axis {names[0]!r} inside a {what} whose predicate varies along it: "
                        "devices that do not get there would be waited for forever. Make the predicate the same on all of them "
                        f"(lax.pmax, lax.psum), or take the collective out of the {what}. If you know that it is the same, "
                        "pass check_vma=False to shard_map")
        check_same_way(what, vma, subjaxprs(jaxpr), checked)


def varying_carry(body: ClosedJaxpr, avals: Sequence[Any], num_consts: int, num_carry: int) -> ClosedJaxpr:
    """The body of a loop for operands that vary along more manual axes: a carry varies in each step as it does in any."""
    avals = list(avals)
    while True:
        body = varying_inputs(body, avals)
        carried = [one.vma | other.vma for one, other in zip(body.in_avals[num_consts:], body.out_avals[:num_carry])]
        if all(aval.vma == vma for aval, vma in zip(body.in_avals[num_consts:], carried)):
            break
        avals[num_consts:num_consts + num_carry] = [
            varying(aval, vma) for aval, vma in zip(body.in_avals[num_consts:], carried)]
        avals = [*body.in_avals[:num_consts], *avals[num_consts:]]
    if all(aval.vma == vma for aval, vma in zip(body.out_avals, carried)):
        return body
    wanted = [*carried, *[aval.vma for aval in body.out_avals[num_carry:]]]
    return ClosedJaxpr(varying_outputs(body.jaxpr, wanted), [])


# --- carries: they keep their type from one step to the next -----------------------------------------


class Carry:
    """The carry of a loop: its tree, the types of its leaves, and where it is among the arguments of `fun`.

    `place` is the argument that is the carry; or a tuple that gives the argument of each of the carry's components.
    """

    __slots__ = ("what", "fun", "place", "num_args", "tree", "avals")

    def __init__(self, what: str, fun: Callable, place: int | Ints, num_args: int, tree, avals: list[Any]):
        self.what, self.fun, self.place, self.num_args = what, fun, place, num_args
        self.tree, self.avals = tree, avals

    def _component(self, path) -> str:
        place = self.place
        if isinstance(place, tuple):
            place, path = place[path[0].idx], path[1:]
        _, in_tree = tree_flatten(((0,) * self.num_args, {}))
        return ("component " if path else "") + argument_names(self.fun, in_tree, None)()[place] + keystr(path)

    def settle(self, trace: Callable[[], Body], tree_of: Callable[[Any], Any]) -> Body:
        """Trace the body until its carry comes out in the types in which it goes in.

        Args: `trace` traces for the current `avals`; `tree_of` finds the carry's tree in the tree of results, whose
        first leaves are the carry.
        Raises: TypeError that names what differs.
        """
        while True:
            body = trace()
            self.check_tree(tree_of(body.out_tree))
            out_avals = body.out_avals[: len(self.avals)]
            if not self.promote(out_avals):
                self.check_types(out_avals)
                return body

    def check_tree(self, out_tree) -> None:
        """Raises: TypeError that shows where the tree that came out differs from the one that went in."""
        if out_tree == self.tree:
            return
        differences = "\n".join(
            f"  * the input carry {self._component(path)} is {one} but the corresponding component of the carry output "
            f"is {other}, so {why}" for path, one, other, why in tree_differences().equality_errors(self.tree, out_tree))
        raise TypeError(
            f"{self.what} body function carry input and carry output must have the same pytree structure, but they "
            f"differ:\n\n{differences}\n\nThe body function is {source.function_location(self.fun)}.\n"
            "Revise it so that the carry output has the same pytree structure as the carry input.")

    def promote(self, out_avals: Sequence[Any]) -> bool:
        """Let weakly typed leaves take the dtype that came out, as Python scalars do; whether one did.

        In loops of jaxlite's own, which know nothing of meshes, leaves vary along the manual axes too that they come out with.
        """
        avals = [_promoted(aval, out) for aval, out in zip(self.avals, out_avals, strict=True)]
        if any([out.vma != aval.vma for aval, out in zip(avals, out_avals, strict=True)]) and _is_own(self.fun):
            avals = [varying(aval, aval.vma | out.vma) for aval, out in zip(avals, out_avals, strict=True)]
        changed = avals != self.avals
        self.avals = avals
        return changed

    def check_types(self, out_avals: Sequence[Any]) -> None:
        """Raises: TypeError that shows each leaf whose type changed, and how."""
        if all(map(typematch, self.avals, out_avals)):
            return
        paths = leaf_paths(self.tree)
        differences = "\n".join(
            f"  * the input carry {self._component(path)} has type {type_text(aval)} but the corresponding output "
            f"carry component has type {type_text(out)}, so {difference_text(aval, out)}"
            + cast_text(aval, out, f", to the initial carry value corresponding to the input carry {self._component(path)}")
            for path, aval, out in zip(paths, self.avals, out_avals, strict=True) if not typematch(aval, out))
        raise TypeError(
            f"{self.what} body function carry input and carry output must have equal types, but they differ:\n\n"
            f"{differences}\n\nThe body function is {source.function_location(self.fun)}.\n"
            "Revise it so that all output types match the corresponding input types, or convert the initial carry.")

    def convert(self, leaves: Sequence[Any]) -> list[Any]:
        """Initial values in the types of the carry."""
        return [_converted(leaf, aval) for leaf, aval in zip(leaves, self.avals, strict=True)]


def _promoted(aval, out):
    if typematch(aval, out) or not aval.weak_type or not isinstance(out, ShapedArray):
        return aval
    dtype, _ = dtypes.lattice_result(aval.dtype, True, out.dtype, out.weak_type)
    return aval if dtype == aval.dtype else aval.update(dtype=dtype, weak_type=False)


def _is_own(fun: Callable) -> bool:
    code = getattr(fun, "__code__", None)
    return code is not None and source.is_own_file(code.co_filename)


def _converted(leaf, aval):
    missing = aval.vma - aval_of(leaf).vma
    if missing:
        leaf = pvary_p.bind(leaf, axes=tuple(sorted(missing, key=str)))
    if aval.is_high or aval_of(leaf).dtype == aval.dtype:
        return leaf
    if isinstance(leaf, Tracer) or type(leaf) is ArrayImpl:
        return convert(leaf, aval.dtype, False)
    return np.asarray(leaf).astype(aval.dtype)[()]


def type_text(aval) -> str:
    """`float32[3]`; `weak float32[]` for a weakly typed value."""
    if not isinstance(aval, ShapedArray):
        return f"{aval}"
    return f"{'weak ' if aval.weak_type else ''}{aval.str_short()}"


def cast_text(one, other, place: str) -> str:
    """The advice of an error, if the first type varies along fewer axes of a mesh than the second."""
    missing = tuple(sorted(other.vma - one.vma, key=str))
    return f".\n\nThis might be fixed by applying `jax.lax.pcast(..., {missing}, to='varying')`{place}." if missing else ""


def difference_text(one, other) -> str:
    """In words, in what two types differ."""
    if not (isinstance(one, ShapedArray) and isinstance(other, ShapedArray)):
        return "the types do not match"
    parts = ["the dtypes do not match"] if one.dtype != other.dtype else []
    if one.shape != other.shape:
        parts.append("the shapes do not match")
    if one.vma != other.vma:
        parts.append("the manual axis types do not match")
    if one.layout != other.layout:
        parts.append("the shardings do not match")
    return ", and ".join(parts)
