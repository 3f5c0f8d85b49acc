"""The arguments of `jit`, normalised: static and donated arguments, and the names of arguments."""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from jaxlite.compilation import explain
from jaxlite.core import config
from jaxlite.core.lazy import loader
from jaxlite.core.tree import leaf_paths

load_spread = loader("jaxlite.compilation.spread")


class Options:
    """The options of `jit`, normalised; hashable, part of the key of shared caches."""

    __slots__ = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused", "device",
                 "inline", "compiler_options", "in_shardings", "out_shardings", "key")

    def __init__(self, static_argnums: tuple[int, ...], static_argnames: tuple[str, ...],
                 donate_argnums: tuple[int, ...], donate_argnames: tuple[str, ...], keep_unused: bool, device: Any,
                 inline: Any, compiler_options: dict[str, Any] | None, in_shardings: Any = None, out_shardings: Any = None):
        self.static_argnums, self.static_argnames = static_argnums, static_argnames
        self.donate_argnums, self.donate_argnames = donate_argnums, donate_argnames
        self.keep_unused, self.device, self.inline = keep_unused, device, inline
        self.compiler_options = compiler_options
        check_compiler_options(compiler_options)
        self.in_shardings, self.out_shardings = in_shardings, out_shardings
        self.key = (static_argnums, static_argnames, donate_argnums, donate_argnames, keep_unused, device, inline,
                    tuple(sorted(compiler_options.items())) if compiler_options else None, *(
                        None if given is None else load_spread().checked(given, what) for given, what in
                        ((in_shardings, "in_shardings"), (out_shardings, "out_shardings"))))

    def flat_in_shardings(self, in_tree: Any) -> tuple[Any, ...] | None:
        """A sharding or None for each flat argument. Raises: ValueError if there are keyword arguments beside shardings."""
        if self.in_shardings is None:
            return None
        args_tree, kwargs_tree = in_tree.children()
        if kwargs_tree.num_leaves:
            raise ValueError("pjit does not support kwargs when in_shardings is specified.")
        return load_spread().flat_shardings(self.in_shardings, args_tree, "in_shardings")

    def flat_layouts(self, in_tree: Any, out_tree: Any) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
        """The layouts that stand beside the shardings of arguments, and of results; None for none."""
        return load_spread().flat_layouts(self.in_shardings, in_tree.children()[0], "in_shardings"), load_spread().flat_layouts(
            self.out_shardings, out_tree, "out_shardings")


def check_compiler_options(options: dict[str, Any] | None) -> None:
    """Raises TypeError for a value that no XLA option takes; which options there are, XLA knows."""
    for name, value in (options or {}).items():
        if not isinstance(value, (str, bool, int, float)):
            raise TypeError(f"compiler option {name!r} must be a str, bool, int or float, got {type(value)}")


def process_options() -> dict[str, Any]:
    """The compiler options that options of the process ask for; a function's own go before them."""
    given: dict[str, Any] = {}
    for effort in (config.exec_time_optimization_effort, config.memory_fitting_effort):
        if effort.value:
            given[effort.state.name] = effort.value
    if config.optimization_level.value != "UNKNOWN":
        given["optimization_level"] = config.LEVELS.index(config.optimization_level.value)
    if config.memory_fitting_level.value != "O2":
        given["memory_fitting_level"] = config.LEVELS.index(config.memory_fitting_level.value)
    if config.disable_most_optimizations.value:
        given |= {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True,
                  "xla_test_all_input_layouts": False}
    return given


def _as_ints(value: Any, what: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    items = value if isinstance(value, Iterable) else (value,)
    try:
        return tuple(item.__index__() for item in items)
    except AttributeError:
        raise TypeError(f"{what} must be an int or a sequence of ints, got {value!r}") from None


def _as_names(value: Any, what: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be a str or a sequence of strs, got {value!r}")
    return names


def signature_of(fun: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


NOT_A_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def resolve(signature: inspect.Signature | None, argnums: Any, argnames: Any, what: str, fun_name: str,
             ) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Infer argument numbers and names from each other, as far as the signature tells, and check them."""
    nums = _as_ints(argnums, f"{what}_argnums")
    names = _as_names(argnames, f"{what}_argnames")
    if signature is None:
        return nums or (), names or ()
    parameters = list(signature.parameters.values())
    positional = [each.name for each in parameters if each.kind in _POSITIONAL]
    kinds = {each.kind for each in parameters}
    if nums is not None:
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            for num in nums:
                if not -len(positional) <= num < len(positional):
                    raise ValueError(f"Jitted function has {what}_argnums={nums}, but only accepts {len(positional)} "
                                     f"positional arguments. The function is {fun_name}.")
            nums = tuple(num % len(positional) for num in nums)
    if names is not None and inspect.Parameter.VAR_KEYWORD not in kinds:
        accepted = {each.name for each in parameters if each.kind not in
                    (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)}
        unknown = [name for name in names if name not in accepted]
        if unknown:
            raise ValueError(f"Jitted function has invalid argnames {set(unknown)!r} in {what}_argnames. Function does not "
                             f"take these args. The function is {fun_name}, and takes {sorted(accepted)}.")
    if nums is None and names is None:
        return (), ()
    if nums is None:
        assert names is not None
        return tuple(index for index, name in enumerate(positional) if name in names), names
    if names is None:
        keywords = {each.name for each in parameters if each.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD}
        return nums, tuple(positional[num] for num in nums
                           if -len(positional) <= num < len(positional) and positional[num] in keywords)
    return nums, names


def infer_argnums_and_argnames(signature: inspect.Signature, argnums: Any, argnames: Any,
                               ) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Numbers and names of some arguments, where one or both were given: ints or names, or sequences of them."""
    return resolve(signature, argnums, argnames, "static", "")


def check_callable(fun: Any) -> None:
    """Raises TypeError for what cannot be called, or would return a generator or a coroutine."""
    if isinstance(fun, staticmethod):
        raise TypeError(f"staticmethod arguments are not supported, got {fun}")
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    flags = getattr(getattr(fun, "__code__", None), "co_flags", 0)
    if flags & NOT_A_FUNCTION:
        kind = "generator" if flags & inspect.CO_GENERATOR else "coroutine"
        raise TypeError(f"Expected a function, got a {kind} function: {fun}")


def parameter_names(fun: Callable[..., Any]) -> tuple[list[str], str]:
    """The names of a function's positional parameters, and of the one that takes the rest."""
    signature = signature_of(fun)
    parameters = list(signature.parameters.values()) if signature else []
    rest = next((each.name for each in parameters if each.kind == inspect.Parameter.VAR_POSITIONAL), "args")
    return [each.name for each in parameters if each.kind in _POSITIONAL], rest


def _names_in_code(code: types.CodeType | None, bound: bool) -> tuple[list[str], str]:
    """`parameter_names` of a function or a bound method that is gone, by its code."""
    if code is None:
        return [], "args"
    count = code.co_argcount
    takes_rest = code.co_flags & inspect.CO_VARARGS
    return list(code.co_varnames[bound:count]), code.co_varnames[count + code.co_kwonlyargcount] if takes_rest else "args"


def argument_names(fun: Callable[..., Any], in_tree: Any, options: Options | None) -> Callable[[], list[str]]:
    """A function that gives a name for each flat argument: the parameter's name and the path inside it.

    It does not keep `fun` alive, only its code: what was traced must not outlive its function.
    """
    code = None if hasattr(fun, "__wrapped__") else getattr(fun, "__code__", None)
    bound = isinstance(fun, types.MethodType)
    try:
        reference: Callable[[], Any] = weakref.ref(fun)
    except TypeError:
        reference = lambda: fun

    def compute() -> list[str]:
        fun = reference()
        positional, rest = parameter_names(fun) if fun is not None else _names_in_code(code, bound)
        numbers = options.static_argnums if options else ()
        total = len(in_tree.children()[0].children()) + len(numbers)  # arguments without leaves count
        static = {number % total for number in numbers if -total <= number < total}
        dynamic = [index for index in range(max(total, len(positional))) if index not in static]
        names = []
        for number, path in enumerate(leaf_paths(in_tree)):
            if not path:
                names.append(f"#{number}")
                continue
            inside = "".join(map(str, path[2:]))
            if path[0].idx == 0:
                base = explain.position_name(positional, rest, dynamic[path[1].idx])
            else:
                base = str(path[1].key)
            names.append(base + inside)
        return names

    return compute


def donated_leaves(in_tree: Any, options: Options, static: tuple[Any, ...]) -> tuple[bool, ...]:
    if not options.donate_argnums and not options.donate_argnames:
        return (False,) * in_tree.num_leaves
    args_tree, kwargs_tree = in_tree.children()
    static_nums = {index for index, _ in static}
    total = len(args_tree.children()) + len(static_nums)
    donate = {num % total if num < 0 else num for num in options.donate_argnums if total}
    dynamic = [index for index in range(total) if index not in static_nums]
    flags: list[bool] = []
    for index, child in zip(dynamic, args_tree.children(), strict=True):
        flags += [index in donate] * child.num_leaves
    names = kwargs_tree.node_data()[1]
    for name, child in zip(names, kwargs_tree.children(), strict=True):
        flags += [name in options.donate_argnames] * child.num_leaves
    return tuple(flags)
