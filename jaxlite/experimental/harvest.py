"""harvest: read and replace the values that a function sows (`jaxlite.experimental.unzip.sow`).

The function is traced and its program is evaluated, equation by equation: a sown value with the tag is recorded, or
replaced by a planted one. Calls, loops and branches that sow values get planted values as additional operands and return
reaped values as additional results. Values inside functions with custom derivatives are not visible.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.dispatch import constrained, said_of
from jaxlite.compilation.jit import jit
from jaxlite.compilation.options import check_callable
from jaxlite.compilation.program import trace_call
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import Jaxpr, JaxprEqn, Literal, jaxprs_in_params
from jaxlite.core.tree import tree_flatten, tree_map
from jaxlite.lax.control_flow.cond import switch
from jaxlite.lax.control_flow.loop_rules import until_all_stop
from jaxlite.lax.control_flow.scan import scan
from jaxlite.lax.control_flow.while_loop import while_loop
from jaxlite.lax.shaping import concatenate, convert_element_type, expand_dims, full, reshape
from jaxlite.lax.slicing import index_in_dim, slice_in_dim
from jaxlite.traces.sown import nest_p, sow_p
from jaxlite.transforms.checkpoint import checkpoint
from jaxlite.transforms.make_jaxpr import eval_shape

__all__ = ["call_and_reap", "harvest", "plant", "reap"]
__dir__ = lambda: __all__

Path = tuple[Any, ...]  # the scopes, then the name
Reaps = dict[Path, tuple[str, Any]]  # the mode and the value


def harvest(f: Callable, *, tag: Any, allowlist: Container[Any] | None = None, blocklist: Container[Any] = (),
            exclusive: bool = False) -> Callable[..., tuple[Any, dict[Any, Any]]]:
    """A function that takes values to plant and gives, beside the result, the values that `f` sows.

    Args:
      f: a function of pytrees that sows.
      tag: the tag of the values that are meant.
      allowlist: their names; None for all. `blocklist`: names that are not meant.
      exclusive: do not give the values that are planted.

    Returns: `harvested(plants, *args, **kwargs) -> (result, reaps)`. Both dictionaries go from names to values, with
      dictionaries inside for the scopes of `nest`. Where `plants` has a name, its value takes the place of the one sown.
      A name that is sown several times, or in a loop: mode "append" gives its values along a new leading axis, and takes
      them so; "clobber" gives the last one.
    Raises: ValueError if a name of mode "strict" is sown twice or in a loop, and if branches sow different names.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental.unzip import harvest, sow
    >>> def f(x):
    ...     return sow(x + 1, tag="middle", name="y") * 2
    >>> harvest(f, tag="middle")({}, 1), harvest(f, tag="middle")({"y": 10}, 1)[0]
    ((Array(4, dtype=int32, weak_type=True), {'y': Array(2, dtype=int32, weak_type=True)}), Array(20, ...))
    """
    if tag is None:
        raise ValueError("Must provide sow tag")
    check_callable(f)
    harvester = _Harvester(tag, allowlist, blocklist, exclusive)

    @boundary
    def harvested(plants: dict[Any, Any], *args: Any, **kwargs: Any) -> tuple[Any, dict[Any, Any]]:
        jaxpr, consts, leaves, (_, out_tree) = trace_call("harvest", f, args, kwargs)
        given = {path: _lookup(plants, path) for path in harvester.sown(jaxpr, ())}
        given = {path: value for path, value in given.items() if value is not _absent}
        outs, reaps = harvester.run(jaxpr, consts, leaves, (), _Plants(given))
        return out_tree.unflatten(outs), _nested(reaps)

    return harvested


def call_and_reap(f: Callable, *, tag: Any, allowlist: Container[Any] | None = None,
                  blocklist: Container[Any] = ()) -> Callable[..., tuple[Any, dict[Any, Any]]]:
    """A function that gives the result of `f` and a dictionary of the values it sows. The arguments are `harvest`'s."""
    harvested = harvest(f, tag=tag, allowlist=allowlist, blocklist=blocklist)
    return lambda *args, **kwargs: harvested({}, *args, **kwargs)


def reap(f: Callable, *, tag: Any, allowlist: Container[Any] | None = None,
         blocklist: Container[Any] = ()) -> Callable[..., dict[Any, Any]]:
    """A function that gives a dictionary of the values that `f` sows. The arguments are `harvest`'s."""
    harvested = harvest(f, tag=tag, allowlist=allowlist, blocklist=blocklist)
    return lambda *args, **kwargs: harvested({}, *args, **kwargs)[1]


def plant(f: Callable, *, tag: Any, allowlist: Container[Any] | None = None, blocklist: Container[Any] = ()) -> Callable:
    """A function of a dictionary and the arguments of `f` that gives the result of `f` with the dictionary's values in
    place of those sown. The arguments are `harvest`'s."""
    harvested = harvest(f, tag=tag, allowlist=allowlist, blocklist=blocklist)
    return lambda plants, *args, **kwargs: harvested(plants, *args, **kwargs)[0]


_absent = object()


def _lookup(plants: Any, path: Path) -> Any:
    for part in path:
        if not isinstance(plants, dict) or part not in plants:
            return _absent
        plants = plants[part]
    return plants


def _nested(reaps: Reaps) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for path, (_, value) in reaps.items():
        place = result
        for scope in path[:-1]:
            place = place.setdefault(scope, {})
        place[path[-1]] = value
    return result


class _Plants:
    """Values to plant. Those of mode "append" are rows, taken one after the other."""

    def __init__(self, values: dict[Path, Any]):
        self.values = values
        self.taken: dict[Path, int] = {}

    def rows(self, path: Path, count: int) -> Any:
        start = self.taken.get(path, 0)
        self.taken[path] = start + count
        for leaf in tree_flatten(self.values[path])[0]:
            shape = np.shape(leaf)
            if not shape or shape[0] < start + count:
                raise ValueError(f"what is planted for {_shown(path)} has the shape {shape}; mode 'append' takes it by rows, "
                                 f"and it is sown {start + count} times or more")
        return tree_map(lambda leaf: slice_in_dim(leaf, start, start + count), self.values[path])


def _shown(path: Path) -> str:
    return repr("/".join(map(str, path)))


def _note(reaps: Reaps, path: Path, mode: str, value: Any) -> None:
    """Add what was reaped: for "append" rows."""
    if path in reaps:
        before, values = reaps[path]
        if mode == "strict" or before != mode:
            raise ValueError(f"Variable has already been reaped: {_shown(path)}. Sow it with mode='append' or mode='clobber', "
                             "or give it another name.")
        if mode == "append":
            value = tree_map(lambda old, new: concatenate([old, new], 0), values, value)
    reaps[path] = mode, value


class _Harvester:
    """Runs programs while it looks for sown values."""

    def __init__(self, tag: Any, allowlist: Container[Any] | None, blocklist: Container[Any], exclusive: bool):
        self.tag, self.allowlist, self.blocklist, self.exclusive = tag, allowlist, blocklist, exclusive
        self._sown: dict[tuple[Jaxpr, Path], dict[Path, tuple[str, int]]] = {}

    def means(self, eqn: JaxprEqn) -> bool:
        if eqn.primitive is not sow_p or eqn.params["tag"] != self.tag:
            return False
        name = eqn.params["name"]
        return (self.allowlist is None or name in self.allowlist) and name not in self.blocklist

    def sown(self, jaxpr: Jaxpr, scope: Path) -> dict[Path, tuple[str, int]]:
        """The paths that a program sows, each with its mode and how many times."""
        if (jaxpr, scope) in self._sown:  # it is called elsewhere too
            return self._sown[jaxpr, scope]
        found: dict[Path, tuple[str, int]] = {}
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            if self.means(eqn):
                path, mode = (*scope, eqn.params["name"]), eqn.params["mode"]
                found[path] = mode, found.get(path, (mode, 0))[1] + 1
            elif name in self.rules:
                inner = (*scope, eqn.params["name"]) if eqn.primitive is nest_p else scope
                programs = list(jaxprs_in_params(eqn.params))
                for sub in programs[:1] if name == "cond" else programs:
                    for path, (mode, count) in self.sown(sub, inner).items():
                        found[path] = mode, found.get(path, (mode, 0))[1] + count * eqn.params.get("length", 1)
        self._sown[jaxpr, scope] = found
        return found

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], scope: Path,
            plants: _Plants) -> tuple[list[Any], Reaps]:
        """The results of a program, and what it sowed."""
        env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        reaps: Reaps = {}
        for eqn in map(until_all_stop, jaxpr.eqns):
            values = [atom.val if type(atom) is Literal else env[atom] for atom in eqn.invars]
            rule = self.rules.get(eqn.primitive.name)
            if self.means(eqn):
                outs = self.sow(eqn, values, scope, plants, reaps)
            elif rule is not None and any(self.sown(sub, scope) for sub in jaxprs_in_params(eqn.params)):
                outs, inner = rule(self, eqn, values, scope, plants)
                for path, (mode, value) in inner.items():
                    _note(reaps, path, mode, value)
            else:
                outs = eqn.primitive.bind(*values, **eqn.params)
                outs = outs if eqn.primitive.multiple_results else [outs]
            env.update(zip(eqn.outvars, outs, strict=True))
        return [atom.val if type(atom) is Literal else env[atom] for atom in jaxpr.outvars], reaps

    def sow(self, eqn: JaxprEqn, values: list[Any], scope: Path, plants: _Plants, reaps: Reaps) -> list[Any]:
        params = eqn.params
        path, mode, tree = (*scope, params["name"]), params["mode"], params["tree"]
        outs, planted = values[:params["count"]], path in plants.values
        if planted:
            value = plants.values[path]
            if mode == "append":
                value = tree_map(lambda leaf: index_in_dim(leaf, 0, keepdims=False), plants.rows(path, 1))
            outs, given = tree_flatten(value)
            if given != tree:
                raise ValueError(f"what is planted for {_shown(path)} is a pytree {given}, what is sown {tree}")
        if not (planted and self.exclusive):
            value = tree.unflatten(outs)
            _note(reaps, path, mode, tree_map(lambda leaf: expand_dims(leaf, (0,)), value) if mode == "append" else value)
        return list(outs)

    # --- calls, loops, branches: each gives the results of an equation and what was reaped in it

    def inside(self, jaxpr: Jaxpr, scope: Path, paths: list[Path], noted: Reaps) -> Callable:
        """A function of planted values, for these paths, and operands, which gives results and reaped values. `noted`
        gets the paths and modes of the latter when it is traced."""

        def run(planted: Sequence[Any], *operands: Any) -> tuple[list[Any], list[Any]]:
            outs, reaps = self.run(jaxpr, [], operands, scope, _Plants(dict(zip(paths, planted, strict=True))))
            noted.clear()
            noted.update({path: (mode, None) for path, (mode, _) in reaps.items()})
            return outs, [value for _, value in reaps.values()]

        return run

    def planted(self, jaxpr: Jaxpr, scope: Path, plants: _Plants) -> tuple[list[Path], list[Any]]:
        """The plants that a program takes: paths and values."""
        taken = {path: plants.rows(path, count) if mode == "append" else plants.values[path]
                 for path, (mode, count) in self.sown(jaxpr, scope).items() if path in plants.values}
        return list(taken), list(taken.values())

    def call(self, eqn: JaxprEqn, values: list[Any], scope: Path, plants: _Plants) -> tuple[list[Any], Reaps]:
        params, jaxpr = eqn.params, eqn.params["jaxpr"].jaxpr
        if eqn.primitive is nest_p:
            return self.run(jaxpr, [], values, (*scope, params["name"]), plants)
        paths, given = self.planted(jaxpr, scope, plants)
        noted: Reaps = {}
        run = self.inside(jaxpr, scope, paths, noted)
        if eqn.primitive.name == "jit":
            run.__name__ = params["name"]
            ins, made = said_of(params, len(values), len(eqn.outvars))
            outs, reaped = jit(run)(given, *constrained(values, ins))
            outs = constrained(outs, made)
        else:
            outs, reaped = checkpoint(run, prevent_cse=params["prevent_cse"], policy=params["policy"])(given, *values)
        return outs, _named(noted, reaped)

    def cond(self, eqn: JaxprEqn, values: list[Any], scope: Path, plants: _Plants) -> tuple[list[Any], Reaps]:
        branches = [branch.jaxpr for branch in eqn.params["branches"]]
        sown = [self.sown(branch, scope) for branch in branches]
        if any(each != sown[0] for each in sown):
            names = [", ".join(map(_shown, each)) or "nothing" for each in sown]
            raise ValueError(f"the branches of a {eqn.primitive.name} at {eqn.source_line} do not sow the same names: "
                             + "; ".join(names))
        paths, given = self.planted(branches[0], scope, plants)
        noted: Reaps = {}
        index, *operands = values
        outs, reaped = switch(convert_element_type(index, np.dtype(np.int32)),
                              [self.inside(branch, scope, paths, noted) for branch in branches], given, *operands)
        return outs, _named(noted, reaped)

    def scan(self, eqn: JaxprEqn, values: list[Any], scope: Path, plants: _Plants) -> tuple[list[Any], Reaps]:
        params, jaxpr = eqn.params, eqn.params["jaxpr"].jaxpr
        sown, length = self.sown(jaxpr, scope), params["length"]
        self.check_no_strict(eqn, sown)
        paths = [path for path in sown if path in plants.values]
        by_row = [path for path in paths if sown[path][0] == "append"]
        always = [path for path in paths if sown[path][0] != "append"]
        rows = [tree_map(lambda leaf: reshape(leaf, (length, leaf.shape[0] // max(length, 1), *leaf.shape[1:])),
                         plants.rows(path, sown[path][1] * length)) for path in by_row]
        fixed = [plants.values[path] for path in always]
        num_consts, num_carry = params["num_consts"], params["num_carry"]
        consts, init, xs = values[:num_consts], values[num_consts:num_consts + num_carry], values[num_consts + num_carry:]
        noted: Reaps = {}
        run = self.inside(jaxpr, scope, [*by_row, *always], noted)

        def step(carry: Any, x: Any) -> Any:
            current, _ = carry
            planted, elements = x
            outs, reaped = run([*planted, *fixed], *consts, *current, *elements)
            last = [value for value, (mode, _) in zip(reaped, noted.values(), strict=True) if mode == "clobber"]
            kept = [value for value, (mode, _) in zip(reaped, noted.values(), strict=True) if mode == "append"]
            return (outs[:num_carry], last), (outs[num_carry:], kept)

        elements = tree_map(lambda leaf: slice_in_dim(leaf, 0, 1), (rows, xs)) if length else (rows, xs)
        first = eval_shape(lambda elements: step((init, None), tree_map(
            lambda leaf: full(leaf.shape[1:], 0, leaf.dtype), elements)), elements)
        start = tree_map(lambda struct: full(struct.shape, 0, struct.dtype), first[0][1])
        (carry, last), (ys, kept) = scan(step, (init, start), (rows, xs), length, params["reverse"], params["unroll"])
        kept = tree_map(lambda leaf: reshape(leaf, (leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])), kept)
        lasts, rest = iter(last), iter(kept)
        return [*carry, *ys], {path: (mode, next(lasts if mode == "clobber" else rest)) for path, (mode, _) in noted.items()}

    def loop(self, eqn: JaxprEqn, values: list[Any], scope: Path, plants: _Plants) -> tuple[list[Any], Reaps]:
        params, jaxpr = eqn.params, eqn.params["body_jaxpr"].jaxpr
        sown = self.sown(jaxpr, scope)
        self.check_no_strict(eqn, sown)
        for path, (mode, _) in sown.items():
            if mode == "append":
                raise ValueError(f"{_shown(path)} is sown inside a while loop at {eqn.source_line}: how many values mode "
                                 "'append' would give is not known. Use mode='clobber', or scan.")
        if self.sown(params["cond_jaxpr"].jaxpr, scope):
            raise ValueError(f"the condition of a while loop at {eqn.source_line} sows; only its body may")
        paths, given = self.planted(jaxpr, scope, plants)
        noted: Reaps = {}
        run = self.inside(jaxpr, scope, paths, noted)
        split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        test_consts, consts, init = values[:split[0]], values[split[0]:split[1]], values[split[1]:]
        test = params["cond_jaxpr"].jaxpr
        _, reaped = eval_shape(lambda: run(given, *consts, *init))
        start = tree_map(lambda struct: full(struct.shape, 0, struct.dtype), reaped)
        plain = _Harvester(object(), None, (), False)
        outs, last = while_loop(lambda carry: plain.run(test, [], [*test_consts, *carry[0]], (), _Plants({}))[0][0],
                                lambda carry: run(given, *consts, *carry[0]), (init, start))
        return outs, _named(noted, last)

    def check_no_strict(self, eqn: JaxprEqn, sown: dict[Path, tuple[str, int]]) -> None:
        for path, (mode, _) in sown.items():
            if mode == "strict":
                raise ValueError(f"{_shown(path)} is sown with mode 'strict' inside a {eqn.primitive.name} loop at "
                                 f"{eqn.source_line}, where its name repeats. Use mode='append' or mode='clobber'.")

    rules: dict[str, Callable] = {"jit": call, "nest": call, "remat2": call, "cond": cond, "scan": scan, "while": loop}


def _named(noted: Reaps, values: list[Any]) -> Reaps:
    return {path: (mode, value) for (path, (mode, _)), value in zip(noted.items(), values, strict=True)}
