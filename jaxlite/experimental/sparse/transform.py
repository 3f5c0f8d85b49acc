"""sparsify: a function written for dense arrays, on sparse ones.

The function is traced on the types of its dense counterparts; then its jaxpr is evaluated, and an operation with sparse
operands is done by the rule below. There is none where the result would be dense everywhere, cos of a sparse array for example:
that is an error, not a silent conversion.

`sparse_rules_bcoo` and `sparse_rules_bcsr` take rules for primitives of a library's own, in JAX's calling convention:
`rule(spenv, *spvalues, **params)` gives spvalues, descriptions of arrays whose parts are in the environment. Where there is no
rule for BCSR arrays, that for BCOO is applied to the same elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.aval import ShapedArray
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.tracing import Trace, Tracer, set_trace, state
from jaxlite.core.tree import tree_flatten, tree_map, tree_structure, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.experimental.sparse import bcoo
from jaxlite.experimental.sparse.base import is_sparse
from jaxlite.experimental.sparse.bcoo import BCOO
from jaxlite.experimental.sparse.compressed import BCSR, _Converted, bcsr_broadcast_in_dim, bcsr_concatenate, bcsr_dot_general
from jaxlite.extend.rule_tables import RulesBeside, UserRule
from jaxlite.lax.control_flow.loop_rules import until_all_stop
from jaxlite.transforms.make_jaxpr import make_jaxpr

__all__ = ["SparseTrace", "SparseTracer", "sparsify"]
__dir__ = lambda: __all__


def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """A version of `f` that takes and gives sparse arrays.

    Args: `use_tracer` to run the function on tracers of sparse arrays, instead of tracing it for dense ones first: then it
      may look at what is known of other arguments.
    Raises: NotImplementedError at the call, for an operation that has no sparse rule.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.eye(3))
    >>> sparse.sparsify(lambda m: 2 * m + m.T)(m).todense().sum()
    Array(9., dtype=float32)
    """

    if use_tracer:
        return _on_tracers(f)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        # Other keyword arguments keep their values: `axis=0`.
        sparse = {name: value for name, value in kwargs.items()
                  if any(map(is_sparse, tree_flatten(value, is_leaf=is_sparse)[0]))}
        fun = functools.partial(f, **{name: value for name, value in kwargs.items() if name not in sparse})
        leaves, tree = tree_flatten((args, sparse), is_leaf=is_sparse)
        stand_ins = [ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_sparse(leaf) else leaf for leaf in leaves]
        out_tree: Any = None

        def flat(*values) -> list[Any]:
            nonlocal out_tree
            args, kwargs = tree_unflatten(tree, values)
            outs, out_tree = tree_flatten(fun(*args, **kwargs))
            return outs

        closed = make_jaxpr(flat)(*stand_ins)
        outs = _evaluate(closed.jaxpr, closed.consts, leaves)
        return tree_unflatten(out_tree, [out if is_sparse(out) else jnp.asarray(out) for out in outs])

    return wrapped


def _is_matrix(array: Any) -> bool:
    """Whether it is in a format that has no batches: such a one stays as it is, or becomes a BCOO array."""
    return isinstance(array, _Converted) and not isinstance(array, BCSR)


def _batched(array: Any) -> Any:
    """A sparse array in a format of batches, BCOO or BCSR; dense arrays as they are."""
    return array.to_bcoo() if _is_matrix(array) else array


class SparseTrace(Trace):
    """Applies primitives to sparse arrays, by the rules below; what has none among its operands goes to the trace around."""

    __slots__ = ("parent",)

    def __init__(self, parent: Trace):
        super().__init__()
        self.parent = parent

    def process(self, primitive, args, params: dict[str, Any]):
        values = [arg.value if type(arg) is SparseTracer and arg._trace is self else arg for arg in args]
        with set_trace(self.parent):
            if not any(map(is_sparse, values)):
                return primitive.bind(*values, **params)
            types, _ = primitive.typed([aval_of(arg) for arg in args], params)
            outvars = [Var(aval) for aval in (types if primitive.multiple_results else [types])]
            out = _apply(_Operation(primitive, params, outvars), values)
        return [self.box(each) for each in out] if primitive.multiple_results else self.box(out)

    def box(self, value):
        """A tracer of a sparse array; other values stay."""
        return SparseTracer(self, value) if is_sparse(value) else value


class SparseTracer(Tracer):
    """A sparse array that functions of dense ones take: it has the type of the dense array."""

    __slots__ = ("value",)

    def __init__(self, trace: SparseTrace, value):
        self._trace, self.value = trace, value
        self.aval = ShapedArray(value.shape, value.dtype)

    def __repr__(self) -> str:
        return f"SparseTracer({self.value!r})"


class _Operation(NamedTuple):
    """An equation as far as rules look at it."""

    primitive: Any
    params: dict[str, Any]
    outvars: list[Var]


def _on_tracers(f: Callable) -> Callable:
    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        leaves, tree = tree_flatten((args, kwargs), is_leaf=is_sparse)
        trace = SparseTrace(state.trace)
        boxed = [trace.box(leaf) for leaf in leaves]
        args, kwargs = tree_unflatten(tree, boxed)
        try:
            with set_trace(trace):
                outs, out_tree = tree_flatten(f(*args, **kwargs))
        finally:
            trace.alive = False
        return tree_unflatten(out_tree, [out.value if type(out) is SparseTracer else out for out in outs])

    return wrapped


def _evaluate(jaxpr: Jaxpr, consts, args) -> list[Any]:
    env: dict[Any, Any] = {}
    read = lambda atom: atom.val if type(atom) is Literal else env[atom]
    env.update(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in map(until_all_stop, jaxpr.eqns):
        values = [read(atom) for atom in eqn.invars]
        if not any(map(is_sparse, values)):
            outs = eqn.primitive.bind(*values, **eqn.params)
        else:
            outs = _apply(eqn, values)
        env.update(zip(eqn.outvars, outs if isinstance(outs, (list, tuple)) else [outs], strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(eqn, values: list[Any]):
    name, params = eqn.primitive.name, eqn.params
    compressed = any(isinstance(value, BCSR) for value in values)
    registered = (sparse_rules_bcsr if compressed else sparse_rules_bcoo).registered
    if eqn.primitive in registered:
        return registered[eqn.primitive](eqn, values)
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    if name in _CALLS and inner is not None:
        jaxpr, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, [])
        return _evaluate(jaxpr, consts, values)
    if any(map(_is_matrix, values)):
        return [values[0].T] if name == "transpose" else _apply(eqn, list(map(_batched, values)))
    if compressed and name in _OF_COMPRESSED:
        return _OF_COMPRESSED[name](eqn, *values)
    if compressed and name not in _ON_COMPRESSED:
        return _apply(eqn, [value.to_bcoo() if isinstance(value, BCSR) else value for value in values])
    if name in _ON_ELEMENTS:
        mat = values[0] if name in _LINEAR else values[0].distinct()
        return mat._with_data(eqn.primitive.bind(mat.data, **params))
    rule = _RULES.get(name)
    if rule is None:
        raise NotImplementedError(f"sparse rule for {name} is not implemented because it would result in dense output. If this "
                                  "is your intent, use sparse.todense() to convert your arguments to dense matrices.")
    return rule(eqn, *values)


def _mul(eqn, a, b):
    if is_sparse(a) and is_sparse(b):
        return bcoo.bcoo_multiply_sparse(a, b)
    mat, other = (a, b) if is_sparse(a) else (b, a)
    return mat * other if aval_of(other).shape == () else mat._with_data(bcoo.bcoo_multiply_dense(mat, other))


def _div(eqn, a, b):
    if is_sparse(b):
        raise NotImplementedError("sparse rule for div: division by a sparse array divides by zero")
    return _mul(eqn, a, 1 / b)


def _add(eqn, a, b):
    if is_sparse(a) and is_sparse(b):
        return a + b
    mat, dense = (a, b) if is_sparse(a) else (b, a)
    if aval_of(dense).shape == eqn.outvars[0].aval.shape:
        return mat.todense() + dense
    raise NotImplementedError("Addition between a sparse array X and a dense array Y is not implemented when the output shape "
                              "is larger than Y.shape. If this is your intent, use sparse.todense(X) + Y.")


def _sub(eqn, a, b):
    if not (is_sparse(a) and is_sparse(b)):
        raise NotImplementedError("Subtraction between sparse and dense array.")
    return a + -b


def _concatenate(eqn, *operands):
    if not all(map(is_sparse, operands)):
        raise NotImplementedError("concatenate: all of the arrays must be sparse")
    return bcoo.bcoo_concatenate(operands, dimension=eqn.params["dimension"])


def _cond(eqn, index, *operands) -> list[Any]:
    """Branches must give sparse arrays of one kind, with as many elements."""
    branches = [functools.partial(_evaluate_flat, branch) for branch in eqn.params["branches"]]
    return lax.switch(index, branches, *operands)


def _evaluate_flat(closed: ClosedJaxpr, *values) -> list[Any]:
    return _evaluate(closed.jaxpr, closed.consts, values)


def _while(eqn, *operands) -> list[Any]:
    params = eqn.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    of_cond, of_body, carry = operands[:first], operands[first:second], list(operands[second:])
    return lax.while_loop(lambda values: _evaluate_flat(params["cond_jaxpr"], *of_cond, *values)[0],
                          lambda values: _evaluate_flat(params["body_jaxpr"], *of_body, *values), carry)


def _scan(eqn, *operands) -> list[Any]:
    params = eqn.params
    first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
    consts, carry, rows = operands[:first], list(operands[first:second]), list(operands[second:])
    if any(map(is_sparse, rows)):
        raise NotImplementedError("sparse rule for scan: sparse arrays are constants and carries of a scan, not its xs")

    def body(values: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = _evaluate_flat(params["jaxpr"], *consts, *values, *row)
        return outs[:params["num_carry"]], outs[params["num_carry"]:]

    last, stacked = lax.scan(body, carry, rows, length=params["length"], reverse=params["reverse"], unroll=params["unroll"])
    return [*last, *stacked]


def _integer_pow(eqn, mat):
    if eqn.params["y"] <= 0:
        raise NotImplementedError("sparse rule for integer_pow with non-positive exponent: it would result in dense output")
    mat = mat.distinct()
    return mat._with_data(lax.integer_pow(mat.data, eqn.params["y"]))


def _dynamic_slice(eqn, mat: BCOO, *starts) -> BCOO:
    return bcoo.bcoo_dynamic_slice(mat, starts, eqn.params["slice_sizes"])


def _dot_general(eqn, a, b):
    function = bcoo.bcoo_dot_general
    if isinstance(a, BCSR) and not is_sparse(b):
        function = bcsr_dot_general
    else:
        a, b = (each.to_bcoo() if isinstance(each, BCSR) else each for each in (a, b))
    return function(a, b, dimension_numbers=eqn.params["dimension_numbers"],
                    preferred_element_type=eqn.params.get("preferred_element_type"))


def _conv(eqn, lhs, rhs):
    if eqn.outvars[0].aval.ndim != 3:
        raise NotImplementedError("sparse rule for conv_general_dilated: only of arrays with one spatial axis")
    shapes = {lhs.shape[:2], rhs.shape[:2]}
    steps = (eqn.params["window_strides"], eqn.params["lhs_dilation"], eqn.params["rhs_dilation"])
    if shapes != {(1, 1)} or any(step != (1,) for step in steps) or eqn.params["dimension_numbers"].lhs_spec != (0, 1, 2):
        raise NotImplementedError("sparse rule for conv_general_dilated: only of shapes (1, 1, n), by steps of 1")
    names = ("window_strides", "padding", "dimension_numbers", "preferred_element_type")
    return bcoo.bcoo_conv_general_dilated(lhs, rhs, **{name: eqn.params[name] for name in names})


_CALLS = frozenset("jit custom_jvp_call custom_vjp_call closed_call remat2 core_call".split())
_LINEAR = frozenset("neg real imag convert_element_type copy reduce_precision".split())
# Functions of one element that are 0 at 0; those that are not linear see the sum of a place's elements.
_ON_ELEMENTS = _LINEAR | frozenset("abs asin asinh atan atanh cbrt ceil expm1 floor log1p round sign sin sinh sqrt square tan "
                                   "tanh erf erf_inv bessel_i1e".split())
_ON_COMPRESSED = _ON_ELEMENTS | {"dot_general", "integer_pow", "todense"}  # what takes BCSR arrays as they are


def _broadcast_compressed(eqn, mat, *_):
    return bcsr_broadcast_in_dim(mat, shape=eqn.params["shape"], broadcast_dimensions=eqn.params["broadcast_dimensions"])


def _concatenate_compressed(eqn, *mats):
    dimension = eqn.params["dimension"]
    if all(isinstance(mat, BCSR) for mat in mats) and dimension <= mats[0].n_batch:
        return bcsr_concatenate(mats, dimension=dimension)
    return _concatenate(eqn, *[mat.to_bcoo() if isinstance(mat, BCSR) else mat for mat in mats])


# What has a rule of its own where an operand is a BCSR array.
_OF_COMPRESSED: dict[str, Callable] = {"broadcast_in_dim": _broadcast_compressed, "concatenate": _concatenate_compressed}


def _as_number(mat):
    return mat if mat.ndim else mat.data.sum(dtype=mat.dtype)


_RULES: dict[str, Callable] = {
    "mul": _mul, "div": _div, "add": _add, "add_any": _add, "sub": _sub,
    "integer_pow": _integer_pow, "concatenate": _concatenate, "dynamic_slice": _dynamic_slice,
    "transpose": lambda eqn, mat: bcoo.bcoo_transpose(mat, permutation=eqn.params["permutation"]),
    "reshape": lambda eqn, mat: bcoo.bcoo_reshape(mat, new_sizes=eqn.params["new_sizes"]),
    "squeeze": lambda eqn, mat: bcoo.bcoo_squeeze(mat, dimensions=eqn.params["dimensions"]),
    "expand_dims": lambda eqn, mat: bcoo.bcoo_reshape(mat, new_sizes=eqn.outvars[0].aval.shape),
    "reduce_sum": lambda eqn, mat: _as_number(bcoo.bcoo_reduce_sum(mat, axes=eqn.params["axes"])),
    "rev": lambda eqn, mat: bcoo.bcoo_rev(mat, eqn.params["dimensions"]),
    "slice": lambda eqn, mat: bcoo.bcoo_slice(mat, start_indices=eqn.params["start_indices"], strides=eqn.params["strides"],
                                              limit_indices=eqn.params["limit_indices"]),
    "broadcast_in_dim": lambda eqn, mat, *rest: bcoo.bcoo_broadcast_in_dim(
        mat, shape=eqn.params["shape"], broadcast_dimensions=eqn.params["broadcast_dimensions"]),
    "conv_general_dilated": _conv, "dot_general": _dot_general,
    "cond": _cond, "while": _while, "scan": _scan, "todense": lambda eqn, mat: mat.todense(),
    "gather": lambda eqn, mat, starts: bcoo.bcoo_gather(mat, starts, **eqn.params),
    "optimization_barrier": lambda eqn, *mats: list(mats),
}


# --- rules of others ---------------------------------------------------------------------------------


class SparsifyValue(NamedTuple):
    """An array, dense or sparse: its shape, and where in an environment its parts are."""

    shape: tuple[int, ...]
    data_ref: int | None
    indices_ref: int | None = None
    indptr_ref: int | None = None
    indices_sorted: bool | None = False
    unique_indices: bool | None = False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def is_sparse(self) -> bool:
        """Whether it has indices."""
        return self.indices_ref is not None

    def is_dense(self) -> bool:
        """Whether it has none."""
        return self.indices_ref is None

    def is_bcoo(self) -> bool:
        """Whether it is a BCOO array."""
        return self.is_sparse() and self.indptr_ref is None

    def is_bcsr(self) -> bool:
        """Whether it is a BCSR array."""
        return self.is_sparse() and self.indptr_ref is not None


class SparsifyEnv:
    """The parts of the arrays that spvalues describe."""

    def __init__(self, bufs: Sequence[Any] = ()):
        self._buffers = list(bufs)

    def _place(self, part: Any, place: int | None) -> int | None:
        if part is None:
            return place
        if place is not None:
            raise ValueError("a part is given as an array or as its place in the environment, not as both")
        self._buffers.append(part)
        return len(self._buffers) - 1

    def _part(self, place: int | None) -> Any:
        if place is None:
            raise ValueError("an spvalue of a dense array has no indices")
        return self._buffers[place]

    def data(self, spvalue: SparsifyValue) -> Any:
        """The elements, all or those that are stored."""
        return self._part(spvalue.data_ref)

    def indices(self, spvalue: SparsifyValue) -> Any:
        """The coordinates of the elements that are stored."""
        return self._part(spvalue.indices_ref)

    def indptr(self, spvalue: SparsifyValue) -> Any:
        """Where the rows start."""
        return self._part(spvalue.indptr_ref)

    def dense(self, data: Any) -> SparsifyValue:
        """An spvalue for a dense array."""
        return SparsifyValue(aval_of(data).shape, self._place(data, None))

    def sparse(self, shape: Sequence[int], data: Any = None, indices: Any = None, indptr: Any = None, *,
               data_ref: int | None = None, indices_ref: int | None = None, indptr_ref: int | None = None,
               indices_sorted: bool = False, unique_indices: bool = False) -> SparsifyValue:
        """An spvalue for a sparse array, of parts that are given or in the environment already."""
        return SparsifyValue(tuple(shape), self._place(data, data_ref), self._place(indices, indices_ref),
                             self._place(indptr, indptr_ref), indices_sorted, unique_indices)


def arrays_to_spvalues(spenv: SparsifyEnv, args: Any) -> Any:
    """A tree of spvalues for one of arrays, whose parts go into the environment."""

    def convert(array: Any) -> SparsifyValue:
        array = _batched(array)
        if not is_sparse(array):
            return spenv.dense(array)
        return spenv.sparse(array.shape, array.data, array.indices, getattr(array, "indptr", None),
                            indices_sorted=array.indices_sorted, unique_indices=array.unique_indices)

    return tree_map(convert, args, is_leaf=is_sparse)


def _on_spvalues(function: Callable, spvalues: Any) -> Any:
    return tree_map(function, spvalues, is_leaf=lambda each: isinstance(each, SparsifyValue))


def spvalues_to_arrays(spenv: SparsifyEnv, spvalues: Any) -> Any:
    """The arrays that a tree of spvalues describes."""

    def convert(spvalue: SparsifyValue) -> Any:
        if spvalue.is_dense():
            return spenv.data(spvalue)
        known = {"indices_sorted": bool(spvalue.indices_sorted), "unique_indices": bool(spvalue.unique_indices)}
        parts = spenv.data(spvalue), spenv.indices(spvalue)
        if spvalue.is_bcsr():
            return BCSR((*parts, spenv.indptr(spvalue)), shape=spvalue.shape, **known)
        return BCOO(parts, shape=spvalue.shape, **known)

    return _on_spvalues(convert, spvalues)


def spvalues_to_avals(spenv: SparsifyEnv, spvalues: Any) -> Any:
    """The types of the arrays that a tree of spvalues describes."""

    def convert(spvalue: SparsifyValue) -> ShapedArray:
        data = aval_of(spenv.data(spvalue))
        return ShapedArray(spvalue.shape, data.dtype, data.weak_type)

    return _on_spvalues(convert, spvalues)


def eval_sparse(jaxpr: Jaxpr, consts: Sequence[Any], spvalues: Sequence[SparsifyValue], spenv: SparsifyEnv,
                ) -> Sequence[SparsifyValue]:
    """Evaluate a program on spvalues. Raises: NotImplementedError for an operation that has no sparse rule."""
    return arrays_to_spvalues(spenv, _evaluate(jaxpr, consts, spvalues_to_arrays(spenv, list(spvalues))))


def sparsify_raw(f: Callable) -> Callable:
    """`sparsify` for functions of `(spenv, *spvalues)`. Gives a list of spvalues, and the structure of the results of `f`."""

    def wrapped(spenv: SparsifyEnv, *spvalues: Any, **params: Any) -> tuple[Sequence[SparsifyValue], Any]:
        result = sparsify(functools.partial(f, **params))(*spvalues_to_arrays(spenv, spvalues))
        leaves = tree_flatten(result, is_leaf=is_sparse)[0]
        return arrays_to_spvalues(spenv, leaves), tree_structure(result, is_leaf=is_sparse)

    return wrapped


def _call_registered(rule: UserRule, eqn, values: list[Any]):
    spenv = SparsifyEnv()
    outs = rule.rule(spenv, *arrays_to_spvalues(spenv, values), **eqn.params)
    if not isinstance(outs, (tuple, list)) or not all(isinstance(each, SparsifyValue) for each in outs):
        raise rule.fail("sparsify", f"must return a list of spvalues, but returned {outs!r}")
    arrays = spvalues_to_arrays(spenv, list(outs))
    return arrays if eqn.primitive.multiple_results else arrays[0]


_NAMES = _CALLS | _ON_ELEMENTS | _RULES.keys()
sparse_rules_bcoo, sparse_rules_bcsr = (
    RulesBeside("sparsify", lambda: _NAMES, _call_registered, lambda primitive: functools.partial(_apply_own, primitive))
    for _ in range(2))


def sparsify_fun(wrapped_fun: Any, args: Sequence[Any]) -> list[Any]:
    """The results of a function of `extend.linear_util`, of flat arguments of which some are sparse; it runs on tracers."""
    return list(_on_tracers(wrapped_fun.call_wrapped)(*args))


Array = Any  # of annotations
ArrayOrSparse = Any


def _apply_own(primitive: Any, spenv: SparsifyEnv, *spvalues: SparsifyValue, **params: Any) -> Sequence[SparsifyValue]:
    """One of our rules in JAX's calling convention."""
    types, _ = primitive.typed(list(spvalues_to_avals(spenv, spvalues)), params)
    outvars = [Var(aval) for aval in (types if primitive.multiple_results else [types])]
    outs = _apply(_Operation(primitive, params, outvars), list(spvalues_to_arrays(spenv, spvalues)))
    return arrays_to_spvalues(spenv, outs if primitive.multiple_results else [outs])
