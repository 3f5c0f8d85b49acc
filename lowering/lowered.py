"""From a jaxpr to its MLIR module: the inputs that are used, the parameters whose memory results take, and the time it took.

`lower` returns a `Lowered`: the module with a description of its parameters, and what XLA is told about it. A process that
finds all of its programs in the cache does not load this file.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lowering import xla
from lowering.buffers import physical
from lowering.cache import keys
from lowering.executable import OF_LLVM
from lowering.module import ModuleBuilder, is_ordered, module_name
from lowering.partitioning import Meshes, Partitioning, annotate, annotate_kinds, annotate_layouts, memory_kinds
from lowering.passes import searches, trees
from lowering.passes.dce import live_parts
from lowering.several import emit_choice


class Lowered:
    """An MLIR module for a jaxpr.

    Attributes:
      module: the module; `seconds` the time that lowering took.
      kept: for each of constvars + invars, whether it is a parameter of the module.
      donated: the indices of the parameters whose buffer a result may take; `unusable` the types of those that no result takes.
      host_functions: the Python functions that the module calls by their index; `ordered` whether effects of programs that
        are called one after the other keep this order.
      sets_layouts: whether XLA may choose other layouts for results than the usual ones.
      barriers, flags: of the last compile, the reasons of the fusion barriers, and what XLA:CPU and LLVM were told beside the
        options.
    """

    __slots__ = ("module", "kept", "donated", "unusable", "name", "platform", "seconds", "context", "barriers", "sets_layouts",
                 "flags", "host_functions", "ordered", "_jaxpr", "_scopes", "_overwritten", "_keep_alive", "_lock",
                 "_is_simple", "_is_split")

    def __init__(self, builder: ModuleBuilder, jaxpr: Any, kept: list[bool], donated: list[int], unusable: list[Any], name: str,
                 platform: str, seconds: float, is_simple: bool, is_split: bool):
        self.module, self.kept, self.donated, self.unusable = builder.module, kept, donated, unusable
        self.name, self.platform, self.seconds = name, platform, seconds
        self.context = builder.module.context
        self.barriers: list[str] = []
        self.flags: tuple[str, ...] = ()
        self.host_functions, self.ordered, self.sets_layouts = builder.host_functions, is_ordered(jaxpr), builder.sets_layouts
        self._jaxpr, self._scopes, self._overwritten = jaxpr, builder.scopes, builder.overwritten
        self._keep_alive, self._lock = builder.keep_alive, threading.Lock()
        self._is_simple, self._is_split = is_simple, is_split

    @contextlib.contextmanager
    def tuned(self, wanted: bool) -> Iterator[None]:
        """Within the context, if `wanted`, the module has fusion barriers and its platform's other tuning, and `barriers` and
        `flags` say which."""
        with self._lock:
            self.barriers, self.flags = [], ()
            if not wanted or self.platform != "cpu":
                yield
                return
            # Not before something is compiled: a process that finds all of its programs in the cache needs none of the passes.
            from lowering.passes import tuning

            with tuning.tuned(self.module, self._jaxpr, self._scopes, self._overwritten, is_simple=self._is_simple,
                              is_split=self._is_split) as (self.barriers, self.flags):
                yield

    @property
    def is_unrolled(self) -> bool:
        """Whether LLVM was to unroll longer loops as well."""
        return not any(flag.startswith(OF_LLVM) for flag in self.flags)

    def text(self, debug_info: bool = False) -> str:
        """The module as StableHLO text; with `debug_info`, with the user's source lines."""
        return self.module.operation.get_asm(enable_debug_info=debug_info, large_elements_limit=None)

    def fingerprint(self) -> str:
        """A text that is equal in two processes where the modules are."""
        return keys.digest(xla.canonical_bytecode(self.module)).hex()

    def hlo(self) -> Any:
        """The module as an XLA computation, before any optimisation."""
        return xla.to_hlo(self.module)


def lower(jaxpr: Any, name: str, *, platform: str, is_hidden: Callable[[str], bool] = lambda file: False,
          donated: Sequence[bool] = (), keep_unused: bool = False, result_names: Sequence[str] = (),
          argument_names: Sequence[str] = (), partitioning: Partitioning | None = None,
          constants: Sequence[np.ndarray | None] = (), part_of: tuple[Any, tuple[Any, ...]] | None = None,
          layouts: tuple[Sequence[Any], Sequence[Any]] | None = None,
          kinds: tuple[Sequence[str | None], Sequence[str | None]] | None = None) -> Lowered:
    """Lower a jaxpr to a module with the entry function `main`.

    Args:
      jaxpr: the program; its constvars become the first parameters, but for those whose values are among `constants`.
      name: the module is called `jit_<name>`.
      platform: 'cpu', 'gpu' ('cuda', 'rocm'), 'tpu': rules may differ. With several, 'cpu,cuda', `main` takes the index of one
        of them before all else.
      is_hidden: whether the frames of a file are left out of source locations.
      donated: for each invar, whether its buffer may be reused for a result.
      keep_unused: keep parameters that no equation reads.
      result_names, argument_names: names for the results and the invars, as pytree paths.
      partitioning: the devices and shardings of a program over several devices.
      constants: for each constvar its value, if the module is to contain it, or None; of its type.
      part_of: of the program of one partition, the mesh along whose axes it exchanges data, and the devices in order.
      layouts: for each constvar and invar, and for each result, its memory layout (see `annotate_layouts`).
      kinds: for the same the kind of memory, None for the usual one.
    """
    start = time.perf_counter()
    jaxpr = trees.opened(jaxpr) if platform == "cpu" else jaxpr
    eqns, used = live_parts(jaxpr)
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    values = [*constants, *[None] * (len(inputs) - len(constants))]
    contained = {var: value for var, value, read in zip(inputs, values, used, strict=True) if read and value is not None}
    kept = [(read or keep_unused) and value is None for value, read in zip(values, used, strict=True)]
    parameters = [var for var, keep in zip(inputs, kept, strict=True) if keep]
    program = jaxpr.replace(constvars=[*contained], invars=parameters, eqns=eqns)
    targets = platform.split(",")
    builder = ModuleBuilder(module_name(name), is_hidden, targets[0])

    offered = [False] * len(jaxpr.constvars) + list(donated or [False] * len(jaxpr.invars))
    offered = [flag for flag, keep in zip(offered, kept, strict=True) if keep]
    found: Any = ([None] * len(inputs), [None] * len(jaxpr.outvars))
    if kinds is not None or partitioning is not None:
        found = _joined(kinds or found, found if partitioning is None else memory_kinds(partitioning))
    of_arguments, of_results = [kind for kind, keep in zip(found[0], kept, strict=True) if keep], found[1]
    arg_attributes: list[dict[str, Any]] = [{} for _ in parameters]
    result_attributes: list[dict[str, Any]] = [{} for _ in jaxpr.outvars]
    if partitioning is not None:
        annotate(builder, partitioning, parameters, jaxpr.outvars, kept, arg_attributes, result_attributes)
    if part_of is not None:
        builder.meshes = Meshes(builder, part_of[1], part_of[0])
        builder.meshes.manual_mesh, builder.meshes.manual_axes = part_of[0], frozenset(part_of[0].axis_names)
    annotate_kinds(builder, (of_arguments, arg_attributes), (of_results, result_attributes))
    modes: Any = None
    if layouts is not None:
        modes = [each for each, keep in zip(layouts[0], kept, strict=True) if keep], layouts[1]
        annotate_layouts(builder, (parameters, modes[0], arg_attributes), (jaxpr.outvars, modes[1], result_attributes))
    aliases, unusable = donate(builder, (parameters, offered, of_arguments, arg_attributes), (jaxpr.outvars, of_results),
                               partitioning, kept, modes)
    names = [""] * len(jaxpr.constvars) + list(argument_names or [""] * len(jaxpr.invars))
    with builder.context:
        names = [name for name, keep in zip(names, kept, strict=True) if keep]
        if len(targets) > 1:
            emit_choice(builder, program, list(contained.values()), targets, result_names, names, arg_attributes,
                        result_attributes)
        else:
            builder.emit_function(program, "main", "public", arg_attributes if any(arg_attributes) else None,
                                  result_attributes if any(result_attributes) else None, result_names or None, names,
                                  list(contained.values()))
            searches.leave_out(builder)
    return Lowered(builder, program, kept, aliases, unusable, name, platform, time.perf_counter() - start,
                   all(each is None for each in (partitioning, part_of, layouts, kinds)),
                   partitioning is not None and len(partitioning.devices) > 1)


def donate(builder: ModuleBuilder, given: tuple[Sequence[Any], Sequence[bool], Sequence[Any], list[dict[str, Any]]],
           made: tuple[Sequence[Any], Sequence[Any]], partitioning: Partitioning | None, kept: Sequence[bool],
           modes: Any = None) -> tuple[list[int], list[Any]]:
    """Mark the parameters whose buffers results take.

    Args: `given` the parameters, whether each is donated, their kinds of memory and their attributes; `made` the results and
      their kinds; `kept` says which of the arguments of `partitioning` are parameters; `modes` their memory layouts.
    Returns: the indices of these parameters, and the types of those that are donated in vain.
    """
    (parameters, offered, in_kinds, attributes), (outvars, out_kinds) = given, made
    if not any(offered):
        return [], []
    places: Any = [None] * len(parameters), [None] * len(outvars)
    if partitioning is not None:
        places = [place for place, keep in zip(partitioning.arguments, kept, strict=True) if keep], partitioning.results
    waiting = [index for index, flag in enumerate(offered) if flag]
    ours = {index: _Buffer(parameters[index].aval, places[0][index], in_kinds[index]) for index in waiting}
    theirs = [_Buffer(atom.aval, place, kind) for atom, place, kind in zip(outvars, places[1], out_kinds, strict=True)]
    free = [index for index, buffer in enumerate(theirs) if buffer.is_array]
    is_known = partitioning is None or len(partitioning.devices) == 1

    def pair(fits: Callable[[_Buffer, _Buffer], bool]) -> Iterator[tuple[int, int]]:
        for index in list(waiting):
            output = next((output for output in free if ours[index].is_array and fits(ours[index], theirs[output])), None)
            if output is not None:
                waiting.remove(index)
                free.remove(output)
                yield index, output

    donors = []
    for index, output in pair(lambda one, other: one.is_same(other, is_known)):
        if modes is None or _can_alias(modes[0][index], modes[1][output]):
            attributes[index]["tf.aliasing_output"] = builder.ir.IntegerAttr.get(builder.i32, output)
        else:
            donors.append(index)
    if is_known or None not in places[1]:
        donors += [index for index, _ in pair(_Buffer.is_as_large)]
    else:  # it depends on shardings that XLA chooses
        donors += waiting
        waiting.clear()
    for index in donors:  # XLA looks for a result of as many bytes
        attributes[index]["jax.buffer_donor"] = builder.ir.BoolAttr.get(True, builder.context)
    taken = [index for index, flag in enumerate(offered) if flag and index not in waiting]
    return taken, [parameters[index].aval for index in waiting]


class _Buffer:
    """What decides which buffer of a parameter a result can take: its type, sharding and kind of memory."""

    def __init__(self, aval: Any, place: Any, kind: str | None):
        self.is_array, self.place, self.kind = hasattr(aval, "shape"), place, kind
        if self.is_array:
            self.type, self.rank = physical(aval), len(aval.shape)
            part = aval.shape if place is None else place.shard_shape(aval.shape)
            self.size = math.prod(part) * math.prod(self.type[0][self.rank:])  # of the part that each device has

    def is_same(self, other: _Buffer, is_whole: bool) -> bool:
        """Whether types, shardings and memory agree; `is_whole` says that each lies on one device."""
        if (self.type, self.kind) != (other.type, other.kind):
            return False
        return is_whole or (self.place is not None and other.place is not None
                            and self.place.is_equivalent_to(other.place, self.rank))

    def is_as_large(self, other: _Buffer) -> bool:
        """Whether parts have as many elements, of any type."""
        return self.size == other.size and self.kind == other.kind


def _joined(ones: tuple[Any, Any], others: tuple[Any, Any]) -> tuple[list[str | None], list[str | None]]:
    """For arguments and results the kind of memory that either of both has."""
    arguments, results = ([one or other for one, other in zip(*pair, strict=True)] for pair in zip(ones, others, strict=True))
    return arguments, results


def _can_alias(given: Any, result: Any) -> bool:
    """Whether a donated parameter and a result have one layout for certain. Raises: ValueError if XLA chooses one alone."""
    chosen = [each is not None and each.is_auto for each in (given, result)]
    if chosen[0] != chosen[1]:
        one = ("output", "input")[chosen[1]]
        raise ValueError(
            f"Input layout being donated was {given} while output layout was {result}. Did you mean to set the "
            f"**{one} layout** to **Layout.AUTO**? This will allow for the input and output layout to be chosen by XLA and not "
            f"the layout of the {one} which might not be optimal.")
    return chosen[0] or given is result is None
