"""Effects: what a program does beside computing its results. Those of an equation keep it from being dropped as dead."""

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


IO = {False: Effect("IO", False, False), True: Effect("OrderedIO", True, False)}  # by whether they are ordered
DEBUG = {False: Effect("Debug", False, True), True: Effect("OrderedDebug", True, True)}


REF = Effect("Ref", False, True)  # mutable arrays are made, read or written; discharged before lowering


def check_harmless(effects: Any, where: str) -> None:
    """Raises NotImplementedError if a program that is run more often than it says has effects that count."""
    for effect in effects:
        if isinstance(effect, Effect) and not effect.harmless:
            raise NotImplementedError(f"{effect.name} effects are not supported in {where}: they would happen more "
                                      "often than the program says")
