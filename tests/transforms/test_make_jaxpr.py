"""make_jaxpr, eval_shape and ShapeDtypeStruct: what a function does, without running it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import ShapeDtypeStruct, errors, eval_shape, lax, make_jaxpr
from jaxlite.core.jaxpr import ClosedJaxpr, check_jaxpr, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import state

VEC = np.arange(3, dtype=np.float32)
STRUCT = ShapeDtypeStruct((3,), np.float32)

axis_p = Primitive("test_axis_size", memoise=False)  # depends on the names in scope


@axis_p.def_abstract_eval
def _axis_aval(x: Any, *, name: str) -> Any:
    return x.update(shape=(state.axis_sizes[name],))


class Duck:
    """All that a stage asks of an argument."""

    def __init__(self, shape: Any, dtype: Any):
        self.shape, self.dtype = shape, np.dtype(dtype)


# --- make_jaxpr --------------------------------------------------------------------------------------


def test_it_gives_a_closed_jaxpr() -> None:
    closed = make_jaxpr(lambda x, y: lax.mul(lax.sin(x), y))(VEC, VEC)
    assert type(closed) is ClosedJaxpr
    check_jaxpr(closed)
    assert str(closed) == "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sin a; d:f32[3] = mul c b in (d,) }"
    (result,) = eval_jaxpr(closed.jaxpr, closed.consts, VEC, VEC)
    np.testing.assert_allclose(result, np.sin(VEC) * VEC, rtol=1e-6)


def test_arguments_and_results_are_pytrees() -> None:
    def f(*args: Any, **kwargs: Any) -> Any:
        return {"b": args[0]["y"], "a": (kwargs["k"], None, args[1])}

    closed = make_jaxpr(f)({"y": np.int32(1), "x": VEC}, 2.0, k=[True, VEC])
    assert str(closed) == "{ lambda ; a:f32[3] b:i32[] c:f32[] d:bool[] e:f32[3]. let  in (d, e, c, b) }"


@pytest.mark.parametrize(("value", "text"), [
    (1, "i32[]"), (1.0, "f32[]"), (True, "bool[]"), (1j, "c64[]"), (np.ones((2, 0), np.int8), "i8[2,0]"),
    (np.float64(1), "f32[]"), (STRUCT, "f32[3]"), (Duck((2, 1), "float64"), "f32[2,1]"),
])
def test_argument_types(value: Any, text: str) -> None:
    assert str(make_jaxpr(lambda x: x)(value)) == f"{{ lambda ; a:{text}. let  in (a,) }}"


def test_weak_types_of_arguments() -> None:
    avals = make_jaxpr(lambda *x: x)(1.0, np.float32(1), ShapeDtypeStruct((), np.float32, weak_type=True)).in_avals
    assert [aval.weak_type for aval in avals] == [True, False, True]


def test_64_bit_types_follow_the_option() -> None:
    assert make_jaxpr(lambda x: x)(ShapeDtypeStruct((), np.float64)).in_avals[0].dtype == np.float32
    with jaxlite.enable_x64():
        assert make_jaxpr(lambda x: x)(ShapeDtypeStruct((), np.float64)).in_avals[0].dtype == np.float64


def test_closed_over_arrays_are_constvars() -> None:
    closed = make_jaxpr(lambda x: lax.add(lax.add(x, VEC), VEC))(VEC)
    assert str(closed).startswith("{ lambda a:f32[3]; b:f32[3]. let")
    assert closed.consts[0] is VEC
    assert len(closed.consts) == 1


def test_what_another_trace_made_is_a_constvar_known_or_not() -> None:
    """So the constants of a function's program do not depend on where their values came from."""

    def consts(n: Any) -> list[str]:
        jaxpr = jaxlite.make_jaxpr(lambda x: x * 2 + (jaxlite.numpy.arange(3) + n) % 3)(0.0)
        return [var.aval.str_short(True) for var in jaxpr.jaxpr.constvars]

    def outer(n: Any) -> Any:
        assert consts(n) == consts(jaxlite.numpy.array(0)) == ["i32[]"]
        return n

    jaxlite.eval_shape(outer, 1)


def test_static_arguments() -> None:
    def f(x: Any, n: int, m: int) -> Any:
        for _ in range(n * m):
            x = lax.sin(x)
        return x

    for nums in ((1, 2), [1, 2], (-1, -2)):
        closed = make_jaxpr(f, static_argnums=nums)(VEC, 2, 3)
        assert len(closed.eqns) == 6
        assert len(closed.jaxpr.invars) == 1
    assert str(make_jaxpr(lambda s, x: x, static_argnums=0)("any", 1)) == "{ lambda ; a:i32[]. let  in (a,) }"
    with pytest.raises(ValueError, match="[Nn]on-hashable"):
        make_jaxpr(f, static_argnums=1)(VEC, [2], 3)
    with pytest.raises(ValueError, match="static_argnums"):
        make_jaxpr(f, static_argnums=7)(VEC, 2, 3)


def test_return_shape() -> None:
    closed, shape = make_jaxpr(lambda x: {"y": (lax.sin(x), 1), "n": None}, return_shape=True)(VEC)
    assert type(closed) is ClosedJaxpr
    assert shape == {"y": (STRUCT, ShapeDtypeStruct((), np.int32, weak_type=True)), "n": None}


def test_axis_env_names_axes_while_tracing() -> None:
    f = lambda x: (axis_p.bind(x, name="i"), axis_p.bind(x, name="j"))
    closed = make_jaxpr(f, axis_env=[("i", 2), ("j", 5)])(1.0)
    assert [aval.shape for aval in closed.out_avals] == [(2,), (5,)]
    other = make_jaxpr(f, axis_env=(("i", 3), ("j", 5)))(1.0)
    assert [aval.shape for aval in other.out_avals] == [(3,), (5,)]
    with pytest.raises(KeyError):
        make_jaxpr(f)(1.0)
    with pytest.raises(KeyError):
        make_jaxpr(f, axis_env=[("i", 2)])(1.0)
    assert state.axis_sizes == {}


def test_axis_env_adds_to_the_names_around_it() -> None:
    inner = make_jaxpr(lambda x: (axis_p.bind(x, name="i"), axis_p.bind(x, name="j")), axis_env=[("j", 5)])
    seen = []
    make_jaxpr(lambda x: seen.append(inner(1.0).out_avals) or x, axis_env=[("i", 2), ("j", 3)])(1.0)
    assert [aval.shape for aval in seen[0]] == [(2,), (5,)]


def test_a_jitted_function_is_one_equation() -> None:
    f = jaxlite.jit(lambda x: lax.sin(x))
    (eqn,) = make_jaxpr(f)(VEC).eqns
    assert eqn.primitive.name == "jit"
    assert str(eqn.params["jaxpr"]) == "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }"


def test_it_traces_once_for_each_signature(count_traces: Any) -> None:
    counted = count_traces(lambda x: lax.sin(x))
    make = make_jaxpr(counted)
    assert make(VEC) is make(VEC + 1)
    assert counted.count == 1
    make(np.float32(1))
    assert counted.count == 2


def test_it_works_inside_a_trace() -> None:
    texts = []

    @jaxlite.jit
    def f(x: Any) -> Any:
        texts.append(str(make_jaxpr(lambda y: lax.add(x, y))(x)))
        return x

    f(VEC)
    assert texts == ["{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = add a b in (c,) }"]


def test_name_and_doc_of_the_result() -> None:
    def f(x: Any) -> Any:
        """Doc."""

    made = make_jaxpr(f)
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("make_jaxpr(f)", "Doc.", f)  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", [make_jaxpr, lambda f: lambda *args: eval_shape(f, *args)], ids=["jaxpr", "shape"])
def test_errors(call: Any) -> None:
    with pytest.raises(TypeError, match="callable"):
        call(3)(1.0)
    with pytest.raises(TypeError, match="at path x"):
        call(lambda x: x)("text")
    with pytest.raises(TypeError, match="at path x\\['k'\\]"):
        call(lambda x: x)({"k": object()})
    with pytest.raises(TypeError, match="returned a value of type <class 'str'>"):
        call(lambda x: "text")(1.0)
    with pytest.raises(TypeError, match="generator"):
        call(lambda x: (yield x))(1.0)
    with pytest.raises(ZeroDivisionError):
        call(lambda x: 1 // 0)(1.0)
    with pytest.raises(errors.TracerBoolConversionError, match="argument x"):
        call(lambda x: 1 if x else 2)(True)
    with pytest.raises(TypeError, match="shapes"):
        call(lambda x, y: lax.add(x, y))(VEC, np.zeros(4, np.float32))


# --- eval_shape --------------------------------------------------------------------------------------


def test_eval_shape_gives_structs_in_the_results_tree() -> None:
    shape = eval_shape(lambda x, y: {"s": lax.mul(x, y), "rest": (y, [1, None])}, STRUCT, y=VEC)
    assert shape == {"s": STRUCT, "rest": (STRUCT, [ShapeDtypeStruct((), np.int32, weak_type=True), None])}


def test_eval_shape_computes_and_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxlite.compilation import execution

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("compiled")

    monkeypatch.setattr(execution, "compile_lowered", never)
    monkeypatch.setattr(execution, "lower_jaxpr", never)
    huge = ShapeDtypeStruct((10**9, 10**9), np.float32)
    assert eval_shape(lambda x: lax.sin(lax.add(x, 1.0)), huge) == huge
    assert eval_shape(jaxlite.jit(lambda x: lax.sin(x)), huge) == huge
    assert jaxlite.jit(lambda x: lax.sin(x)).eval_shape(huge) == huge


def test_eval_shape_agrees_with_a_run() -> None:
    f = lambda x, y: (lax.add(x, y), lax.ge(x, y), lax.convert_element_type(x, np.int8), 2.0)
    shapes = eval_shape(f, VEC, VEC)
    for struct, value in zip(shapes, jaxlite.jit(f)(VEC, VEC), strict=True):
        assert (struct.shape, struct.dtype, struct.weak_type) == (value.shape, value.dtype, value.aval.weak_type)


# --- ShapeDtypeStruct --------------------------------------------------------------------------------


def test_struct_fields() -> None:
    struct = ShapeDtypeStruct([2, 3], "bfloat16", weak_type=True)
    assert (struct.shape, struct.ndim, struct.size, len(struct)) == ((2, 3), 2, 6, 2)
    assert struct.dtype == jaxlite.dtypes.bfloat16
    assert (struct.weak_type, struct.sharding) == (True, None)
    assert ShapeDtypeStruct((), "float64").dtype == np.float64
    assert (ShapeDtypeStruct((), int).size, ShapeDtypeStruct((0, 5), int).size) == (1, 0)
    with pytest.raises(TypeError, match="len"):
        len(ShapeDtypeStruct((), int))


def test_struct_text() -> None:
    assert repr(STRUCT) == str(STRUCT) == "ShapeDtypeStruct(shape=(3,), dtype=float32)"
    assert repr(ShapeDtypeStruct((), "int8", weak_type=True)) == (
        "ShapeDtypeStruct(shape=(), dtype=int8, weak_type=True)")


def test_struct_equality_and_hash() -> None:
    same = ShapeDtypeStruct([3], "float32")
    assert same == STRUCT
    assert hash(same) == hash(STRUCT)
    for other in (ShapeDtypeStruct((3,), np.float16), ShapeDtypeStruct((4,), np.float32),
                  ShapeDtypeStruct((3,), np.float32, weak_type=True), (3,), None):
        assert other != STRUCT
    assert len({same, STRUCT, ShapeDtypeStruct((), int)}) == 2


def test_struct_update_makes_a_copy() -> None:
    assert STRUCT.update(shape=(4,)) == ShapeDtypeStruct((4,), np.float32)
    assert STRUCT.update(dtype=np.int8, weak_type=True) == ShapeDtypeStruct((3,), np.int8, weak_type=True)
    assert STRUCT.shape == (3,)
    with pytest.raises(ValueError, match="no field size"):
        STRUCT.update(size=2)


def test_struct_is_immutable_and_copies() -> None:
    with pytest.raises(RuntimeError, match="immutable"):
        STRUCT.shape = (4,)
    with pytest.raises(RuntimeError, match="immutable"):
        del STRUCT.dtype
    for made in (copy.copy(STRUCT), copy.deepcopy(STRUCT), pickle.loads(pickle.dumps(STRUCT))):
        assert made == STRUCT


def test_a_subclass_of_a_struct_has_attributes_of_its_own():
    class Batched(ShapeDtypeStruct):
        __slots__ = ("axes",)

        def __init__(self, shape, dtype, axes):
            super().__init__(shape, dtype)
            self.axes = axes

    batched = Batched((3,), np.float32, (0,))
    batched.axes = (1,)
    assert batched.axes == (1,) and batched.update(shape=(4,)) == ShapeDtypeStruct((4,), np.float32)
    del batched.axes
    for name in ("shape", "ndim"):
        with pytest.raises(RuntimeError, match="reassign"):
            setattr(batched, name, 2)



def test_struct_errors() -> None:
    with pytest.raises(ValueError, match="dtype must be specified"):
        ShapeDtypeStruct((2,), None)
    for shape, dtype in ((None, "float32"), (3, "float32"), ((), "no such type")):
        with pytest.raises(TypeError):
            ShapeDtypeStruct(shape, dtype)


def test_a_struct_goes_through_the_stages() -> None:
    f = jaxlite.jit(lambda x, y: lax.add(x, y))
    assert str(f.trace(STRUCT, STRUCT).jaxpr) == "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = add a b in (c,) }"
    compiled = f.lower(STRUCT, VEC).compile()
    np.testing.assert_array_equal(compiled(VEC, VEC), 2 * VEC)


def test_nothing_runs_on_a_struct() -> None:
    f = jaxlite.jit(lambda x: lax.sin(x))
    f.trace(STRUCT)
    for run in (f, lax.sin, lambda x: lax.add(x, VEC), lambda x: jaxlite.make_jaxpr(lambda y: lax.add(x, y))(VEC)):
        with pytest.raises(TypeError, match="ShapeDtypeStruct"):
            run(STRUCT)
    with pytest.raises(TypeError):
        STRUCT + 1
    np.testing.assert_allclose(f(VEC), np.sin(VEC), rtol=1e-6)  # the failed call left nothing behind


def test_an_array_that_is_used_often_is_one_constant() -> None:
    matrix, places = np.arange(6.0).reshape(3, 2), np.array([2, 0, 1])

    def f(x: Any) -> Any:
        y = jaxlite.grad(lambda x: jnp.sum((matrix @ x) ** 2))(x)
        return (matrix @ y)[places] + jaxlite.ops.segment_sum((matrix @ x)[places], places, 3)

    closed = make_jaxpr(f)(np.ones(2, np.float32))
    assert sorted(const.shape for const in closed.consts) == [(3,), (3, 2)]


def test_arrays_that_differ_are_constants_of_their_own() -> None:
    zeros = [np.zeros(40, np.float32) for _ in range(3)]
    zeros[1][39], zeros[2][0] = 1, -0.0
    f = lambda x: [x / each for each in zeros]
    assert len(make_jaxpr(f)(np.ones(40, np.float32)).consts) == 3
    np.testing.assert_array_equal(jaxlite.jit(f)(np.ones(40, np.float32))[2][:2], [-np.inf, np.inf])
