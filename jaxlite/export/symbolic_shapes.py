"""Shapes with symbolic dimensions: parsing them, and solving for their variables at calls."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.symbolic import Dim, SymbolicScope, is_symbolic, parse
from jaxlite.core.tree import broadcast_prefix, tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of, is_array_like

_SPECIFICATION = "polymorphic shapes specification."
_GUIDE = "Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details."


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size is a symbolic dimension."""
    return is_symbolic(p)


def symbolic_dim_bounds(dimension: Any) -> tuple[float, float]:
    """Bounds of a dimension, as far as its terms and the constraints of its scope tell: the least and the greatest value.

    Raises: TypeError for what is not a dimension.

    >>> from jaxlite import export
    >>> a, b = export.symbolic_shape("a, b", constraints=["a <= 8"])
    >>> export.symbolic_dim_bounds(2 * a + 1), export.symbolic_dim_bounds(a - b)
    ((3, 17), (-inf, 7))
    """
    if not is_symbolic(dimension):
        return (operator.index(dimension),) * 2
    low, high = dimension.scope.bounds(dimension)
    return tuple(each if math.isinf(each) else int(each) for each in (low, high))  # type: ignore[return-value]


def symbolic_shape(shape_spec: str | None, *, constraints: Sequence[str] = (), scope: SymbolicScope | None = None,
                   like: Sequence[int | None] | None = None) -> tuple[Any, ...]:
    """A shape from text, with symbolic dimensions where it has names.

    Args:
      shape_spec: sizes separated by commas, such as "b, 2*h, 3"; `_` and `...` mean those of `like`.
      constraints: relations that hold between dimensions: "a >= b", "mod(a, 2) == 0".
      scope: where the names belong to; without, a new one.
      like: a shape to take sizes from.
    Raises: ValueError for what does not parse.

    >>> from jaxlite import export
    >>> a, b = export.symbolic_shape("a, b", constraints=["a >= b"])
    >>> a * b + 2 * a, a >= b, (2 * a, a // 2)
    (a*b + 2*a, True, (2*a, floordiv(a, 2)))
    """
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError("Cannot specify both a `scope` and `constraints`.")
    text = "..." if shape_spec is None else str(shape_spec).strip()
    if text.startswith("(") and text.endswith(")") and _is_one_group(text):
        text = text[1:-1]
    parts = [part.strip() for part in _split(text)]
    if parts and not parts[-1]:
        parts.pop()
    if "..." in parts:
        place = parts.index("...")
        if like is None:
            raise ValueError(f"syntax error in symbolic shape {shape_spec!r}: '...' needs `like`, a shape to take sizes from")
        missing = len(like) - (len(parts) - 1)
        if place != len(parts) - 1 or missing < 0:
            raise ValueError(f"syntax error in symbolic shape {shape_spec!r}: '...' is the last part and means the rest "
                             f"of {like}")
        parts[place:] = ["_"] * missing
    if like is not None and len(like) != len(parts):
        raise ValueError(f"symbolic shape {shape_spec!r} has {len(parts)} dimensions, the shape it is like has {len(like)}: "
                         f"{like}")
    sizes = []
    for index, part in enumerate(parts):
        if part == "_":
            if like is None or like[index] is None:
                raise ValueError(f"syntax error in symbolic shape {shape_spec!r}: '_' needs a known size in `like`")
            sizes.append(like[index])
        else:
            sizes.append(parse(part, scope))
            known = None if like is None else like[index]
            if isinstance(sizes[-1], int) and isinstance(known, int) and sizes[-1] != known:
                raise ValueError(f"syntax error in symbolic shape {shape_spec!r} in dimension {index}: different size "
                                 f"{sizes[-1]} for known dimension; like={tuple(like or ())}")
    return tuple(sizes)


def _is_one_group(text: str) -> bool:
    """Whether the first parenthesis closes at the end."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return place == len(text) - 1
    return False


def _split(text: str) -> list[str]:
    """At commas that are not inside parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts if text else []


def symbolic_args_specs(args: Any, shapes_specs: Any, constraints: Sequence[str] = (),
                        scope: SymbolicScope | None = None) -> Any:
    """Arguments for `export`: a `ShapeDtypeStruct` for each array of a pytree, with symbolic dimensions.

    Args: `shapes_specs` a text as for `symbolic_shape`, None for the array's own shape, or a tree of these that is a prefix
      of that
      of `args`.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite import export
    >>> export.symbolic_args_specs((jnp.ones((4, 3)), jnp.ones(3)), ("b, _", None))
    (ShapeDtypeStruct(shape=(b, 3), dtype=float32), ShapeDtypeStruct(shape=(3,), dtype=float32))
    """
    leaves, tree = tree_flatten(args)
    if isinstance(args, tuple) and isinstance(shapes_specs, list):
        shapes_specs = tuple(shapes_specs)
    specs = [shapes_specs] * len(leaves) if shapes_specs is None or isinstance(shapes_specs, str) else broadcast_prefix(
        shapes_specs, args, is_leaf=lambda each: each is None)
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError("Cannot specify both a `scope` and `constraints`.")
    for spec in specs:
        if spec is not None and not isinstance(spec, str):
            raise ValueError(f"polymorphic shape spec should be None or a string. Found {spec!r}.")
    avals = [aval_of(leaf) if is_array_like(leaf) else leaf for leaf in leaves]
    return tree_unflatten(tree, [
        ShapeDtypeStruct(symbolic_shape(spec, like=aval.shape, scope=scope), aval.dtype)
        for aval, spec in zip(avals, specs, strict=True)])


# --- calls -------------------------------------------------------------------------------------------


def solve(wanted: Sequence[tuple[Any, ...]], given: Sequence[tuple[Any, ...]], names: Sequence[str],
          require: Callable[[Any, str, str, Sequence[Any]], None] | None = None,
          operations: dict[str, Any] | None = None) -> dict[str, Any]:
    """The values of variables, from shapes with symbolic dimensions and shapes of the same ranks.

    Args: `given` may have values of a program under construction, with `operations` to compute with them;
      `require(value, relation, message, shown)` then checks them: `relation` is EQ or GE, to zero; `message` has {0}, {1} for
      the values that are shown. Without it:
    Raises: ValueError that says which dimension or constraint does not fit.
    """
    texts = ", ".join(f"{name}.shape = ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
                      for name, shape in zip(names, wanted, strict=True) if any(map(is_symbolic, shape)))
    obtained: list[str] = []

    def check(value: Any, relation: str, what: str, *shown: Any) -> None:
        message = (f"Input shapes do not match the {what} Using the following polymorphic "
                   f"shapes specifications: {texts}. Obtained dimension variables: {''.join(obtained) or '.'} {_GUIDE}")
        if require is not None and not isinstance(value, int):
            require(value, relation, message, shown or (value,))
        elif (value != 0) if relation == "EQ" else (value < 0):
            raise ValueError(message.format(*(shown or (value,))))

    open_dims = [(dim, size, f"{name}.shape[{axis}]") for name, shape, sizes in zip(names, wanted, given, strict=True)
                 for axis, (dim, size) in enumerate(zip(shape, sizes, strict=True)) if is_symbolic(dim)]
    values: dict[str, Any] = {}
    scope = open_dims[0][0].scope if open_dims else None
    waiting = open_dims
    while waiting:
        rest = []
        for dim, size, place in waiting:
            unknown = dim.variables() - set(values)
            if not unknown:
                wanted_size = dim.evaluate(values, operations)
                check(size - wanted_size, "EQ", f"{_SPECIFICATION} Found inconsistency between dimension size {place} "
                      f"(= {{0}}) and the specification '{dim}' (= {{1}}).", size, wanted_size)
                continue
            found = _solve_one(dim, size, values, unknown, operations)
            if found is None:
                rest.append((dim, size, place))
                continue
            name, value, remainder = found
            if remainder is not None:
                check(remainder, "EQ", f"{_SPECIFICATION} Division had remainder {{0}} when computing the value of '{name}'.")
            values[name] = value
            shown = f" = {value}" if isinstance(value, int) else ""
            obtained.append(f"'{name}'{shown} from specification '{dim}' for dimension {place}, ")
            check(value - 1, "GE", f"{_SPECIFICATION} Expected value >= 1 for dimension variable '{name}'.")
        if len(rest) == len(waiting):
            unsolved = sorted(set().union(*(dim.variables() for dim, _, _ in rest)) - set(values))
            raise ValueError(f"Cannot solve for values of dimension variables {unsolved}. We can only solve linear uni-variate "
                             f"constraints. Using the following polymorphic shapes specifications: {texts}.")
        waiting = rest
    for facts, relation, words in ((scope.at_least_zero, "GE", "greater or equal to"), (scope.equations, "EQ", "equal to")) \
            if scope else ():
        for fact, text in facts:
            if fact.variables() <= set(values):
                check(fact.evaluate(values, operations), relation, f"symbolic shape constraint {text}."
                      f" Expected '{fact}' to be {words} 0, but found {{0}}.")
    return values


def _solve_one(dim: Dim, size: Any, values: dict[str, Any], unknown: set[str],
               operations: dict[str, Any] | None) -> tuple[str, Any, Any] | None:
    """The value of the one unknown of a dimension that is linear in it, and what a division leaves, if there is one."""
    if len(unknown) != 1:
        return None
    (name,) = unknown
    total, coefficient = 0, None
    for term, factor in dim.terms.items():
        if term == ((("var", name), 1),):
            coefficient = factor
        elif any(name in Dim({((part, 1),): 1}, dim.scope).variables() for part, _ in term):
            return None
        else:
            total = total + Dim({term: factor}, dim.scope).evaluate(values, operations)
    if coefficient is None:
        return None
    if coefficient == 1:
        return name, size - total if not (isinstance(total, int) and total == 0) else size, None
    quotient, remainder = divmod(size - total if not (isinstance(total, int) and total == 0) else size, coefficient)
    return name, quotient, remainder
