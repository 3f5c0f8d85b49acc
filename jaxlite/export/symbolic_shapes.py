"""Shapes with symbolic dimensions: made from texts, and solved for at calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.symbolic import Dim, SymbolicScope, is_symbolic, parse
from jaxlite.core.tree import broadcast_prefix, tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of, is_array_like

_GUIDE = "Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details."


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size is a symbolic dimension."""
    return is_symbolic(p)


def symbolic_shape(shape_spec: str | None, *, constraints: Sequence[str] = (), scope: SymbolicScope | None = None,
                   like: Sequence[int | None] | None = None) -> tuple[Any, ...]:
    """A shape from text, with symbolic dimensions where it has names.

    Args:
      shape_spec: sizes separated by commas, such as "b, 2*h, 3"; `_` and `...` stand for those of `like`.
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
    text = "..." if shape_spec is None else str(shape_spec).replace(" ", "")
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    parts = [part for part in _split(text)]
    if parts and not parts[-1]:
        parts.pop()
    if "..." in parts:
        place = parts.index("...")
        if like is None:
            raise ValueError(f"syntax error in symbolic shape {shape_spec!r}: '...' needs `like`, a shape to take sizes from")
        missing = len(like) - (len(parts) - 1)
        if place != len(parts) - 1 or missing < 0:
            raise ValueError(f"syntax error in symbolic shape {shape_spec!r}: '...' is the last part and stands for the rest "
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
    return tuple(sizes)


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
    specs = [shapes_specs] * len(leaves) if shapes_specs is None or isinstance(shapes_specs, str) else broadcast_prefix(
        shapes_specs, args, is_leaf=lambda each: each is None)
    if scope is None:
        scope = SymbolicScope(constraints)
    avals = [aval_of(leaf) if is_array_like(leaf) else leaf for leaf in leaves]
    return tree_unflatten(tree, [
        ShapeDtypeStruct(symbolic_shape(spec, like=aval.shape, scope=scope), aval.dtype)
        for aval, spec in zip(avals, specs, strict=True)])


# --- calls -------------------------------------------------------------------------------------------


def solve(wanted: Sequence[tuple[Any, ...]], given: Sequence[tuple[Any, ...]], names: Sequence[str]) -> dict[str, Any]:
    """The values of variables, from shapes with symbolic dimensions and shapes of the same ranks.

    Raises: ValueError that says which dimension or constraint does not fit.
    """
    texts = ", ".join(f"{name}.shape = ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
                      for name, shape in zip(names, wanted, strict=True) if any(map(is_symbolic, shape)))
    obtained: dict[str, str] = {}

    def error(what: str) -> ValueError:
        values_text = "".join(each + ", " for each in obtained.values())
        return ValueError(f"Input shapes do not match the polymorphic shapes specification. {what} Using the following "
                          f"polymorphic "
                          f"shapes specifications: {texts}. Obtained dimension variables: {values_text or '.'} {_GUIDE}")

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
                if dim.evaluate(values) != size:
                    raise error(f"Found inconsistency between dimension size {place} (= {size}) and the specification '{dim}' "
                                f"(= {dim.evaluate(values)}).")
                continue
            found = _solve_one(dim, size, values, unknown)
            if found is None:
                rest.append((dim, size, place))
                continue
            name, value, remainder = found
            if isinstance(remainder, int) and remainder != 0:
                raise error(f"Division had remainder {remainder} when computing the value of '{name}'.")
            values[name] = value
            obtained[name] = f"'{name}' = {value} from specification '{dim}' for dimension {place} (= {size})"
            if isinstance(value, int) and value < 1:
                raise error(f"Expected value >= 1 for dimension variable '{name}'.")
        if len(rest) == len(waiting):
            raise ValueError("Cannot solve for values of dimension variables "
                             f"{sorted(set().union(*(dim.variables() for dim, _, _ in rest)) - set(values))}. We can only "
                             f"solve "
                             f"linear uni-variate constraints. Using the following polymorphic shapes specifications: {texts}.")
        waiting = rest
    for fact, text in (scope.at_least_zero if scope else ()):
        if fact.variables() <= set(values):
            value = fact.evaluate(values)
            if isinstance(value, int) and value < 0:
                raise error(f"Input shapes do not match the symbolic shape constraint {text}. Expected '{fact}' to be "
                            f"greater or "
                            f"equal to 0, but found {value}.")
    for fact, text in (scope.equations if scope else ()):
        if fact.variables() <= set(values):
            value = fact.evaluate(values)
            if isinstance(value, int) and value:
                raise error(f"Input shapes do not match the symbolic shape constraint {text}. Expected '{fact}' to be equal "
                            f"to 0, "
                            f"but found {value}.")
    return values


def _solve_one(dim: Dim, size: Any, values: dict[str, Any], unknown: set[str]) -> tuple[str, Any, Any] | None:
    """The value of the one unknown of a dimension that is linear in it, and what a division leaves."""
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
            total = total + Dim({term: factor}, dim.scope).evaluate(values)
    if coefficient is None:
        return None
    quotient, remainder = divmod(size - total, coefficient)
    return name, quotient, remainder
