"""What JAX has pickled: the classes and functions that its pickles name, where they make what jaxlite makes in other ways.

Pickle makes an object of a named class without arguments and fills it with its state later, so a class of this file is the
class of what is read, unless its `__new__` has all that it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxlite.core import array as arrays
from jaxlite.devices import sharding as shardings
from jaxlite.devices.sharding import AutoLayout
from jaxlite.random import prng
from jaxlite.transforms.checkpoint import checkpoint_policies as policies


def _reconstruct_array(make: Callable[..., Any], args: tuple[Any, ...], state: Any, aval_state: dict[str, Any]) -> Any:
    """The array whose data is the NumPy array that `make` makes and `state` fills; `aval_state` has its weak type."""
    value = make(*args)
    value.__setstate__(state)
    return arrays.rebuild(value, aval_state.get("weak_type", False))


def _get_default_unconstrained() -> Any:
    return shardings.UNCONSTRAINED


def _unpickle_named_sharding(mesh: Any, spec: Any, memory_kind: str | None, logical_device_ids: Any = None) -> Any:
    return shardings.NamedSharding(mesh, spec, memory_kind=memory_kind)


class AutoLayoutSingleton:
    """`Layout.AUTO`."""

    def __new__(cls) -> AutoLayout:  # type: ignore[misc]
        return AutoLayout.AUTO


# --- keys --------------------------------------------------------------------------------------------


class PRNGImpl:
    """A generator: of what JAX says of it (its functions are among that), the name."""

    def __new__(cls, key_shape: Any, seed: Any, split: Any, random_bits: Any, fold_in: Any,  # type: ignore[misc]
                name: str = "<unnamed>", tag: str = "?") -> prng.Implementation:
        return prng.implementation(name)


class KeyTy(prng.KeyDType):
    """The dtype of keys; equal to the one dtype of its generator's keys."""

    def __init__(self) -> None:  # `__setstate__` fills it
        pass

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(state["_impl"].dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, prng.KeyDType) and other.impl is self.impl

    def __hash__(self) -> int:
        return hash(self.impl.dtype)


# --- policies of checkpoint --------------------------------------------------------------------------


everything_saveable = policies.everything_saveable
nothing_saveable = policies.nothing_saveable
dots_saveable = policies.dots_saveable
dots_with_no_batch_dims_saveable = policies.dots_with_no_batch_dims_saveable


@dataclasses.dataclass(frozen=True)
class DotsSaveable:
    """JAX's object for `dots_saveable` and `dots_with_no_batch_dims_saveable`."""

    only_if_no_batch_dims: bool = False

    def __call__(self, primitive: Any, *avals: Any, **params: Any) -> Any:
        policy = dots_with_no_batch_dims_saveable if self.only_if_no_batch_dims else dots_saveable
        return policy(primitive, *avals, **params)


@dataclasses.dataclass(frozen=True)
class SaveOnlyTheseNames:
    """JAX's object for `save_only_these_names(...)`."""

    saveable_names: frozenset[str] = frozenset()

    def __call__(self, primitive: Any, *avals: Any, **params: Any) -> Any:
        return policies.save_only_these_names(*self.saveable_names)(primitive, *avals, **params)


@dataclasses.dataclass(frozen=True)
class SaveAnyNamesButThese:
    """JAX's object for `save_any_names_but_these(...)`."""

    names: frozenset[str] = frozenset()

    def __call__(self, primitive: Any, *avals: Any, **params: Any) -> Any:
        return policies.save_any_names_but_these(*self.names)(primitive, *avals, **params)
