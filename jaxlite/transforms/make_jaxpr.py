"""The jaxpr of a function, and the shapes of its results, without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.dispatch import jitted_of
from jaxlite.compilation.jit import jit
from jaxlite.compilation.program import DescribedResult
from jaxlite.compilation.stages import Traced
from jaxlite.core import source
from jaxlite.core.filtering import boundary, hide_own_frames
from jaxlite.core.shape_dtype import ShapeDtypeStruct as ShapeDtypeStruct
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten
from lowering import xla


@boundary
def make_jaxpr(fun: Callable, static_argnums: int | Sequence[int] = (),
               axis_env: Sequence[tuple[Any, int]] | None = None, return_shape: bool = False) -> Callable[..., Any]:
    """Make a function that returns the jaxpr of `fun` for its arguments.

    Args:
      fun: a function of pytrees of arrays and scalars that returns such a pytree.
      static_argnums: positions of arguments that `fun` gets as they are; hashable, not part of the jaxpr.
      axis_env: pairs of a name and a size: named axes that `fun` may use in collectives, as if mapped over them.
      return_shape: also give the shapes and dtypes of the result.

    Returns: a function that takes the arguments of `fun`, or objects with their `shape` and `dtype`. It gives a
      `ClosedJaxpr`, whose constvars are the arrays that `fun` closes over. With `return_shape` it gives a pair of
      this and a pytree of `ShapeDtypeStruct`s. Nothing is compiled; a function seen by `jit` for the same types is not
      traced again.
    Raises: TypeError if `fun` is not callable, for arguments or results that are not arrays; what `fun` raises.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.make_jaxpr(lambda x, y: jnp.sin(x) * y)(jnp.ones(3), 2.0)
    { lambda ; a:f32[3] b:f32[]. let
        c:f32[3] = sin a
        d:f32[] = convert_element_type[new_dtype=float32 weak_type=False] b
        e:f32[3] = mul c d
      in (e,) }
    """
    jitted = jit(fun, static_argnums=static_argnums)
    axes = dict(axis_env or ())

    def make(*args: Any, **kwargs: Any) -> Any:
        outside = state.axis_sizes
        state.axis_sizes = {**outside, **axes}
        try:
            traced: Traced = jitted.trace(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise
        finally:
            state.axis_sizes = outside
        return (traced.jaxpr, traced.out_info) if return_shape else traced.jaxpr

    make.__name__ = make.__qualname__ = f"make_jaxpr({source.function_name(fun)})"
    make.__module__, make.__doc__ = "jaxlite", fun.__doc__
    make.__wrapped__ = fun  # type: ignore[attr-defined]
    return make


@boundary
def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun(*args, **kwargs)`, without computing it.

    Args:
      fun: a function of pytrees of arrays and scalars that returns such a pytree.
      args, kwargs: its arguments, or objects with their `shape` and `dtype`, such as `ShapeDtypeStruct`.

    Returns: a pytree like the result, of `ShapeDtypeStruct`s.
    Raises: what `fun` raises for such arguments, a mismatch of shapes for one; TypeError if it is not callable.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> x = jaxlite.ShapeDtypeStruct((1000, 500), jnp.float32)
    >>> jaxlite.eval_shape(lambda x: x @ x.T, x)
    ShapeDtypeStruct(shape=(1000, 1000), dtype=float32)
    """
    try:
        return (fun if isinstance(fun, xla.PjitFunction) else jit(fun)).eval_shape(*args, **kwargs)  # type: ignore[union-attr]
    except DescribedResult:
        return _with_descriptions(fun, args, kwargs)


def _with_descriptions(fun: Callable, args: Any, kwargs: Any) -> Any:
    """`eval_shape` of a function that returns some `ShapeDtypeStruct`s itself: these are results as they are."""
    leaves: list[Any] = []
    tree: Any = None
    static: dict[str, Any] = {}
    if isinstance(fun, xla.PjitFunction):
        jitted = jitted_of(fun)
        fun, options = jitted.fun, jitted.options
        static = {"static_argnums": options.static_argnums, "static_argnames": options.static_argnames}

    def values(*args: Any, **kwargs: Any) -> list[Any]:
        nonlocal tree
        leaves[:], tree = tree_flatten(fun(*args, **kwargs))
        return [leaf for leaf in leaves if not isinstance(leaf, ShapeDtypeStruct)]

    found = iter(jit(values, **static).eval_shape(*args, **kwargs))
    return tree.unflatten([leaf if isinstance(leaf, ShapeDtypeStruct) else next(found) for leaf in leaves])
