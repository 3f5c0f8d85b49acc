"""Python functions as passes of XLA's compiler, as `jax.extend.xla` names them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxlite.core.config import enable_compilation_cache
from lowering import platforms as _platforms
from lowering import xla

__all__ = ["PipelineStage", "clear_hlo_module_transformation", "register_hlo_module_transformation"]
__dir__ = lambda: __all__


class PipelineStage(enum.Enum):
    """When a pass runs in a compile: before instructions are put in order, or after."""

    PRE_SCHEDULER = 0
    POST_SCHEDULER = 1


def _clients(platforms: Sequence[str] | str | None) -> Iterator[Any]:
    """The clients of platforms; None for that of the CPU, whose compiler is part of jaxlib."""
    named = [platforms] if isinstance(platforms, str) else _platforms.platform_names() if platforms is None else platforms
    for name in dict.fromkeys(named):
        yield None if name == "cpu" else _platforms.client(name)


def _check_stage(stage: Any) -> int:
    if not isinstance(stage, PipelineStage):
        raise TypeError(f"stage must be a PipelineStage enum, got {type(stage)}")
    return stage.value


def register_hlo_module_transformation(callback: Callable[[bytes], bytes | None], *, name: str,
                                       stage: PipelineStage = PipelineStage.PRE_SCHEDULER,
                                       platforms: Sequence[str] | str | None = None) -> None:
    """Have XLA call a function in each compile from now on.

    The persistent cache is turned off with it: programs in it were compiled without.

    Args:
      callback: gets a serialized `HloModuleProto`, and returns the one to go on with, or None for no change. It is called for
        each computation that XLA compiles on its own. An exception ends the compile.
      name: the name of the pass. Several of one stage run in the order in which they came.
      stage: where it runs.
      platforms: for which; all that are in use by default.
    Raises: TypeError if `stage` is no `PipelineStage`, or `callback` no function.
    """
    number = _check_stage(stage)
    if not callable(callback):
        raise TypeError(f"register_hlo_module_transformation: callback must be a function, got {callback!r}")
    enable_compilation_cache.set(False)
    passes = xla.compiler_passes()
    for client in _clients(platforms):
        if client is None:
            passes.register_xla_transform(name, number, callback)
        else:
            passes.register_xla_transform_c_api(client, name, number, callback)


def clear_hlo_module_transformation(name: str, stage: PipelineStage = PipelineStage.PRE_SCHEDULER,
                                    platforms: Sequence[str] | str | None = None) -> bool:
    """Take a pass back; says whether there was one of this name. What it changed stays compiled so."""
    number = _check_stage(stage)
    passes = xla.compiler_passes()
    found = [passes.clear_xla_transform(name, number) if client is None
             else passes.clear_xla_transform_c_api(client, name, number) for client in _clients(platforms)]
    return any(found)
