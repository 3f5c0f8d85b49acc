"""`pjit`: `jit`, whose options may be given by position."""

from collections.abc import Callable
from typing import Any

from jaxlite.compilation.jit import jit

__all__ = ["pjit"]
__dir__ = lambda: __all__


def pjit(fun: Callable, in_shardings: Any = None, out_shardings: Any = None, static_argnums: Any = None,
         static_argnames: Any = None, donate_argnums: Any = None, donate_argnames: Any = None, keep_unused: bool = False,
         device: Any = None, backend: str | None = None, inline: Any = False, compiler_options: Any = None) -> Any:
    """`jit`, whose options may be given in this order.

    >>> pjit(lambda x, n: x * n, None, None, 1)(2, 3)
    Array(6, dtype=int32, weak_type=True)
    """
    return jit(fun, in_shardings=in_shardings, out_shardings=out_shardings, static_argnums=static_argnums,
               static_argnames=static_argnames, donate_argnums=donate_argnums, donate_argnames=donate_argnames,
               keep_unused=keep_unused, device=device, backend=backend, inline=inline, compiler_options=compiler_options)
