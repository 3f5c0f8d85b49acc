"""Mutable arrays: `new_ref` makes a Ref; `ref[index]` reads and writes it, these functions do the rest."""

from jaxlite.core.aval import AbstractRef
from jaxlite.core.refs import Ref
from jaxlite.state.api import addupdate, empty_ref, free_ref, freeze, get, new_ref, set, swap

__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]
