"""The examples of JAX's guides "Understanding Jaxprs" and "Thinking in JAX" give the same programs, values and errors.

The expected jaxprs were printed by JAX 0.10.2; its `jit[name=_where ...]` around jnp functions is left out, as jaxlite
puts the operations of those in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import errors, lax
from lowering import xla

# --- Understanding Jaxprs ----------------------------------------------------------------------------


def func1(first: Any, second: Any) -> Any:
    temp = first + jnp.sin(second) * 3.0
    return jnp.sum(temp)


def inner(second: Any) -> Any:
    if second.shape[0] > 4:
        return jnp.sin(second)
    raise AssertionError


def func2(inner: Callable, first: Any, second: Any) -> Any:
    temp = first + inner(second) * 3.0
    return jnp.sum(temp)


def func3(first: Any, second: Any) -> Any:
    return func2(inner, first, second)


def func4(arg: Any) -> Any:
    temp = arg[0] + jnp.sin(arg[1]) * 3.0
    return jnp.sum(temp)


def one_of_three(index: Any, arg: Any) -> Any:
    return lax.switch(index, [lambda x: x + 1.0, lambda x: x - 2.0, lambda x: x + 3.0], arg)


def func7(arg: Any) -> Any:
    return lax.cond(arg >= 0.0, lambda xtrue: xtrue + 3.0, lambda xfalse: xfalse - 3.0, arg)


def func8(arg1: Any, arg2: Any) -> Any:
    return lax.cond(arg1 >= 0.0, lambda xtrue: xtrue[0], lambda xfalse: jnp.array([1]) + xfalse[1], arg2)


def func10(arg: Any, n: Any) -> Any:
    ones = jnp.ones(arg.shape)
    return lax.fori_loop(0, n, lambda i, carry: carry + ones * 3.0 + arg, arg + ones)


def func11(arr: Any, extra: Any) -> Any:
    ones = jnp.ones(arr.shape)

    def body(carry: Any, aelems: Any) -> Any:
        ae1, ae2 = aelems
        return carry + ae1 * ae2 + extra, carry

    return lax.scan(body, 0.0, (arr, ones))


def func12(arg: Any) -> Any:
    @jax.jit
    def inner(x: Any) -> Any:
        return x + arg * jnp.ones(1)

    return arg + inner(arg - 2.0)


def doubled(x: Any) -> Any:
    return lax.while_loop(lambda c: c < 10.0, lambda c: c * 2.0, x)


def log2(x: Any) -> Any:
    return jnp.log(x) / jnp.log(2.0)


def selu(x: Any, alpha: Any = 1.67, lambda_: Any = 1.05) -> Any:
    return lambda_ * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)


def permissive_sum(x: Any) -> Any:
    return jnp.sum(jnp.array(x))


SUM_OF_SINES = """\
{ lambda ; a:f32[8] b:f32[8]. let
    c:f32[8] = sin b
    d:f32[8] = mul c 3.0:f32[]
    e:f32[8] = add a d
    f:f32[] = reduce_sum[axes=(0,) out_sharding=None] e
  in (f,) }"""  # the guide writes one computation in three ways

PROGRAMS: dict[str, tuple[Callable, tuple, str]] = {
    "func1": (func1, (jnp.zeros(8), jnp.ones(8)), SUM_OF_SINES),
    "func3": (func3, (jnp.zeros(8), jnp.ones(8)), SUM_OF_SINES),
    "func4": (func4, ((jnp.zeros(8), jnp.ones(8)),), SUM_OF_SINES),
    "switch": (one_of_three, (1, 5.0), """\
{ lambda ; a:i32[] b:f32[]. let
    c:i32[] = convert_element_type[new_dtype=int32 weak_type=False] a
    d:i32[] = clamp 0:i32[] c 2:i32[]
    e:f32[] = cond[
      branches=(
        { lambda ; f:f32[]. let g:f32[] = add f 1.0:f32[] in (g,) }
        { lambda ; h:f32[]. let i:f32[] = sub h 2.0:f32[] in (i,) }
        { lambda ; j:f32[]. let k:f32[] = add j 3.0:f32[] in (k,) }
      )
    ] d b
  in (e,) }"""),
    "cond": (func7, (5.0,), """\
{ lambda ; a:f32[]. let
    b:bool[] = ge a 0.0:f32[]
    c:i32[] = convert_element_type[new_dtype=int32 weak_type=False] b
    d:f32[] = cond[
      branches=(
        { lambda ; e:f32[]. let f:f32[] = sub e 3.0:f32[] in (f,) }
        { lambda ; g:f32[]. let h:f32[] = add g 3.0:f32[] in (h,) }
      )
    ] c a
  in (d,) }"""),
    "cond on trees": (func8, (5.0, (jnp.zeros(1), 2.0)), """\
{ lambda a:i32[1]; b:f32[] c:f32[1] d:f32[]. let
    e:bool[] = ge b 0.0:f32[]
    f:i32[] = convert_element_type[new_dtype=int32 weak_type=False] e
    g:f32[1] = cond[
      branches=(
        { lambda ; h:i32[1] i:f32[1] j:f32[]. let
            k:f32[1] = convert_element_type[new_dtype=float32 weak_type=True] h
            l:f32[1] = add k j
          in (l,) }
        { lambda ; m:i32[1] n:f32[1] o:f32[]. let  in (n,) }
      )
    ] f a c d
  in (g,) }"""),
    "fori_loop": (func10, (np.ones(16), 5), """\
{ lambda ; a:f32[16] b:i32[]. let
    c:f32[16] = broadcast_in_dim 1.0:f32[]
    d:f32[16] = add a c
    _:i32[] _:i32[] e:f32[16] = while[
      body_jaxpr={ lambda ; f:f32[16] g:f32[16] h:i32[] i:i32[] j:f32[16]. let
          k:i32[] = add h 1:i32[]
          l:f32[16] = mul f 3.0:f32[]
          m:f32[16] = add j l
          n:f32[16] = add m g
        in (k, i, n) }
      body_nconsts=2
      cond_jaxpr={ lambda ; o:i32[] p:i32[] q:f32[16]. let
          r:bool[] = lt o p
        in (r,) }
      cond_nconsts=0
    ] c a 0:i32[] b d
  in (e,) }"""),
    "scan": (func11, (np.ones(16), 5.0), """\
{ lambda ; a:f32[16] b:f32[]. let
    c:f32[16] = broadcast_in_dim 1.0:f32[]
    d:f32[] e:f32[16] = scan[
      jaxpr={ lambda ; f:f32[] g:f32[] h:f32[] i:f32[]. let
          j:f32[] = mul h i
          k:f32[] = convert_element_type[new_dtype=float32 weak_type=False] g
          l:f32[] = add k j
          m:f32[] = convert_element_type[new_dtype=float32 weak_type=False] f
          n:f32[] = add l m
        in (n, g) }
      length=16
      num_carry=1
      num_consts=1
      reverse=False
      unroll=1
    ] b 0.0:f32[] a c
  in (d, e) }"""),
    "jit": (func12, (1.0,), """\
{ lambda ; a:f32[]. let
    b:f32[] = sub a 2.0:f32[]
    c:f32[1] = jit[
      name=inner
      jaxpr={ lambda ; a:f32[] b:f32[]. let
          d:f32[1] = broadcast_in_dim 1.0:f32[]
          e:f32[] = convert_element_type[new_dtype=float32 weak_type=False] a
          f:f32[1] = mul e d
          g:f32[] = convert_element_type[new_dtype=float32 weak_type=False] b
          c:f32[1] = add g f
        in (c,) }
    ] a b
    h:f32[] = convert_element_type[new_dtype=float32 weak_type=False] a
    i:f32[1] = add h c
  in (i,) }"""),
    "while_loop": (doubled, (1.0,), """\
{ lambda ; a:f32[]. let
    b:f32[] = while[
      body_jaxpr={ lambda ; c:f32[]. let d:f32[] = mul c 2.0:f32[] in (d,) }
      body_nconsts=0
      cond_jaxpr={ lambda ; e:f32[]. let f:bool[] = lt e 10.0:f32[] in (f,) }
      cond_nconsts=0
    ] a
  in (b,) }"""),
    "log2": (log2, (3.0,), """\
{ lambda ; a:f32[]. let
    b:f32[] = log a
    c:f32[] = log 2.0:f32[]
    d:f32[] = div b c
  in (d,) }"""),
    "selu": (selu, (jnp.arange(3.0),), """\
{ lambda ; a:f32[3]. let
    b:bool[3] = gt a 0.0:f32[]
    c:f32[3] = exp a
    d:f32[3] = mul 1.6699999570846558:f32[] c
    e:f32[3] = sub d 1.6699999570846558:f32[]
    f:f32[3] = select_n b e a
    g:f32[3] = mul 1.0499999523162842:f32[] f
  in (g,) }"""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_jaxpr(name: str) -> None:
    fun, args, expected = PROGRAMS[name]
    if xla.VERSION >= (0, 12):  # what a scan carries is written otherwise
        trees = "scan[\n      ft_in=((None,), (None,), (None, None))\n      ft_out=((None,), (RightsOnly(Right(None)),))\n"
        expected = expected.replace("      num_carry=1\n      num_consts=1\n", "").replace("scan[\n", trees)
    assert str(jax.make_jaxpr(fun)(*args)) == expected


def test_side_effects_happen_while_tracing_and_leave_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def log2_with_print(x: Any) -> Any:
        print("printed x:", x)
        return log2(x)

    text = str(jax.make_jaxpr(log2_with_print)(3.0))
    assert capsys.readouterr().out == "printed x: JitTracer(~float32[])\n"
    assert text == str(jax.make_jaxpr(log2)(3.0))


def test_branches_of_cond_in_the_order_of_their_index() -> None:
    assert [float(one_of_three(index, 5.0)) for index in (-1, 0, 1, 2, 9)] == [6.0, 6.0, 3.0, 8.0, 8.0]


# --- Thinking in JAX ---------------------------------------------------------------------------------


def test_numpy_api() -> None:
    x_np, x_jnp = np.linspace(0, 10, 1000), jnp.linspace(0, 10, 1000)
    np.testing.assert_allclose(2 * jnp.sin(x_jnp) * jnp.cos(x_jnp), 2 * np.sin(x_np) * np.cos(x_np), atol=2e-6)
    assert isinstance(x_jnp, jax.Array)


def test_arrays_are_immutable() -> None:
    x = jnp.arange(10)
    with pytest.raises(TypeError, match=r"immutable.*x = x\.at\[idx\]\.set\(y\)"):
        x[0] = 10
    y = x.at[0].set(10)
    assert repr(x) == "Array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], dtype=int32)"
    assert repr(y) == "Array([10,  1,  2,  3,  4,  5,  6,  7,  8,  9], dtype=int32)"


def test_lax_is_stricter_than_numpy() -> None:
    assert repr(jnp.add(1, 1.0)) == "Array(2., dtype=float32, weak_type=True)"
    with pytest.raises(TypeError, match="lax.add requires arguments to have the same dtypes, got int32, float32"):
        lax.add(1, 1.0)
    assert repr(lax.add(jnp.float32(1), 1.0)) == "Array(2., dtype=float32)"


def test_lax_is_more_general_than_numpy() -> None:
    x, y = jnp.array([1, 2, 1]), jnp.ones(10)
    expected = [1.0, 3.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0, 1.0]
    assert jnp.convolve(x, y).tolist() == expected
    result = lax.conv_general_dilated(
        x.reshape(1, 1, 3).astype(float), y.reshape(1, 1, 10), window_strides=(1,),
        padding=[(len(y) - 1, len(y) - 1)])
    assert result[0, 0].tolist() == expected
    with pytest.raises(TypeError, match="requires arguments to have the same dtypes, got int32, float32"):
        lax.conv_general_dilated(x.reshape(1, 1, 3), y.reshape(1, 1, 10), window_strides=(1,),
                                 padding=[(len(y) - 1, len(y) - 1)])


def norm(x: Any) -> Any:
    x = x - x.mean(0)
    return x / x.std(0)


def test_jit_gives_what_op_by_op_gives() -> None:
    x = jnp.asarray(np.random.default_rng(1701).random((100, 10)), jnp.float32)
    np.testing.assert_allclose(norm(x), jax.jit(norm)(x), atol=1e-5)


def get_negatives(x: Any) -> Any:
    return x[x < 0]


def test_shapes_that_depend_on_values() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal(10))
    assert get_negatives(x).tolist() == [each for each in x.tolist() if each < 0]
    with pytest.raises(errors.NonConcreteBooleanIndexError, match=r"must be concrete; got bool\[10\]") as info:
        jax.jit(get_negatives)(x)
    assert "get_negatives at " in str(info.value)
    assert "argument x" in str(info.value)


def test_tracing_prints_tracers_once(capsys: pytest.CaptureFixture[str]) -> None:
    @jax.jit
    def f(x: Any, y: Any) -> Any:
        print("Running f():")
        print(f"  x = {x}")
        print(f"  y = {y}")
        result = jnp.dot(x + 1, y + 1)
        print(f"  result = {result}")
        return result

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 4)), rng.standard_normal(4)
    f(x, y)
    assert capsys.readouterr().out == ("Running f():\n  x = JitTracer(float32[3,4])\n  y = JitTracer(float32[4])\n"
                                       "  result = JitTracer(float32[3])\n")
    x2, y2 = rng.standard_normal((3, 4)), rng.standard_normal(4)
    np.testing.assert_allclose(f(x2, y2), (x2 + 1) @ (y2 + 1), rtol=1e-4, atol=1e-5)
    assert capsys.readouterr().out == ""


def test_branch_on_an_argument_needs_it_static() -> None:
    def f(x: Any, neg: Any) -> Any:
        return -x if neg else x

    with pytest.raises(errors.TracerBoolConversionError, match=r"traced array with shape bool\[\]") as info:
        jax.jit(f)(1, True)
    assert "argument neg" in str(info.value)
    static = functools.partial(jax.jit, static_argnums=(1,))(f)
    assert (int(static(1, True)), int(static(1, False))) == (-1, 1)


def test_shapes_are_computed_with_numpy() -> None:
    @jax.jit
    def f(x: Any) -> Any:
        return x.reshape(jnp.array(x.shape).prod())

    @jax.jit
    def g(x: Any) -> Any:
        return x.reshape((np.prod(x.shape),))

    x = jnp.ones((2, 3))
    with pytest.raises(TypeError, match=r"Shapes must be 1D sequences of concrete values of integer type, got .*"
                                        r"JitTracer\(int32\[\]\)") as info:
        f(x)
    assert "test_guides.py" in str(info.value)
    assert g(x).tolist() == [1.0] * 6


def test_what_is_traced_and_what_is_static(capsys: pytest.CaptureFixture[str]) -> None:
    @jax.jit
    def f(x: Any) -> None:
        print(f"x = {x}")
        print(f"x.shape = {x.shape}")
        print(f"jnp.array(x.shape).prod() = {jnp.array(x.shape).prod()}")

    f(jnp.ones((2, 3)))
    assert capsys.readouterr().out == ("x = JitTracer(float32[2,3])\nx.shape = (2, 3)\n"
                                       "jnp.array(x.shape).prod() = JitTracer(int32[])\n")


# --- Just-in-time compilation, sharp bits ------------------------------------------------------------


def test_python_control_flow_in_jit() -> None:
    def f(x: Any) -> Any:
        return x if x > 0 else 2 * x

    def g(x: Any, n: Any) -> Any:
        i = 0
        while i < n:
            i += 1
        return x + i

    with pytest.raises(errors.TracerBoolConversionError, match="argument x"):
        jax.jit(f)(10)
    with pytest.raises(errors.TracerBoolConversionError, match="argument n"):
        jax.jit(g)(10, 20)
    assert int(jax.jit(g, static_argnames=["n"])(10, 20)) == 30


def test_impure_functions_see_the_first_call() -> None:
    scale = [1.0]
    f = jax.jit(lambda x: x * scale[0])
    assert float(f(4.0)) == 4.0
    scale[0] = 10.0
    assert float(f(5.0)) == 5.0  # traced once, with the 1.0
    assert float(f(jnp.array([4.0]))[0]) == 40.0


def test_iterators_in_loops_are_read_once() -> None:
    array = jnp.arange(10)
    assert int(lax.fori_loop(0, 10, lambda i, x: x + array[i], 0)) == 45
    iterator = iter(range(10))
    assert int(lax.fori_loop(0, 10, lambda i, x: x + next(iterator), 0)) == 0


def test_out_of_bounds_indexing() -> None:
    assert int(jnp.arange(10)[11]) == 9
    assert np.isnan(jnp.arange(10.0).at[11].get(mode="fill", fill_value=jnp.nan))
    assert jnp.arange(3).at[5].set(7).tolist() == [0, 1, 2]


def test_lists_are_not_arrays() -> None:
    assert int(np.sum([1, 2, 3])) == 6
    with pytest.raises(TypeError, match="sum requires ndarray or scalar arguments, got <class 'list'> at position 0"):
        jnp.sum([1, 2, 3])
    assert int(permissive_sum([1, 2, 3])) == 6


def test_64_bits_on_request() -> None:
    with pytest.warns(UserWarning, match="Explicitly requested dtype float64 requested in zeros is not available"):
        assert jnp.zeros(2, dtype="float64").dtype == np.float32
    with jax.enable_x64(True):
        assert jnp.zeros(2, dtype="float64").dtype == np.float64
