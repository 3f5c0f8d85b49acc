"""Placement: on which device a call runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core import array as arrays
from jaxlite.core import config
from jaxlite.core.tracing import Tracer
from lowering import platforms, xla

ArrayImpl = xla.ArrayImpl


def target_device(args: Sequence[Any], asked: Any = None) -> tuple[Any, bool]:
    """Where a call runs: the device asked for, else that of its committed arguments, else the default one.

    Returns: the device, and whether the results are committed to it.
    Raises: ValueError if arguments are committed to different devices.
    """
    if asked is not None:
        return as_device(asked), True
    found, first = None, 0
    for index, arg in enumerate(args):
        device = _bound_to(arg)
        if device is not None:
            if found is None:
                found, first = device, index
            elif device is not found and device != found:
                raise ValueError(
                    f"Received incompatible devices for jitted computation. Argument {first} is committed to "
                    f"{found}, argument {index} to {device}. Move one with device_put.")
    if found is not None:
        return found, True
    return default_device(), False


def _bound_to(arg: Any) -> Any:
    """The device of a committed array, or of what stands for one; else None."""
    if type(arg) is ArrayImpl:
        return arrays.device_of(arg) if arg._committed else None
    if isinstance(arg, Tracer):
        return None
    arg = getattr(arg, "_base_array", arg)  # of an extended dtype
    if type(arg) is ArrayImpl:
        return _bound_to(arg)
    sharding = getattr(arg, "sharding", None)
    return None if sharding is None else as_device(sharding)


def default_device() -> Any:
    """The device of uncommitted computations: the option `default_device`, else the platform's first."""
    chosen = config.default_device.value
    return platforms.default_device() if chosen is None else as_device(chosen)


def as_device(spec: Any) -> Any:
    """A device from a device, a platform's name, or a sharding on one device."""
    if isinstance(spec, str):
        return platforms.devices(spec)[0]
    if isinstance(spec, xla.Sharding):
        return next(iter(spec.device_set))
    return spec
