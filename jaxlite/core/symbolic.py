"""Symbolic dimensions: sizes that are known when a program runs. `Dim` is a polynomial in named variables with integer
coefficients.

A variable is at least 1. Arithmetic gives normalised polynomials: equal ones are equal values. `floordiv`, `mod`, `max` and
`min` of
dimensions are factors like variables are. A comparison is decided from the bounds of the difference, which a scope's
constraints
tighten; where it may go either way it raises `InconclusiveDimensionOperation`.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any

from jaxlite.core.errors import InconclusiveDimensionOperation

_INFINITY = math.inf
_GUIDE = "https://docs.jax.dev/en/latest/export/shape_poly.html"
Factor = tuple[Any, ...]  # ("var", name), or (operation, Dim, Dim)
Term = tuple[tuple[Factor, int], ...]  # factors with their powers, sorted


class SymbolicScope:
    """The scope of symbolic variables: one per program. `constraints_str` are strings such as "a >= b", "a + b == 10"."""

    def __init__(self, constraints_str: Sequence[str] = ()):
        if isinstance(constraints_str, str):
            raise ValueError(f"The symbolic constraints should be a sequence of strings. Got {constraints_str!r}")
        self.texts: list[str] = []
        self.at_least_zero: list[tuple[Dim, str]] = []
        self.equal: dict[Term, Any] = {}  # a term and the dimension that it is equal to
        self.equations: list[tuple[Dim, str]] = []
        self._bounds: dict[Any, tuple[float, float]] = {}
        for text in constraints_str:
            self._constrain(text)

    def _constrain(self, text: str) -> None:
        found = re.fullmatch(r"(.*?)(>=|<=|==|>|<|=)(.*)", text)
        if not found:
            raise ValueError(f"Constraint parsing error: must contain one of '==' or '>=' or '<='\nGot {text!r}")
        left, relation, right = parse(found[1], self), found[2], parse(found[3], self)
        if relation in ("==", "="):
            difference = left - right
            if isinstance(difference, int):
                if difference:
                    raise ValueError(f"Unsatisfiable explicit constraint: {text}")
                return
            low, high = self.bounds(difference)
            if not low <= 0 <= high:
                raise ValueError(f"Unsatisfiable constraint: {text}{self}")
            self.equations.append((difference, text))
            if isinstance(left, Dim) and len(left.terms) == 1 and next(iter(left.terms.values())) == 1 and () not in left.terms:
                self.equal[next(iter(left.terms))] = right
        else:
            less, more = (right, left) if relation[0] == ">" else (left, right)
            difference = more - less - int(len(relation) == 1)
            if isinstance(difference, int):
                if difference < 0:
                    raise ValueError(f"Unsatisfiable explicit constraint: {text}")
                return
            if self.bounds(difference)[1] < 0:
                raise ValueError(f"Unsatisfiable constraint: {text}{self}")
            self.at_least_zero.append((difference, text))
        self.texts.append(text.strip())
        self._bounds.clear()

    def __str__(self) -> str:
        return "" if not self.texts else f" where {', '.join(self.texts)}"

    # --- bounds

    def bounds(self, value: Any) -> tuple[float, float]:
        """The least and the greatest value that a dimension may have."""
        if not isinstance(value, Dim):
            return value, value
        found = self._bounds.get(value)
        if found is None:
            found = self._bounds[value] = self._tightened(value, 2)
        return found

    def _plain(self, value: Any) -> tuple[float, float]:
        """From the bounds of its terms alone."""
        if not isinstance(value, Dim):
            return value, value
        low = high = 0.0
        for term, coefficient in value.terms.items():
            a, b = self._of_term(term)
            if coefficient < 0:
                a, b = b, a
            low += coefficient * a
            high += coefficient * b
        return low, high

    def _tightened(self, value: Any, depth: int) -> tuple[float, float]:
        """With constraints added such that a term cancels."""
        low, high = self._plain(value)
        if not depth or not isinstance(value, Dim):
            return low, high
        for a, b in self._without_operations(value, depth):
            low, high = max(low, a), min(high, b)
        facts = [fact for fact, _ in self.at_least_zero]
        facts += [each for fact, _ in self.equations for each in (fact, -fact) if isinstance(each, Dim)]
        for fact in facts:
            for term, coefficient in fact.terms.items():
                own = value.terms.get(term)
                if not term or own is None or own % coefficient:
                    continue
                # value = rest + times * fact: the rest bounds it from below or from above.
                times = own // coefficient
                a, b = self._tightened(value - fact * times, depth - 1)
                if times > 0:
                    low = max(low, a)
                else:
                    high = min(high, b)
        return low, high

    def _without_operations(self, value: Dim, depth: int) -> Iterable[tuple[float, float]]:
        """Bounds from what is known of `max`, `min` and `floordiv`, where these are terms: max(a, b) is one of the two and at
        least the other, and k * floordiv(a, k) is at most k - 1 below a."""
        for term, coefficient in value.terms.items():
            if len(term) != 1 or term[0][1] != 1:
                continue
            kind, *operands = term[0][0]
            rest = value - _dim({term: coefficient}, self)
            if kind in ("max", "min"):
                (a, b), (c, d) = (self._tightened(rest + operand * coefficient, depth - 1) for operand in operands)
                if (kind == "max") == (coefficient > 0):
                    yield max(a, c), max(b, d)
                else:
                    yield min(a, c), min(b, d)
            elif kind == "floordiv" and isinstance(operands[1], int) and operands[1] > 0:
                numerator, divisor = operands
                a, b = self._tightened(rest * divisor + numerator * coefficient, depth - 1)
                slack = coefficient * (divisor - 1)
                a, b = a - max(slack, 0), b - min(slack, 0)
                yield -_floor(-a, divisor), _floor(b, divisor)

    def _of_term(self, term: Term) -> tuple[float, float]:
        low, high = 1.0, 1.0
        for factor, power in term:
            a, b = self._of_factor(factor)
            for _ in range(power):
                ends = [x * y if x and y else 0.0 for x in (low, high) for y in (a, b)]
                low, high = min(ends), max(ends)
        return low, high

    def _of_factor(self, factor: Factor) -> tuple[float, float]:
        kind, *operands = factor
        if kind == "var":
            return self._of_variable(factor)
        (a, b), (c, d) = map(self.bounds, operands)
        if kind == "max":
            return max(a, c), max(b, d)
        if kind == "min":
            return min(a, c), min(b, d)
        if kind == "mod":
            return (0.0, min(d - 1, b) if a >= 0 else d - 1) if c > 0 else (c + 1, 0.0)
        if c <= 0 <= d:
            return -_INFINITY, _INFINITY
        ends = [_floor(x, y) for x in (a, b) for y in (c, d)]
        return min(ends), max(ends)

    def _of_variable(self, factor: Factor) -> tuple[float, float]:
        low, high = 1.0, _INFINITY
        for fact, _ in self.at_least_zero:  # c * v + k >= 0
            terms = {term: coefficient for term, coefficient in fact.terms.items() if term}
            if list(terms) == [((factor, 1),)]:
                coefficient, rest = terms[((factor, 1),)], fact.terms.get((), 0)
                if coefficient > 0:
                    low = max(low, -(rest // coefficient))
                else:
                    high = min(high, rest // -coefficient)
        return low, high


def _floor(x: float, y: float) -> float:
    if abs(y) == _INFINITY:
        return 0.0 if x * y >= 0 else -1.0
    return x / y if abs(x) == _INFINITY else float(x // y)


_NO_CONSTANT = ("Symbolic dimension '{}' used in a context that requires a constant\nIts value is not known while a program is "
                "traced.")


class DimensionAsIndexError(InconclusiveDimensionOperation, TypeError):
    """For a dimension where an int is requested: code that tries `operator.index` expects a TypeError."""


class Dim:
    """A symbolic dimension. It works as an int does in shapes, as far as the outcome is the same for all its values."""

    __slots__ = ("terms", "scope", "_hash")
    __array_priority__ = 1000  # NumPy's arrays leave arithmetic to this class

    def __init__(self, terms: dict[Term, int], scope: SymbolicScope):
        self.terms, self.scope = terms, scope
        self._hash: int | None = None

    # --- arithmetic

    def _other(self, other: Any) -> dict[Term, int] | None:
        if isinstance(other, Dim):
            if other.scope is not self.scope:
                raise ValueError("Invalid mixing of symbolic scopes for linear combination.\n"
                                 f"{self} and {other} were made by different calls of symbolic_shape. Pass the scope of the "
                                 "first to the second (scope=...), or make both in one call.")
            return other.terms
        if not hasattr(other, "__index__") or hasattr(other, "aval") or getattr(other, "ndim", 0) != 0:
            return None
        value = operator.index(other)
        return {(): value} if value else {}

    def __add__(self, other: Any) -> Any:
        terms = self._other(other)
        if terms is None:
            return _as_array(operator.add, self, other)
        total = dict(self.terms)
        for term, coefficient in terms.items():
            total[term] = total.get(term, 0) + coefficient
        return _dim(total, self.scope)

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __neg__(self) -> Any:
        return _dim({term: -coefficient for term, coefficient in self.terms.items()}, self.scope)

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        if self._other(other) is None:
            return _as_array(operator.sub, self, other)
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        terms = self._other(other)
        if terms is None:
            return _as_array(operator.mul, self, other)
        total: dict[Term, int] = {}
        for one, a in self.terms.items():
            for two, b in terms.items():
                powers: dict[Factor, int] = dict(one)
                for factor, power in two:
                    powers[factor] = powers.get(factor, 0) + power
                term = tuple(sorted(powers.items(), key=_order))
                total[term] = total.get(term, 0) + a * b
        return _dim(total, self.scope)

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __pow__(self, power: Any) -> Any:
        if isinstance(power, Dim) or self._other(power) is None:
            return _as_array(operator.pow, self, power)
        if power < 0:
            raise ValueError(f"Symbolic dimension cannot be raised to negative powers: '{self}' ** '{power}'")
        result: Any = 1
        for _ in range(operator.index(power)):
            result = self * result
        return result

    def __rpow__(self, other: Any) -> Any:
        return _as_array(lambda power, base: base ** power, self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _as_array(operator.floordiv, self, other) if self._other(other) is None else divide(self, other, self.scope)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        if self._other(other) is None:
            return _as_array(lambda divisor, dividend: dividend // divisor, self, other)
        return divide(other, self, self.scope)[0]

    def __mod__(self, other: Any) -> Any:
        return _as_array(operator.mod, self, other) if self._other(other) is None else divide(self, other, self.scope)[1]

    def __rmod__(self, other: Any) -> Any:
        if self._other(other) is None:
            return _as_array(lambda divisor, dividend: dividend % divisor, self, other)
        return divide(other, self, self.scope)[1]

    def __divmod__(self, other: Any) -> Any:
        return divide(self, other, self.scope)

    def __rdivmod__(self, other: Any) -> Any:
        return divide(other, self, self.scope)

    def __truediv__(self, other: Any) -> Any:
        return _as_array(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _as_array(lambda divisor, dividend: dividend / divisor, self, other)

    def minimum(self, other: Any) -> Any:
        """The smaller of the two."""
        return smallest(self, other)

    # --- comparison

    def _compare(self, other: Any, relation: str) -> bool:
        difference = self - other
        low, high = self.scope.bounds(difference)
        strict = int(relation in (">", "<"))
        if relation[0] == "<":
            low, high = -high, -low
        if low >= strict:
            return True
        if high < strict:
            return False
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{self}' {relation} '{other}' is inconclusive{self.scope}.\n\nThis error arises "
            f"for "
            "comparison operations with shapes that are non-constant, and the result of the operation cannot be represented "
            "as a "
            "boolean value for all values of the symbolic dimensions involved. Add a constraint to symbolic_shape, or write "
            "the "
            f"function such that it does not depend on the outcome.\n\nPlease see "
            f"{_GUIDE}#comparison-of-symbolic-dimensions-is-"
            "partially-supported for more details.")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, ">=")

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, ">")

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "<=")

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "<")

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Dim):
            return self.scope is other.scope and self.terms == other.terms
        return False

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        low, high = self.scope.bounds(self)
        if low > 0 or high < 0:
            return True
        return self._compare(0, ">") or self._compare(0, "<")

    def __index__(self) -> int:
        raise DimensionAsIndexError(_NO_CONSTANT.format(self))

    def __int__(self) -> int:
        raise InconclusiveDimensionOperation(_NO_CONSTANT.format(self))

    def __jax_array__(self) -> Any:
        return _dimension_value(self)

    # --- text and value

    def in_order(self) -> list[tuple[Term, int]]:
        """Its terms with their coefficients, in the order in which they are written."""
        return sorted(self.terms.items(), key=lambda item: _term_rank(item[0]), reverse=True)

    def __str__(self) -> str:
        parts = []
        for term, coefficient in self.in_order():
            body = term_text(term)
            number = abs(coefficient)
            part = str(number) if not body else body if number == 1 else f"{number}*{body}"
            parts.append((" - " if coefficient < 0 else " + ") + part)
        return "".join(parts)[1:].removeprefix("+ ")

    __repr__ = __str__

    def variables(self) -> set[str]:
        """The names in it."""
        found: set[str] = set()
        for term in self.terms:
            for factor, _ in term:
                if factor[0] == "var":
                    found.add(factor[1])
                else:
                    found.update(*(each.variables() for each in factor[1:] if isinstance(each, Dim)))
        return found

    def evaluate(self, values: dict[str, Any], operations: dict[str, Any] | None = None) -> Any:
        """Its value for values of its variables: ints, or what `operations` (by name, on two values) and `+`, `*` work on."""
        total: Any = 0
        for term, coefficient in self.terms.items():
            product: Any = coefficient
            for factor, power in term:
                value = _value(factor, values, operations or APPLY)
                for _ in range(power):
                    product = value * product
            total = product + total
        return total


def _value(factor: Factor, values: dict[str, Any], operations: dict[str, Any]) -> Any:
    if factor[0] == "var":
        return values[factor[1]]
    one, two = (each.evaluate(values, operations) if isinstance(each, Dim) else each for each in factor[1:])
    return operations[factor[0]](one, two)


APPLY: dict[str, Any] = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}


def _order(item: tuple[Factor, int]) -> Any:
    return item[0][0] != "var", str(item[0])


def _factor_rank(factor: Factor) -> Any:
    """By size, then by name: the order in which JAX writes what is in a dimension."""
    if factor[0] == "var":
        return 1, factor[1]
    operands = tuple(_rank(each) for each in factor[1:])
    return 1 + sum(each[0] for each in operands), factor[0], operands


def _term_rank(term: Term) -> Any:
    factors = tuple(sorted(((_factor_rank(factor), power) for factor, power in term), reverse=True))
    return sum(1 + power * rank[0] for rank, power in factors), factors


def _rank(value: Any) -> Any:
    terms = value.terms if isinstance(value, Dim) else {(): value}
    ranked = tuple(sorted(((_term_rank(term), coefficient) for term, coefficient in terms.items()), reverse=True))
    return sum(1 + abs(coefficient) * rank[0] for rank, coefficient in ranked), ranked


def written_order(term: Term) -> list[tuple[Factor, int]]:
    """The factors of a term with their powers, in the order in which they are written."""
    return sorted(term, key=lambda item: _factor_rank(item[0]))


def term_text(term: Term) -> str:
    """A term without its coefficient, as it is written: "a^2*b"; "" for the constant one."""
    parts = []
    for factor, power in written_order(term):
        body = factor[1] if factor[0] == "var" else f"{factor[0]}({factor[1]}, {factor[2]})"
        parts.append(body if power == 1 else f"{body}^{power}")
    return "*".join(parts)


def _dim(terms: dict[Term, int], scope: SymbolicScope) -> Any:
    """An int where nothing is symbolic. Terms that a constraint equates with something else are replaced by that."""
    for term in terms if scope.equal else ():
        if term in scope.equal and terms[term]:
            rest = _dim({each: coefficient for each, coefficient in terms.items() if each != term}, scope)
            return rest + scope.equal[term] * terms[term]
        for place, (factor, power) in enumerate(term):  # where mod(n, k) is known, k * floordiv(n, k) is n without it
            if factor[0] == "floordiv" and power == 1 and isinstance(factor[2], int) and terms[term] % factor[2] == 0:
                known = scope.equal.get(((("mod", *factor[1:]), 1),))
                if known is not None and terms[term]:
                    rest = _dim({each: coefficient for each, coefficient in terms.items() if each != term}, scope)
                    others = _dim({term[:place] + term[place + 1:]: terms[term] // factor[2]}, scope)
                    return rest + others * (factor[1] - known)
    terms = {term: coefficient for term, coefficient in terms.items() if coefficient}
    if not terms or set(terms) == {()}:
        return terms.get((), 0)
    return Dim(terms, scope)


def variable(name: str, scope: SymbolicScope) -> Any:
    """The dimension that is one variable."""
    return _dim({((("var", name), 1),): 1}, scope)


def _operation(kind: str, one: Any, two: Any, scope: SymbolicScope) -> Any:
    return _dim({(((kind, one, two), 1),): 1}, scope)


def divide(one: Any, two: Any, scope: SymbolicScope) -> tuple[Any, Any]:
    """Quotient and remainder, rounded as Python does. Raises: InconclusiveDimensionOperation for a divisor that may be zero."""
    if isinstance(two, int) and two == 0:
        raise ZeroDivisionError("a symbolic dimension is divided by zero")
    exact = _exact(one, two)
    if exact is not None:
        return exact, 0
    if isinstance(two, int) and isinstance(one, Dim):  # the terms that it divides leave no remainder
        whole = {term: coefficient // two for term, coefficient in one.terms.items() if coefficient % two == 0}
        rest = _dim({term: coefficient for term, coefficient in one.terms.items() if coefficient % two}, scope)
        if whole:
            quotient, remainder = divide(rest, two, scope) if isinstance(rest, Dim) else divmod(rest, two)
            return _dim(whole, scope) + quotient, remainder
    low, high = scope.bounds(one)
    least, most = scope.bounds(two)
    if least > 0 and low >= 0 and scope.bounds(one - two)[1] < 0:
        return 0, one
    quotient = _operation("floordiv", one, two, scope)
    return quotient, _operation("mod", one, two, scope)


def _exact(one: Any, two: Any) -> Any:
    """The quotient of polynomials, if there is one."""
    if isinstance(one, int):
        return 0 if one == 0 else None
    if isinstance(two, int):
        if any(coefficient % two for coefficient in one.terms.values()):
            return None
        return _dim({term: coefficient // two for term, coefficient in one.terms.items()}, one.scope)
    scope, quotient, rest = one.scope, 0, one
    lead = max(two.terms, key=_degree)
    for _ in range(len(one.terms) + 2):
        if isinstance(rest, int):
            return quotient if rest == 0 else None
        top = max(rest.terms, key=_degree)
        powers = dict(top)
        for factor, power in lead:
            powers[factor] = powers.get(factor, 0) - power
        if any(power < 0 for power in powers.values()) or rest.terms[top] % two.terms[lead]:
            return None
        term = tuple(item for item in sorted(powers.items(), key=_order) if item[1])
        step = _dim({term: rest.terms[top] // two.terms[lead]}, scope)
        quotient, rest = quotient + step, rest - step * two
    return None


def _degree(term: Term) -> Any:
    """Orders terms by degree, then by their factors, in a way that multiplication keeps."""
    return sum(power for _, power in term), sorted((str(factor) for factor, power in term for _ in range(power)), reverse=True)


def largest(one: Any, two: Any) -> Any:
    """The greater of two dimensions."""
    return _extreme("max", one, two)


def smallest(one: Any, two: Any) -> Any:
    """The smaller of two dimensions."""
    return _extreme("min", one, two)


def _extreme(kind: str, one: Any, two: Any) -> Any:
    if isinstance(one, int) and isinstance(two, int):
        return max(one, two) if kind == "max" else min(one, two)
    for more, less in ((one, two), (two, one)):
        try:
            if more >= less:
                return more if kind == "max" else less
            return less if kind == "max" else more
        except InconclusiveDimensionOperation:
            continue
    return _operation(kind, one, two, (one if isinstance(one, Dim) else two).scope)


def may_equal(one: Any, two: Any) -> bool:
    """Whether two sizes are equal, or are for some values of their variables, as far as the bounds tell."""
    if one == two:
        return True
    difference = one - two
    low, high = difference.scope.bounds(difference) if isinstance(difference, Dim) else (difference, difference)
    return low <= 0 <= high


def as_size(value: Any) -> Any:
    """A size: an int, or a symbolic dimension as it is. Raises: TypeError for anything else."""
    return value if type(value) is Dim else operator.index(value)


def are_ints(values: Any) -> bool:
    """Whether the object is a tuple of Python ints, as most shapes are."""
    if type(values) is not tuple:
        return False
    for value in values:
        if type(value) is not int:
            return False
    return True


def as_sizes(values: Iterable[Any]) -> tuple[Any, ...]:
    """Sizes as a tuple of what `as_size` gives."""
    return values if are_ints(values) else tuple(map(as_size, values))  # type: ignore[return-value]


def exceeds(shape: Sequence[Any], limit: int) -> bool:
    """Whether the known sizes of a shape, or their product, are greater than a limit."""
    try:
        return max(shape, default=0) > limit or math.prod(shape) > limit
    except InconclusiveDimensionOperation:
        known = [size for size in shape if type(size) is not Dim]
        return max(known, default=0) > limit or math.prod(known) > limit


def slice_bounds(item: slice, size: Any) -> tuple[Any, Any, int]:
    """Start, number of elements and step of a slice of an axis of symbolic size, or with symbolic bounds."""
    step = 1 if item.step is None else operator.index(item.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")

    def bound(value: Any, default: Any, low: Any, high: Any) -> Any:
        if value is None:
            return default
        value = as_size(value)
        if value < 0:
            value = value + size
        return smallest(high, largest(low, value))

    if step > 0:
        start, stop = bound(item.start, 0, 0, size), bound(item.stop, size, 0, size)
        length, stride = stop - start, step
    else:
        start, stop = bound(item.start, size - 1, -1, size - 1), bound(item.stop, -1, -1, size - 1)
        length, stride = start - stop, -step
    return start, (largest(0, length) + (stride - 1)) // stride, step


def is_symbolic(value: Any) -> bool:
    """Whether a size is a symbolic dimension."""
    return isinstance(value, Dim)


def is_constant_dim(d: Any) -> bool:
    """Whether a size is a number, known while a program is traced.

    >>> from jaxlite import export
    >>> is_constant_dim(3), is_constant_dim(export.symbolic_shape("b")[0])
    (True, False)
    """
    return not isinstance(d, Dim)


def is_constant_shape(s: Sequence[Any]) -> bool:
    """Whether all sizes of a shape are numbers, known while a program is traced."""
    return all(map(is_constant_dim, s))


def max_dim(d1: Any, d2: Any) -> Any:
    """The greater of two sizes, which may be symbolic.

    >>> from jaxlite import export
    >>> b, = export.symbolic_shape("b")
    >>> max_dim(b, 5), max_dim(b + 1, b), min_dim(b, 0)
    (max(b, 5), b + 1, 0)
    """
    return largest(d1, d2)


def min_dim(d1: Any, d2: Any) -> Any:
    """The smaller of two sizes, which may be symbolic."""
    return smallest(d1, d2)


def _no_values(dim: Dim) -> Any:
    raise InconclusiveDimensionOperation(f"the value of the symbolic dimension '{dim}' is not known here")


_dimension_value = _no_values


def set_dimension_value(function: Any) -> None:
    """Say how a dimension becomes an array in a program."""
    global _dimension_value
    _dimension_value = function


def _as_array(apply: Any, dim: Dim, other: Any) -> Any:
    """Arithmetic whose result is not a size: an array."""
    if not hasattr(other, "dtype") and not isinstance(other, (int, float, complex, Dim)):
        return NotImplemented
    return apply(_dimension_value(dim), _dimension_value(other) if isinstance(other, Dim) else other)


# --- text --------------------------------------------------------------------------------------------


def parse(text: str, scope: SymbolicScope) -> Any:
    """A dimension from its text: names, ints, `+ - * ^`, and `floordiv`, `mod`, `max`, `min`.

    Raises: ValueError for anything else.
    """
    try:
        return _built(ast.parse(text.strip().replace("^", "**"), mode="eval").body, scope)
    except (SyntaxError, TypeError, ValueError, KeyError, RecursionError, MemoryError) as error:
        if "scopes" in str(error):
            raise
        raise ValueError(f"syntax error in symbolic shape {text!r}: a dimension is written with names, ints, '+', '-', '*', "
                         f"'^', "
                         "'floordiv', 'mod', 'max' and 'min'") from None


_BINARY: dict[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
                            ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}
_CALLS: dict[str, Any] = {"floordiv": operator.floordiv, "mod": operator.mod, "max": largest, "min": smallest}


def _built(node: Any, scope: SymbolicScope) -> Any:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return variable(name, scope)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_built(operand, scope)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_built(left, scope), _built(right, scope))
        case ast.Call(func=ast.Name(id="non_negative"), args=[operand]):
            return largest(_built(operand, scope), 0)
        case ast.Call(func=ast.Name(id=name), args=[one, two]):
            return _CALLS[name](_built(one, scope), _built(two, scope))
    raise KeyError(node)


def names_in(dims: Iterable[Any]) -> list[str]:
    """The variables of dimensions, sorted."""
    found: set[str] = set()
    for dim in dims:
        if isinstance(dim, Dim):
            found |= dim.variables()
    return sorted(found)
