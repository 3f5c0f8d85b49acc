"""Effects of equations beside their results. An equation with effects is not dead code."""

from __future__ import annotations

from typing import Any


class Effect:
    """One kind of effect.

    Attributes: `ordered`, whether such effects happen in the order of the program; `harmless`, whether they may also
    happen more often: where a step is computed again, or for examples of a batch that do not take it.
    """

    __slots__ = ("name", "ordered", "harmless")

    def __init__(self, name: str = "", ordered: bool = False, harmless: bool = False):
        self.name, self.ordered, self.harmless = name or type(self).__name__, ordered, harmless

    def __repr__(self) -> str:
        return self.name


class DebugEffect(Effect):
    """The effect of debug callbacks, which may run in any order."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("Debug", False, True)


class OrderedDebugEffect(Effect):
    """The effect of debug callbacks that run in program order."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("OrderedDebug", True, True)


IO = {False: Effect("IO", False, False), True: Effect("OrderedIO", True, False)}  # by whether they are ordered
DEBUG: dict[bool, Effect] = {False: DebugEffect(), True: OrderedDebugEffect()}


REF = Effect("Ref", False, True)  # mutable arrays are made, read or written; discharged before lowering


class EffectTypeSet:
    """Classes of effects that something allows."""

    def __init__(self, *types: type[Effect]) -> None:
        self._types: set[type] = set(types)

    def add_type(self, effect_type: type[Effect]) -> None:
        """Allow effects of a class, and of those made from it."""
        self._types.add(effect_type)

    def contains(self, effect: Any) -> bool:
        """Whether an effect is allowed."""
        return isinstance(effect, tuple(self._types))

    def filter_not_in(self, effects: Any) -> list[Any]:
        """Those that are not."""
        return [effect for effect in effects if not self.contains(effect)]


control_flow_allowed_effects = EffectTypeSet()  # of libraries, that loops and branches may have


def check_harmless(effects: Any, where: str) -> None:
    """Raises NotImplementedError if a program that is run more often than it says has effects that count."""
    for effect in effects:
        if isinstance(effect, Effect) and not effect.harmless and not control_flow_allowed_effects.contains(effect):
            raise NotImplementedError(f"{effect.name} effects are not supported in {where}: they would run more "
                                      "often than in the program")
