"""What the printer prints parses back to an equal program; a wrong text gets its line, its column and what was expected."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax, random
from jaxlite.core import check_jaxpr, eval_jaxpr, jaxpr_as_fun, parse_jaxpr
from jaxlite.core.errors import JaxprSyntaxError
from jaxlite.experimental import pallas
from jaxlite.state.indexing import dslice
from tests.random_programs import jaxlite_names, write


def again(closed, **options):
    """The program parsed from its text, which is checked to print the same."""
    text = closed.pretty_print(**options)
    parsed = parse_jaxpr(text, closed.consts)
    assert parsed.pretty_print(**options) == text
    check_jaxpr(parsed)
    return parsed


@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_come_back(chunk, x64):
    for seed in range(10 * chunk, 10 * chunk + 10):
        program = write(seed)
        closed = jax.make_jaxpr(program.run(jaxlite_names()))(**program.arguments())
        again(closed)
        again(closed, weak_types=True, custom_pp_eqn_rules=False, print_effects=True, width=40 + 20 * (seed % 5))


def test_a_parsed_program_runs_lowers_and_is_differentiated():
    table = np.linspace(0, 1, 200, dtype=np.float32)

    def f(x, key):
        y = lax.cond(x[0] > 0, jnp.sin, lambda x: x * 2, x)
        total, ys = lax.scan(lambda c, a: (c + a, c * a), jnp.float32(0), y)
        return total * jnp.asarray(table)[:3].sum() + jax.jit(jnp.max)(ys) * random.key_data(key)[1]

    x, key = np.array([0.1, -0.2, 0.3], np.float32), random.key(0)
    closed = jax.make_jaxpr(f)(x, key)
    parsed = again(closed, weak_types=True)
    run = lambda x: jaxpr_as_fun(parsed)(x, key)[0]
    np.testing.assert_allclose(run(x), f(x, key), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(run)(x), jax.grad(f)(x, key), rtol=1e-6)

    def lowered(closed):
        return jax.jit(lambda x, key: jaxpr_as_fun(closed)(x, key)[0]).lower(x, key).as_text()

    assert lowered(closed) == lowered(parsed)


def test_params_of_every_kind():
    def f(x, image, i):
        a = jnp.fft.rfft(x).real.sum() + lax.conv_general_dilated(image, image[:1, :1], (1, 1), "SAME").sum()
        b = x.at[i].add(2.0, mode="drop").sum() + lax.reduce_window(x, -np.inf, lax.max, (2,), (1,), "VALID").sum()
        c = jnp.dot(x, x, precision="highest") + lax.dot(x, x, precision="F32_F32_F32") + \
            lax.reduce(x, np.float32(0), lambda a, b: a + b * 1, (0,))
        d = jnp.argsort(x)[0] + lax.reduce_precision(x, 5, 2)[0] + jnp.where(x > 0, np.nan, -np.inf)[0]
        return a + b + c + d, (x[0] * (1 - 2j)).imag, jnp.linalg.solve(jnp.eye(3), x[:3]), jnp.zeros(3, jnp.bfloat16)

    again(jax.make_jaxpr(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float32), x))(1.0))
    again(jax.make_jaxpr(f)(np.ones(4, np.float32), np.ones((1, 1, 4, 4), np.float32), 1), weak_types=True)


def test_texts_by_hand():
    closed = parse_jaxpr("""
    let twice = { lambda ; a:f32[2]. let b:f32[2] = helper_of a  # not yet known
      in (b,) } in
    { lambda ; x:f32[2]. let in (x,) }""".replace("helper_of", "neg"))
    assert len(closed.eqns) == 0
    closed = parse_jaxpr("""{ lambda w:f32[2]; x:f32[2] y:f32[]. let
        z = mul w x; long_name:f32[2] = jit[jaxpr={ lambda ; a:f32[2] b:f32[]. let c = mul a b in (c,) }] z y
        _ = sin z
      in (long_name, 3:i32[]) }""", {"w": np.array([1, 2], np.float32)})
    out = eval_jaxpr(closed.jaxpr, closed.consts, np.ones(2, np.float32), np.float32(3))
    np.testing.assert_array_equal(out[0], [3, 6])
    assert str(closed.jaxpr.eqns[-1]).startswith("_:f32[2]") or "sin" in str(closed)
    call = "{ lambda ; a:f32[]. let b = jit[jaxpr=f] a in (b,) }"
    with pytest.raises(JaxprSyntaxError, match="contains itself"):
        parse_jaxpr(f"let f = {call} in {call}")


def test_functions_are_given_by_name():
    @jax.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 5))
    closed = jax.make_jaxpr(f)(1.0)
    parsed = again(closed)
    run = lambda parsed: lambda x: jaxpr_as_fun(parsed)(x)[0]
    assert run(parsed)(3.0) == 6
    rule = closed.eqns[0].params["jvp"]
    with pytest.raises(TypeError, match=f"{rule.__name__} is a function, and the text"):
        jax.grad(run(parsed))(3.0)
    assert jax.grad(run(parse_jaxpr(str(closed), objects={rule.__name__: rule})))(3.0) == 5


ONE = "{ lambda ; a:f32[3]. let\n    b:f32[3] = sin a\n  in (b,) }"


@pytest.mark.parametrize(("old", "new", "line", "column", "message"), [
    ("sin a", "sni a", 2, 16, "expected the name of a primitive, got 'sni'; did you mean"),
    ("sin a", "sin q", 2, 20, "expected a variable that is bound above, or a literal such as 1.0:f32[], got 'q'"),
    ("sin a", "sin a a", 2, 16, "sin does not take such operands and params"),
    ("b:f32[3]", "b:f32[4]", 2, 5, "the text says that b is f32[4], sin gives f32[3]"),
    ("b:f32[3]", "b:g32[3]", 2, 7, "expected the name of a dtype, got 'g32'"),
    ("b:f32[3]", "a:f32[3]", 2, 5, "expected a new variable, got 'a', which is bound already"),
    ("a:f32[3].", "a:f32[3]", 2, 5, "expected ':' and the type of the variable, got 'b'"),
    ("a:f32[3]", "a", 1, 13, "expected ':' and the type of the variable"),
    ("(b,)", "(b", 3, 9, "expected ',' or ')', got '}'"),
    ("(b,) }", "(b,)", 3, 10, "expected '}', got the end of the text"),
    ("(b,) }", "(b,) } x", 3, 13, "expected the end of the text, got 'x'"),
    ("sin a", "mul a 2.5:i32[]", 2, 22, "the literal 2.5 is no i32[]"),
    ("sin a", "reduce_sum[axes=(0,] a", 2, 35, "expected a value, got ']'"),
    ("lambda", "lambada", 1, 3, "expected 'lambda', got 'lambada'"),
    ("sin a", "sin a §", 2, 22, "expected a word, a number or a mark, got '§'"),
])  # fmt: skip
def test_a_wrong_text_says_where_and_what(old, new, line, column, message):
    text = ONE.replace(old, new)
    assert text != ONE
    with pytest.raises(JaxprSyntaxError) as error:
        parse_jaxpr(text)
    assert message in str(error.value)
    assert (error.value.line, error.value.column) == (line, column)


def test_consts_that_do_not_fit():
    text = "{ lambda w:f32[2]; . let in (w,) }"
    with pytest.raises(ValueError, match="consts has no value for w"):
        parse_jaxpr(text, {"v": 1})
    with pytest.raises(ValueError, match=r"has 1 constvars \(w\), consts has 0"):
        parse_jaxpr(text)
    with pytest.raises(ValueError, match="the value of w is float32.3., the program says float32.2."):
        parse_jaxpr(text, [np.zeros(3, np.float32)])


def test_reads_and_writes_of_refs():
    def f(ref, x, i):
        ref[0] = x[0]
        ref[i] += x[1]
        parts = ref[1:3], ref[dslice(i, 2)], ref[jnp.array([0, 1])], ref.at[1:3][0], jax.ref.swap(ref, 1, x[2])
        ref[::2] = x[:2]
        own = jax.new_ref(jnp.zeros((2, 3)))
        own[:, i], own[1, :] = jnp.ones(2), x[:3]
        jax.ref.addupdate(own, ..., 2.0)
        lax.fori_loop(0, 3, lambda k, c: [c + 1, ref.__setitem__(k, c)][0], 0.0)
        return [jnp.sum(part) for part in parts], own[...]

    x = jnp.arange(4.0) ** 2
    refs = [jax.new_ref(jnp.arange(4.0)) for _ in range(2)]
    closed = jax.make_jaxpr(f)(refs[0], x, 1)
    parsed = again(closed, weak_types=True)
    assert [eqn.params for eqn in parsed.eqns[:3]] == [eqn.params for eqn in closed.eqns[:3]]
    *sums, own = jaxpr_as_fun(parsed)(refs[0], x, jnp.int32(1))
    want, want_own = f(refs[1], x, 1)
    np.testing.assert_allclose(sums, want)
    np.testing.assert_allclose(own, want_own)
    np.testing.assert_allclose(refs[0][...], refs[1][...])
    written = parse_jaxpr("{ lambda ; a:Ref{f32[2,3]} i:i32[]. let b <- a[i,::2]; a[0,:2] += b; "
                          "c, a[1,1:] <- a[1,1:], b in (c,) }")
    assert str(written).count("<-") == 2 and written.out_avals[0].shape == (2,)
    with pytest.raises(JaxprSyntaxError, match="it has 1 axes, the index has 2"):
        parse_jaxpr("{ lambda ; a:Ref{f32[2]}. let b <- a[0,1] in (b,) }")
    with pytest.raises(JaxprSyntaxError, match="expected '<-' or"):
        parse_jaxpr("{ lambda ; a:Ref{f32[2]} b:f32[]. let a[0] = b in () }")


def test_types_that_vary_along_the_axes_of_a_mesh():
    text = "{ lambda ; a:f32[2]{V:x} b:f32[2]{V:(x,y)}. let c:f32[2]{V:x} = sin a; d:f32[2]{V:(x,y)} = mul b b in (c, d) }"
    parsed = parse_jaxpr(text)
    assert " ".join(str(parsed).split()) == text.replace("; d", " d") and parse_jaxpr(str(parsed)).in_avals == parsed.in_avals
    assert parsed.in_avals[1].vma == {"x", "y"}
    lines = parse_jaxpr("{ lambda ; a:f32[2]{V:x} r:Ref{f32[2]{V:x}}. let\n"
                        "    b:f32[2]{V:x} = sin\n      a\n    r[...] <- b\n  in (b,) }")
    assert [eqn.primitive.name for eqn in lines.eqns] == ["sin", "swap"]
    with pytest.raises(JaxprSyntaxError, match="expected the name of a mesh axis"):
        parse_jaxpr("{ lambda ; a:f32[2]{V:}. let in (a,) }")


def test_types_that_are_cut_along_explicit_axes():
    mesh = jax.sharding.AbstractMesh((4, 2), ("x", "y"), (jax.sharding.AxisType.Explicit,) * 2)
    text = """\
{ lambda ; a:f32[8@x,8@y] b:f32[8@y,4]. let
    c:f32[8@x,4] = dot_general[
      dimension_numbers=(([1], [0]), ([], []))
      preferred_element_type=float32
    ] a b
    d:f32[8@(x,y),4] = reshard c
    e:f32[8,4] = reshard d
    f:f32[2,8@y] = shard_map[
      check_vma=True
      in_specs=(P('x',),)
      jaxpr={ lambda ; g:f32[2,8@y]{V:x}. let
          h:f32[2,8@y] = psum_invariant[axes=('x',)] g
          i:f32[2,8@y] = mul h 2.0:f32[]
        in (i,) }
      mesh=AbstractMesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit))
      newly_manual_axes=frozenset({'x'})
      out_specs=(P(),)
    ] a
  in (d, e, f) }"""
    parsed = parse_jaxpr(text, mesh=mesh)
    assert str(parsed) == text
    assert parsed.out_avals[0].layout.spec == jax.P(("x", "y"), None)
    with jax.sharding.use_abstract_mesh(mesh):
        assert parse_jaxpr(text).in_avals == parsed.in_avals
    for wrong, message in [("8@z", "the mesh has the axes"), ("8@(x,y", "expected '\\)'"), ("7@x", "column 14: .*divi")]:
        with pytest.raises(JaxprSyntaxError, match=message):
            parse_jaxpr("{ lambda ; a:f32[" + wrong + "]. let b:f32[8@x] = sin a in (b,) }", mesh=mesh)
    with pytest.raises(JaxprSyntaxError, match="there is no mesh"):
        parse_jaxpr(text)


def test_symbolic_dimensions():
    def f(x):
        total = lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], 0.0)
        return jnp.concatenate([x, x])[3:], jnp.arange(x.shape[0]), jnp.pad(x, (1, 2)), total

    scope = jax.export.SymbolicScope(["b >= 4"])
    (size, other) = jax.export.symbolic_shape("b + 3, max(b, 2*c)", scope=scope)
    closed = jax.make_jaxpr(f)(jax.ShapeDtypeStruct((size,), "float32"))
    text = closed.pretty_print(weak_types=True)
    parsed = parse_jaxpr(text, closed.consts, scope=scope)
    assert parsed.pretty_print(weak_types=True) == text and parsed.in_avals == closed.in_avals
    sizes = parse_jaxpr("{ lambda ; a:f32[max(b, 2*c),2*b - 1,-c + b^2]. let in (a,) }", scope=scope).in_avals[0].shape
    assert sizes[0] == other and str(sizes[1]) == "2*b - 1"
    with pytest.raises(JaxprSyntaxError, match=r"line 1, column 18: .*syntax error in symbolic shape"):
        parse_jaxpr("{ lambda ; a:f32[most(b, 2)]. let in (a,) }")


def test_kernels_of_pallas():
    block = pallas.BlockSpec((4,), lambda i: (1 - i,))

    def double(x_ref, out_ref):
        out_ref[...] = x_ref[...] * 2

        @pallas.when(pallas.program_id(0) == 0)
        def _():
            out_ref[0] = 0.0

    def f(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pallas.pallas_call(double, shape, grid=2, in_specs=[block], out_specs=block, interpret=True)(x) + 1

    x = jnp.arange(8.0)
    closed = jax.make_jaxpr(f)(x)
    with pytest.raises(JaxprSyntaxError, match="line 6, column 20: the index maps of a GridMapping are not printed"):
        parse_jaxpr(str(closed))
    mapping = closed.eqns[0].params["grid_mapping"]
    parsed = parse_jaxpr(str(closed), objects={str(mapping): mapping})
    assert str(parsed) == str(closed)
    (out,) = jaxpr_as_fun(parsed)(x)
    np.testing.assert_array_equal(out, [1, 3, 5, 7, 1, 11, 13, 15])
    (_,), (tangent,) = jax.jvp(jaxpr_as_fun(parsed), (x,), (x,))
    np.testing.assert_array_equal(tangent, [0, 2, 4, 6, 0, 10, 12, 14])
