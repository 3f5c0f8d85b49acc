"""Programs in lowering rules with JAX's calling convention: tokens, contexts, and the lowering of whole jaxprs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxlite.core.effects import Effect
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr
from jaxlite.core.source import is_hidden_file
from jaxlite.extend.lowering_rules import ModuleContext, constant_makers, current_context
from lowering import platforms, xla
from lowering.lowered import lower


class TokenSet:
    """The tokens of a program's effects, one for each; it does not change.

    Args: `tokens` by the effect.
    """

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Mapping[Effect, Any] | None = None):
        self._tokens = dict(tokens or {})

    @classmethod
    def create(cls, effects: Sequence[Effect]) -> TokenSet:
        """A fresh token for each effect, made at the current place of a lowering rule."""
        return cls({effect: xla.ir.Operation.create("stablehlo.create_token", [token_type()]).result for effect in effects})

    def get(self, effect: Effect) -> Any:
        """The token of an effect. Raises: KeyError if there is none."""
        return self._tokens[effect]

    def items(self) -> list[tuple[Effect, Any]]:
        """The effects with their tokens."""
        return list(self._tokens.items())

    def effects(self) -> set[Effect]:
        """The effects that have one."""
        return set(self._tokens)

    def subset(self, effects: Iterable[Effect]) -> TokenSet:
        """The subset for some effects."""
        return TokenSet({effect: self._tokens[effect] for effect in effects})

    def update_tokens(self, tokens: TokenSet) -> TokenSet:
        """The set with newer tokens, all of them of effects that it has."""
        unknown = tokens.effects() - self.effects()
        if unknown:
            raise ValueError(f"update_tokens: the set has no tokens of {unknown}")
        return TokenSet(self._tokens | tokens._tokens)

    def __len__(self) -> int:
        return len(self._tokens)


def token_type() -> Any:
    """The MLIR type of a token; in a context."""
    return xla.ir.Type.parse("!stablehlo.token")


@dataclass(frozen=True)
class SPMDAxisContext:
    """A program over a mesh, some of whose axes are manual."""

    mesh: Any
    manual_axes: frozenset[Any] = frozenset()


@dataclass(frozen=True)
class ShardingContext:
    """A program over devices that have no mesh."""

    num_devices: int
    device_assignment: tuple[Any, ...] | None = None
    abstract_mesh: Any = None


AxisContext = SPMDAxisContext | ShardingContext


class ShapePolyLoweringState:
    """What the lowering of a program with symbolic dimensions knows: their names, and whether platforms are told apart."""

    def __init__(self, dim_vars: tuple[str, ...], lowering_platforms: tuple[str, ...] | None):
        self.dim_vars = dim_vars
        self.uses_dim_vars = bool(dim_vars)
        self.has_platform_index_argument = lowering_platforms is not None and len(lowering_platforms) > 1


@dataclass(frozen=True)
class LoweringParameters:
    """Choices for `lower_jaxpr_to_module`: `override_lowering_rules`, pairs of primitive and rule; the rest says nothing."""

    override_lowering_rules: tuple[tuple[Any, Callable[..., Any]], ...] | None = None
    global_constant_computation: bool = False
    for_export: bool = False
    export_ignore_forward_compatibility: bool = False
    hoist_constants_as_args: bool = field(default=False)


class LoweringResult(NamedTuple):
    """A module, what must live as long as what is compiled of it, its calls of Python functions, its symbolic dimensions."""

    module: Any
    keepalive: Any
    host_callbacks: list[Any]
    shape_poly_state: ShapePolyLoweringState


def jaxpr_subcomp(ctx: ModuleContext, jaxpr: Jaxpr, name_stack: Any, tokens: TokenSet, consts_for_constvars: Sequence[Any],
                  *args: Any, dim_var_values: Sequence[Any] = (), const_lowering: Any = None,
                  outer_traceback: Any = None) -> tuple[list[Any], TokenSet]:
    """Emit the operations of a program at the current place of a lowering rule.

    Args: `consts_for_constvars` and `args` the values of its constvars and inputs; the tokens come back as they are, since
      those of ordered effects are threaded through the module itself.
    Returns: the values of its outputs, and the tokens.
    """
    return current_context("jaxpr_subcomp").inline(jaxpr, [*consts_for_constvars, *args]), tokens


def lower_jaxpr_to_fun(ctx: ModuleContext, name: str, jaxpr: ClosedJaxpr, effects: Sequence[Effect] = (), *,
                       num_const_args: int = 0, in_avals: Sequence[Any] = (), **options: Any) -> Any:
    """Emit a program as a private function of the module; gives the function.

    Args: `ctx` the module; `name` a wish; the other arguments and options, for compatibility, must be what the program says.
    Raises: TypeError for a program with constants, which the function would have to contain.
    """
    if jaxpr.consts:
        raise TypeError(f"lower_jaxpr_to_fun: {name} closes over {len(jaxpr.consts)} arrays; pass them as arguments")
    symbol = ctx._builder.function(jaxpr.jaxpr, name)
    return next(each for each in ctx.module.body.operations if symbol_of(each) == symbol)


def symbol_of(operation: Any) -> str | None:
    """The name of a function of a module."""
    attributes = operation.operation.attributes
    return xla.ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else None


def lower_jaxpr_to_module(module_name: str, jaxpr: ClosedJaxpr, *, platforms: Sequence[str], **options: Any) -> LoweringResult:
    """A module whose `main` is a program, for one device.

    Args: `platforms` one platform, such as "cpu"; of the options, `donated_args` counts, and `lowering_parameters` for its
      `override_lowering_rules` must have none.
    Raises: ValueError for several platforms, or rules to override: `jax.export` and `register_lowering` are there for these.
    """
    parameters = options.get("lowering_parameters")
    if len(platforms) != 1 or getattr(parameters, "override_lowering_rules", None):
        raise ValueError("lower_jaxpr_to_module lowers for one platform, by the rules that are registered; got platforms "
                         f"{list(platforms)}: use jax.export for several")
    donated = options.get("donated_args") or [False] * len(jaxpr.jaxpr.invars)
    lowered = lower(jaxpr.jaxpr, module_name.removeprefix("jit_"), platform=_canonical(platforms[0]), is_hidden=is_hidden_file,
                    donated=list(donated), keep_unused=True, constants=list(map(np.asarray, jaxpr.consts)))
    return LoweringResult(lowered.module, lowered, lowered.host_functions, ShapePolyLoweringState((), None))


def _canonical(platform: str) -> str:
    return platforms.canonical_name(platform)


class ConstantHandler(Protocol):
    """The type of handlers for `register_constant_handler`: `handler(value, aval)` gives MLIR values."""

    def __call__(self, val: Any, aval: Any) -> Sequence[Any]: ...


def register_constant_handler(type_: type, handler_fun: Callable[..., Any]) -> None:
    """Say how values of a class become constants of a module: `handler_fun(value, aval)` gives one MLIR value."""
    if not isinstance(type_, type) or not callable(handler_fun):
        raise TypeError(f"register_constant_handler takes a class and a function, got {type_!r} and {handler_fun!r}")
    constant_makers[type_] = handler_fun


def unflatten_ir_values_like_types(xs: Iterable[Any], ys: Sequence[Any]) -> list[Any]:
    """A list of values in groups, as types are grouped: one for a type, a tuple for a sequence of them."""
    rest = iter(xs)
    return [tuple(next(rest) for _ in each) if isinstance(each, (tuple, list)) else next(rest) for each in ys]


def merge_mlir_modules(dst_module: Any, sym_name: str, src_module: Any, dst_symtab: Any = None) -> str:
    """Move the functions of a module into another; gives the symbol that its `main` has there.

    Args: `sym_name` a wish for that; names that are taken get a number. `dst_symtab` the symbols of the module that is merged
      into, if they are at hand.
    """
    ir = xla.ir
    assert dst_module.context == src_module.context, "the modules are of two contexts"
    source = ir.Module.parse(str(src_module), dst_module.context) if dst_module is src_module else src_module
    taken = {symbol_of(each) for each in dst_module.body.operations}
    renames: dict[str, str] = {}
    for each in source.body.operations:
        old = symbol_of(each)
        assert old is not None
        wish = sym_name if old == "main" else old
        new, count = wish, 0
        while new in taken:
            count += 1
            new = f"{wish}_{count}"
        taken.add(new)
        renames[old] = new
    table = ir.SymbolTable(source.operation)
    temporary = {old: f"merged.{index}.{old}" for index, old in enumerate(renames)}
    for step in (temporary, {temporary[old]: new for old, new in renames.items()}):  # in two steps, so that none meets another
        for old, new in step.items():
            ir.SymbolTable.replace_all_symbol_uses(old, new, source.operation)
            ir.SymbolTable.set_symbol_name(table[old], new)
            table = ir.SymbolTable(source.operation)
    for each in list(source.body.operations):
        ir.SymbolTable.set_visibility(each.operation, "private")
        dst_module.body.append(each)
        if dst_symtab is not None:
            dst_symtab.insert(each)
    return renames["main"]
