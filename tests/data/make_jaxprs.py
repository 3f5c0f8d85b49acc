"""Writes jaxprs.json: programs, and the text that JAX prints for them. Run it where jax is installed.

A program is written as plain data, so that a test can build it again from jaxlite's classes: a jaxpr is
`[constvars, invars, eqns, outvars]`, an equation `[primitive, invars, outvars, params]`. A variable is
`[number, dtype, shape]`, a literal `["literal", value, dtype]`. Values of params, and jaxprs, are tagged by their kind;
the second time a jaxpr is met it is `["again", number]`.
"""

import enum
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

KEPT = {"jit": ("name", "jaxpr", "donated_invars", "inline", "keep_unused")}  # the rest is about sharding


class Exporter:
    def __init__(self):
        self.jaxprs, self.variables, self.alive = {}, {}, []

    def jaxpr(self, jaxpr):
        if id(jaxpr) in self.jaxprs:
            return ["again", self.jaxprs[id(jaxpr)]]
        self.jaxprs[id(jaxpr)] = len(self.jaxprs)
        atoms = lambda atoms: [self.atom(atom) for atom in atoms]
        return ["jaxpr", [atoms(jaxpr.constvars), atoms(jaxpr.invars),
                          [self.eqn(eqn, atoms) for eqn in jaxpr.eqns], atoms(jaxpr.outvars)]]

    def eqn(self, eqn, atoms):
        name = eqn.primitive.name
        params = {key: self.value(value) for key, value in eqn.params.items() if key in KEPT.get(name, eqn.params)}
        return [name, atoms(eqn.invars), atoms(eqn.outvars), params]

    def atom(self, atom):
        dtype = str(atom.aval.dtype)
        if hasattr(atom, "val"):
            value = atom.val if type(atom.val) in (bool, int, float, complex) else np.asarray(atom.val).item()
            return ["literal", repr(value), dtype]
        self.alive.append(atom)
        return [self.variables.setdefault(id(atom), len(self.variables)), dtype, list(atom.aval.shape)]

    def value(self, value):
        if hasattr(value, "eqns"):
            return self.jaxpr(getattr(value, "jaxpr", value))
        if isinstance(value, np.dtype):
            return ["dtype", str(value)]
        if isinstance(value, enum.Enum) and not isinstance(value, int):
            return ["enum", type(value).__name__, value.name]
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", None)
            return ["tuple", list(map(self.value, value)), fields and [type(value).__name__, *fields]]
        if isinstance(value, str):
            return ["str", value]
        if isinstance(value, (bool, int, float, np.integer, type(None))):
            return ["value", int(value) if isinstance(value, np.integer) else value]
        raise TypeError(f"no plain form for {value!r}")


def repeat(operation, count):
    def f(x):
        for _ in range(count):
            x = operation(x)
        return x
    return f


@jax.jit
def two(x, y):
    return x + y, x * y


@jax.jit
def inner(x):
    return x + 1


@jax.jit
def middle(x):
    return inner(x) * 2


def twice(x):
    return x * 2


def named(name, factor):
    def f(x):
        return x * factor
    f.__name__ = name
    return jax.jit(f)


ga, gb = named("g", 3.0), named("g", 4.0)
lam = jax.jit(lambda x: x - 1)
long = jax.jit(repeat(lax.sin, 11))
s, v, m = 1.0, np.ones(3, "f"), np.ones((3, 3), "f")
i8, c64, bf16 = np.int8(1), np.complex64(1), jnp.bfloat16(1)
image, kernel = np.ones((1, 1, 4, 4), "f"), np.ones((1, 1, 2, 2), "f")

PROGRAMS = {
    "identity": (lambda x: x, s),
    "nothing": (lambda: (),),
    "only literals": (lambda: (1, 2.5, True, 1j),),
    "one line": (lambda x: lax.sin(x), s),
    "two equations": (lambda x: lax.cos(lax.sin(x)), s),
    "literals": (lambda x: (x * 1e-30, x / 3, x + np.inf, x - np.nan, x * -0.0, lax.mul(x, 1e-30)), np.float32(1)),
    "literals of small types": (lambda x, y: (x + 3, y * 0.1, y - 2), i8, bf16),
    "complex literals": (lambda x: (x * 1j, x + 0.1, x - (2 - 1j)), c64),
    "constants": (lambda x: x + np.arange(3, dtype="f") + m, v),
    "unread results": (lambda x: (lax.sin(x), lax.sort((x, x), num_keys=2)[1])[1], v),
    "unread results inside": (lambda x: jax.jit(lambda x: (lax.sin(x), lax.cos(x))[1])(x), s),
    "dropped result of jit": (lambda x: two(x, 2.0)[0], s),
    "one operand twice": (lambda x: two(x, x), s),
    "results of jit that are not its own": (lambda x: jax.jit(lambda x: (1.0, x, x))(x), s),
    "an argument and a result": (lambda x, y: jax.jit(lambda x, y: (x, y + 1, y))(x, y), s, s),
    "one result twice": (lambda x: jax.jit(lambda x: (lax.sin(x),) * 2)(x), s),
    "jit twice": (lambda x: inner(inner(x)), s),
    "lambda twice": (lambda x: lam(lam(x)), s),
    "jit in jit": (lambda x: middle(x), s),
    "jit in jit, twice": (lambda x: middle(middle(x)), s),
    "jit at two depths": (lambda x: (two(x, x), jax.jit(lambda x: two(x, 1.0))(x)), s),
    "two functions of one name": (lambda x: ga(ga(gb(gb(x)))), s),
    "long jit": (long, s),
    "long jit once": (lambda x: jax.jit(repeat(lax.sin, 11))(x), s),
    "short enough jit": (lambda x: jax.jit(repeat(lax.sin, 10))(x), s),
    "long in the middle": (lambda x: jax.jit(lambda x: long(long(x)))(x) + 1, s),
    "donated": (lambda x: jax.jit(twice, donate_argnums=0, keep_unused=True)(x), s),
    "cond": (lambda p, x: lax.cond(p, lax.sin, twice, x), True, s),
    "cond with one function": (lambda p, x: lax.cond(p, twice, twice, x), True, s),
    "cond with one jit": (lambda p, x: lax.cond(p, inner, inner, inner(x)), True, s),
    "cond with a long branch": (lambda p, x: lax.cond(p, repeat(lax.sin, 11), twice, x), True, s),
    "switch": (lambda i: lax.switch(i, [lambda: 1, lambda: 2, lambda: 3]), 1),
    "while": (lambda x: lax.while_loop(lambda x: x < 3.0, lambda x: x + 1, x), s),
    "fori_loop": (lambda x, n: lax.fori_loop(0, n, lambda i, c: c * 3 + x, x + 1), v, 5),
    "scan": (lambda x, y: lax.scan(lambda c, a: (c + a * y, c), 0.0, x), v, s),
    "scan in cond": (lambda p, x: lax.cond(
        p, lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=3)[0], twice, x), True, s),
    "gradient of a loop": (jax.grad(lambda x: lax.fori_loop(0, 3, lambda i, c: c * jnp.sin(x), x)), s),
    "wide": (lambda *x: lax.concatenate(x, 0), *[v] * 40),
    "wide results": (lambda x: lax.scan(lambda c, _: (c, tuple(x * i for i in range(40))), x, None, length=2), s),
    "many results": (lambda x: (x,) * 60, s),
    "long": (repeat(lax.sin, 240), s),
    "shapes": (lambda x: (x.reshape(-1), x[:, None], x.T, lax.squeeze(x[:1], (0,)), x.astype(int),
                          lax.broadcast_in_dim(x, (2, 3, 3), (1, 2))), m),
    "reductions": (lambda x: (x.sum(), x.max(0), lax.argmax(x, 1, np.int32), lax.cumsum(x)), m),
    "contractions": (lambda x: (jnp.dot(x, x), jnp.dot(x, x, precision="highest"),
                                jnp.einsum("bi,bj->bij", x, x)), m),
    "convolution": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), image, kernel),
    "windows": (lambda x: lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "VALID"), v),
    "gather and scatter": (lambda x, i: (x[i], x.at[i].set(1.0), x.at[i].add(2.0), x.at[0].multiply(3.0)), m,
                           np.zeros(2, "i")),
    "slices": (lambda x, i: (x[1:], x[::2], lax.dynamic_slice(x, (i,), (2,)), lax.pad(x, 0.0, ((1, 1, 0),)),
                             lax.rev(x, (0,)), lax.dynamic_update_slice(x, x[:1], (i,))), v, 1),
    "sort": (lambda x: (lax.sort(x), lax.top_k(x, 2)), v),
    "iota and accuracy": (lambda x: (lax.iota("float32", 3), lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST)), s),
    "linear algebra": (lambda x: (jnp.linalg.cholesky(x), jnp.linalg.eigh(x)), m),
}
OPTIONS = {
    "without shapes": ("jit in jit", {"print_shapes": False}),
    "narrow": ("scan", {"width": 40}),
    "in color": ("jit twice", {"use_color": True}),
    "with effects": ("jit in jit", {"print_effects": True}),
}


def main():
    def row(title, program, **options):
        fun, *args = PROGRAMS[program]
        traced = jax.make_jaxpr(fun)(*args)
        return {"title": title, "program": Exporter().jaxpr(traced.jaxpr), "options": options,
                "text": traced.pretty_print(**options)}

    rows = [row(title, title) for title in PROGRAMS]
    rows += [row(title, program, **options) for title, (program, options) in OPTIONS.items()]
    path = Path(__file__).with_name("jaxprs.json")
    path.write_text("[\n" + ",\n".join(map(partial(json.dumps, separators=(",", ":")), rows)) + "\n]\n")


if __name__ == "__main__":
    main()
