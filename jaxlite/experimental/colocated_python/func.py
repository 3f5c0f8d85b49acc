"""Calls of colocated functions, and their declared result types."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from jaxlite.core.config import default_device
from jaxlite.core.dtypes import issubdtype, prng_key
from jaxlite.core.tree import keystr, tree_flatten_with_path, tree_leaves, tree_structure
from jaxlite.core.values import aval_of

__all__ = ["Specialization", "is_prng_key_dtype", "make_callable"]
__dir__ = lambda: __all__


@dataclasses.dataclass(frozen=True)
class Specialization:
    """What a call promises: specs of its `(args, kwargs)`, specs of its results from those, and the devices to run on."""

    in_specs: Any = None
    out_specs_fn: Callable[..., Any] | None = None
    devices: tuple[Any, ...] | None = None

    def update(self, *, in_specs: Any = None, out_specs_fn: Callable[..., Any] | None = None, devices: Any = None,
               ) -> Specialization:
        """With more promises. Raises ValueError for one that was made before."""
        given = {"in_specs": in_specs, "out_specs_fn": out_specs_fn, "devices": None if devices is None else tuple(devices)}
        for name, value in given.items():
            if value is not None and getattr(self, name) is not None:
                raise ValueError(f"{name} was specialized before; it can't be given twice")
        return dataclasses.replace(self, **{name: value for name, value in given.items() if value is not None})


def is_prng_key_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype are typed random keys."""
    return issubdtype(dtype, prng_key)


def make_callable(fun: Callable[..., Any], specialization: Specialization) -> Callable[..., Any]:
    """A function that runs beside its arguments, under these promises."""

    def specialize(in_specs: Any = None, out_specs_fn: Callable[..., Any] | None = None, devices: Any = None) -> Any:
        return make_callable(fun, specialization.update(in_specs=in_specs, out_specs_fn=out_specs_fn, devices=devices))

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        if specialization.in_specs is not None:
            _check(fun, "argument", specialization.in_specs, (args, kwargs))
        elif not tree_leaves((args, kwargs)) and specialization.devices is None:
            raise ValueError(f"no devices found for {fun.__name__}(): it has no arguments, so `devices` has to be given to "
                             "`specialize`")
        if specialization.devices is None:
            out = fun(*args, **kwargs)
        else:
            with default_device(specialization.devices[0]):
                out = fun(*args, **kwargs)
        if specialization.out_specs_fn is not None:
            in_args, in_kwargs = specialization.in_specs if specialization.in_specs is not None else (args, kwargs)
            _check(fun, "result", specialization.out_specs_fn(*in_args, **in_kwargs), out)
        return out

    call.specialize = specialize  # type: ignore[attr-defined]
    return call


def _check(fun: Callable[..., Any], what: str, specs: Any, values: Any) -> None:
    if tree_structure(specs) != tree_structure(values):
        raise ValueError(f"{what}s of {fun.__name__}() have the tree {tree_structure(values)}, not {tree_structure(specs)} as "
                         "specialized")
    for (path, spec), value in zip(tree_flatten_with_path(specs)[0], tree_leaves(values), strict=True):
        aval = aval_of(value)
        if aval.shape != tuple(spec.shape) or aval.dtype != spec.dtype:
            raise ValueError(f"{what} {keystr(path)} of {fun.__name__}() is {aval}, not {spec} as specialized")
