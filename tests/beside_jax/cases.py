"""Draws programs from the rows of rows.txt: calls with arrays in the letters' places, and each transformation over such a call.

A program is Python source whose last line is an expression, with its arrays written out, so that it can be pasted anywhere.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

LETTER = re.compile(r"(?<![\w.'\"\\])([NRFGCIUBPQJSDTKVW])([0-4]?)(?![\w'\"(=])")
SHARED = "SDTKVW"
FLOATS = ("float32", "float32", "float32", "float16", "bfloat16")
INTS = ("int32", "int32", "int8", "uint8", "int16", "uint32")
COMPLEX = ("complex64",)
DTYPES = {
    "N": ("float32", *FLOATS, *INTS, "bool", "complex64"), "R": (*FLOATS, *INTS), "F": FLOATS, "C": COMPLEX,
    "G": ("float32", "bfloat16", *COMPLEX), "I": INTS, "U": ("uint8", "uint32", "uint16"), "B": ("bool",), "P": FLOATS,
    "Q": FLOATS, "J": ("int32", "int32", "uint8"),
}
SHAPES = {0: (), 1: (3,), 2: (2, 3), 3: (2, 2, 3), 4: (1, 2, 3, 3)}
PYTHON = {"N": ("2", "2.5", "True", "1j", "-1"), "R": ("2", "0.5", "-3"), "F": ("0.5", "-1.5"), "I": ("3", "-2"), "P": ("1.5",),
          "Q": ("0.25",), "B": ("True",), "J": ("1",), "G": ("1.5", "2j"), "C": ("1+2j",), "U": ("3",)}
WIDE = {"float32": "float64", "int32": "int64", "uint32": "uint64", "complex64": "complex128"}
X64 = 'jax.config.update("jax_enable_x64", True)'
SETTINGS = (X64, X64, 'jax.config.update("jax_numpy_dtype_promotion", "strict")',
            'jax.config.update("jax_numpy_rank_promotion", "raise")')

# How a function f of the drawn arrays is called, once for itself and once under each transformation.
TRANSFORMED = {
    "jit": "jax.jit({f})({a})",
    "eval_shape": "jax.eval_shape({f}, {a})",
    "vmap": "jax.vmap({f})(*twice({a}))",
    "vmap of one": "jax.vmap({f}, in_axes=(0,) + (None,) * {rest})(*twice({first}), *({others}))",
    "vmap out": "jax.vmap({f}, out_axes=-1)(*twice({a}))",
    "jvp": "push({f}, {a})",
    "vjp": "pull({f}, {a})",
    "linearize": "linear({f}, {a})",
    "jit vjp": "jax.jit(lambda *a: pull({f}, *a))({a})",
    "vmap vjp": "jax.vmap(lambda *a: pull({f}, *a))(*twice({a}))",
    "vmap jvp": "jax.vmap(lambda *a: push({f}, *a))(*twice({a}))",
    "jvp vmap": "push(jax.vmap({f}), *twice({a}))",
    "vjp vmap": "pull(jax.vmap({f}), *twice({a}))",
    "grad": "jax.grad(total({f}))({a})",
    "hessian": "jax.hessian(total({f}))({a})",
    "vjp vjp": "pull(lambda *a: pull({f}, *a), {a})",
    "jacfwd": "jax.jacfwd({f})({a})",
    "jacrev": "jax.jacrev({f})({a})",
    "checkpoint": "pull(jax.checkpoint({f}), {a})",
    "scan": "scanned({f})({a})",
    "vjp scan": "pull(scanned({f}), {a})",
    "jvp scan": "push(scanned({f}), {a})",
    "while": "repeated({f})({a})",
    "jvp while": "push(repeated({f}), {a})",
    "cond": "chosen({f})({a})",
    "vjp cond": "pull(chosen({f}), {a})",
    "vmap cond": "jax.vmap(chosen({f}))(*twice({a}))",
    "custom_jvp": "pull(ruled({f}), {a})",
    "custom_vjp": "pull(ruled_back({f}), {a})",
    "vmap custom_vjp": "jax.vmap(lambda *a: pull(ruled_back({f}), *a))(*twice({a}))",
    "tree": "jax.jit(lambda t: ({f})(*t['a'], *t['b'].values()))({{'a': ({first},), 'b': dict(enumerate([{others}]))}})",
    "vjp tree": "pull(lambda t: ({f})(*t['a'], *t['b'].values()), {{'a': ({first},), 'b': dict(enumerate([{others}]))}})",
}
NESTED = {"nested twice": 2, "nested three times": 3}  # that many of the above, drawn, one in the other
DIRECT_DRAWS = 4


class Drawn:
    """The arrays of one program: their sizes and dtypes go together more often than not."""

    def __init__(self, rng: random.Random, scalars: bool, wide: bool = False) -> None:
        self.rng, self.scalars, self.wide = rng, scalars, wide
        self.rank = rng.choice((0, 1, 1, 2, 2, 3))
        self.special = rng.random() < 0.15
        self.cut = (rng.randrange(1, 3), rng.choice((0, 1))) if rng.random() < 0.12 else None
        self.dtype: dict[str, str] = {}
        self.single = rng.random() < 0.6

    def shape(self, rank: str) -> tuple[int, ...]:
        if rank:
            shape = SHAPES[int(rank)]
        else:
            shape = SHAPES[self.rank][self.rng.choice((0, 0, 0, 1)):]
        if self.cut is not None and len(shape) >= self.cut[0]:
            shape = tuple(self.cut[1] if len(shape) - i == self.cut[0] else n for i, n in enumerate(shape))
        return shape

    def number(self, letter: str, dtype: str) -> str:
        rng = self.rng
        if dtype == "bool":
            return rng.choice(("True", "False"))
        if letter == "J":
            return str(rng.randrange(3))
        if letter == "P":
            return str(round(rng.uniform(0.1, 3), 2))
        if letter == "Q":
            return str(round(rng.uniform(0.02, 0.98), 2))
        if "int" in dtype:
            if self.special and rng.random() < 0.3:
                bits = int(dtype.rpartition("t")[2])
                return str(rng.choice((0, 2 ** (bits - 1) - 1, 2**bits - 1 if dtype[0] == "u" else -(2 ** (bits - 1)))))
            return str(rng.randrange(7) if dtype[0] == "u" else rng.randrange(-3, 6))
        if dtype.startswith("complex"):
            return f"{round(rng.gauss(0, 2), 2)}{round(rng.gauss(0, 2), 2):+}j"
        if self.special and rng.random() < 0.4:
            return rng.choice(("nan", "inf", "-inf", "-0.0", "0.0", "1e30", "1.0"))
        return str(round(rng.gauss(0, 2), 2))

    def array(self, letter: str, rank: str) -> str:
        rng = self.rng
        if letter == "K":
            return f"jax.random.key({rng.randrange(50)})"
        if letter in "SDTVW":
            small = Drawn(random.Random(rng.randrange(10**9)), False)
            small.special, small.cut = False, None
            if letter == "V":
                return small.literal("F", (3,), "float32")
            if letter == "W":
                return small.literal("F", (2, 3), "float32")
            square = small.literal("F", (3, 3), "float32")
            if letter == "S":
                return square
            return f"(lambda a: {'jnp.tril(a) + 4 * jnp.eye(3)' if letter == 'T' else 'a @ a.T + 3 * jnp.eye(3)'})({square})"
        shape = self.shape(rank)
        if not shape and self.scalars and rng.random() < 0.4:
            return rng.choice(PYTHON[letter])
        if rng.random() < (0.05 if shape else 0.2):
            return f"jnp.full({shape}, {rng.choice(PYTHON[letter])})"  # weakly typed
        if letter not in self.dtype or not self.single:
            self.dtype[letter] = rng.choice(DTYPES[letter])
            if self.wide and rng.random() < 0.7:
                self.dtype[letter] = WIDE.get(self.dtype[letter], self.dtype[letter])
        return self.literal(letter, shape, self.dtype[letter])

    def literal(self, letter: str, shape: tuple[int, ...], dtype: str) -> str:
        def nested(shape: tuple[int, ...]) -> str:
            if not shape:
                return self.number(letter, dtype)
            return "[" + ", ".join(nested(shape[1:]) for _ in range(shape[0])) + "]"

        module = "np" if self.scalars and dtype != "bfloat16" and self.rng.random() < 0.12 else "jnp"
        text = f"{module}.array({nested(shape)}, {repr(dtype) if dtype != 'bfloat16' else 'jnp.bfloat16'})"
        return text if 0 not in shape else f"{module}.zeros({shape}, {repr(dtype) if dtype != 'bfloat16' else 'jnp.bfloat16'})"


def rows() -> Iterator[tuple[str, str | None]]:
    """Each function with each row of arguments; with None where rows.txt says that it is not called."""
    module = ""
    for line in (Path(__file__).parent / "rows.txt").read_text().splitlines():
        if line.startswith("["):
            module = line.strip("[]")
        elif line and not line.startswith("#"):
            names, _, arguments = line.removeprefix("! ").partition(": ")
            for name in names.split():
                for each in (None,) if line.startswith("! ") else arguments.split(" | "):
                    yield f"{module}.{name}", "" if each == "-" else each


def fill(template: str, rng: random.Random, scalars: bool, wide: bool) -> tuple[str, list[str], str]:
    """The template with arrays in it; the arrays; and the template with names `a0`, `a1`, ... in their places."""
    drawn, texts, names = Drawn(rng, scalars, wide), [], []
    shared: dict[str, str] = {}

    def replaced(found: re.Match[str]) -> str:
        letter, rank = found.groups()
        if letter in shared:
            return shared[letter]
        text = drawn.array(letter, rank)
        texts.append(text)
        names.append(f"a{len(names)}")
        if letter in SHARED:
            shared[letter] = names[-1]
        return names[-1]

    named = LETTER.sub(replaced, template)
    return re.sub(r"\ba(\d)\b", lambda found: texts[int(found[1])], named), texts, named


NOT_TRANSFORMED = ("jax.tree", "jax.dtypes", "jax.dlpack", "jax.nn.initializers")
NOT_DIFFERENTIATED = ("jax.random",)
DERIVATIVES = ("jvp", "vjp", "linearize", "grad", "hessian", "jac", "checkpoint", "custom")


def transformations(function: str) -> list[str]:
    """The names of those that make sense for a function."""
    module = function.rpartition(".")[0]
    if module.startswith(NOT_TRANSFORMED) or module == "jax":
        return []
    return [how for how in TRANSFORMED if module not in NOT_DIFFERENTIATED or not any(each in how for each in DERIVATIVES)]


def program(function: str, template: str, how: str, seed: str) -> str | None:
    """One program of a row; None where the row has no arrays to transform over."""
    rng = random.Random(seed)
    before = rng.choice(SETTINGS) + "\n" if rng.random() < 0.12 else ""
    filled, texts, named = fill(template, rng, how == "call", wide=X64 in before)
    call = f"{function}({{}})".replace("jax.numpy.", "jnp.").replace("jax.lax.", "lax.").replace("jax.scipy.", "jsp.")
    if function.startswith("jax.nn.initializers.") and "K" not in template:
        call = call + "(jax.random.key(1), (3, 2))"
    if how == "call":
        return before + call.format(filled)
    if not texts:
        return None
    f = f"lambda {', '.join(f'a{i}' for i in range(len(texts)))}: {call.format(named)}"
    if how in NESTED:
        inner = [each for each in transformations(function) if set(re.findall(r"{(\w+)}", TRANSFORMED[each])) == {"f", "a"}]
        *around, how = rng.sample(inner, NESTED[how])
        for each in around:
            f = f"lambda *a: {TRANSFORMED[each].format(f=f, a='*a')}"
    others = "".join(f"{each}, " for each in texts[1:])
    return before + TRANSFORMED[how].format(f=f, a=", ".join(texts), first=texts[0], others=others, rest=len(texts) - 1)


def drawn_programs(seed: int) -> Iterator[tuple[int, str, str]]:
    """All programs of a seed with the tier and the part of jax of each: tier 0 has one for each row."""
    for number, (function, template) in enumerate(rows()):
        if template is None:
            continue
        hows = ["call"] * DIRECT_DRAWS
        if transformed := transformations(function):
            hows += [*transformed, *NESTED, *NESTED]
        first = random.Random(f"{seed} {number}").randrange(len(hows))
        for i, how in enumerate(hows):
            made = program(function, template, how, f"{seed} {number} {i}")
            if made is not None:
                yield int(i != first), ".".join(function.split(".")[:2]), made
