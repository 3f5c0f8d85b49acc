"""Random programs: the text of small nested Python functions that mix jit, derivatives, vmap, loops and branches.

`write(seed)` gives the text of `def program(...)` and the types of its arguments and results. The text uses names that
have two meanings: jaxlite's (`jaxlite_names`) and that of Python loops (`loop_oracle.LoopOracle`). Every value has a type
that the writer knows, so texts are well typed by construction, and types of results can be checked too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax, nn


class Type(NamedTuple):
    dtype: str
    shape: tuple[int, ...]

    @property
    def floating(self) -> bool:
        return self.dtype != "int32"

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class Program(NamedTuple):
    seed: int
    text: str
    inputs: dict[str, Type]
    outputs: list[Type]

    def arguments(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return {name: np.asarray(rng.normal(size=type.shape) * 0.7 if type.floating else rng.integers(0, 4, type.shape),
                                 type.dtype) for name, type in self.inputs.items()}

    def run(self, names: dict[str, Any]) -> Callable:
        names = dict(names)
        exec(compile(self.text, "<random program>", "exec"), names)
        return names["program"]


def jaxlite_names() -> dict[str, Any]:
    def custom_jvp_of(fun: Callable) -> Callable:
        custom = jax.custom_jvp(fun)
        custom.defjvp(lambda primals, tangents: jax.jvp(fun, primals, tangents))
        return custom

    def custom_vjp_of(fun: Callable) -> Callable:
        custom = jax.custom_vjp(fun)
        custom.defvjp(lambda *args: jax.vjp(fun, *args), lambda pull, ct: pull(ct))
        return custom

    return {
        "jnp": jnp, "jit": jax.jit, "checkpoint": jax.checkpoint, "custom_jvp_of": custom_jvp_of,
        "custom_vjp_of": custom_vjp_of, "grad": jax.grad, "value_and_grad": jax.value_and_grad, "jvp": jax.jvp,
        "vjp": jax.vjp, "linearize": jax.linearize, "jacfwd": jax.jacfwd, "jacrev": jax.jacrev, "hessian": jax.hessian,
        "vmap": jax.vmap, "scan": lax.scan, "fori_loop": lax.fori_loop, "while_loop": lax.while_loop, "cond": lax.cond,
        "switch": lax.switch, "lax_map": lax.map, "associative_scan": lax.associative_scan,
        "cast": lambda x, dtype: jnp.asarray(x).astype(dtype), "less": lambda x, y: x < y, "maximum": jnp.maximum,
        "absolute": jnp.abs, "sort": jnp.sort, "largest": jnp.max, "floor": lambda x: jnp.floor(x).astype("int32"),
        "argmax": lambda x, axis: jnp.argmax(x, axis).astype("int32"), "softmax": nn.softmax,
        "at_add": lambda x, index, y: x.at[index].add(y), "at_set": lambda x, index, y: x.at[index].set(y),
        "dynamic_slice": lambda x, start, size, axis: lax.dynamic_slice_in_dim(x, start, size, axis),
    }  # fmt: skip


# Operations by text; {0} and {1} are operands. All are bounded, or grow slowly, so that numbers stay small.
UNARY = ["jnp.sin({0})", "jnp.cos({0} * 1.3)", "jnp.tanh({0})", "jnp.arctan({0}) * 1.5", "{0} * {0} * 0.3", "-{0} + 0.25",
         "jnp.sqrt({0} * {0} + 1.0)", "jnp.log1p({0} * {0})", "jnp.exp(-{0} * {0})", "1.0 / ({0} * {0} + 1.5)",
         "jnp.expm1(jnp.sin({0}))", "jnp.square({0} - 0.5) * 0.2", "absolute({0})", "jnp.where(less({0}, 0.3), {0}, {0} * 0.5)",
         "{0} ** 3 * 0.1", "maximum({0}, 0.1)"]  # fmt: skip
BINARY = ["{0} + {1}", "{0} - {1} * 0.5", "{0} * {1}", "{0} / ({1} * {1} + 1.0)", "jnp.arctan2({0}, {1} * {1} + 0.7)",
          "jnp.where(less({0}, {1}), {0} * {1}, {1})", "maximum({0}, {1})", "jnp.logaddexp({0}, {1}) * 0.5",
          "jnp.hypot({0}, {1} * {1} + 0.5)", "({0} * {0} + 1.0) ** jnp.tanh({1})"]  # fmt: skip


class Writer:
    """Writes one program. `lines` is its text so far, `depth` how much nesting is left."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.lines: list[str] = []
        self.indent = self.count = 0
        self.forward = self.reverse = 0  # how many derivatives of a mode are around: some operations have but one

    # --- text

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, letter: str = "v") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def let(self, env: dict[str, Type], text: str, type: Type) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        env[name] = type
        return name

    def some(self, env: dict[str, Type], wanted: Callable[[Type], bool] = lambda type: type.floating) -> str | None:
        """A variable, more often one of the latest."""
        names = [name for name, type in env.items() if wanted(type)]
        if not names:
            return None
        return names[-1 - min(int(self.rng.exponential(2.0)), len(names) - 1)]

    # --- values of a wanted type

    def floating(self, env: dict[str, Type], wanted: Callable[[Type], bool] = lambda _: True) -> str:
        name = self.some(env, lambda type: type.floating and wanted(type))
        return name if name else self.coerce(env, self.some(env) or "0.5", Type("float64", self.pick([(2,), (3,), (2, 3)])))

    def coerce(self, env: dict[str, Type], name: str, type: Type) -> str:
        """A value of a type that depends on another value."""
        have = env.get(name, Type("float64", ()))
        if have == type:
            return name
        text = name
        if have.shape != type.shape:
            text = f"jnp.sum({name})" if have.shape else name
            if type.shape:
                text = f"{text} * jnp.arange(1.0, {type.size + 1}.0).reshape({type.shape}) * 0.1"
        if type.floating:
            return self.let(env, f"cast({text}, {type.dtype!r})", type)
        return self.let(env, f"floor({text})" if have.floating else f"cast({text}, 'int32')", type)

    def result(self, env: dict[str, Type], inner: dict[str, Type], type: Type | None = None) -> str:
        """A floating value made in this block, of a type if one is asked for."""
        fresh = {name: each for name, each in inner.items() if name not in env and each.floating} or \
            {name: each for name, each in inner.items() if each.floating}
        same = [name for name, each in fresh.items() if each == type]
        name = same[-1] if same and self.chance(0.8) else (list(fresh)[-1] if fresh else self.floating(inner))
        return self.coerce(inner, name, type) if type else name

    # --- simple statements

    def simple(self, env: dict[str, Type]) -> None:
        self.pick([self.unary, self.binary, self.binary, self.shape, self.shape, self.integers, self.index, self.product])(env)

    def unary(self, env: dict[str, Type]) -> None:
        name = self.floating(env)
        self.let(env, self.pick(UNARY).format(name), env[name])

    def binary(self, env: dict[str, Type]) -> None:
        one = self.floating(env)
        shape = env[one].shape
        other = self.some(env, lambda type: type.floating and type.shape in (shape, shape[1:], ())) or one
        if self.chance(0.3):
            number = self.some(env, lambda type: not type.floating and type.shape in (shape, ()))
            if number:  # an integer beside a float: it counts as the float's type
                self.let(env, f"{one} * cast({number}, {env[one].dtype!r})" if self.chance(0.5) else
                         f"{one} + 0.1 * cast({number}, {env[one].dtype!r})", env[one])
                return
        dtype = max(env[one].dtype, env[other].dtype, key=lambda each: each == "float64")
        self.let(env, self.pick(BINARY).format(one, other), Type(dtype, shape))

    def shape(self, env: dict[str, Type]) -> None:
        name = self.floating(env, lambda type: bool(type.shape))
        dtype, shape = env[name]
        axis = int(self.rng.integers(len(shape)))
        less = shape[:axis] + shape[axis + 1:]
        options = [(f"jnp.sum({name}, axis={axis})", less), (f"jnp.mean({name}, axis={axis})", less),
                   (f"largest({name}, {axis})", less), (f"sort({name}, {axis})", shape),
                   (f"jnp.cumsum({name}, axis={axis})", shape), (f"jnp.flip({name}, {axis})", shape),
                   (f"jnp.cumprod({name}, axis={axis}) * 0.5", shape), (f"jnp.prod({name}, axis={axis})", less),
                   (f"jnp.roll({name}, 1, {axis})", shape), (f"jnp.transpose({name})", shape[::-1]),
                   (f"jnp.reshape({name}, ({int(np.prod(shape))},))", (int(np.prod(shape)),)),
                   (f"softmax({name}, {axis})", shape), (f"jnp.var({name}, axis={axis})", less)]
        if 2 * int(np.prod(shape)) <= 12 and len(shape) < 3:
            options += [(f"jnp.stack([{name}, {name} * 0.5], {axis})", (*shape[:axis], 2, *shape[axis:])),
                        (f"jnp.concatenate([{name}, jnp.sin({name})], {axis})",
                         (*shape[:axis], 2 * shape[axis], *shape[axis + 1:]))]
        text, shape = self.pick(options)
        self.let(env, text, Type(dtype, shape))

    def integers(self, env: dict[str, Type]) -> None:
        number = self.some(env, lambda type: not type.floating)
        name = self.floating(env)
        options = [(f"floor({name} * 2.0)", env[name].shape)]
        if env[name].shape:
            options.append((f"argmax({name}, 0)", env[name].shape[1:]))
        if number:
            options += [(f"{number} * 2 - 1", env[number].shape), (f"({number} + 1) % 3", env[number].shape)]
        text, shape = self.pick(options)
        self.let(env, text, Type("int32", shape))

    def index(self, env: dict[str, Type]) -> None:
        name = self.floating(env, lambda type: bool(type.shape))
        dtype, shape = env[name]
        size = shape[0]
        number = self.some(env, lambda type: type.dtype == "int32" and len(type.shape) < 2)
        options = [(f"{name}[{int(self.rng.integers(size))}]", shape[1:]), (f"{name}[::-1]", shape),
                   (f"{name}[..., None]", (*shape, 1)), (f"{name}[1:]", (size - 1, *shape[1:]))]
        if number and len(shape) + len(env[number].shape) <= 3:
            at = f"{number} % {size}"
            options += 3 * [(f"{name}[{at}]", (*env[number].shape, *shape[1:])),
                            (f"at_add({name}, {at}, 0.7)", shape)]
            if not env[number].shape:
                options += [(f"dynamic_slice({name}, {number}, 1, 0)", (1, *shape[1:])),
                            (f"at_set({name}, {at}, 0.3 * {name}[0])", shape)]
        text, shape = self.pick(options)
        if 0 not in shape and len(shape) <= 3:
            self.let(env, text, Type(dtype, shape))

    def product(self, env: dict[str, Type]) -> None:
        one = self.floating(env, lambda type: 0 < len(type.shape) < 3)
        dtype, shape = env[one]
        pairs = [name for name, type in env.items() if type.dtype == dtype and type.shape[:1] == shape[-1:]
                 and 0 < len(type.shape) < 3]
        if pairs:
            other = self.pick(pairs)
            self.let(env, f"jnp.matmul({one}, {other}) * 0.4", Type(dtype, shape[:-1] + env[other].shape[1:]))
        elif len(shape) == 1 and shape[0] <= 3:
            self.let(env, f"jnp.outer({one}, jnp.cos({one}))", Type(dtype, shape * 2))

    # --- functions

    def function(self, params: dict[str, Type], env: dict[str, Type], depth: int, returns: Type | None, tree: bool = False,
                 closed: bool = True) -> tuple[str, Type]:
        """A nested function of its parameters, and of variables around it if `closed`. Its name, what it returns."""
        name = self.fresh("f")
        names = list(params)
        self.line(f"def {name}({'tree' if tree else ', '.join(names)}):")
        self.indent += 1
        if tree:
            self.line(f"{names[0]} = tree['first']")
            for position, each in enumerate(names[1:]):
                self.line(f"{each} = tree['rest'][{position}]")
        outer = dict(env) if closed else {}
        inner = {**outer, **params}
        self.block(inner, depth, int(self.rng.integers(1, 4)))
        result = self.result(outer, inner, returns)
        if self.chance(0.7):  # make a parameter matter
            used = self.coerce(inner, self.pick(names), inner[result])
            result = self.let(inner, f"{result} + 0.5 * jnp.sin({used})", inner[result])
        self.line(f"return {result}")
        self.indent -= 1
        return name, inner[result]

    def arguments(self, env: dict[str, Type], most: int = 2, wanted: Callable[[Type], bool] = lambda _: True
                  ) -> tuple[list[str], dict[str, Type]]:
        names = [self.floating(env, wanted) for _ in range(int(self.rng.integers(1, most + 1)))]
        return names, {self.fresh("a"): env[name] for name in names}

    def passed(self, names: list[str], tree: bool) -> str:
        return ", ".join(names) if not tree else \
            f"{{'first': {names[0]}, 'rest': ({''.join(f'{name}, ' for name in names[1:])})}}"

    @contextlib.contextmanager
    def derivative(self, forward: bool = False, reverse: bool = False) -> Iterator[None]:
        self.forward, self.reverse = self.forward + forward, self.reverse + reverse
        yield
        self.forward, self.reverse = self.forward - forward, self.reverse - reverse

    # --- transformations

    def call(self, env: dict[str, Type], depth: int) -> None:
        """A call that keeps its structure."""
        kind = self.pick(["jit", "checkpoint", "custom_jvp_of"] + ["custom_vjp_of"] * (not self.forward))
        names, params = self.arguments(env)
        tree, closed = self.chance(0.3) and not kind.startswith("custom"), not kind.startswith("custom")
        with self.derivative(forward=kind == "custom_jvp_of", reverse=kind == "custom_vjp_of"):
            fun, type = self.function(params, env, depth, None, tree, closed)
        self.let(env, f"{kind}({fun})({self.passed(names, tree)})", type)

    def gradient(self, env: dict[str, Type], depth: int) -> None:
        tree = self.chance(0.3)
        names, params = self.arguments(env, wanted=lambda type: type.size <= 6)
        with self.derivative(reverse=True):
            fun, _ = self.function(params, env, depth, Type("float64", ()), tree)
        passed = self.passed(names, tree)
        if self.chance(0.3):
            value, slope = self.fresh(), self.fresh("g")
            self.line(f"{value}, {slope} = value_and_grad({fun})({passed})")
            env[value] = Type("float64", ())
        else:
            slope = self.fresh("g")
            self.line(f"{slope} = grad({fun})({passed})")
        self.let(env, f"{slope}['first']" if tree else slope, env[names[0]])
        if tree and names[1:]:
            self.let(env, f"{slope}['rest'][0]", env[names[1]])

    def directional(self, env: dict[str, Type], depth: int) -> None:
        names, params = self.arguments(env, wanted=lambda type: type.size <= 6)
        along = [self.coerce(env, self.floating(env), env[name]) for name in names]
        with self.derivative(forward=True, reverse=(reverse := self.chance(0.4))):
            fun, type = self.function(params, env, depth, None)
        out, slope = self.fresh(), self.fresh()
        if reverse:
            self.line(f"{out}, {slope} = linearize({fun}, {', '.join(names)})")
            env[out] = type
            self.let(env, f"{slope}({', '.join(along)})", type)
            return
        self.line(f"{out}, {slope} = jvp({fun}, ({', '.join(names)},), ({', '.join(along)},))")
        env[out] = env[slope] = type

    def pullback(self, env: dict[str, Type], depth: int) -> None:
        names, params = self.arguments(env, wanted=lambda type: type.size <= 6)
        with self.derivative(reverse=True):
            fun, type = self.function(params, env, depth, None)
        out, pull, slopes = self.fresh(), self.fresh("p"), self.fresh("g")
        self.line(f"{out}, {pull} = vjp({fun}, {', '.join(names)})")
        env[out] = type
        ct = self.coerce(env, self.floating(env), type)
        self.line(f"{slopes} = {pull}({ct})")
        for position, name in enumerate(names):
            self.let(env, f"{slopes}[{position}]", env[name])

    def jacobian(self, env: dict[str, Type], depth: int) -> None:
        name = self.floating(env, lambda type: type.size <= 3)
        if env[name].size > 3:
            return
        type, kind = env[name], self.pick(["jacfwd", "jacrev", "hessian"])
        out = Type(type.dtype, () if kind == "hessian" else self.pick([(), (2,)]))
        with self.derivative(forward=kind != "jacrev", reverse=kind != "jacfwd"):
            fun, _ = self.function({self.fresh("a"): type}, env, depth, out)
        shape = type.shape * 2 if kind == "hessian" else out.shape + type.shape
        if len(shape) <= 3:
            self.let(env, f"{kind}({fun})({name})", Type(type.dtype, shape))

    def batch(self, env: dict[str, Type], depth: int) -> None:
        first = self.floating(env, lambda type: bool(type.shape))
        axis = int(self.rng.integers(len(env[first].shape)))
        size = env[first].shape[axis]
        names, axes = [first], [axis]
        other = self.floating(env)
        fitting = [k for k, each in enumerate(env[other].shape) if each == size]
        names.append(other)
        axes.append(self.pick([None, *fitting]))
        number = self.some(env, lambda type: not type.floating and type.shape == (size,))
        if number and self.chance(0.6):
            names.append(number)
            axes.append(0)
        params = {self.fresh("a"): Type(env[name].dtype, tuple(np.delete(env[name].shape, axis).tolist())
                                        if axis is not None else env[name].shape) for name, axis in zip(names, axes)}
        tree = self.chance(0.3)
        fun, type = self.function(params, env, depth, None, tree)
        if len(type.shape) > 2 or type.size * size > 16:
            return
        out = int(self.rng.integers(len(type.shape) + 1))
        in_axes = f"({{'first': {axes[0]}, 'rest': ({''.join(f'{axis}, ' for axis in axes[1:])})}},)" if tree else \
            f"({', '.join(map(str, axes))})"
        self.let(env, f"vmap({fun}, in_axes={in_axes}, out_axes={out})({self.passed(names, tree)})",
                 Type(type.dtype, (*type.shape[:out], size, *type.shape[out:])))

    def loop(self, env: dict[str, Type], depth: int) -> None:
        kinds = [self.scan, self.scan, self.fori, self.mapped] + [self.while_] * (not self.reverse)
        self.pick(kinds)(env, depth)

    def scan(self, env: dict[str, Type], depth: int) -> None:
        xs, init = self.floating(env, lambda type: bool(type.shape)), self.floating(env)
        size, carry = env[xs].shape[0], env[init]
        c, x = self.fresh("c"), self.fresh("a")
        fun = self.fresh("f")
        counted = self.chance(0.4)
        self.line(f"def {fun}(carry, {x}):")
        self.indent += 1
        self.line(f"{c}, i = carry" if counted else f"{c} = carry")
        inner = {**env, **({"i": Type("int32", ())} if counted else {}),
                 x: env[xs]._replace(shape=env[xs].shape[1:]), c: carry}
        self.block(inner, depth, int(self.rng.integers(1, 3)))
        new = self.coerce(inner, self.result({**env, c: carry, x: env[xs]}, inner), carry)
        new = self.let(inner, f"jnp.tanh({new} + 0.5 * {c})", carry)
        row = self.result(env, inner)
        self.line(f"return ({new}, i + 1), {row}" if counted else f"return {new}, {row}")
        self.indent -= 1
        last, rows = self.fresh(), self.fresh()
        options = self.pick(["", "", ", reverse=True", ", unroll=2"])
        start, end = (f"({init}, cast(0, 'int32'))", f"({last}, _)") if counted else (init, last)
        self.line(f"{end}, {rows} = scan({fun}, {start}, {xs}{options})")
        env[last] = carry
        if len(inner[row].shape) < 3 and inner[row].size * size <= 16:
            env[rows] = Type(inner[row].dtype, (size, *inner[row].shape))

    def fori(self, env: dict[str, Type], depth: int) -> None:
        init = self.floating(env)
        carry, i, c, fun = env[init], self.fresh("i"), self.fresh("c"), self.fresh("f")
        number = self.some(env, lambda type: not type.floating and not type.shape)
        high = f"{number} % 3 + 1" if number and not self.reverse and self.chance(0.6) else self.pick(["2", "3"])
        self.line(f"def {fun}({i}, {c}):")
        self.indent += 1
        inner = {**env, c: carry}
        self.let(inner, f"cast({i}, 'int32')", Type("int32", ()))
        self.block(inner, depth, int(self.rng.integers(1, 3)))
        new = self.coerce(inner, self.result({**env, c: carry}, inner), carry)
        self.line(f"return jnp.sin({new}) + 0.5 * {c}")
        self.indent -= 1
        self.let(env, f"fori_loop(0, {high}, {fun}, {init})", carry)

    def while_(self, env: dict[str, Type], depth: int) -> None:
        init = self.floating(env)
        carry, c, fun = env[init], self.fresh("c"), self.fresh("f")
        number = self.some(env, lambda type: not type.floating and not type.shape)
        bound = f"{number} % 3 + 1" if number else "2"
        self.line(f"def {fun}(state):")
        self.indent += 1
        self.line(f"n, {c} = state")
        inner = {**env, c: carry, "n": Type("int32", ())}
        self.block(inner, depth, int(self.rng.integers(1, 3)))
        new = self.coerce(inner, self.result({**env, c: carry}, inner), carry)
        self.line(f"return n + 1, jnp.cos({new}) + 0.5 * {c}")
        self.indent -= 1
        out = self.fresh()
        self.line(f"_, {out} = while_loop(lambda state: state[0] < {bound}, {fun}, (cast(0, 'int32'), {init}))")
        env[out] = carry

    def mapped(self, env: dict[str, Type], depth: int) -> None:
        xs = self.floating(env, lambda type: bool(type.shape))
        size = env[xs].shape[0]
        if self.chance(0.3):
            self.let(env, f"associative_scan(lambda a, b: a * b * 0.5 + a, {xs})" if False else
                     f"associative_scan({self.pick(['jnp.multiply', 'jnp.add'])}, {xs})", env[xs])
            return
        fun, type = self.function({self.fresh("a"): env[xs]._replace(shape=env[xs].shape[1:])}, env, depth, None)
        if len(type.shape) < 3 and type.size * size <= 16:
            self.let(env, f"lax_map({fun}, {xs})", type._replace(shape=(size, *type.shape)))

    def branch(self, env: dict[str, Type], depth: int) -> None:
        names, params = self.arguments(env)
        returns = self.pick([env[names[0]], Type("float64", ())])
        number = self.some(env, lambda type: not type.floating and not type.shape)
        count = 2 if not number or self.chance(0.6) else 3
        tree = self.chance(0.2)
        branches = []
        for _ in range(count):
            fun, type = self.function({self.fresh("a"): each for each in params.values()}, env, depth, returns, tree)
            assert type == returns
            branches.append(fun)
        passed = self.passed(names, tree)
        if count == 2:
            test = f"{number} % 2 == 0" if number and self.chance(0.4) else \
                f"less(jnp.sum({self.floating(env)}), {self.pick(['0.2', '-0.3', '1.0'])})"
            self.let(env, f"cond({test}, {', '.join(branches)}, {passed})", returns)
        else:
            self.let(env, f"switch({number}, [{', '.join(branches)}], {passed})", returns)

    # --- blocks

    def block(self, env: dict[str, Type], depth: int, statements: int) -> None:
        for _ in range(statements):
            if depth <= 0 or self.chance(0.35):
                self.simple(env)
                continue
            options = [self.call, self.branch] + [self.batch, self.loop] * 2
            if self.forward + self.reverse < 2:  # differences of differences of differences are too rough
                options += [self.gradient, self.directional, self.pullback, self.jacobian]
            self.pick(options)(env, depth - 1)

    def program(self) -> Program:
        inputs = {"x": Type("float64", (3,)), "m": Type("float64", (2, 3)), "s": Type("float64", ()),
                  "w": Type(self.pick(["float32", "float64", "float64"]), (2,)), "k": Type("int32", ()),
                  "ix": Type("int32", (2,))}
        self.line(f"def program({', '.join(inputs)}):")
        self.indent += 1
        env = dict(inputs)
        self.simple(env)
        self.block(env, 3, 3)
        made = [name for name in env if name not in inputs][-3:]
        self.line(f"return [{', '.join(made)}]")
        return Program(self.seed, "\n".join(self.lines) + "\n", inputs, [env[name] for name in made])


def write(seed: int) -> Program:
    """A program; the same for the same seed."""
    return Writer(seed).program()
