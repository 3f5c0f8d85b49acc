"""`pallas_call`: a kernel, a grid and blocks as one equation; its types, derivatives and batching."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.compilation.levels import Inline
from jaxlite.core import dtypes, source
from jaxlite.core.aval import AbstractRef, Ints, ShapedArray, shaped_array
from jaxlite.core.effects import REF
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import DebugInfo, Jaxpr, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tree import keystr, tree_differences, tree_flatten, tree_flatten_with_path, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas import specs
from jaxlite.experimental.pallas.interpret import concerns_devices, interpreted
from jaxlite.experimental.pallas.primitives import grid_scope
from jaxlite.experimental.pallas.specs import (
    Blocked,
    BlockMapping,
    BlockSpec,
    CostEstimate,
    GridMapping,
    GridSpec,
    MemoryRef,
    MemorySpace,
    Squeezed,
    no_block_spec,
)
from jaxlite.lax.control_flow.scan import map as lax_map
from jaxlite.lax.parallel import mesh_axes, vary
from jaxlite.lax.shaping import broadcast_in_dim, convert, squeeze
from jaxlite.state.indexing import Slice
from jaxlite.traces.batching import Axis, bring
from jaxlite.traces.jvp import Zero, instantiate, jvp_flat, zero_for

pallas_call_p = Primitive("pallas_call", multiple_results=True, memoise=False)


def _read_mapping(text: str) -> GridMapping:
    raise ValueError("the index maps of a GridMapping are not printed: give it in `objects`, by its text; it is the param "
                     "grid_mapping of the equation")


pallas_call_p.param_readers = {"grid_mapping": _read_mapping}
_INDEX = ShapedArray((), np.dtype(np.int32))


# --- blocks ------------------------------------------------------------------------------------------


def block_dims(spec: BlockSpec, shape: Ints, origin: str) -> tuple[Any, ...]:
    if spec.block_shape is None:
        return tuple(map(Blocked, shape))
    dims: list[Any] = []
    for dim in spec.block_shape:
        if dim is None:
            dims.append(specs.squeezed)
        elif isinstance(dim, specs.BlockDim):
            dims.append(dim)
        elif isinstance(dim, (int, np.integer)):
            dims.append(Blocked(int(dim)))
        else:
            raise ValueError(f"Unsupported block dim type: {type(dim)}")
    if len(dims) != len(shape):
        raise ValueError(f"Block shape for {origin} (= {tuple(dims)}) must have the same number of dimensions as the array "
                         f"shape {shape}.")
    return tuple(dims)


def _place(spec: BlockSpec, dims: tuple[Any, ...], grid: tuple[Any, ...], index_args: Any, origin: str) -> Jaxpr:
    """The index map as a program. Args: `index_args` the tree of what it takes beside the indices of the grid."""
    index_avals, index_tree = tree_flatten(index_args)

    def flat(*args: Any) -> list[Any]:
        if spec.index_map is None:
            return [np.int32(0)] * len(dims)
        with grid_scope(grid):
            found = spec.index_map(*args[:len(grid)], *tree_unflatten(index_tree, args[len(grid):]))
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        what = f"Index map function {_named(spec.index_map)} for {origin}"
        if len(found) != len(dims):
            raise ValueError(f"{what} must return {len(dims)} values to match block_shape={dims}. Currently returning "
                             f"{len(found)} values: ")
        outs = []
        for place, (each, dim) in enumerate(zip(found, dims, strict=True)):
            if type(dim) is specs.BoundedSlice:
                if not isinstance(each, (Slice, slice)):
                    raise ValueError(f"{what} must return a `ds` for the BoundedSlice dimension {place}, got {each!r}")
                each = each.start
            aval = aval_of(each)
            if aval.shape != (() if type(dim) is not specs.Indirect else (dim.block_size,)) or dtypes.kind(
                    aval.dtype) not in "iu":
                raise ValueError(f"{what} must return integer scalars. Output[{place}] has type {aval}.")
            outs.append(_int32(each))
        return outs

    info = DebugInfo("pallas_call index_map", "index_map")
    jaxpr, consts = trace_to_jaxpr(flat, [_INDEX] * len(grid) + index_avals, info)
    if consts:
        raise ValueError(f"Index map function {_named(spec.index_map)} for {origin} must not capture constants: "
                         f"[{', '.join(aval_of(const).str_short(short_dtypes=True) for const in consts)}]")
    return jaxpr


def _int32(value: Any) -> Any:
    return np.int32(value) if isinstance(value, (int, np.integer)) else _convert(value)


def _convert(value: Any) -> Any:
    return convert(value, np.dtype(np.int32), False)


def _named(fun: Any) -> str:
    code = getattr(fun, "__code__", None)
    name = source.function_name(fun)
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"


def _mapping(spec: Any, aval: Any, grid: tuple[Any, ...], index_args: Any, origin: str) -> BlockMapping:
    space = None if type(aval) is ShapedArray else getattr(aval, "memory_space", None)
    array_space = None
    if isinstance(aval, MemoryRef):
        aval, array_space = aval.inner_aval, space
    if spec is no_block_spec:
        spec = BlockSpec()
    if not isinstance(spec, BlockSpec):
        raise TypeError(f"the spec of {origin} is not a BlockSpec: {spec!r}")
    dims = block_dims(spec, aval.shape, origin)
    space = spec.memory_space if spec.memory_space is not None else space
    if isinstance(aval.dtype, specs.SemaphoreDType):
        space = array_space = specs.SemaphoreSpace(aval.dtype.kind)
    return BlockMapping(dims, _place(spec, dims, grid, index_args, origin), aval,
                        MemorySpace.DEFAULT if space is None else None if space is specs.UNSAID else space, origin,
                        spec.pipeline_mode, array_space)


def _spread_specs(given: Any, tree: Any, paths: Sequence[Any], what: str, values: str) -> list[Any]:
    """A spec for each leaf of a tree, from a tree that has None where that has."""
    if given is no_block_spec:
        return [no_block_spec] * tree.num_leaves
    is_spec = lambda each: each is no_block_spec or isinstance(each, BlockSpec)
    if isinstance(given, list):
        given = tuple(given)
    leaves, own = tree_flatten(given, is_leaf=is_spec)
    if own != tree:
        errors = list(tree_differences().equality_errors(own, tree))
        lines = "\n".join(f"    * `{what}{keystr(path)}` is {one} but `{values}{keystr(path)}` is {other}, so {why}"
                          for path, one, other, why in errors)
        raise ValueError(f"Pytree for `{what}` and `{values}` do not match. There are {len(errors)} mismatches, "
                         f"including:\n{lines}")
    return leaves


# --- the call ----------------------------------------------------------------------------------------


def _out_aval(leaf: Any) -> Any:
    if isinstance(leaf, MemoryRef):
        return leaf
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        raise ValueError(f"Invalid out_shape type: {type(leaf)}")
    return ShapedArray(tuple(leaf.shape), dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True))


def _scratch_aval(leaf: Any) -> AbstractRef:
    if hasattr(leaf, "get_ref_aval"):
        return leaf.get_ref_aval()
    raise ValueError(f"a scratch shape is a MemoryRef, as pallas.tpu.VMEM(shape, dtype) gives one; got {leaf!r}")


@boundary
def pallas_call(kernel: Callable[..., None], out_shape: Any, *, grid_spec: GridSpec | None = None, grid: Any = (),
                in_specs: Any = no_block_spec, out_specs: Any = no_block_spec, scratch_shapes: Any = (),
                input_output_aliases: Mapping[int, int] = {}, debug: bool = False, interpret: Any = False,
                name: str | None = None, compiler_params: Any = None, cost_estimate: CostEstimate | None = None,
                metadata: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """A function that runs a kernel for each step of a grid.

    Args:
      kernel: takes a Ref for each input, each output and each scratch shape, in trees like those given, and returns nothing.
        It sees a block of each array.
      out_shape: a tree of objects with `shape` and `dtype`: the outputs.
      grid_spec: a `GridSpec`, instead of the next four.
      grid: how many steps there are along each axis; an int is one axis, `()` is one step.
      in_specs, out_specs: trees of `BlockSpec` like the arguments (as a tuple) and `out_shape`; without one an array is one
        block.
      scratch_shapes: a tree of `MemoryRef`: memory that lasts from step to step.
      input_output_aliases: from the number of an input to that of the output which takes its value, and its memory.
      debug: print the kernel when it is lowered.
      interpret: run the kernel as an ordinary program, on any platform.
      name: of the kernel, for tools.
      compiler_params: hints for a backend, `pallas.triton.CompilerParams` or `pallas.tpu.CompilerParams`.
      cost_estimate: what it costs, a hint.
      metadata: strings for tools.
    Returns: a function of arrays.
    Raises: ValueError if blocks, index maps or aliases do not fit, if the kernel returns or closes over something, and on a
      CPU without `interpret`.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental import pallas as pl
    >>> def double(x_ref, y_ref):
    ...     y_ref[...] = 2 * x_ref[...]
    >>> row = pl.BlockSpec((None, 3), lambda i: (i, 0))
    >>> call = pl.pallas_call(double, jaxlite.ShapeDtypeStruct((2, 3), jnp.float32), grid=(2,), in_specs=[row], out_specs=row,
    ...                       interpret=True)
    >>> call(jnp.ones((2, 3)))
    Array([[2., 2., 2.],
           [2., 2., 2.]], dtype=float32)
    """
    if grid_spec is None:
        grid_spec = GridSpec(grid, in_specs, out_specs, scratch_shapes)
    else:
        for what, value, empty in (("grid", grid, ()), ("in_specs", in_specs, no_block_spec),
                                   ("out_specs", out_specs, no_block_spec), ("scratch_shapes", scratch_shapes, ())):
            if value is not empty and value != empty:
                raise ValueError(f"If `grid_spec` is specified, then `{what}` must be `{empty}`. It is {value}")
    given = grid_spec
    if isinstance(out_shape, list):
        out_shape = tuple(out_shape)
    out_paths, out_tree = tree_flatten_with_path(out_shape, is_leaf=lambda each: isinstance(each, MemoryRef))
    outs = [_out_aval(leaf) for _, leaf in out_paths]
    manual_types = [getattr(leaf, "manual_axis_type", None) for _, leaf in out_paths]
    compiler_params = specs.frozen(compiler_params)
    metadata = None if metadata is None else specs.FrozenDict(metadata)
    aliases = tuple(sorted(dict(input_output_aliases).items()))

    def call(*args: Any, interpret: Any) -> Any:
        in_paths, in_tree = tree_flatten_with_path(args)
        operands = [leaf for _, leaf in in_paths]
        avals = [aval_of(leaf).strip_weak_type() for leaf in operands]
        num_index = _leaves_of_first(args, given.num_scalar_prefetch)
        static = tuple(int(size) if isinstance(size, (int, np.integer)) else None for size in given.grid)
        index_refs = [AbstractRef(aval, specs.TpuMemorySpace.SMEM) for aval in avals[:num_index]]
        index_args = tree_unflatten(tree_flatten(args[:given.num_scalar_prefetch])[1], index_refs)
        rest_tree = tree_flatten(args[given.num_scalar_prefetch:])[1]
        in_given = _spread_specs(given.in_specs, rest_tree, in_paths[num_index:], "in_specs", "inputs")
        out_given = _spread_specs(given.out_specs, out_tree, out_paths, "out_specs", "out_shape")
        mappings = [_mapping(spec, aval, static, index_args, f"args{keystr(path)}")
                    for spec, aval, (path, _) in zip(in_given, avals[num_index:], in_paths[num_index:], strict=True)]
        mappings += [_mapping(spec, aval, static, index_args, f"outputs{keystr(path)}")
                     for spec, aval, (path, _) in zip(out_given, outs, out_paths, strict=True)]
        scratch, scratch_tree = tree_flatten(given.scratch_shapes, is_leaf=lambda each: hasattr(each, "get_ref_aval"))
        mapping = GridMapping(static, tuple(mappings), len(avals) - num_index, tuple(avals[:num_index]),
                              tuple(map(_scratch_aval, scratch)))
        out_avals = tuple(each.array_aval for each in mappings[mapping.num_inputs:])
        _check_aliases(aliases, avals, out_avals)
        jaxpr = _trace_kernel(kernel, mapping, given.grid_names, (in_tree, out_tree, scratch_tree), index_refs)
        sizes = [_convert(size) for size, known in zip(given.grid, static, strict=True) if known is None]
        run = pallas_call_p.bind
        if interpret and mesh_axes() and concerns_devices(jaxpr):
            run = interpreted
        results = run(
            *sizes, *operands, jaxpr=jaxpr, grid_mapping=mapping, out_avals=out_avals, input_output_aliases=aliases,
            interpret=interpret, debug=debug, name=name, compiler_params=compiler_params, mesh=None,
            cost_estimate=cost_estimate, metadata=metadata)
        return tree_unflatten(out_tree, [  # they vary as the operands do, and by `vma`
            out if manual is None else vary(out, manual.varying) for out, manual in zip(results, manual_types, strict=True)])

    call.__name__ = call.__qualname__ = name or source.function_name(kernel)
    open_grid = any(hasattr(size, "_trace") for size in given.grid)
    modes: dict[Any, Any] = {}

    def run(*args: Any) -> Any:
        mode = specs.frozen(interpret or specs.forced_interpret.params or False)
        found = modes.get(mode)
        if found is None:
            found = partial(call, interpret=mode)
            found = modes[mode] = found if open_grid else jit(found, inline=Inline.JAX_EARLY)
        return found(*args)

    run.__name__ = run.__qualname__ = call.__name__
    return run


def _leaves_of_first(args: Sequence[Any], count: int) -> int:
    return tree_flatten(args[:count])[1].num_leaves


def _check_aliases(aliases: Sequence[tuple[int, int]], ins: Sequence[Any], outs: Sequence[Any]) -> None:
    for source_index, target in aliases:
        for what, index, avals in (("inputs", source_index, ins), ("outputs", target, outs)):
            if not 0 <= index < len(avals):
                raise ValueError(f"input_output_aliases contains the mapping '{source_index}:{target}' with index {index} "
                                 f"outside the range [0, {len(avals)}) of the {what}")
        one, other = ins[source_index], outs[target]
        if one.shape != other.shape or one.dtype != other.dtype:
            raise ValueError(f"input_output_aliases contains the mapping '{source_index}:{target}' referring to an input with "
                             f"abstract value {one} and to an output with a different abstract value {other}.")


def _trace_kernel(kernel: Callable, mapping: GridMapping, names: tuple[Any, ...], trees: tuple[Any, Any, Any],
                  index_refs: Sequence[Any]) -> Jaxpr:
    in_tree, out_tree, scratch_tree = trees
    avals = [*index_refs, *(each.ref_aval for each in mapping.block_mappings), *mapping.scratch_avals]
    num_in, num_out = len(index_refs) + mapping.num_inputs, mapping.num_outputs

    def flat(*refs: Any) -> list[Any]:
        args = tree_unflatten(in_tree, refs[:num_in])
        outs = tree_unflatten(out_tree, refs[num_in:num_in + num_out])
        outs = outs if type(outs) is tuple else (outs,)
        scratch = tree_unflatten(scratch_tree, refs[num_in + num_out:])
        keywords = scratch if isinstance(scratch, dict) else {}
        positional = () if keywords else tuple(scratch) if isinstance(scratch, (tuple, list)) else (scratch,)
        found = kernel(*args, *outs, *positional, **keywords)
        if found is not None:
            raise ValueError(f"The kernel function in the pallas_call {_named(kernel)} should return None. It returns a "
                             f"PyTree: {tree_flatten(found)[1]}")
        return []

    with grid_scope(tuple(mapping.grid), names):
        jaxpr, consts = trace_to_jaxpr(flat, avals, DebugInfo("pallas_call", source.function_name(kernel)))
    if consts:
        types = ", ".join(aval_of(const).str_short(short_dtypes=True) for const in consts)
        raise ValueError(f"The kernel function in the pallas_call {_named(kernel)} captures constants [{types}]. You should "
                         "pass them as inputs.")
    return jaxpr


@pallas_call_p.def_effectful_abstract_eval
def _pallas_call_aval(*avals: Any, jaxpr: Jaxpr, out_avals: tuple[Any, ...], **params: Any) -> Any:
    return list(out_avals), jaxpr.effects - {REF}


# --- derivatives -------------------------------------------------------------------------------------


@pallas_call_p.def_jvp
def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Jaxpr, grid_mapping: GridMapping,
         input_output_aliases: Any, out_avals: Any, cost_estimate: Any, **params: Any) -> Any:
    """A kernel that has the tangents of inputs beside them, and gives those of the outputs after them."""
    if input_output_aliases:
        raise NotImplementedError("JVP with aliasing not supported.")
    if grid_mapping.index_avals or grid_mapping.num_dynamic:
        raise NotImplementedError("JVP with scalar prefetch or a grid of traced sizes is not supported.")
    if grid_mapping.scratch_avals:
        raise NotImplementedError("JVP with scratch memory is not supported.")
    count = grid_mapping.num_inputs
    moving = [index for index, tangent in enumerate(tangents) if type(tangent) is not Zero]
    inexact = [index for index, aval in enumerate(out_avals) if dtypes.kind(aval.dtype) in "fc"]
    ins, outs = grid_mapping.block_mappings[:count], grid_mapping.block_mappings[count:]
    refs = [each.ref_aval for each in (*ins, *(ins[index] for index in moving), *outs, *(outs[index] for index in inexact))]

    def flat(*args: Any) -> list[Any]:
        rest = iter(args)
        values = [next(rest) for _ in ins]
        dots = [Zero(aval_of(value)) for value in values]
        for index in moving:
            dots[index] = next(rest)
        results = [next(rest) for _ in outs]
        out_dots = [zero_for(result) for result in results]
        for index in inexact:
            out_dots[index] = next(rest)
        jvp_flat(partial(eval_jaxpr, jaxpr, []), [*values, *results],
                 [zero_for(value) if type(dot) is Zero else dot for value, dot in zip(values, dots, strict=True)] + out_dots)
        return []

    program, consts = trace_to_jaxpr(flat, refs, jaxpr.debug_info)
    assert not consts, "a kernel that closes over nothing gave one that does"
    blocks = (*ins, *(ins[index] for index in moving), *outs, *(outs[index] for index in inexact))
    both = specs.replace(grid_mapping, block_mappings=blocks, num_inputs=count + len(moving))
    results = pallas_call_p.bind(
        *primals, *(instantiate(tangents[index]) for index in moving), jaxpr=program, grid_mapping=both,
        input_output_aliases=(), out_avals=(*out_avals, *(out_avals[index] for index in inexact)),
        cost_estimate=_doubled(cost_estimate), **params)
    values, dots = results[:len(out_avals)], dict(zip(inexact, results[len(out_avals):], strict=True))
    return values, [dots[index] if index in dots else zero_for(value) for index, value in enumerate(values)]


def _doubled(cost: CostEstimate | None) -> CostEstimate | None:
    return None if cost is None else CostEstimate(2 * cost.flops, 2 * cost.transcendentals, 2 * cost.bytes_accessed,
                                                  2 * cost.remote_bytes_transferred)


def _linearize(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    raise ValueError("Linearization failed to produce known values for all output primals. This is typically caused by "
                     "attempting to differentiate a function uses an operation that does not support reverse-mode autodiff. "
                     "A pallas_call has a JVP alone: give its function a derivative with jax.custom_vjp.")


pallas_call_p.linearize = _linearize
pallas_call_p.no_transpose("a kernel writes to Refs; give its function a derivative with jax.custom_vjp")


# --- batching ----------------------------------------------------------------------------------------


@pallas_call_p.def_batching
def _batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, grid_mapping: GridMapping, out_avals: Any,
           input_output_aliases: Any, cost_estimate: Any, **params: Any) -> Any:
    """One more axis of the grid, in front; blocks of batches have one example."""
    same = {"out_avals": out_avals, "input_output_aliases": input_output_aliases, "cost_estimate": cost_estimate, **params}
    fixed = grid_mapping.num_dynamic + len(grid_mapping.index_avals)
    if axis.size == 1:
        args = [arg if dim is None else squeeze(arg, (dim,)) for arg, dim in zip(args, dims, strict=True)]
        outs = pallas_call_p.bind(*args, grid_mapping=grid_mapping, **same)
        return [broadcast_in_dim(out, (1, *aval_of(out).shape), tuple(range(1, aval_of(out).ndim + 1))) for out in outs], [
            0] * len(outs)
    if any(dim is not None for dim in dims[:fixed]):
        batches = [bring(arg, dim, axis.size, 0) for arg, dim in zip(args, dims, strict=True)]
        outs = lax_map(lambda each: pallas_call_p.bind(*each, grid_mapping=grid_mapping, **same), batches)
        return outs, [0] * len(outs)
    args, dims = list(args), list(dims)
    offset = grid_mapping.num_dynamic
    for index, _ in input_output_aliases:
        args[index + offset], dims[index + offset] = bring(args[index + offset], dims[index + offset], axis.size, 0), 0
    count = len(grid_mapping.grid)
    mappings = [_batch_block(each, dim, axis.size, count)
                for each, dim in zip(grid_mapping.block_mappings, (*dims[fixed:], *[0] * len(out_avals)), strict=True)]
    batched = specs.replace(grid_mapping, grid=(axis.size, *grid_mapping.grid), block_mappings=tuple(mappings),
                            vmapped_dims=(0, *(each + 1 for each in grid_mapping.vmapped_dims)))
    same["out_avals"] = tuple(shaped_array((axis.size, *aval.shape), aval.dtype, False) for aval in out_avals)
    return pallas_call_p.bind(*args, grid_mapping=batched, **same), [0] * len(out_avals)


def _batch_block(block: BlockMapping, dim: int | None, size: int, count: int) -> BlockMapping:
    place = block.index_map

    def flat(example: Any, *args: Any) -> list[Any]:
        outs = eval_jaxpr(place, [], *args)
        if dim is not None:
            outs.insert(dim, example)
        return outs

    program, _ = trace_to_jaxpr(flat, [_INDEX, *(var.aval for var in place.invars)], place.debug_info)
    if dim is None:
        return specs.replace(block, index_map=program)
    shape, dims = list(block.array_aval.shape), list(block.block_shape)
    shape.insert(dim, size)
    dims.insert(dim, Squeezed())
    return specs.replace(block, index_map=program, block_shape=tuple(dims), array_aval=block.array_aval.update(
        shape=tuple(shape)))

