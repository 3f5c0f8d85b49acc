"""The surprises we keep, as docs/sharp_edges.md tells them."""

from __future__ import annotations

import operator
import time
import traceback
import warnings
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.devices import placement
from jaxlite.experimental import checkify
from jaxlite.scipy import fft, interpolate, linalg, optimize, special, stats


def test_a_traced_function_runs_once() -> None:
    log: list[str] = []
    factor = [2.0]

    @jaxlite.jit
    def f(x: Any) -> Any:
        log.append("ran")
        return x * factor[0]

    assert float(f(1.0)) == 2.0
    factor[0] = 100.0
    assert float(f(1.0)) == 2.0
    assert log == ["ran"]
    assert f(jnp.ones(2)).tolist() == [100.0, 100.0]


def test_the_clock_is_read_while_tracing() -> None:
    now = jaxlite.jit(lambda x: x + time.perf_counter())
    assert float(now(0.0)) == float(now(0.0))


def test_closed_over_arrays_become_parameters() -> None:
    table = jnp.arange(40_000.0)  # of more than 128 kB
    lowered = jaxlite.jit(lambda x: x + table + np.float32(3)).lower(1.0)
    text = lowered.as_text()
    assert "tensor<40000xf32>" in text.split("-> ", 1)[0]
    assert "39999" not in text and "dense<\"" not in text
    assert "dense<3.0" in text


def test_index_out_of_bounds() -> None:
    x = jnp.arange(5)
    assert (int(x[7]), int(x[-7]), int(x[-2])) == (4, 0, 3)
    assert x.at[7].set(100).tolist() == [0, 1, 2, 3, 4]
    assert np.isnan(jnp.arange(5.0).at[7].get(mode="fill"))
    assert int(x.at[7].get(mode="fill")) == np.iinfo(np.int32).min


def test_integers_wrap() -> None:
    assert int(jnp.int32(2**31 - 1) + 1) == -(2**31)
    assert int(jnp.uint8(255) + jnp.uint8(1)) == 0
    assert (jnp.int32(5) // jnp.int32(0)).dtype == np.int32


def test_64_bits_are_cut() -> None:
    assert jnp.asarray(np.arange(3)).dtype == np.int32
    assert jaxlite.jit(lambda x: x)(np.float64(1) / 3).dtype == np.float32
    assert jaxlite.jit(lambda x: x)(np.array([2**32 + 5])).tolist() == [5]
    with pytest.raises(OverflowError, match="enable_x64"):
        jaxlite.jit(lambda x: x)(2**40)
    assert special.erf(2**40) == stats.norm.cdf(2**40) == 1 and special.logsumexp(2**40) == float(2**40)


def test_python_scalars_are_weak() -> None:
    half = jnp.array(1, "float16")
    assert (half + 2.0).dtype == np.float16
    assert (half + np.float32(2)).dtype == np.float32
    assert (half + jnp.asarray(2.0)).dtype == np.float16


def test_weak_and_strong_arguments_are_two_signatures(count_traces: Any) -> None:
    body = count_traces(lambda x: x)
    f = jaxlite.jit(body)
    f(1.0)
    f(np.float32(1))
    f(2.0)
    assert body.count == 2


def test_equal_static_values_of_different_types_are_different(count_traces: Any) -> None:
    body = count_traces(lambda x, n: x * n)
    f = jaxlite.jit(body, static_argnums=1)
    results = [f(jnp.int32(2), n) for n in (1, 1.0, True, 1)]
    assert [result.dtype.name for result in results] == ["int32", "float32", "int32", "int32"]
    assert body.count == 3


def test_jnp_functions_are_inlined() -> None:
    names = [eqn.primitive.name for eqn in jaxlite.make_jaxpr(lambda x: jnp.where(x > 0, x, 0.0))(1.0).eqns]
    assert "jit" not in names
    own = jaxlite.jit(lambda x: x + 1)
    assert [eqn.primitive.name for eqn in jaxlite.make_jaxpr(lambda x: own(x))(1.0).eqns] == ["jit"]


def test_donated_arguments_are_gone() -> None:
    f = jaxlite.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.ones(8)
    f(x)
    with pytest.raises(RuntimeError, match="deleted"):
        x + 1
    y = jnp.ones(8)
    with pytest.warns(UserWarning, match="not usable"):
        jaxlite.jit(lambda x: x[0], donate_argnums=0)(y)
    assert float(y[0]) == 1.0


LAYOUTS = {
    "columns first": np.asfortranarray,
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "strided": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "unaligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.complex64])
def test_any_layout_is_taken(layout: str, dtype: Any) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    given = LAYOUTS[layout](x)
    f = jaxlite.jit(lambda x: x + x)
    for _ in range(3):  # the first call compiles; later ones are C++'s alone
        np.testing.assert_array_equal(f(given), x + x)
    np.testing.assert_array_equal(jnp.asarray(given), x)
    read_only = x.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(f(read_only), x + x)


def test_foreign_byte_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement.layouts, "exist", False)  # after such an array, Python looks at arguments
    x = np.arange(3, dtype=np.int32)
    foreign = x.astype(x.dtype.newbyteorder())
    f = jaxlite.jit(lambda x: x + x)
    for call in (f, jnp.sin, jnp.asarray):
        with pytest.raises(TypeError, match="byte order.*convert to int32 with astype"):
            call(foreign)
    f(x)  # from now on the call is jaxlib's alone, and it takes bytes as they lie
    np.testing.assert_array_equal(f(foreign), 2 * foreign.view(x.dtype))


def test_stretched_axes_are_taken() -> None:
    f = jaxlite.jit(lambda x: x * 2)
    for _ in range(2):
        assert f(np.broadcast_to(np.float32(3), (2, 2))).tolist() == [[6.0, 6.0], [6.0, 6.0]]


def test_asarray_copies() -> None:
    x = np.zeros(1000, np.float32)
    y = jnp.array(x)
    x[:] = 1
    assert float(y.sum()) == 0.0


def test_nan() -> None:
    x = jnp.array([1.0, jnp.nan, 3.0, jnp.nan])
    assert int(jnp.argmax(x)) == 1
    assert np.isnan(jnp.max(x))
    assert np.isnan(jnp.sort(x)).tolist() == [False, False, True, True]
    assert not bool(x[1] == x[1])


@pytest.mark.parametrize("condition", [lambda x: 0 < x < 1, lambda x: x > 0 and x < 1, lambda x: not x > 0,
                                       lambda x: x in (1, 2)])
def test_python_logic_needs_concrete_values(condition: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(jaxlite.errors.TracerBoolConversionError):
            jaxlite.jit(condition)(0.5)
    assert bool(jaxlite.jit(lambda x: (0 < x) & (x < 1))(0.5))


def test_transformations_give_arrays() -> None:
    def f(x: Any) -> Any:
        return x, 2.0, np.arange(2)

    for outs in (jaxlite.vjp(f, 1.0)[0], jaxlite.jvp(f, (1.0,), (1.0,))[0], jaxlite.linearize(f, 1.0)[0]):
        assert all(isinstance(out, jaxlite.Array) for out in outs)
    assert isinstance(jaxlite.vjp(lambda x: (x, 2.0), 1.0, has_aux=True)[2], float)


def test_rank_is_relative_and_slopes_end_with_the_support() -> None:
    x = np.diag(np.float32([4, 1]))
    assert jnp.linalg.matrix_rank(x, rtol=0.5) == np.linalg.matrix_rank(x, rtol=0.5) == 1
    assert jaxlite.grad(jaxlite.scipy.stats.beta.cdf)(-1.0, 0.5, 0.5) == 0


def test_what_is_other_than_in_jax() -> None:
    assert jaxlite.grad(lambda x: x**x)(0.0) == 0 and jaxlite.grad(lambda x: x**0.0)(0.0) == 0
    assert not (jnp.asarray(1.0) < 2.0).aval.weak_type
    assert jnp.polyadd(1.0, jnp.ones(2)).tolist() == [1, 2]
    with pytest.raises(ValueError, match="Incompatible shapes"):
        jnp.polyadd(jnp.ones((3, 2)), jnp.ones(1))
    assert np.signbit(np.asarray(jnp.fft.ihfft(jnp.ones(4))).imag[0]) and np.signbit(np.asarray(jnp.sinc(1.0)))
    assert jaxlite.random.choice(jaxlite.random.key(0), jnp.ones((2, 3)), (0,)).shape == (0, 3)
    with pytest.raises(ValueError, match="convert_element_type"):
        jaxlite.random.key(0).astype(int)
    with pytest.raises(ValueError, match="masked arrays"):
        jnp.array(np.ma.array([1, 2], mask=[True, False]))
    half = jaxlite.make_jaxpr(lambda x: jnp.mean(x, dtype=jnp.float16))(np.ones(3, np.float16))
    assert half.eqns[0].params["new_dtype"] == np.float32
    operands = np.ones((2, 2), np.float16), np.ones((2, 2), np.float32)
    mixed = jaxlite.make_jaxpr(lambda a, b: (jnp.einsum("ij,jk", a, b), a @ b))(*operands)
    assert [eqn.primitive.name for eqn in mixed.eqns] == ["convert_element_type", "dot_general", "dot_general"]
    assert jaxlite.jit(lambda x: x)(np.longlong(7)) == 7
    fold = lambda x: jaxlite.lax.reduce(x, 0.0, lambda a, b: a + 2 * b, (0,))
    assert jaxlite.jvp(fold, (jnp.arange(4.0),), (jnp.ones(4),))[0] == 12
    with pytest.raises(ValueError, match="sorting pytree dictionary keys"):
        jaxlite.tree.leaves({1: 0, "a": 1})


def test_values_are_other_than_in_jax() -> None:
    matrix = jnp.array([[4.0, 1.0], [1.0, 3.0]])
    assert jaxlite.grad(lambda a: linalg.cholesky(a, lower=True)[1, 0])(matrix)[0, 1] == 0
    assert special.expi(0) == -jnp.inf and special.expn(3, 0.0) == 0.5
    assert stats.binom.pmf(1.5, 3, 0.4) == 0
    strong = jnp.float32(2)
    f = jaxlite.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, isinstance(x, jaxlite.Array)), lambda is_array, ct: (ct * strong * is_array,))
    assert jaxlite.grad(f)(1.0) == 2
    calls: list[int] = []
    kept = jaxlite.checkpoint(lambda x: (calls.append(1), jnp.sin(x))[1])
    assert kept(1.0) != kept(2.0) and len(calls) == 2
    form, _ = linalg.rsf2csf(jnp.arange(9.0).reshape(3, 3), jnp.eye(3))
    assert not jnp.tril(form, -1).any()
    assert jnp.add.reduceat(jnp.array([0.5, 2.0]), jnp.array([0]), dtype=int).dtype == jnp.int32


def test_special_values() -> None:
    assert abs(jnp.array(complex(np.inf, np.nan))) == np.inf
    assert jnp.modf(jnp.inf)[0] == 0 and jnp.all(1j) and jnp.any(1j)
    assert np.isnan(stats.norm.pdf(0.0, 0.0, -1.0)) and special.expn(1, jnp.inf) == 0
    assert jaxlite.grad(jnp.logaddexp, argnums=(0, 1))(jnp.inf, 1.0) == (1, 0)
    assert fft.dct(jnp.array([1.0, jnp.inf])).tolist() == [np.inf, -np.inf]
    np.testing.assert_allclose(jaxlite.grad(jaxlite.grad(special.log_ndtr))(-20.0), -0.99751, rtol=1e-4)
    assert jnp.linalg.vector_norm(jnp.array([1, 2]), ord=1).dtype == jnp.linalg.vector_norm(True, ord=3).dtype == np.float32
    values, places = lax.approx_min_k(jnp.array([np.nan, 1.0, 5.0]), 3)
    assert places.tolist() == [1, 2, 0] and np.isnan(values[2])


def test_weak_types_follow_from_promotion() -> None:
    numbers = jnp.array([True, False])
    assert not jnp.sin(numbers).weak_type
    assert not lax.cond(True, lambda: 1.0, lambda: jnp.float32(2)).weak_type
    assert not lax.cond(False, lambda: 1.0, lambda: jnp.float32(2)).weak_type
    assert not jaxlite.new_ref(2.0)[...].weak_type


def test_errors_say_more() -> None:
    with pytest.raises(jaxlite.errors.ConcretizationTypeError, match="'condition'"):
        jaxlite.jit(lambda c: jnp.extract(c, jnp.arange(3)))(jnp.ones(3, bool))
    with pytest.raises(ValueError, match="even size"):
        jaxlite.nn.glu(jnp.ones(3))
    assert lax.Tolerance(rtol=0.5) == lax.Tolerance(rtol=0.5)
    with pytest.raises(TypeError, match="argument 'k' of top_k"):
        lax.top_k(jnp.ones(3), "a")
    with pytest.raises(ValueError):  # one class for a wrong shape
        jnp.linalg.cholesky(jnp.ones(3))
    with pytest.raises(ValueError, match="hashable"):
        jaxlite.jit(lambda x: x, static_argnums=0)([1])
    with pytest.raises(TypeError):
        jnp.unravel_index(1, (2.5,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="parameters of random numbers are real"):
        jaxlite.random.gamma(jaxlite.random.key(0), 1j)
    error, _ = checkify.checkify(lambda x: checkify.check(x > 0, "low"))(-1.0)
    first, second = str(error.get()).splitlines()
    assert first == "low (`check` failed)" and __file__ in second


def test_what_cannot_be_right_fails_at_once() -> None:
    with pytest.raises(TypeError):
        lax.slice(jnp.arange(3), (1,), (9,))
    with pytest.raises(ValueError):
        jnp.linalg.multi_dot([jnp.ones((2, 2))])
    with pytest.raises(ValueError):
        jnp.vectorize(lambda x: x, signature="(n->")
    with pytest.raises(ValueError):
        interpolate.RegularGridInterpolator((jnp.arange(4.0),), jnp.ones(3))
    with pytest.raises(ValueError, match="too many elements"):
        jnp.zeros((2**40, 2**20))
    with pytest.raises(ValueError, match="must be the axis size"):
        jaxlite.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.ones((2, 3)))
    device = jaxlite.devices()[0]
    for grid, names in ((np.array([[device, device]]), ("a", "b")), (np.array([[device]]), ("a", "a"))):
        with pytest.raises(ValueError):
            jaxlite.sharding.Mesh(grid, names)


def test_more_is_accepted() -> None:
    assert jnp.sum(jnp.ones((2, 3)), axis=jnp.int32(0)).shape == (3,)  # type: ignore[arg-type]
    assert lax.pmean(jnp.arange(3.0), 0) == 1
    assert jnp.partition(jnp.array([2j, 1j]), 0).tolist() == [1j, 2j]
    assert lax.pow(jnp.array([2]), jnp.array([3])) == 8
    assert jnp.cross(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])) == 1
    assert jnp.maximum.reduce(jnp.arange(3), dtype=jnp.float32).dtype == np.float32
    x = jnp.array([[12, 25]])
    assert x[None, True].shape == (1, 1, 1, 2) and jnp.round(x, -1).tolist() == [[10, 20]]
    groups = lambda x: lax.pmean(x, "i", axis_index_groups=[[0, 1], [2]])
    assert jaxlite.vmap(groups, axis_name="i")(jnp.array([1.0, 3.0, 5.0])).tolist() == [2, 2, 5]

    class Data:
        def __jax_array__(self) -> Any:
            return jnp.arange(3.0)

    assert jnp.sum(Data()) == 3 and jaxlite.jit(lambda x: x + 1)(Data()).tolist() == [1, 2, 3]  # type: ignore[arg-type]


def test_a_rule_of_custom_vjp_counts_under_derivatives() -> None:
    f = jaxlite.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (2 * x, None), lambda _, ct: (ct,), optimize_remat=True)
    assert f(3.0) == 3 and jaxlite.jit(jaxlite.value_and_grad(f))(3.0) == (6, 1)
    assert "sine" in str(jaxlite.vmap(jnp.sin).__doc__)


def test_cotangents_have_the_type_of_their_primal() -> None:
    f = jaxlite.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct.astype(jnp.float32) * 1.5,))
    gradient = jaxlite.grad(lambda x: 2 * f(x * 2))(jnp.bfloat16(1))
    assert gradient == 6 and gradient.dtype == jnp.bfloat16
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct.astype(jnp.complex64),))
    with pytest.raises(ValueError, match="dtypes do not match"):
        jaxlite.grad(f)(1.0)
    for derivative in (jaxlite.grad, jaxlite.jacrev):
        with pytest.raises(TypeError, match="real- or complex-valued inputs.*key<fry>"):
            derivative(jaxlite.random.normal)(jaxlite.random.key(0))


def test_the_line_search_continues() -> None:
    assert optimize.minimize(lambda x: jnp.sum((x - 1) ** 4), jnp.zeros(2), method="BFGS").success


def test_names_that_are_missing_leave_no_frame() -> None:
    for module in (jaxlite, jnp, lax, jaxlite.nn, jaxlite.scipy, jaxlite.experimental):
        with pytest.raises(AttributeError) as caught:
            operator.attrgetter("nothing")(module)
        assert [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)] == [__file__]
