"""Reductions over axes: sums, products, extremes, logical operations, argmax, and any binary function.

A reduction with a named operation has a known identity element; `reduce` takes any associative function, and uses a named
reduction if it recognises one. lax counts axes from 0 and preserves the dtype: `jaxlite.numpy` has negative axes and wider
accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.axes import with_sizes
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, Literal
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.symbolic import as_sizes
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import elementwise
from jaxlite.lax.elementwise import ANY, BITS, NUMBERS, require_kind
from jaxlite.lax.shaping import convert_element_type
from lowering.monoids import identity
from lowering.xla import VERSION

# --- axes and types ----------------------------------------------------------------------------------


def static_ints(name: str, what: str, values) -> Ints:
    """A tuple of Python ints from what a user gave for a static sequence.

    Raises: TypeError that names the argument.
    """
    try:
        return as_sizes(values)
    except TypeError:
        raise TypeError(f"{name}: {what} must be a sequence of integers, got {values!r}") from None


def _reduced_shape(name: str, aval, axes: Ints) -> Ints:
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: duplicate value in 'axes' of reduction: {axes}")
    if not all(0 <= axis < len(aval.shape) for axis in axes):
        raise np.exceptions.AxisError(f"{name}: reduction axes {axes} contains out-of-bounds indices for "
                                      f"{aval.dtype}[{','.join(map(str, aval.shape))}].")
    return tuple(size for axis, size in enumerate(aval.shape) if axis not in axes)


def _reduction(name: str, accepted: str, keeps_weak_type: bool = True) -> Primitive:
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def rule(x, *, axes: Ints, **params) -> ShapedArray:
        require_kind(name, x, accepted)
        return shaped_array(_reduced_shape(name, x, axes), x.dtype, x.weak_type and keeps_weak_type)

    return primitive


# --- reductions with a name --------------------------------------------------------------------------

reduce_sum_p = _reduction("reduce_sum", NUMBERS)
reduce_prod_p = _reduction("reduce_prod", NUMBERS)
reduce_max_p = _reduction("reduce_max", ANY)
reduce_min_p = _reduction("reduce_min", ANY)
if VERSION >= (0, 12):  # as JAX of the same jaxlib
    reduce_max_p.leaves_out(out_sharding=None)
    reduce_min_p.leaves_out(out_sharding=None)
reduce_and_p = _reduction("reduce_and", BITS, keeps_weak_type=False)
reduce_or_p = _reduction("reduce_or", BITS, keeps_weak_type=False)
reduce_xor_p = _reduction("reduce_xor", BITS, keeps_weak_type=False)


def reduce_sum(operand, axes: Sequence[int], *, out_sharding=None):
    """The sum over some axes, which vanish from the shape. 0 over no elements.

    Args:
      operand: an array of numbers; narrow floats are accumulated in their own dtype.
      axes: distinct axes in [0, rank).
      out_sharding: how the result is laid out over devices.
    Raises: ValueError for axes out of bounds or given twice; TypeError for booleans.

    >>> import numpy as np
    >>> reduce_sum(np.arange(6.).reshape(2, 3), axes=(0,)).tolist()
    [3.0, 5.0, 7.0]
    """
    axes = static_ints("reduce_sum", "axes", axes)
    if out_sharding is None:
        return reduce_sum_p.bind(operand, axes=axes, out_sharding=None)
    return placement.laid_out(reduce_sum_p.bind(operand, axes=axes, out_sharding=None), out_sharding)


def reduce_prod(operand, axes: Sequence[int]):
    """The product over some axes; 1 over no elements. As `reduce_sum`."""
    return reduce_prod_p.bind(operand, axes=static_ints("reduce_prod", "axes", axes))


def reduce_max(operand, axes: Sequence[int], *, out_sharding=None):
    """The maximum over some axes: NaN if there is one; the lowest value of the dtype over no elements.

    Complex numbers compare real part first. As `reduce_sum`, and booleans are welcome.
    """
    return _extreme(reduce_max_p, operand, axes, out_sharding)


def reduce_min(operand, axes: Sequence[int], *, out_sharding=None):
    """The minimum over some axes: NaN if there is one; the highest value of the dtype over no elements."""
    return _extreme(reduce_min_p, operand, axes, out_sharding)


def _extreme(primitive: Primitive, operand, axes: Sequence[int], out_sharding):
    axes = static_ints(primitive.name, "axes", axes)
    if getattr(getattr(out_sharding, "spec", out_sharding), "unreduced", None):  # each device gives the extreme of its part
        left = placement.constraints().left_extreme(primitive.name, operand, axes, out_sharding)
        return placement.laid_out(primitive.bind(operand, axes=axes, out_sharding=left), out_sharding)
    return placement.laid_out(primitive.bind(operand, axes=axes), out_sharding)


def reduce_and(operand, axes: Sequence[int]):
    """The AND of all elements over some axes: logical for bool, bit by bit for integers."""
    return reduce_and_p.bind(operand, axes=static_ints("reduce_and", "axes", axes))


def reduce_or(operand, axes: Sequence[int]):
    """The OR of all elements over some axes: logical for bool, bit by bit for integers."""
    return reduce_or_p.bind(operand, axes=static_ints("reduce_or", "axes", axes))


def reduce_xor(operand, axes: Sequence[int]):
    """The XOR of all elements over some axes: logical for bool, bit by bit for integers."""
    return reduce_xor_p.bind(operand, axes=static_ints("reduce_xor", "axes", axes))


# --- positions ---------------------------------------------------------------------------------------


def _position(name: str) -> Primitive:
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def rule(x, *, axes: Ints, index_dtype) -> ShapedArray:
        require_kind(name, x, "biuf")
        if len(axes) != 1:
            raise ValueError(f"{name} searches along one axis, got axes={axes}")
        (axis,) = axes
        if not 0 <= axis < len(x.shape):
            raise ValueError(f"{name}: Invalid axis {axis} for operand shape {x.shape}")
        if dtypes.kind(index_dtype) not in ("i", "u"):
            raise TypeError(f"{name}: index_dtype must be an integer type, but got {index_dtype}")
        if not x.shape[axis]:
            raise ValueError(f"argmin and argmax require non-empty reduced dimension. operand.shape={x.shape} "
                             f"axis={axis}")
        return shaped_array(with_sizes(x.shape, axis), index_dtype, False)

    return primitive


argmax_p = _position("argmax")
argmin_p = _position("argmin")


def argmax(operand, axis: int, index_dtype):
    """The index of the maximum along an axis, the first of several; that of the first NaN if there is one.

    Args:
      operand: an array of real numbers or booleans, with at least one element along `axis`.
      axis: in [0, rank).
      index_dtype: the integer dtype of the result.
    Raises: ValueError for the axis; TypeError for the dtypes.

    >>> import numpy as np
    >>> argmax(np.array([[1., 5., 5.], [7., 0., 2.]]), 1, np.int32).tolist()
    [1, 0]
    """
    return argmax_p.bind(operand, axes=(int(axis),),
                         index_dtype=dtypes.check_user_dtype_supported(index_dtype, "argmax"))


def argmin(operand, axis: int, index_dtype):
    """The index of the minimum along an axis, the first of several; that of the first NaN if there is one.

    As `argmax`.
    """
    return argmin_p.bind(operand, axes=(int(axis),),
                         index_dtype=dtypes.check_user_dtype_supported(index_dtype, "argmin"))


# --- computations of scalars -------------------------------------------------------------------------

_computations: dict[Any, ClosedJaxpr] = {}
_COMPUTATIONS_LIMIT = 1024


def _atom_key(atom, index: dict[Any, int]):
    if type(atom) is Literal:
        value = np.asarray(atom.val)
        return value.dtype.name, value.tobytes(), atom.aval
    return index[atom]


def _structure(jaxpr: Jaxpr):
    """A key that is equal for jaxprs that say the same."""
    index = {var: position for position, var in enumerate(jaxpr.invars)}
    key: list[Any] = [tuple(jaxpr.in_avals)]
    for eqn in jaxpr.eqns:
        params = tuple((name, _structure(value.jaxpr) if type(value) is ClosedJaxpr else value)
                       for name, value in eqn.params.items())
        key.append((eqn.primitive, params, tuple(_atom_key(atom, index) for atom in eqn.invars),
                    tuple(var.aval for var in eqn.outvars)))
        index.update((var, len(index) + offset) for offset, var in enumerate(eqn.outvars))
    key.append(tuple(_atom_key(atom, index) for atom in jaxpr.outvars))
    return tuple(key)


def trace_computation(name: str, computation: Callable, trees: Sequence[Any], in_avals: Sequence[Any],
                      out_avals: Sequence[Any]) -> ClosedJaxpr:
    """The jaxpr of a function of scalars that XLA will call for pairs of elements.

    Functions that say the same give one object, so that a lambda made anew at each call does not mean a new compile.

    Args:
      trees: the treedefs of the function's arguments, over whose leaves `in_avals` runs; the result has that of
        the first.
      out_avals: the types that the result must have.
    Raises: ValueError if the result has other types; NotImplementedError if the function reads an array from outside.
    """
    out_tree = None

    def flat(*args) -> Sequence[Any]:
        nonlocal out_tree
        position, unflat = 0, []
        for tree in trees:
            unflat.append(tree_unflatten(tree, args[position:position + tree.num_leaves]))
            position += tree.num_leaves
        leaves, out_tree = tree_flatten(computation(*unflat))
        return leaves

    function = getattr(computation, "__name__", repr(computation))
    jaxpr, consts = trace_to_jaxpr(flat, in_avals, DebugInfo(name, function))
    if out_tree != trees[0] and len(out_avals) > 1 or len(jaxpr.outvars) != len(out_avals):
        raise ValueError(f"{name}: the result of {function} must have the same tree structure as the operands, "
                         f"{trees[0]}, got {out_tree}")
    if consts:
        raise NotImplementedError(
            f"{name}: {function} reads an array from outside ({aval_of(consts[0])}). XLA calls it with pairs of "
            "elements alone: pass the array as one more operand, or apply it before or after.")
    for got, expected in zip(jaxpr.out_avals, out_avals, strict=True):
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise ValueError(f"{name}: {function} must map elements to their own type, here "
                             f"{expected.str_short(short_dtypes=True)}, but gave {got.str_short(short_dtypes=True)}")
    closed = ClosedJaxpr(jaxpr, [])
    try:
        key = _structure(jaxpr)
        if len(_computations) >= _COMPUTATIONS_LIMIT:
            _computations.clear()
        return _computations.setdefault(key, closed)
    except TypeError:  # an unhashable param
        return closed


def initial_values(name: str, operands: Sequence[Any], init_values: Sequence[Any]) -> list[Any]:
    """The initial values as scalars of the operands' dtypes; weakly typed ones are converted.

    Raises: ValueError for arrays that are not scalars; TypeError for another dtype and for numbers it cannot hold.
    """
    result = []
    for operand, init in zip(operands, init_values, strict=True):
        aval, dtype = aval_of(init), aval_of(operand).dtype
        if aval.shape:
            raise ValueError(f"{name} found non-scalar initial value: {aval}")
        if aval.dtype != dtype:
            if not aval.weak_type:
                raise TypeError(f"{name}: the initial value has dtype {aval.dtype}, its operand {dtype}")
            if isinstance(init, Tracer):
                init = convert_element_type(init, dtype)
            elif (held := _in_dtype(init, dtype)) is not None:
                init = held
            else:
                raise TypeError(f"{name}: the initial value {init} is none of the operand's dtype {dtype}")
        result.append(init)
    return result


def _in_dtype(number, dtype) -> Any:
    """A concrete scalar in a dtype, None if that does not hold it. Infinities are the ends of a range of integers."""
    value = np.asarray(number)
    if dtypes.kind(dtype) in "iu" and dtypes.kind(value.dtype) in "iuf":
        ends = dtypes.iinfo(dtype)
        if np.isinf(value):
            return dtype.type(ends.max if value > 0 else ends.min)
        if not ends.min <= value <= ends.max or value != np.trunc(value):
            return None
    return value.astype(dtype)[()]


MONOIDS = {elementwise.add: "sum", elementwise.mul: "prod", elementwise.max: "max", elementwise.min: "min",
           elementwise.bitwise_and: "and", elementwise.bitwise_or: "or", elementwise.bitwise_xor: "xor"}  # fmt: skip


def monoid_of(computation: Callable, init_value, aval) -> str | None:
    """The name of the monoid ('sum', 'max', ...) that a function of lax and a concrete initial value, of any dtype, make up."""
    try:
        monoid = MONOIDS.get(computation)
    except TypeError:  # an unhashable callable
        return None
    if monoid is None or isinstance(init_value, Tracer) or aval_of(init_value).shape:
        return None
    if dtypes.kind(aval.dtype) not in _MONOID_KINDS[monoid]:
        return None
    held = _in_dtype(init_value, aval.dtype)
    return monoid if held is not None and held == identity(monoid, aval.dtype) else None


_MONOID_KINDS = {"sum": NUMBERS, "prod": NUMBERS, "max": ANY, "min": ANY, "and": BITS, "or": BITS, "xor": BITS}
_BY_MONOID = {"sum": reduce_sum, "prod": reduce_prod, "max": reduce_max, "min": reduce_min, "and": reduce_and,
              "or": reduce_or, "xor": reduce_xor}

reduce_p = Primitive("reduce", multiple_results=True)


def reduced_operands(name: str, avals: Sequence[ShapedArray], jaxpr: ClosedJaxpr) -> tuple[Any, Any]:
    """The types of the operands and of the initial values that a computation combines, after a check that they fit."""
    count = len(avals) // 2
    operands, inits = avals[:count], avals[count:]
    for operand, init in zip(operands, inits, strict=True):
        if operand.shape != operands[0].shape:
            raise ValueError(f"{name}: operands must have equal shapes, got {[each.shape for each in operands]}")
        if init.shape or init.dtype != operand.dtype:
            raise TypeError(f"{name}: initial values must be scalars of the operands' dtypes, got {init} for {operand}")
    if [aval.dtype for aval in jaxpr.in_avals] != [aval.dtype for aval in operands] * 2:
        raise TypeError(f"{name}: the computation takes {jaxpr.in_avals}, the operands are {list(operands)}")
    return operands, inits


@reduce_p.def_abstract_eval
def _reduce_avals(*avals, jaxpr: ClosedJaxpr, dimensions: Ints) -> list[ShapedArray]:
    operands, inits = reduced_operands("reduce", avals, jaxpr)
    shape = _reduced_shape("reduce", operands[0], dimensions)
    return [shaped_array(shape, operand.dtype, operand.weak_type and init.weak_type)
            for operand, init in zip(operands, inits, strict=True)]


@boundary
def reduce(operands, init_values, computation: Callable[[Any, Any], Any], dimensions: Sequence[int], out_sharding=None):
    """Combine elements over some dimensions with any associative computation.

    Args:
      operands: a pytree of arrays of one shape.
      init_values: scalars in the same tree, of the arrays' dtypes: identity elements of the computation, since how
        often each enters is not defined.
      computation: function of two trees of scalars that gives one; associative and commutative, as the order is
        not defined. It sees elements only, no arrays from around it.
      dimensions: distinct dimensions in [0, rank).
      out_sharding: how the result of a sum is laid out over devices.
    Returns: the tree of arrays without those dimensions.
    Raises: ValueError for trees, shapes or dimensions that do not go together; TypeError for dtypes.

    >>> import numpy as np
    >>> reduce(np.array([3, 1, 4]), 0, lambda a, b: a | b, (0,)).tolist()
    7
    """
    flat, tree = tree_flatten(operands)
    inits, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(f"Operands must have the same tree structure as init_values: {tree} vs. {init_tree}")
    if not flat:
        raise ValueError("reduce needs at least one operand")
    dimensions = static_ints("reduce", "dimensions", dimensions)
    if len(flat) == 1:
        monoid = monoid_of(computation, inits[0], aval_of(flat[0]))
        if monoid is not None:
            options = {"out_sharding": out_sharding} if monoid == "sum" else {}
            return tree_unflatten(tree, [_BY_MONOID[monoid](flat[0], dimensions, **options)])
    inits = initial_values("reduce", flat, inits)
    scalars = [shaped_array((), aval_of(operand).dtype, False) for operand in flat]
    jaxpr = trace_computation("reduce", computation, [tree, tree], scalars * 2, scalars)
    return tree_unflatten(tree, reduce_p.bind(*flat, *inits, jaxpr=jaxpr, dimensions=dimensions))
