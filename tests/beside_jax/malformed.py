"""Draws malformed calls: a good call of a row of rows.txt with one thing wrong in it.

What is wrong: an argument of another type, rank, dtype or shape, an argument too few or too many, a keyword nobody knows, or a
value that makes no sense for what a parameter of that name takes.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator

import cases

# In the place of any argument.
OTHERS = """None; 'a'; [1, 2]; (1.0, 2.0); 2.5; -1; 7; True; 1j; object(); jnp.sin; {'a': 1}; jnp.ones(3);
jnp.ones((2, 2, 2, 2)); jnp.ones(5); jnp.float32(1); jnp.int32(1); jnp.array(1); np.array(['a']);
jax.random.key(0); jnp.zeros(0); jnp.array([True, False]); jnp.array([1 + 1j, 2]); np.arange(2); (); [];
jnp.float32; np.float64(1.5); slice(1); 2**40; nan; jnp.zeros((0, 3)); jnp.zeros((3, 0));
jnp.array([0.5, 1.5, 2.5], jnp.bfloat16); jnp.arange(6).reshape(2, 3); ...; 'float32'; np.float32(2);
jax.ShapeDtypeStruct((2,), jnp.float32); np.array([1, None]); b'ab'; range(2); (0, 0); (1, 5)""".replace("\n", " ").split("; ")

# What an argument x becomes.
CHANGED = ("[{0}]", "({0},)", "lambda: {0}", "jnp.asarray({0})[None]", "jnp.asarray({0}).astype(jnp.complex64)",
           "jnp.asarray({0}).astype(jnp.int32)", "jnp.asarray({0}) > 0", "jnp.asarray({0}).astype(jnp.float32)",
           "jnp.asarray({0}).ravel()", "jnp.concatenate([jnp.ravel({0})] * 2)", "np.asarray({0}).tolist()", "str({0})",
           "jnp.asarray({0})[..., None]")

# For parameters of these names, given or not.
NAMED = {
    "axis": ("5", "-9", "1.5", "'a'", "(0, 0)", "(0, 7)", "None", "jnp.int32(0)", "jnp.array([0])", "True",
             "[0]", "()", "(0, 'a')"),
    "axes": ("5", "(0, 0)", "1.5", "'a'", "None", "((0,), (0, 1))", "jnp.int32(0)", "(7,)", "[0]"),
    "dtype": ("'a'", "jnp.complex64", "bool", "1", "object", "str", "jnp.ones(2)", "'int32'",
             "jax.random.key(0).dtype", "'datetime64'"),
    "shape": ("-1", "(2, -1)", "1.5", "(1.5,)", "'a'", "None", "jnp.int32(2)", "jnp.array([2])", "[2]",
             "(2, 'a')", "()", "(7, 5)"),
    "keepdims": ("'a'", "None", "2", "jnp.bool_(True)"),
    "where": ("1", "jnp.ones(3)", "'a'", "jnp.ones(7, bool)", "[True]"),
    "initial": ("'a'", "jnp.ones(3)", "None", "1j", "[1]"),
    "out": ("1", "jnp.ones(3)"),
    "precision": ("'a'", "1", "('high', 'a')"),
    "preferred_element_type": ("'a'", "int", "jnp.complex64", "bool"),
    "mode": ("'a'", "1", "None", "'clip'"),
    "method": ("'a'", "1", "None"),
    "norm": ("'a'", "1"),
    "size": ("-1", "1.5", "'a'", "jnp.int32(2)", "(2,)"),
    "fill_value": ("'a'", "None", "jnp.ones(3)"),
    "length": ("-1", "1.5", "'a'"),
    "n": ("-1", "0", "1.5", "'a'", "None", "jnp.int32(2)"),
    "k": ("1.5", "'a'", "None", "jnp.int32(1)", "99"),
    "num": ("-1", "1.5", "'a'"),
    "ddof": ("'a'", "1.5", "9"),
    "order": ("'a'", "1", "'F'"),
    "side": ("'a'",),
    "indices_are_sorted": ("'a'",),
    "unique_indices": ("1",),
    "out_sharding": ("1", "'a'"),
    "device": ("'a'", "1"),
    "weak_type": ("'a'",),
    "argnums": ("5", "-3", "'a'", "1.5", "None", "(0, 9)", "(0, 0)", "()"),
    "in_axes": ("5", "'a'", "1.5", "(0, 0, 0)", "[0]", "(None,)", "{'a': 0}"),
    "out_axes": ("5", "'a'", "1.5", "(0, 0)", "None"),
    "static_argnums": ("5", "'a'", "1.5", "(0,)"),
    "static_argnames": ("5", "'a'", "('x', 1)"),
    "donate_argnums": ("5", "'a'", "1.5"),
    "has_aux": ("'a'", "True"),
}

# Good calls of what rows.txt leaves to programs.
MORE = """jax.jit(jnp.sin, static_argnums=())(1.0)
jax.jit(lambda x, y: x + y, static_argnames=('y',))(1.0, y=2)
jax.grad(jnp.sin, argnums=0)(1.0)
jax.grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(jnp.ones(3), jnp.ones(3))
jax.value_and_grad(jnp.sin, argnums=0, has_aux=False)(1.0)
jax.vmap(jnp.sin, in_axes=0, out_axes=0)(jnp.ones(3))
jax.vmap(lambda x, y: x + y, in_axes=(0, None), out_axes=0, axis_size=3, axis_name='i')(jnp.ones(3), 1.0)
jax.jvp(jnp.sin, (1.0,), (1.0,))
jax.jvp(lambda x, y: x * y, (jnp.ones(3), 2.0), (jnp.ones(3), 1.0), has_aux=False)
jax.vjp(jnp.sin, 1.0)[1](1.0)
jax.vjp(lambda x: (x, x), jnp.ones(3))[1]((jnp.ones(3), jnp.ones(3)))
jax.linearize(jnp.sin, 1.0)[1](1.0)
jax.linear_transpose(lambda x: 2 * x, jnp.ones(3))(jnp.ones(3))
jax.jacfwd(jnp.sin, argnums=0)(jnp.ones(3))
jax.jacrev(jnp.sin, argnums=0)(jnp.ones(3))
jax.hessian(lambda x: (x**2).sum(), argnums=0)(jnp.ones(3))
jax.checkpoint(jnp.sin, prevent_cse=True, policy=None, static_argnums=())(1.0)
jax.custom_jvp(jnp.sin, nondiff_argnums=())(1.0)
jax.custom_vjp(jnp.sin, nondiff_argnums=())(1.0)
jax.eval_shape(jnp.sin, jnp.ones(3))
jax.make_jaxpr(jnp.sin, static_argnums=())(1.0)
jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), 1.0)
jax.ShapeDtypeStruct((2,), jnp.float32, weak_type=False)
jax.named_call(jnp.sin, name='a')(1.0)
jax.named_scope('a')
jax.device_put(jnp.ones(3), None)
jax.device_get(jnp.ones(3))
jax.random.key(0, impl='threefry2x32')
jax.closure_convert(jnp.sin, 1.0)
jax.disable_jit(True)
jax.enable_x64(True)
jax.numpy_dtype_promotion('strict')
jax.default_matmul_precision('high')
jax.config.update('jax_enable_x64', False)
jax.devices('cpu')
jax.local_devices(backend='cpu')
jax.lax.all_gather(jnp.ones(3), 'i')
jax.vmap(lambda x: lax.all_gather(x, 'i', axis=0, tiled=False), axis_name='i')(jnp.ones(3))
jax.vmap(lambda x: lax.psum(x, 'i', axis_index_groups=None), axis_name='i')(jnp.ones(3))
jax.vmap(lambda x: lax.pmean(x, axis_name='i'), axis_name='i')(jnp.ones(3))
jax.vmap(lambda x: lax.ppermute(x, 'i', [(0, 1), (1, 0)]), axis_name='i')(jnp.ones(2))
jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 0), axis_name='i')(jnp.ones((3, 3)))
jax.vmap(lambda x: x + lax.axis_index('i'), axis_name='i')(jnp.ones(3))
jax.vmap(lambda x: lax.psum_scatter(x, 'i', scatter_dimension=0), axis_name='i')(jnp.ones((3, 3)))
jax.debug.callback(print)
jax.debug.print('{x}', x=1)
jnp.ones(3).reshape(3, 1)
jnp.ones((2, 3)).sum(axis=0)
jnp.ones((2, 3)).astype(jnp.int32)
jnp.ones((2, 3)).at[0].set(1.0)
jnp.ones((2, 3)).at[jnp.array([0])].add(jnp.ones(3), mode='drop')
jnp.ones((2, 3)).at[0].get(mode='fill', fill_value=0)
jnp.ones((2, 3)).transpose(1, 0)
jnp.ones((2, 3)).flatten('C')
jnp.ones((2, 3)).mean(axis=0, dtype=None, keepdims=True)
jnp.ones((2, 3)).clip(0, 1)
jnp.ones((2, 3)).item(0)
jnp.ones((2, 3)).take(jnp.array([0]), axis=1)
jnp.ones((2, 3)).dot(jnp.ones(3))
jnp.ones((2, 3)).view(jnp.int32)
jnp.ones((2, 3)).round(2)
jnp.ones((2, 3)).squeeze()
jnp.ones((2, 3)).swapaxes(0, 1)
jnp.ones((2, 3)).argmax(axis=1)
jnp.ones((2, 3)).sort(axis=0)
jnp.ones((2, 3)).repeat(2, axis=0)
jnp.ones((2, 3)).cumsum(axis=0)
jnp.ones((2, 3)).var(axis=0, ddof=1)
operator.getitem(jnp.ones((2, 3)), 0)
operator.getitem(jnp.ones((2, 3)), (0, 1))
operator.add(jnp.ones((2, 3)), 1)
operator.mul(jnp.ones((2, 3)), jnp.ones(3))
operator.matmul(jnp.ones((2, 3)), jnp.ones(3))
operator.lt(jnp.ones((2, 3)), 1)
operator.pow(jnp.ones((2, 3)), 2)
operator.and_(jnp.arange(3), 1)
operator.lshift(jnp.arange(3), 1)
jnp.ufunc.reduce(jnp.add, jnp.ones((2, 3)), axis=0)
jnp.add.reduce(jnp.ones((2, 3)), axis=0, dtype=None, keepdims=False)
jnp.add.accumulate(jnp.ones((2, 3)), axis=0)
jnp.add.at(jnp.ones(3), jnp.array([0]), 1.0, inplace=False)
jnp.add.outer(jnp.ones(3), jnp.ones(2))
jnp.add.reduceat(jnp.ones(3), jnp.array([0, 1]), axis=0)
jnp.vectorize(lambda x, y: x + y, signature='(n),(n)->(n)')(jnp.ones(3), jnp.ones(3))
jnp.vectorize(lambda x, y: x + y, excluded=(1,))(jnp.ones(3), 1)
jnp.finfo(jnp.float32)
jnp.iinfo(jnp.int32)
jnp.float32(1)
jnp.int8(1)
jnp.dtype('float32')
jnp.fromfile('nowhere', dtype=jnp.float32)
jnp.fromiter(range(3), dtype=jnp.int32)
jnp.r_[1, 2]
jnp.c_[jnp.ones(3), jnp.ones(3)]
jnp.s_[1:2]
jax.tree.map(lambda x, y: x + y, [1, {'a': 2}], [1, {'a': 2}], is_leaf=None)
jax.tree_util.Partial(jnp.add, 1.0)(2.0)
jax.tree_util.register_pytree_node(type('A', (), {}), lambda x: ((), None), lambda aux, c: None)
jax.tree_util.register_dataclass(type('A', (), {}), data_fields=[], meta_fields=[])
jsp.interpolate.RegularGridInterpolator((jnp.arange(3.0),), jnp.ones(3), method='linear')(jnp.array([0.5]))
jsp.spatial.transform.Rotation.from_quat(jnp.array([0.0, 0.0, 0.0, 1.0])).as_matrix()
jsp.spatial.transform.Rotation.from_euler('x', jnp.array(1.0), degrees=True).as_quat()
jsp.stats.gaussian_kde(jnp.arange(5.0), bw_method=None, weights=None).evaluate(jnp.array([0.5]))
jax.nn.initializers.normal(0.5)(jax.random.key(0), (2, 3), jnp.float32)
jax.nn.initializers.variance_scaling(1.0, 'fan_in', 'normal', in_axis=-2, out_axis=-1)(jax.random.key(0), (2, 3))"""


def _calls(tree: ast.AST) -> list[ast.Call]:
    """The calls of a program whose arguments are worth changing: the outermost, and what it calls in turn."""
    found, node = [], tree
    while True:
        if isinstance(node, ast.Call):
            found.append(node)
            node = node.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            break
    bodies = [f.body for each in found for f in each.args[:1] if isinstance(f, ast.Lambda)]
    return found + [body for body in bodies if isinstance(body, ast.Call)]


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _spoil(call: ast.Call, parameters: list[str], rng: random.Random) -> None:
    """Make one thing wrong in a call."""
    places: list[int | str] = [i for i, arg in enumerate(call.args) if not isinstance(arg, ast.Starred)]
    places += [each.arg for each in call.keywords if each.arg]
    named = [name for name in parameters if name in NAMED]
    draw = rng.random()
    if named and draw < 0.3:
        name = rng.choice(named)
        value = _expression(rng.choice(NAMED[name]))
        position = parameters.index(name)
        if position < len(call.args):
            call.args[position] = value
        else:
            call.keywords = [each for each in call.keywords if each.arg != name] + [ast.keyword(name, value)]
    elif draw < 0.37 and places:
        place = places[-1] if rng.random() < 0.6 else rng.choice(places)
        if isinstance(place, int):
            del call.args[place]
        else:
            call.keywords = [each for each in call.keywords if each.arg != place]
    elif draw < 0.41:
        call.args += [_expression(rng.choice(OTHERS)) for _ in range(rng.choice((1, 1, 9)))]
    elif draw < 0.44 or not places:
        call.keywords.append(ast.keyword("nobody", ast.Constant(1)))
    else:
        place = rng.choice(places)
        old = call.args[place] if isinstance(place, int) else next(each.value for each in call.keywords if each.arg == place)
        text = rng.choice(OTHERS) if rng.random() < 0.65 else rng.choice(CHANGED).format(ast.unparse(old))
        if isinstance(place, int):
            call.args[place] = _expression(text)
        else:
            next(each for each in call.keywords if each.arg == place).value = _expression(text)


def drawn(seed: int, parameters: dict[str, list[str]], each: int = 2) -> Iterator[str]:
    """Malformed calls, `each` for a row; `parameters` are the names of the parameters of each public function."""
    good: list[tuple[str, str]] = [("", line) for line in MORE.splitlines() for _ in range(2)]
    for number, (function, template) in enumerate(cases.rows()):
        if template is not None:
            good.append((function, cases.program(function, template, "call", f"{seed} {number} malformed") or ""))
    for number, (function, program) in enumerate(good):
        *before, last = program.split("\n")
        for i in range(each):
            rng = random.Random(f"{seed} {number} {i}")
            tree = copy.deepcopy(_expression(last))
            calls = _calls(tree)
            if not calls:
                continue
            call = rng.choice(calls)
            called = ast.unparse(call.func).replace("jnp.", "jax.numpy.")
            _spoil(call, parameters.get(function, parameters.get(called, [])), rng)
            yield "\n".join([*before, ast.unparse(tree)])
