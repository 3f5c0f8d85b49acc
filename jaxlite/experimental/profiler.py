"""What XLA reads of a profile, as `jax.experimental.profiler` names it."""

from __future__ import annotations

import os

from lowering import xla

__all__ = ["get_profiled_instructions_proto"]
__dir__ = lambda: __all__


def get_profiled_instructions_proto(tensorboard_dir: str | os.PathLike) -> bytes:
    """The times of instructions in a profile that `jax.profiler` wrote, serialized as XLA takes them to optimise by.

    Args: the folder of one run, `<log_dir>/plugins/profile/<run>`. It is not empty for NVIDIA GPUs alone.
    """
    return xla.load_profiler().get_profiled_instructions_proto(os.fspath(tensorboard_dir))
