"""unzip: split a function that draws its parameters where it uses them into `init` and `apply`.

`sow` names a value, `nest` puts names into a scope, `unzip` splits. The split is made on the function's jaxpr: what can be
computed from the key arguments alone, up to the sown values, goes to `init`, the rest to `apply`. Beside them stand
`harvest`, `reap` and `plant`, which read and replace sown values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxlite.compilation.jit import jit
from jaxlite.compilation.options import argument_names, check_callable
from jaxlite.compilation.program import flatten_outputs
from jaxlite.core import source
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import Atom, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params, once_for_each
from jaxlite.core.shape_dtype import abstract
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import leaf_paths, tree_flatten, tree_leaves
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.experimental.harvest import call_and_reap, harvest, plant, reap
from jaxlite.traces.sown import nest_p, sow_p

__all__ = ["call_and_reap", "harvest", "nest", "plant", "reap", "sow", "unzip"]
__dir__ = lambda: __all__

_MODES = ("strict", "append", "clobber")


def sow(value: Any, *, tag: Any, name: Any, mode: str = "strict", key: Any = None) -> Any:
    """The value itself, under a name that `unzip` and `harvest` find.

    Args:
      value: a pytree of arrays and scalars.
      tag: what kind of value it is, such as "param"; transformations look for one tag. Hashable.
      name: its name, one in a scope for each value.
      mode: what `harvest` does where a name comes up again: "strict" refuses, "append" stacks, "clobber" keeps the last.
      key: a pytree; the value counts as computed from it, though it is not: `sow(jnp.zeros(2), ..., key=key)`.

    Returns: `value`.
    Raises: ValueError for an unknown mode; TypeError if a leaf is not an array or scalar.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental.unzip import reap, sow
    >>> reap(lambda x: jnp.sum(sow(x + 1, tag="middle", name="y")), tag="middle")(1.0)
    {'y': Array(2., dtype=float32, weak_type=True)}
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    leaves, tree = tree_flatten(value)
    for leaf in leaves:
        aval_of(leaf)
    if is_eager():
        return value
    return tree.unflatten(sow_p.bind(*leaves, *tree_leaves(key), tag=tag, name=name, mode=mode, tree=tree, count=len(leaves)))


def nest(f: Callable, *, scope: Any) -> Callable:
    """The function itself; what it sows has its names in a dictionary of their own, under `scope`.

    Args:
      f: a function of pytrees; leaves of its arguments that are not arrays, such as Python numbers, are handed on as they are.
      scope: the name of the dictionary.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental.unzip import nest, reap, sow
    >>> def f(x):
    ...     return sow(x * 2, tag="middle", name="y")
    >>> reap(lambda x: nest(f, scope="one")(x) + nest(f, scope="two")(x + 1), tag="middle")(1)
    {'one': {'y': Array(2, dtype=int32, weak_type=True)}, 'two': {'y': Array(4, dtype=int32, weak_type=True)}}
    """
    check_callable(f)
    debug = DebugInfo("nest", source.function_location(f))

    def nested(*args: Any, **kwargs: Any) -> Any:
        if is_eager():
            return f(*args, **kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, (Tracer, ArrayImpl))]
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            given = list(leaves)
            for index, value in zip(places, values, strict=True):
                given[index] = value
            inner_args, inner_kwargs = tree.unflatten(given)
            outs, out_tree = flatten_outputs(f(*inner_args, **inner_kwargs), debug)
            return outs

        operands = [leaves[index] for index in places]
        jaxpr, consts = trace_to_jaxpr(flat, [aval_of(value) for value in operands], debug)
        outs = nest_p.bind(*consts, *operands, jaxpr=hoist_consts(jaxpr), name=scope)
        return out_tree.unflatten(outs)

    return nested


@boundary
def unzip(f: Callable, *, tag: Any, key_args: int | Sequence[int] | None = 0) -> Callable[..., tuple[Callable, Callable]]:
    """Split a function into one that makes its parameters and one that uses them.

    Args:
      f: a function of pytrees. What it sows with `tag`, computed from its key arguments alone, are its parameters: a
        dictionary from names to values, with dictionaries inside for the scopes of `nest`. A sown constant is one, too.
      tag: the tag of `sow`.
      key_args: the position of the key argument, positions, or None for a function without one.

    Returns: a function of sample arguments (only shapes and dtypes matter; keyword arguments are handed to `f` as they
      are) that traces `f` once and gives `init` and `apply`:
      `init(*key_arguments)` is the dictionary, `apply(params, *other_arguments)` the result of `f`, and
      `apply(init(key), x)` equals `f(key, x)`.
      Sown values that depend on other arguments are not parameters; nor is what is sown in loops, branches and functions
      with derivatives of their own, which count as one operation each.
    Raises: ValueError if `tag` is None, if two parameters have one name, and if a result depends on a key argument
      other than through parameters; KeyError from `apply` for a parameter that is missing.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite import random
    >>> from jaxlite.experimental.unzip import sow, unzip
    >>> def net(key, x):
    ...     w = sow(random.normal(key, (3,)), tag="param", name="w")
    ...     return x @ w
    >>> x = jnp.ones((2, 3))
    >>> init, apply = unzip(net, tag="param")(random.key(0), x)
    >>> params = init(random.key(0))
    >>> params["w"].shape, bool((apply(params, x) == net(random.key(0), x)).all())
    ((3,), True)
    """
    if tag is None:
        raise ValueError("Must provide sow tag")
    check_callable(f)
    keys = () if key_args is None else (key_args,) if isinstance(key_args, int) else tuple(key_args)

    @boundary
    def split(*args: Any, **kwargs: Any) -> tuple[Callable, Callable]:
        positions = {position + len(args) if position < 0 else position for position in keys}
        if not positions <= set(range(len(args))):
            raise ValueError(f"key_args is {key_args!r}, but {source.function_name(f)} was given {len(args)} positional "
                             "arguments")
        return _split(f, tag, positions, args, kwargs)

    return split


# --- a function's equations, with its calls opened ---------------------------------------------------


class _Call:
    """A `jit` or `nest` equation that sows, opened: `items` are equations and calls in it."""

    __slots__ = ("primitive", "name", "items")

    def __init__(self, primitive: Any, name: Any, items: list[Any]):
        self.primitive, self.name, self.items = primitive, name, items


@once_for_each
def _sown(jaxpr: Jaxpr, tag: Any, inside: bool) -> list[Any]:
    """The names that a program sows, in its calls too; or, if `inside`, those in all that it contains."""
    names = []
    for eqn in jaxpr.eqns:
        if eqn.primitive is sow_p and eqn.params["tag"] == tag:
            names.append(eqn.params["name"])
        elif inside or eqn.primitive.name in ("jit", "nest"):
            for sub in jaxprs_in_params(eqn.params):
                names += _sown(sub, tag, inside)
    return names


def _open(jaxpr: Jaxpr, tag: Any, values: dict[Var, Atom]) -> list[Any]:
    """The equations of a program as items, with its variables replaced by `values`, which grows."""

    def read(atom: Atom) -> Atom:
        return atom if type(atom) is Literal else values[atom]  # type: ignore[index]

    items: list[Any] = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("jit", "nest") and _sown(eqn.params["jaxpr"].jaxpr, tag, False):
            inner = eqn.params["jaxpr"].jaxpr
            inner_values = dict(zip(inner.invars, map(read, eqn.invars), strict=True))
            items.append(_Call(eqn.primitive, eqn.params["name"], _open(inner, tag, inner_values)))
            for var, atom in zip(eqn.outvars, inner.outvars, strict=True):
                values[var] = atom if type(atom) is Literal else inner_values[atom]  # type: ignore[index]
        else:
            for var in eqn.outvars:
                values[var] = Var(var.aval)
            items.append(eqn.replace(invars=list(map(read, eqn.invars)), outvars=[values[var] for var in eqn.outvars]))
    return items


def _equations(items: list[Any], scope: tuple[Any, ...] = ()) -> Iterator[tuple[JaxprEqn, tuple[Any, ...]]]:
    """All equations in order, each with the scopes that it is in."""
    for item in items:
        if type(item) is _Call:
            yield from _equations(item.items, (*scope, item) if item.primitive is nest_p else scope)
        else:
            yield item, scope


# --- the split ---------------------------------------------------------------------------------------


class _Variable(NamedTuple):
    path: tuple[Any, ...]  # the scopes, then the name
    eqn: JaxprEqn


def _traced(f: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Jaxpr, list[Any], Any, Any, DebugInfo]:
    """The program of a call, its constants, and the trees of its arguments and its result."""
    leaves, in_tree = tree_flatten((args, {}))
    debug = DebugInfo("unzip", source.function_location(f), argument_names(f, in_tree, None))
    out_tree: Any = None

    def flat(*tracers: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = flatten_outputs(f(*in_tree.unflatten(tracers)[0], **kwargs), debug)
        return outs

    jaxpr, consts = trace_to_jaxpr(flat, list(map(abstract, leaves)), debug)
    return jaxpr, consts, in_tree, out_tree, debug


def _split(f: Callable, tag: Any, positions: set[int], args: tuple[Any, ...],
           kwargs: dict[str, Any]) -> tuple[Callable, Callable]:
    jaxpr, consts, in_tree, out_tree, debug = _traced(f, args, kwargs)
    is_key_leaf = [index in positions for index, tree in enumerate(in_tree.children()[0].children())
                   for _ in range(tree.num_leaves)]

    values: dict[Var, Atom] = {var: var for var in (*jaxpr.constvars, *jaxpr.invars)}
    items = _open(jaxpr, tag, values)
    results = [atom if type(atom) is Literal else values[atom] for atom in jaxpr.outvars]  # type: ignore[index]
    eqns = list(_equations(items))

    keys: set[Any] = {*jaxpr.constvars, *(var for var, flag in zip(jaxpr.invars, is_key_leaf, strict=True) if flag)}
    for eqn, _ in eqns:
        if all(type(atom) is Literal or atom in keys for atom in eqn.invars):
            keys.update(eqn.outvars)
    variables = _variables(eqns, results, keys, tag)
    chosen = {id(each.eqn) for each in variables}

    # What apply needs, from the results back to the variables; and what init needs, from the variables back.
    in_apply, read = _needed([eqn for eqn, _ in eqns], results, lambda eqn: id(eqn) not in chosen,
                             lambda eqn: eqn.effects and not keys.issuperset(v for v in eqn.invars if type(v) is Var))
    reached = [(index, var) for index, (var, flag) in enumerate(zip(jaxpr.invars, is_key_leaf, strict=True))
               if flag and var in read]
    if reached:
        raise ValueError(_no_cut(debug, tag, reached[0], [eqn for eqn, _ in eqns if id(eqn) in in_apply], results, out_tree))
    in_init, _ = _needed([eqn for eqn, _ in eqns], [], lambda eqn: True,
                         lambda eqn: id(eqn) in chosen or eqn.effects and id(eqn) not in in_apply)

    sown = [var for each in variables for var in each.eqn.outvars]
    init_steps = _Half(items, in_init, sown, "_init")
    apply_steps = _Half(items, in_apply, results, "_apply")
    fixed = dict(zip(jaxpr.constvars, consts, strict=True))
    inputs = [[var for var, flag in zip(jaxpr.invars, is_key_leaf, strict=True) if flag is wanted] for wanted in (True, False)]
    trees = [tree_flatten(tuple(arg for index, arg in enumerate(args) if (index in positions) is wanted))[1]
             for wanted in (True, False)]

    def init(*key_arguments: Any) -> dict[Any, Any]:
        env = {**fixed, **_bind("init", inputs[0], trees[0], key_arguments)}
        init_steps.run(env)
        return _written(variables, env)

    used = [each for each in variables if not read.isdisjoint(each.eqn.outvars)]

    def apply(params: dict[Any, Any], *arguments: Any) -> Any:
        env = {**fixed, **_bind("apply", inputs[1], trees[1], arguments)}
        _read(used, params, env, debug.func_name)
        apply_steps.run(env)
        return out_tree.unflatten([atom.val if type(atom) is Literal else env[atom] for atom in results])

    for half, suffix in ((init, "init"), (apply, "apply")):
        half.__name__ = half.__qualname__ = f"{debug.func_name}_{suffix}"
    return init, apply


def _written(variables: Sequence[_Variable], env: dict[Any, Any]) -> dict[Any, Any]:
    """The parameters as nested dictionaries, by scopes and names."""
    params: dict[Any, Any] = {}
    for path, eqn in variables:
        place = params
        for scope in path[:-1]:
            place = place.setdefault(scope, {})
        place[path[-1]] = eqn.params["tree"].unflatten([env[var] for var in eqn.outvars])
    return params


def _read(variables: Sequence[_Variable], params: dict[Any, Any], env: dict[Any, Any], function: str) -> None:
    """Put parameters into the environment. Raises: ValueError for one with another tree than it had."""
    for path, eqn in variables:
        value: Any = params
        for part in path:
            value = value[part]
        given, tree = tree_flatten(value)
        if tree != eqn.params["tree"]:
            raise ValueError(f"the parameter {path[-1]!r} of {function} is a pytree {eqn.params['tree']}, got {tree}")
        env.update(zip(eqn.outvars, given, strict=True))


def _variables(eqns: list[tuple[JaxprEqn, tuple[Any, ...]]], results: list[Atom], keys: set[Any], tag: Any) -> list[_Variable]:
    """The sown values that are parameters. Raises: ValueError for a missing name, and one that two of them share."""
    needed, _ = _needed([eqn for eqn, _ in eqns], results, lambda eqn: True, lambda eqn: False)
    found = []
    taken: dict[tuple[Any, ...], Any] = {}  # path of scopes -> the nest equation that has it

    def take(path: tuple[Any, ...], owner: Any) -> None:
        if taken.setdefault(path, owner) is not owner:
            raise ValueError(f"Cannot use duplicate variable name: {path[-1]}" + (
                f" (in scope {'/'.join(map(str, path[:-1]))})" if len(path) > 1 else ""))

    for eqn, scopes in eqns:
        if eqn.primitive is not sow_p or eqn.params["tag"] != tag or id(eqn) not in needed:
            continue
        if not all(type(atom) is Literal or atom in keys for atom in eqn.invars):
            continue
        if eqn.params["name"] is None:
            raise ValueError("Must provide name for variable.")
        path = tuple(each.name for each in scopes)
        for depth, each in enumerate(scopes):
            take(path[:depth + 1], each)
        take((*path, eqn.params["name"]), eqn)
        found.append(_Variable((*path, eqn.params["name"]), eqn))
    return found


def _needed(eqns: list[JaxprEqn], outputs: Sequence[Atom], follow: Callable[[JaxprEqn], bool],
            root: Callable[[JaxprEqn], Any]) -> tuple[set[int], set[Atom]]:
    """Ids of the equations that lead to outputs or to roots, and all that is read on the way; those that are not to be
    followed stop it."""
    read, needed = set(outputs), set()
    for eqn in reversed(eqns):
        if follow(eqn) and (root(eqn) or not read.isdisjoint(eqn.outvars)):
            needed.add(id(eqn))
            read.update(eqn.invars)
    return needed, read


def _no_cut(debug: DebugInfo, tag: Any, key: tuple[int, Var], eqns: list[JaxprEqn], results: list[Atom], out_tree: Any) -> str:
    index, var = key
    text = "Variables do not cut dependence graph."
    reached, first = {var}, None
    hidden: list[Any] = []
    for eqn in eqns:
        if not reached.isdisjoint(eqn.invars):
            first = first or eqn
            reached.update(eqn.outvars)
            hidden += [(name, eqn) for sub in jaxprs_in_params(eqn.params) for name in _sown(sub, tag, True)]
    argument = debug.arg_name(index)
    what = [f"result{''.join(map(str, path))}" for path, atom in zip(leaf_paths(out_tree), results, strict=True)
            if atom in reached]
    text += f"\nIn {debug.func_src_info}, {what[0] if what else 'an effect'} depends on the key argument " \
            f"{argument} other than through values that are sown with tag {tag!r}"
    if first is not None:
        text += f"; the first operation on the way is {first.primitive.name} at {first.source_line}"
    text += "."
    for name, eqn in hidden:
        text += f"\n{name!r} is sown inside a {eqn.primitive.name} at {eqn.source_line}: what loops, branches and functions " \
                "with derivatives of their own sow is no variable."
    return f"{text}\nTry: sow the value that is computed from {argument}, or leave {argument} out of key_args."


class _Half:
    """The equations of one half, with the calls that some of them are in put together again.

    `steps` are equations and (function, operands, results) for calls.
    """

    def __init__(self, items: list[Any], kept: set[int], outputs: Sequence[Atom], suffix: str):
        self.kept, self.suffix = kept, suffix
        self.last_read: dict[Any, float] = {}
        for place, (eqn, _) in enumerate(_equations(items)):
            if id(eqn) in kept:
                self.last_read.update(dict.fromkeys(eqn.invars, place))
        self.last_read.update(dict.fromkeys(outputs, float("inf")))
        self.steps = self._steps(items, 0)

    def _steps(self, items: list[Any], place: int) -> list[Any]:
        steps: list[Any] = []
        for item in items:
            if type(item) is not _Call:
                steps += [item] if id(item) in self.kept else []
                place += 1
                continue
            end = place + sum(1 for _ in _equations(item.items))
            inner = self._steps(item.items, place)
            place = end
            if inner:
                steps.append(self._call(item, inner, end))
        return steps

    def _call(self, call: _Call, steps: list[Any], end: int) -> tuple[Callable, list[Var], list[Var]]:
        made: dict[Var, None] = {}
        operands: dict[Var, None] = {}
        for step in steps:
            read, written = (step[1], step[2]) if type(step) is tuple else (step.invars, step.outvars)
            operands.update((atom, None) for atom in read if type(atom) is Var and atom not in made)
            made.update(dict.fromkeys(written))
        operand_list, outs = list(operands), [var for var in made if self.last_read.get(var, -1) >= end]

        def body(*values: Any) -> list[Any]:
            env = dict(zip(operand_list, values, strict=True))
            _run(steps, env)
            return [env[var] for var in outs]

        body.__name__ = f"{call.name}{self.suffix}"
        return nest(body, scope=call.name) if call.primitive is nest_p else jit(body), operand_list, outs

    def run(self, env: dict[Any, Any]) -> None:
        _run(self.steps, env)


def _run(steps: list[Any], env: dict[Any, Any]) -> None:
    for step in steps:
        if type(step) is tuple:
            function, operands, outvars = step
            outs = function(*[env[var] for var in operands])
        else:
            outvars = step.outvars
            outs = step.primitive.bind(*[atom.val if type(atom) is Literal else env[atom] for atom in step.invars],
                                       **step.params)
            if not step.primitive.multiple_results:
                outs = [outs]
        env.update(zip(outvars, outs, strict=True))


def _bind(what: str, variables: list[Var], tree: Any, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    leaves, given = tree_flatten(arguments)
    if given != tree:
        raise TypeError(f"{what} takes arguments of the tree {tree}, as f was unzipped for, got {given}")
    return dict(zip(variables, leaves, strict=True))
