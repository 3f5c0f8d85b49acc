"""The option `debug_key_reuse`: using a random key twice raises KeyReuseError.

It applies to typed keys; slices of an array of keys are tracked element by element. The signature of a program says which
inputs it consumes, and what its outputs are. A concrete key stores in `_consumed` which part of it was used: False, True,
or a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.errors import KeyReuseError
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, once_for_each

Mask = Any  # bool for all or nothing, or an array of bool of the keys' shape


class Signature(NamedTuple):
    """What a program or an operation does with keys, by position.

    `sinks` are inputs with what is consumed of them, `forwards` outputs that are some input, `used` outputs that are consumed.
    """

    sinks: dict[int, Mask]
    forwards: dict[int, int]
    used: dict[int, Mask]

    def __str__(self) -> str:
        return f"KeyReuseSignature({', '.join(f'Sink({index})' for index in sorted(self.sinks))},)"


_NOTHING = Signature({}, {}, {})
# What hands a key on, and what makes other ones of it or looks at it. All else consumes its keys.
_FORWARDING = frozenset((
    "copy", "copy_p", "device_put", "stop_gradient", "squeeze", "dynamic_slice", "gather", "sharding_constraint", "reshard",
    "convert_element_type", "pvary", "reshape", "expand_dims", "broadcast_in_dim"))
_HARMLESS = frozenset((
    "random_clone", "random_fold_in", "random_unwrap", "random_seed", "random_wrap", "eq", "ne", "debug_callback",
    "shape_as_value"))


def _is_key(atom: Any) -> bool:
    return isinstance(getattr(atom.aval, "dtype", None), dtypes.ExtendedDType) and dtypes.issubdtype(atom.aval.dtype,
                                                                                                     dtypes.prng_key)


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _both(one: Mask, other: Mask) -> Mask:
    return (one or other) if isinstance(one, bool) and isinstance(other, bool) else np.logical_or(one, other)


def _meet(one: Mask, other: Mask) -> bool:
    return bool(np.any(np.logical_and(one, other)))


def _fitting(mask: Mask, shape: Sequence[int]) -> Mask:
    """The mask of a key that another one hands on: of the same elements in another shape, else of all."""
    if isinstance(mask, bool) or mask.shape == tuple(shape):
        return mask
    return mask.reshape(shape) if mask.size == np.prod(shape) else bool(mask.any())


class _Keys:
    """The keys of a program that is walked through: which variables are the same key, what is consumed."""

    def __init__(self) -> None:
        self.roots: dict[Any, Any] = {}
        self.consumed: dict[Any, Mask] = {}

    def root(self, atom: Any) -> Any:
        return self.roots.get(atom, atom)

    def consume(self, eqn: JaxprEqn, index: int, mask: Mask) -> None:
        root = self.root(eqn.invars[index])
        mask = _fitting(mask, root.aval.shape)
        before = self.consumed.get(root, False)
        if _meet(before, mask):
            raise KeyReuseError(f"In {eqn.primitive.name}, argument {index} is already consumed.")
        self.consumed[root] = _both(before, mask)


@once_for_each
def signature(jaxpr: Jaxpr) -> Signature:
    """The signature of a program; its inputs are its constvars and invars.

    Raises: KeyReuseError if it uses a key twice.
    """
    keys = _Keys()
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    for eqn in jaxpr.eqns:
        own = _of_eqn(eqn)
        for index, mask in own.sinks.items():
            if type(eqn.invars[index]) is not Literal:
                keys.consume(eqn, index, mask)
        for out, index in own.forwards.items():
            keys.roots[eqn.outvars[out]] = keys.root(eqn.invars[index])
        for out, mask in own.used.items():
            if out not in own.forwards:
                keys.consumed[eqn.outvars[out]] = mask
    positions = {var: index for index, var in enumerate(inputs)}
    outs = [(index, keys.root(atom)) for index, atom in enumerate(jaxpr.outvars) if type(atom) is not Literal and _is_key(atom)]
    return Signature({positions[var]: mask for var, mask in keys.consumed.items() if var in positions},
                     {index: positions[root] for index, root in outs if root in positions},
                     {index: _fitting(keys.consumed[root], _shape(jaxpr.outvars[index])) for index, root in outs
                      if root in keys.consumed})


def _of_eqn(eqn: JaxprEqn) -> Signature:
    name, params = eqn.primitive.name, eqn.params
    if name in _RULES:
        return _RULES[name](eqn)
    taken = [index for index, atom in enumerate(eqn.invars) if _is_key(atom)]
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    if isinstance(inner, ClosedJaxpr) and len(inner.jaxpr.invars) == len(eqn.invars) and not inner.jaxpr.constvars:
        return signature(inner.jaxpr)
    if not taken or name in _HARMLESS:
        return _NOTHING
    if name in _FORWARDING:
        return Signature({}, {0: taken[0]}, {})
    return Signature(dict.fromkeys(taken, True), {}, {})


def _of_slice(eqn: JaxprEqn) -> Signature:
    params = eqn.params
    if not _is_key(eqn.invars[0]):
        return _NOTHING
    mask: Any = np.zeros(_shape(eqn.invars[0]), np.bool_)
    strides = params["strides"] or (1,) * mask.ndim
    mask[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))] = True
    return Signature({0: mask}, {}, {})


def _of_cond(eqn: JaxprEqn) -> Signature:
    branches = [signature(branch.jaxpr) for branch in eqn.params["branches"]]
    sinks: dict[int, Mask] = {}
    used: dict[int, Mask] = {}
    for branch in branches:
        for index, mask in branch.sinks.items():
            sinks[index + 1] = _both(sinks.get(index + 1, False), mask)
        for index, mask in branch.used.items():
            used[index] = _both(used.get(index, False), mask)
    forwards = {out: index + 1 for out, index in branches[0].forwards.items()
                if all(branch.forwards.get(out) == index for branch in branches)}
    return Signature(sinks, forwards, used)


def _repeats(sinks: Sequence[int], body: Signature, first: int) -> bool:
    """Whether a body that consumes these inputs would do so again in the next step; the carry starts at `first`."""
    return any(index - first in body.used or index - first in body.forwards for index in sinks)


def _of_scan(eqn: JaxprEqn) -> Signature:
    params = eqn.params
    body = signature(params["jaxpr"].jaxpr)
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    what = f"  signature={body}\n  eqn={eqn}"
    if any(index < num_consts for index in body.sinks):
        raise KeyReuseError("scan body function leads to key reuse when repeatedly executed, because key constants are "
                            f"repeatedly consumed:\n{what}")
    carried = [index for index in body.sinks if index < num_consts + num_carry]
    if _repeats(carried, body, num_consts):
        raise KeyReuseError("scan body function leads to key reuse when repeatedly executed, because consumed inputs don't "
                            f"match sourced outputs:\n{what}")
    return Signature(dict.fromkeys(body.sinks, True), {}, {out: True for out in body.used if out >= num_carry})


def _of_while(eqn: JaxprEqn) -> Signature:
    params = eqn.params
    cond_consts, body_consts = params["cond_nconsts"], params["body_nconsts"]
    condition, body = signature(params["cond_jaxpr"].jaxpr), signature(params["body_jaxpr"].jaxpr)
    if any(index < body_consts for index in body.sinks) or _repeats([*body.sinks], body, body_consts):
        raise KeyReuseError("while_loop body function leads to key reuse when repeatedly executed:   "
                            f"body_signature={body}\n  eqn={eqn}")
    if {index - cond_consts for index in condition.sinks} & {index - body_consts for index in body.sinks}:
        raise KeyReuseError("while_loop cond and body functions both use the same key:   "
                            f"cond_signature={condition}\n  body_signature={body}\n  eqn={eqn}")
    if condition.sinks:
        raise KeyReuseError("while_loop cond function leads to key reuse when repeatedly executed:   "
                            f"cond_signature={condition}\n  eqn={eqn}")
    return Signature({index + cond_consts: True for index in body.sinks}, {}, {})


_RULES: dict[str, Callable[[JaxprEqn], Signature]] = {
    "slice": _of_slice, "cond": _of_cond, "scan": _of_scan, "while": _of_while}


def check_call(name: str, closed: ClosedJaxpr, leaves: Sequence[Any]) -> Callable[[Sequence[Any]], None]:
    """Look at the keys that go into a call of a program; what is given notes what it consumed, for its flat results.

    Raises: KeyReuseError for keys that were used before, or that the program uses twice.
    """
    own = signature(closed.jaxpr)
    values = [*closed.consts, *leaves]
    count = len(closed.consts)
    for index, mask in own.sinks.items():
        check(name, values[index], index - count if index >= count else index, mask)
    before = {out: getattr(values[index], "_consumed", False) for out, index in own.forwards.items()}

    def note(outs: Sequence[Any]) -> None:
        for index, mask in own.sinks.items():
            consume(values[index], mask)
        for out, mask in before.items():
            consume(outs[out], mask)
        for out, mask in own.used.items():
            consume(outs[out], mask)

    return note


def check(name: str, key: Any, index: int = 0, mask: Mask = True) -> None:
    """Raises: KeyReuseError if a concrete key, that `name` takes at `index`, was used before."""
    if _meet(getattr(key, "_consumed", False), mask):
        raise KeyReuseError(f"Previously-consumed key passed to {name} at index {index}")


def consume(key: Any, mask: Mask = True) -> None:
    """Note that a concrete key is used."""
    if hasattr(key, "_consumed"):
        key._consumed = _both(key._consumed, mask)
