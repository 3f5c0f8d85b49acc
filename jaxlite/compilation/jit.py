"""jit: compile a function on first use of each signature, and run the compiled code after that.

This is the decorator. What a call does: `jaxlite.compilation.dispatch`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxlite.compilation.dispatch import jit_p, jitted_of, make_call_path, opened, says_shardings, spread
from jaxlite.compilation.options import Options, check_callable, resolve, signature_of
from jaxlite.core import config, source
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr, derived, eval_jaxpr
from jaxlite.core.lazy import loader
from jaxlite.core.tree import NOT_SPECIFIED
from lowering import progress, report, xla

levels = loader("jaxlite.compilation.levels")


@boundary
def jit(fun: Callable[..., Any] = NOT_SPECIFIED, /, *, in_shardings: Any = None, out_shardings: Any = None,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None, donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None, keep_unused: bool = False, device: Any = None,
        backend: str | None = None, inline: Any = False, compiler_options: dict[str, Any] | None = None) -> Any:
    """Compile a function of arrays with XLA, once for each signature of its arguments.

    Args:
      fun: a function of pytrees of arrays and scalars; pure: it is run once to see what it does, and what it
        does to anything but its result is not repeated by the compiled code. Without it, a decorator is
        returned: `@jit(static_argnums=0)`.
      in_shardings: how arguments are spread over devices: a pytree prefix of the tuple of positional arguments (static ones
        left out) of shardings, of `PartitionSpec`s over the mesh of the context, and of None for "as they are".
      out_shardings: the same for the result; None leaves the choice to XLA.
      static_argnums, static_argnames: arguments that are part of the signature by value, and so may be used as
        Python values inside; hashable. Each is inferred from the other through the function's signature.
      donate_argnums, donate_argnames: arguments whose memory the results may take; they are gone after the call.
      keep_unused: keep arguments that the program does not read as parameters of the executable.
      device, backend: where to run, instead of where the arguments are.
      inline: inside another traced function, put the operations there instead of a call; or when to do so, a
        `jaxlite.Inline`.
      compiler_options: XLA options by name, for this function's compiles.

    Returns: a function with the signature of `fun`, and the stages `trace`, `lower`, `eval_shape` beside it.
    Raises: ValueError for argument numbers or names that the function does not have; TypeError at the call for
      arguments that are not arrays, with their path.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> @jaxlite.jit
    ... def selu(x, alpha=1.67, lmbda=1.05):
    ...     return lmbda * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)
    >>> print(selu(jnp.arange(3.0)))
    [0.   1.05 2.1 ]
    """
    if fun is NOT_SPECIFIED:
        return functools.partial(
            jit, in_shardings=in_shardings, out_shardings=out_shardings,
            static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
            donate_argnames=donate_argnames, keep_unused=keep_unused, device=device, backend=backend, inline=inline,
            compiler_options=compiler_options)
    check_callable(fun)
    if device is not None and backend is not None:
        raise ValueError("can't specify both a device and a backend for jit, got "
                         f"device={device} and backend={backend}")
    if device is not None or backend is not None:
        source.warn("jit: the arguments `device` and `backend` are deprecated; use jax.device_put(x, device), or "
                    "`out_shardings` and the like", DeprecationWarning)
    static: tuple[Any, Any] = ((), ())
    donate: tuple[Any, Any] = ((), ())
    if not (static_argnums is None and static_argnames is None and donate_argnums is None and donate_argnames is None):
        signature, name = signature_of(fun), source.function_name(fun)
        static = resolve(signature, static_argnums, static_argnames, "static", name)
        donate = resolve(signature, donate_argnums, donate_argnames, "donate", name)
        if names := set(static[1]) & set(donate[1]):
            raise ValueError("static_argnames and donate_argnames cannot intersect. Argument names "
                             f"{names} appear in both static_argnames and donate_argnames")
        if positions := set(static[0]) & set(donate[0]):
            raise ValueError(f"static_argnums and donate_argnums cannot intersect. Argument numbers {positions} appear in both")
    if (device is not None or backend is not None) and not in_shardings is out_shardings is None:
        raise ValueError("If backend or device is specified on jit, then "
                         f"{'in' if in_shardings is not None else 'out'}_shardings should not be specified.")
    options = Options(*static, *donate, keep_unused, device if device is not None else backend,
                      inline and levels().inline_param(inline),
                      compiler_options, in_shardings, out_shardings)
    return make_call_path(fun, options)


def _reduce(path: Any) -> Any:
    """For pickle: by name where the name leads here, else the function and its options."""
    found: Any = sys.modules.get(path.__module__)
    for name in getattr(path, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    if found is path:
        return path.__qualname__
    jitted = jitted_of(path)
    return _rejit, (jitted.fun, {name: getattr(jitted.options, name) for name in Options.__slots__ if name != "key"})


def _rejit(fun: Callable[..., Any], options: dict[str, Any]) -> Any:
    if options["inline"] is True:  # as it was resolved
        options["inline"] = levels().Inline.JAX_EARLY
    return jit(fun, **options)


xla.PjitFunction.__reduce__ = _reduce
xla.PjitFunction.__copy__ = lambda self: self
xla.PjitFunction.__deepcopy__ = lambda self, memo: self


@jit_p.def_eager
def _jit_eager(*args: Any, jaxpr: ClosedJaxpr, name: str, in_shardings: Any = None, out_shardings: Any = None,
               compiler_options_kvs: Any = (), **params: Any) -> list[Any]:
    def make() -> Any:
        said = {"jaxpr": jaxpr, "in_shardings": in_shardings, "out_shardings": out_shardings}

        def evaluate(*args: Any) -> list[Any]:
            return list(opened(lambda *args: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args), said)(*args))

        evaluate.__name__ = name
        laid_out = spread().explicit(out_shardings) if says_shardings(said) else None
        return jit(evaluate, compiler_options=dict(compiler_options_kvs) or None, out_shardings=laid_out)

    return derived(jaxpr, ("eager", in_shardings, out_shardings, compiler_options_kvs), make)(*args)


_page = loader("jaxlite.compilation.page")
progress.configure(lambda: config.progress.value)
report.configure(
    log=lambda: config.log_compiles.value,
    folder=lambda: config.dump_ir_to.value,
    modes=lambda: config.dump_ir_modes.value,
    caller=lambda: source.summarize(source.current_traceback()),
    is_hidden=source.is_hidden_file,
    page=lambda *args: _page().page(*args),
)
