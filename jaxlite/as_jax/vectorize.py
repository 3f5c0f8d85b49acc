"""The parts of `jnp.vectorize` as JAX divides it, for quaxed, which combines them with its own functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jaxlite.lax.shaping import broadcast_shapes
from jaxlite.numpy.functional import check_outputs, core_sizes
from jaxlite.numpy.functional import parse_signature as _parse_gufunc_signature

__all__ = ["_apply_excluded", "_check_output_dims", "_parse_gufunc_signature", "_parse_input_dimensions"]


def _apply_excluded(func: Callable[..., Any], excluded: Collection[int | str], args: Sequence[Any], kwargs: Mapping[str, Any],
                    ) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """A function of the arguments that are not excluded, and these."""
    places = [index for index in range(len(args)) if index not in excluded]
    fixed = {name: value for name, value in kwargs.items() if name in excluded}

    def call(*values: Any, **named: Any) -> Any:
        full = list(args)
        for index, value in zip(places, values, strict=True):
            full[index] = value
        return func(*full, **named, **fixed)

    return (call, [args[index] for index in places],
            {name: value for name, value in kwargs.items() if name not in excluded})


def _parse_input_dimensions(args: Sequence[Any], input_core_dims: Sequence[tuple[str, ...]], error_context: str = "",
                            ) -> tuple[tuple[int, ...], dict[str, int]]:
    """The shape that the leading axes of arguments are broadcast to, and the sizes of the named ones."""
    if len(args) != len(input_core_dims):
        raise TypeError(f"wrong number of positional arguments: expected {len(input_core_dims)}, got {len(args)} "
                        f"{error_context}")
    shapes = [tuple(arg.shape) for arg in args]
    sizes = core_sizes(shapes, input_core_dims, error_context)
    return broadcast_shapes(*[shape[:len(shape) - len(core)]
                              for shape, core in zip(shapes, input_core_dims, strict=True)]), sizes


def _check_output_dims(func: Callable[..., Any], dim_sizes: dict[str, int],
                       expected_output_core_dims: Sequence[tuple[str, ...]], error_context: str = "") -> Callable[..., Any]:
    """A function that checks the shapes of its results."""

    def checked(*args: Any) -> Any:
        result = func(*args)
        check_outputs(result, expected_output_core_dims, dict(dim_sizes), error_context)
        return result

    return checked
