"""Boxes: values that hold a replaceable pytree, also in traced functions. An example of a high type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxlite.core.effects import Effect, control_flow_allowed_effects
from jaxlite.core.high import (
    AvalMutableQDD,
    AvalQDD,
    MutableHiType,
    aval_method,
    cur_qdd,
    is_high_value,
    raised,
    register_hitype,
)
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.extend.hi_primitives import HiPrimitive
from jaxlite.traces.jvp import Zero, instantiate


class BoxEffect(Effect):
    """The effect of operations that make, read or change boxes."""

    __slots__ = ()


box_effect = BoxEffect("Box", harmless=True)


@dataclass(frozen=True)
class BoxTypeState:
    """The contents of a box at the moment: the types of the leaves, and the tree."""

    leaf_avals: tuple[Any, ...]
    treedef: Any

    def to_tangent_qdd(self) -> BoxTypeState:
        return BoxTypeState(tuple(aval.to_tangent_aval() for aval in self.leaf_avals), self.treedef)

    def normalize(self) -> BoxTypeState:
        return BoxTypeState(tuple(aval.normalize() for aval in self.leaf_avals), self.treedef)


class BoxTy(MutableHiType):
    """The type of all boxes; what they hold is their state."""

    __slots__ = ()
    get = aval_method(lambda box: box_get(box))
    set = aval_method(lambda box, value: box_set(box, value))

    def __hash__(self) -> int:
        return hash(BoxTy)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, BoxTy)

    def __repr__(self) -> str:
        return "BoxTy()"

    def str_short(self, short_dtypes: bool = False, **options: Any) -> str:
        return "BoxTy"

    def lo_ty_qdd(self, state: Any, /) -> list[Any]:
        return [low for aval in state.leaf_avals for low in aval.lo_ty()]

    @staticmethod
    def _raised(state: Any, arrays: Any) -> tuple[Any, ...]:
        rest = iter(arrays)
        return tuple([raised(aval, rest) for aval in state.leaf_avals])

    def new_from_loval(self, state: Any, /, *vals: Any) -> Box:
        return Box._holding(self._raised(state, vals), state.treedef)

    def read_loval(self, state: Any, val: Any, /) -> list[Any]:
        return [low for aval, leaf in zip(state.leaf_avals, val._leaves, strict=True) for low in aval.lower_val(leaf)]

    def update_from_loval(self, state: Any, val: Any, /, *lo_vals: Any) -> None:
        val._leaves, val._tree = self._raised(state, lo_vals), state.treedef

    def to_tangent_aval(self) -> BoxTy:
        return self


class _BoxMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or (
            isinstance(instance, Tracer) and is_high_value(instance) and isinstance(aval_of(instance), BoxTy))


class Box(metaclass=_BoxMeta):
    """A place that holds a pytree. Functions may read and replace it, also traced ones that it is passed to.

    >>> import jaxlite
    >>> box = Box(1.0)
    >>> @jaxlite.jit
    ... def add(box, x):
    ...     box.set((box.get(), x))
    >>> add(box, 2.0)
    >>> box.get()
    (Array(1., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """

    _leaves: tuple[Any, ...]
    _tree: Any

    def __new__(cls, init_val: Any = None) -> Any:
        made = new_box()
        box_set(made, init_val)
        return made

    @classmethod
    def _holding(cls, leaves: tuple[Any, ...], tree: Any) -> Box:
        made = object.__new__(cls)
        made._leaves, made._tree = leaves, tree
        return made

    def get(self) -> Any:
        """The contents."""
        return box_get(self)

    def set(self, val: Any) -> None:
        """Replace what it holds."""
        box_set(self, val)

    def cur_qdd(self) -> BoxTypeState:
        """The types of what it holds."""
        return BoxTypeState(tuple(map(aval_of, self._leaves)), self._tree)

    type_state = cur_qdd

    @property
    def ty(self) -> BoxTy:
        """The type of boxes."""
        return BoxTy()


register_hitype(Box, lambda box: BoxTy())


class _NewBox(HiPrimitive):
    def abstract_eval(self, *, treedef: Any) -> Any:
        return AvalQDD(BoxTy(), BoxTypeState((), treedef)), {box_effect}

    def to_lojax(self, *, treedef: Any) -> Any:
        return Box._holding((), treedef)

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> Any:
        box = new_box()
        return box, Zero(BoxTy())


class _BoxSet(HiPrimitive):
    multiple_results = True

    def abstract_eval(self, box: AvalMutableQDD, *avals: Any, treedef: Any) -> Any:
        box.mutable_qdd.update(BoxTypeState(tuple(avals), treedef))
        return [], {box_effect}

    def to_lojax(self, box: Any, *leaves: Any, treedef: Any) -> list[Any]:
        box._leaves, box._tree = leaves, treedef
        return []

    def jvp(self, primals: Any, tangents: Any, *, treedef: Any) -> Any:
        if type(tangents[0]) is Zero:
            raise Exception("can't differentiate Box.set operation, did you forget jax.lax.stop_gradient?")
        box_set_p.bind(*primals, treedef=treedef)
        box_set_p.bind(tangents[0], *map(instantiate, tangents[1:]), treedef=treedef)
        return [], []


class _BoxGet(HiPrimitive):
    multiple_results = True

    def abstract_eval(self, box: AvalMutableQDD, *, avals: Any) -> Any:
        return list(avals), {box_effect}

    def to_lojax(self, box: Any, *, avals: Any) -> list[Any]:
        return list(box._leaves)

    def jvp(self, primals: Any, tangents: Any, *, avals: Any) -> Any:
        return (box_get_p.bind(*primals, avals=avals),
                box_get_p.bind(*tangents, avals=tuple(aval.to_tangent_aval() for aval in avals)))


new_box_p, box_set_p, box_get_p = _NewBox("new_box"), _BoxSet("box_set"), _BoxGet("box_get")


def new_box() -> Any:
    """A box that holds nothing."""
    return new_box_p.bind(treedef=tree_flatten(None)[1])


def box_set(box: Any, val: Any) -> None:
    """Replace what a box holds."""
    leaves, tree = tree_flatten(val)
    box_set_p.bind(box, *leaves, treedef=tree)


def box_get(box: Any) -> Any:
    """The contents of a box."""
    now = cur_qdd(box)
    return tree_unflatten(now.treedef, box_get_p.bind(box, avals=tuple(now.leaf_avals)))


control_flow_allowed_effects.add_type(BoxEffect)
