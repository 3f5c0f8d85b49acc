"""Kernels that run on the cores of a chip: `kernel` and `core_map`. An axis of the grid, with a name, counts the cores.

Interpreted, cores run one after the other.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.compilation.levels import Inline
from jaxlite.core import source
from jaxlite.core.aval import AbstractRef
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import DebugInfo, eval_jaxpr
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas.call import pallas_call
from jaxlite.experimental.pallas.dma import semaphore_signal, semaphore_wait
from jaxlite.experimental.pallas.helpers import when
from jaxlite.experimental.pallas.primitives import grid_scope
from jaxlite.experimental.pallas.specs import UNSAID, BlockSpec, MemoryRef, MemorySpace
from jaxlite.lax.parallel import axis_index
from jaxlite.state.api import get
from jaxlite.state.api import set as set_ref

_WHOLE = BlockSpec(memory_space=MemorySpace.ANY)


@dataclass(frozen=True, kw_only=True)
class TensorCoreMesh:
    """The cores of a TPU along one axis. Attributes: `axis_names`, `shape` (the number of cores by the axis's name) too.

    >>> TensorCoreMesh(axis_name="core", num_cores=2).shape["core"]
    2
    """

    axis_name: str
    num_cores: int = 1

    @property
    def axis_names(self) -> tuple[str]:
        return (self.axis_name,)

    @property
    def shape(self) -> OrderedDict[str, int]:
        return OrderedDict([(self.axis_name, self.num_cores)])


def create_tensorcore_mesh(axis_name: str, devices: Sequence[Any] | None = None, num_cores: int | None = None,
                           ) -> TensorCoreMesh:
    """The cores of a chip as an axis with a name.

    Args: `num_cores`, or `devices`, the first of which has the number of its cores (one by default).
    """
    if devices is not None and num_cores is not None:
        raise ValueError("create_tensorcore_mesh takes devices or num_cores, not both")
    if num_cores is None:
        num_cores = getattr(devices[0], "num_cores", None) or 1 if devices else 1
    return TensorCoreMesh(axis_name=axis_name, num_cores=num_cores)


@boundary
def kernel(body: Callable[..., None] | None = None, out_type: Any = (), *, mesh: Any, scratch_types: Any = (),
           compiler_params: Any = None, interpret: Any = False, cost_estimate: Any = None, debug: bool = False,
           name: str | None = None, metadata: Mapping[str, str] | None = None) -> Any:
    """A function of arrays that runs a kernel on each core of a mesh; without `body` a decorator.

    Args:
      body: takes a Ref to the whole of each input and of each output, in their memory, and one for each scratch type. It copies
        what it needs, or has `pallas.tpu.emit_pipeline` do that.
      out_type: a tree of objects with `shape` and `dtype`.
      mesh: the cores, of `pallas.tpu.create_tensorcore_mesh`; `jax.lax.axis_index(name)` tells them apart.
      scratch_types: a tree of `MemoryRef` or types of semaphores; a mapping is given by keywords.
      The others are those of `pallas_call`.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental import pallas as pl
    >>> from jaxlite.experimental.pallas import tpu as pltpu
    >>> @pl.kernel(out_type=jaxlite.ShapeDtypeStruct((4,), jnp.float32), mesh=pltpu.create_tensorcore_mesh("core", num_cores=2),
    ...            scratch_types=[pltpu.VMEM((2,), jnp.float32)], interpret=True)
    ... def double(x_ref, o_ref, block_ref):
    ...     half = pl.ds(2 * jaxlite.lax.axis_index("core"), 2)
    ...     pltpu.sync_copy(x_ref.at[half], block_ref)
    ...     block_ref[...] *= 2
    ...     pltpu.sync_copy(block_ref, o_ref.at[half])
    >>> double(jnp.arange(4.0))
    Array([0., 2., 4., 6.], dtype=float32)
    """
    if isinstance(mesh, (tuple, list)):
        raise ValueError("kernel: several meshes with a body for each are not supported; call a kernel for each")

    def make(body: Callable[..., None]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            of_leaf = lambda _: _WHOLE
            run = pallas_call(
                body, out_type, grid=tuple(mesh.shape.items()), in_specs=tree_map(of_leaf, args),
                out_specs=tree_map(of_leaf, tuple(out_type) if isinstance(out_type, list) else out_type,
                                   is_leaf=lambda each: isinstance(each, MemoryRef)),
                scratch_shapes=dict(scratch_types) if isinstance(scratch_types, Mapping) else scratch_types, debug=debug,
                interpret=interpret, name=name, compiler_params=compiler_params, cost_estimate=cost_estimate,
                metadata=metadata)
            return run(*args)

        call.__name__ = call.__qualname__ = name or source.function_name(body)
        return jit(call, inline=Inline.JAX_EARLY)

    return make if body is None else make(body)


@boundary
def core_map(mesh: Any, *, compiler_params: Any = None, interpret: Any = False, debug: bool = False, cost_estimate: Any = None,
             name: str | None = None, metadata: Mapping[str, str] | None = None,
             scratch_shapes: Any = ()) -> Callable[[Callable[..., Any]], None]:
    """Decorator: run a function on each core of a mesh, at once. It changes the Refs that it closes over.

    Args: `mesh` and the others as for `kernel`; `scratch_shapes` a tree of Refs to allocate, the function's arguments.
    Raises: ValueError if the function returns something, or closes over arrays: give them as Refs (`jax.new_ref`).
    """

    def run(body: Callable[..., Any]) -> None:
        types, tree = tree_flatten(scratch_shapes, is_leaf=lambda each: hasattr(each, "get_ref_aval"))

        def flat(*refs: Any) -> list[Any]:
            scratch = tree_unflatten(tree, refs)
            if (body(**scratch) if isinstance(scratch, dict) else body(*scratch)) is not None:
                raise ValueError("the function that core_map runs returns nothing; it changes Refs")
            return []

        with grid_scope(tuple(mesh.shape.values()), tuple(mesh.shape)):
            jaxpr, consts = trace_to_jaxpr(flat, [each.get_ref_aval() for each in types], DebugInfo("core_map", "core_map"))
        for const in consts:
            if type(aval_of(const)) is not AbstractRef:
                raise ValueError(f"the function that core_map runs closes over an array of type "
                                 f"{aval_of(const).str_short(short_dtypes=True)}; give it as a Ref: jax.new_ref(array)")
        values = [get(ref, ...) for ref in consts]

        def on_refs(*refs: Any) -> None:
            eval_jaxpr(jaxpr, refs[len(consts):2 * len(consts)], *refs[2 * len(consts):])

        spaces = [aval_of(ref).memory_space for ref in consts]
        whole = [BlockSpec(memory_space=UNSAID if space is None else space) for space in spaces]
        call = pallas_call(on_refs, values, grid=tuple(mesh.shape.items()), in_specs=whole, out_specs=whole,
                           scratch_shapes=types, debug=debug, interpret=interpret, name=name,
                           compiler_params=compiler_params, cost_estimate=cost_estimate, metadata=metadata,
                           input_output_aliases={index: index for index in range(len(consts))})
        for ref, value in zip(consts, call(*values), strict=True):
            set_ref(ref, ..., value)

    return run


def run_on_first_core(core_axis_name: str) -> Callable[[Callable[[], Any]], None]:
    """Decorator: call a function on the first core along an axis alone."""
    return when(axis_index(core_axis_name) == np.int32(0))


def core_barrier(sem: Any, *, core_axis_name: str) -> None:
    """Wait for all cores along an axis. In interpret mode, cores run one after the other, and no core waits.

    Args: `sem` a semaphore of the kind REGULAR.
    """
    count = state.axis_sizes[core_axis_name]
    for core in range(count):
        semaphore_signal(sem, 1, core_index=core)
    semaphore_wait(sem, count)


@contextlib.contextmanager
def pallas_export_experimental(dynamic_shapes: bool) -> Iterator[None]:
    """A context for exporting kernels.

    Raises: ValueError for `dynamic_shapes`: blocks and grids of symbolic sizes are not supported.
    """
    if dynamic_shapes:
        raise ValueError("kernels with blocks or arrays of symbolic dimensions cannot be exported; use static shapes")
    yield
