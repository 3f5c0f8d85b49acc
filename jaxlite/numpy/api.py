"""The base of all functions of the numpy API: one compiled call when eager, argument checks, promotion.

`@api` marks a public function. With concrete arrays it is one cached compiled call; under a trace its body is inlined,
so jaxprs are flat. Under `debug_nans`, derivatives and batches of concrete arrays are of such calls, too.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import Ints, high_types
from jaxlite.core.filtering import hide_own_frames, signature_of
from jaxlite.core.staging import StagingTrace, high
from jaxlite.core.symbolic import Dim
from jaxlite.core.tracing import Tracer, runs_at_once, state
from jaxlite.core.tree import tree_map
from jaxlite.core.values import AVAL_OF, ArrayImpl, aval_of
from jaxlite.lax import shaping
from jaxlite.lax.elementwise import mul
from jaxlite.traces.eager import eager_trace
from jaxlite.traces.host import eager_jit

F = TypeVar("F", bound=Callable[..., Any])


def api(fun: F) -> F:
    """Decorator: an eager call of the function is one compiled call.

    Parameters with an annotation are static, Python values such as axes, shapes, dtypes and flags: each new value is a new
    compile. All others are arrays, scalars, trees of them, or None.
    """
    call: Any
    compiled: Any
    wrapper: Any
    static: Sequence[str] = ()

    def compile_first(*args, **kwargs):
        nonlocal call, compiled, static
        static = [name for name in plain.__annotations__ if name != "return"]
        call = compiled = eager_jit(fun, static_argnames=static) if static else eager_jit(fun)
        call._jitted.takes_arrays = True
        return compiled(*args, **kwargs)

    call = compiled = compile_first
    plain: Any = fun
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    code, is_part, masking = (plain.__code__, getattr(plain, "is_part_of_caller", False),
                              getattr(plain, "multiplies_masks", False))
    positional = code.co_argcount
    if code.co_posonlyargcount == positional and not code.co_kwonlyargcount and not plain.__defaults__ \
            and positional in (1, 2):  # the operators' way: no packing of arguments
        if positional == 1:

            def wrapper(x, /):
                try:
                    trace = state.trace
                    if type(trace) is not StagingTrace:
                        if trace is eager_trace or _is_checked():
                            return call(x)
                        return trace.run(fun, (low(x),), {})
                    return fun(low(x)) if high_types.exist else fun(x)
                except Exception as error:
                    hide_own_frames(error)
                    raise
        else:

            def wrapper(x, y, /):
                try:
                    trace = state.trace
                    if type(trace) is not StagingTrace:
                        if trace is eager_trace or _is_checked() or masking and _masks((x, y)):
                            return call(x, y)
                        return trace.run(fun, (low(x), low(y)), {})
                    return fun(low(x), low(y)) if high_types.exist else fun(x, y)
                except Exception as error:
                    hide_own_frames(error)
                    raise
    else:
        def tolerant(*args, **kwargs):
            named = itertools.zip_longest(code.co_varnames[:min(positional, len(args))], args)
            return compiled(*(hashable(arg) if name in static else arg for name, arg in named),
                            **{name: hashable(arg) if name in static else arg for name, arg in kwargs.items()})

        def wrapper(*args, **kwargs):
            nonlocal call
            try:
                trace = state.trace
                if trace is eager_trace or type(trace) is not StagingTrace and (
                        _is_checked() or masking and _masks((*args, *kwargs.values()))):
                    try:
                        return call(*args, **kwargs) if kwargs else call(*args)
                    except ValueError as error:
                        if not str(error).startswith("Non-hashable static"):
                            raise
                    # A list where a key is needed: the next call may have one, and to fail takes long.
                    call = tolerant
                    return tolerant(*args, **kwargs)
                if high_types.exist:
                    args = tuple(map(low, args))
                pinned = trace.pin_here()
                try:
                    if type(trace) is StagingTrace or is_part:
                        return fun(*args, **kwargs)
                    return trace.run(fun, args, kwargs)
                finally:
                    if pinned:
                        trace.pin(None)
            except Exception as error:
                unknown = _unknown_keyword(code, kwargs)
                if unknown is not None and type(error) is TypeError:
                    error.args = (f"{plain.__name__}() got an unexpected keyword argument {unknown!r}",)
                hide_own_frames(error)
                raise

    wrapper = functools.wraps(fun)(wrapper)
    wrapper.is_boundary, wrapper.__signature__ = True, signature_of(fun)
    return wrapper


def multiplies_masks(fun: F) -> F:
    """Decorator, below `api`: a function that converts arguments and multiplies them, also by booleans.

    XLA makes a selection of a converted boolean times a number, so that False times inf or nan is 0 (a masked loss, say). In a
    derivative that is not compiled this is one program too, as in JAX, and not a conversion and a product.
    """
    fun.multiplies_masks = True  # type: ignore[attr-defined]
    return fun


_BOOL = np.dtype(bool)


def _masks(args: Sequence[Any]) -> bool:
    """Whether there are booleans among other arguments, of a function that is run at once."""
    booleans = [getattr(arg, "dtype", None) is _BOOL for arg in args]
    return any(booleans) and not all(booleans) and runs_at_once()


def part_of_caller(fun: F) -> F:
    """Decorator, below `api`: no program of its own in JAX, so a strong tangent of a weakly typed argument stays strong."""
    fun.is_part_of_caller = True  # type: ignore[attr-defined]
    return fun


def float_api(fun: F) -> F:
    """Decorator: `api` for functions of floats, which take Python ints that are too wide for the default integers as floats."""
    call = api(fun)

    @functools.wraps(call)
    def wrapper(*args, **kwargs):
        try:
            return call(*args, **kwargs)
        except OverflowError:
            floats = [_wide_as_float(arg) for arg in args]
            named = {name: _wide_as_float(arg) for name, arg in kwargs.items()}
            if all(map(operator.is_, (*args, *kwargs.values()), (*floats, *named.values()))):
                raise
            return call(*floats, **named)

    return wrapper  # type: ignore[return-value]


def _wide_as_float(value):
    """A Python int that is too wide for the default integers as a float; any other value as it is."""
    if type(value) is not int:
        return value
    try:
        aval_of(value)
    except OverflowError:
        return float(value)
    return value


def _is_checked() -> bool:
    """Whether results are searched for NaNs and infinities. Those inside of a function, which it replaces, are none of its."""
    return config.debug_nans.value or config.debug_infs.value


def _unknown_keyword(code: Any, kwargs: dict[str, Any]) -> str | None:
    """A keyword that a function does not have: a compiled call complains about its value first."""
    if code.co_flags & 0x08:  # it takes any: inspect.CO_VARKEYWORDS
        return None
    known = code.co_varnames[code.co_posonlyargcount:code.co_argcount + code.co_kwonlyargcount]
    return next((name for name in kwargs if name not in known), None)


def whole_size(n) -> int:
    """An int from a size that is one; also from a float that is whole."""
    return int(n) if isinstance(n, (float, np.floating)) and n.is_integer() else operator.index(n)


def hashable(arg):
    """Lists and arrays as tuples, arrays without axes as numbers, also inside of tuples: `axis=[0, 1]` is static too."""
    if isinstance(arg, (ArrayImpl, np.ndarray)) and (arg.dtype != bool or not arg.ndim):  # a mask names no axes
        arg = np.asarray(arg).tolist()
    return tuple(map(hashable, arg)) if isinstance(arg, list) or type(arg) is tuple else arg


def broadcasts_inside(fun: F) -> F:
    """Decorator: the option `numpy_rank_promotion` does not apply to operands of different rank inside the function."""
    return _with_own(fun, config.numpy_rank_promotion, "allow")


def promotes_inside(fun: F) -> F:
    """Decorator: the option `numpy_dtype_promotion` does not apply to operations inside the function."""
    return _with_own(fun, config.numpy_dtype_promotion, "standard")


def _with_own(fun: F, option: config.Option, usual: str) -> F:
    @functools.wraps(fun)
    def call(*args, **kwargs):
        if option.value == usual:
            return fun(*args, **kwargs)
        with option(usual):
            return fun(*args, **kwargs)

    return call  # type: ignore[return-value]


# --- checking and promoting arguments ----------------------------------------------------------------


def is_array_like(x) -> bool:
    """Whether functions of this API take the object as an array: arrays, tracers, scalars, `__jax_array__`."""
    kind = type(x)
    if kind in AVAL_OF or isinstance(x, Tracer):
        return True
    return isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)) or hasattr(x, "__jax_array__")


def low(x):
    """The array that a value of a high type stands for, if it is one; everything else as it is."""
    return high().as_array(x) if high_types.exist else x


def check_arrays(name: str, *args) -> None:
    """Raises TypeError, naming the function and the position, for arguments that are not arrays or scalars."""
    for position, arg in enumerate(args):
        if not isinstance(arg, Tracer) and type(arg) not in AVAL_OF and not is_array_like(arg):
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(arg)} at position {position}. "
                            "Convert lists and tuples with jnp.array first.")


def check_given(name: str, *args) -> None:
    """`check_arrays` for arguments of which None stands for one that is not given."""
    check_arrays(name, *(arg for arg in args if arg is not None))


def as_arrays(name: str, *args):
    """The arguments as arrays or tracers: one value for one argument, else a list. No promotion."""
    if len(args) == 1 and isinstance(args[0], Tracer):
        return low(args[0]) if high_types.exist else args[0]
    check_arrays(name, *args)
    return as_array(args[0]) if len(args) == 1 else [as_array(arg) for arg in args]


def as_array(x):
    """An array or tracer for an array-like; scalars keep their weak type."""
    if isinstance(x, (ArrayImpl, Tracer)):
        return low(x) if high_types.exist else x
    if hasattr(x, "__jax_array__"):
        return x.__jax_array__()
    aval = aval_of(x)
    if isinstance(aval.dtype, dtypes.ExtendedDType):
        return x
    return shaping.convert_element_type_p.bind(x, new_dtype=aval.dtype, weak_type=aval.weak_type)


def _standard(dtype, weak: bool) -> tuple[Any, bool]:
    return dtype, weak


def _inexact(dtype, weak: bool) -> tuple[Any, bool]:
    return dtypes.to_inexact_dtype(dtype), weak


def _numeric(dtype, weak: bool) -> tuple[Any, bool]:
    return dtypes.to_numeric_dtype(dtype), weak


def _common(avals: Sequence[Any], adjust: Callable[[Any, bool], tuple[Any, bool]]) -> tuple[Any, bool]:
    """The dtype and weak type that values of these types are converted to."""
    first = avals[0]
    for aval in avals:
        if aval.dtype is not first.dtype or aval.weak_type is not first.weak_type:
            break
    else:
        # This type, even if it is of 64 bits and from the time before they were switched off.
        plain = adjust is _standard or isinstance(first.dtype, dtypes.ExtendedDType)
        return (first.dtype, first.weak_type) if plain else adjust(first.dtype, first.weak_type)
    if isinstance(first.dtype, dtypes.ExtendedDType) and all(aval.dtype == first.dtype for aval in avals):
        return first.dtype, False
    return adjust(*dtypes.lattice_join(tuple([(aval.dtype, aval.weak_type) for aval in avals])))


def promote_dtypes(*args) -> list[Any]:
    """The arguments converted to the one dtype that promotion gives them."""
    arrays = unwrapped(args)
    dtype, weak = _common([aval_of(arg) for arg in arrays], _standard)
    return [_apply(arg, dtype, weak, None, ()) for arg in arrays]


def common_type(*args) -> tuple[Any, bool]:
    """The dtype and weak type that promotion gives the arguments."""
    return _common([aval_of(arg) for arg in args], _standard)


def promote_dtypes_inexact(*args) -> list[Any]:
    """Like `promote_dtypes`, but integers and booleans become floating."""
    return _converted(args, _inexact)


def promote_dtypes_complex(*args) -> list[Any]:
    """Like `promote_dtypes`, but real numbers become complex."""
    return _converted(args, lambda dtype, weak: (dtypes.to_complex_dtype(dtype), weak))


def _converted(args: Sequence[Any], adjust: Callable[[Any, bool], tuple[Any, bool]]) -> list[Any]:
    arrays = unwrapped(args)
    dtype, weak = _common([aval_of(arg) for arg in arrays], adjust)
    return [shaping.convert(arg, dtype, weak) for arg in arrays]


# Promotion depends on types alone, so what to do with each argument is worked out once for every combination of
# types: None for nothing, else (dtype, weak_type, shape or None, broadcast_dimensions). An empty plan changes nothing.
_plans: dict[Any, list[Any]] = {}
_PLAN_LIMIT = 1 << 14
_rank_state, _dtype_state = config.numpy_rank_promotion.state, config.numpy_dtype_promotion.state
_x64_state = config.enable_x64.state


def _make_plan(name: str, adjust: Callable, avals: tuple[Any, ...]) -> list[Any]:
    if name != "where" and len({aval.dtype for aval in avals}) > 1 and any(
            isinstance(aval.dtype, dtypes.ExtendedDType) for aval in avals):
        raise TypeError(f"{name} does not accept dtypes {', '.join(str(aval.dtype) for aval in avals)}.")
    if any([aval.dtype == dtypes.float0 for aval in avals]):
        raise TypeError(dtypes.float0_message(name))
    dtype, weak = _common(avals, adjust)
    shapes = [aval.shape for aval in avals]
    ranks = {len(shape) for shape in shapes if shape}
    rank = max(ranks, default=0)
    if len(ranks) > 1:
        if any(len({size for size in sizes if size != 1}) > 1 for sizes in
               itertools.zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)):
            raise ValueError(f"Incompatible shapes for broadcasting: {name} got shapes {', '.join(map(str, shapes))}")
        if config.numpy_rank_promotion.value != "allow":
            _report_rank_promotion(name, shapes)
    plan: list[Any] = []
    for aval in avals:
        # Scalars stay as they are: lax stretches them. Others get leading axes of size 1.
        missing = rank - len(aval.shape) if aval.shape else 0
        if not missing and aval.dtype == dtype and aval.weak_type == weak:
            plan.append(None)
        else:
            shape = (1,) * missing + aval.shape if missing else None
            plan.append((dtype, weak, shape, tuple(range(missing, rank))))
    return plan if any(plan) else []


def _promoter(adjust: Callable[[Any, bool], tuple[Any, bool]], doc: str) -> Callable[..., Any]:
    def promote(name: str, *args):
        if len(args) == 2:  # the most frequent case, at the price of a few comparisons
            x, y = args
            if isinstance(x, Tracer) and isinstance(y, Tracer) and adjust is _standard and x.aval is y.aval:
                return args
        avals = []
        for arg in args:
            if isinstance(arg, Tracer):
                avals.append(arg.aval)
                continue
            type_of = AVAL_OF.get(type(arg))
            if type_of is None:
                check_arrays(name, *args)
                return promote(name, *unwrapped(args))
            avals.append(type_of(arg))
        key = (adjust, *avals, _rank_state.value, _dtype_state.value, _x64_state.value)
        plan = _plans.get(key)
        if plan is None:
            plan = _make_plan(name, adjust, tuple(avals))
            if _rank_state.value != "warn":  # a warning comes every time
                if len(_plans) >= _PLAN_LIMIT:
                    _plans.clear()
                _plans[key] = plan
        if not plan:
            return args
        if len(args) == 2:
            x, y = args
            of_x, of_y = plan
            return x if of_x is None else _apply(x, *of_x), y if of_y is None else _apply(y, *of_y)
        return [arg if step is None else _apply(arg, *step) for arg, step in zip(args, plan)]

    promote.__doc__ = doc
    return promote


def _apply(arg, dtype, weak: bool, shape, dimensions: Ints):
    if type(arg) in _SCALARS and not weak and state.trace is not eager_trace:
        return scalar(arg, dtype)
    arg = shaping.convert(arg, dtype, weak)
    if shape is None:
        return arg
    return shaping.broadcast_in_dim_p.bind(arg, shape=shape, broadcast_dimensions=dimensions, sharding=None)


_SCALARS = frozenset((bool, int, float, complex))


def scalar(value, dtype):
    """A Python scalar in a dtype, as a constant of the program; integers wrap, floats overflow to infinity. A symbolic
    dimension is its value at run time.
    """
    if type(value) is float:
        limit = 3e38 if dtype is dtypes.float32 else 6e4
        if -limit < value < limit:  # it fits, or does not warn
            return dtype.type(value)
    elif type(value) is int and 0 <= value < 128:
        return dtype.type(value)
    if type(value) is Dim:
        return shaping.convert(value.__jax_array__(), dtype, False)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)[()]


def strong_arrays(fun: F) -> F:
    """Decorator, below `api`: arrays among the results are strongly typed, also where all arguments are weakly typed.

    So they are in JAX, where the constants of a formula have the dtype of the arguments; numbers stay weakly typed.
    """
    return _results_through(fun, lambda x, dtype: shaping.convert(x, dtype, False))


def strong_formula(fun: F) -> F:
    """Decorator: `strong_arrays` for floats, and gradients are strongly typed, too."""
    return _results_through(fun, lambda x, dtype: mul(x, scalar(1.0, dtype)))


def _results_through(fun: F, change: Callable[[Any, Any], Any]) -> F:
    def strong(x):
        aval = aval_of(x)
        return change(x, aval.dtype) if aval.weak_type and aval.shape else x

    @functools.wraps(fun)
    def wrapper(*args, **kwargs):
        return tree_map(strong, fun(*args, **kwargs))

    return wrapper  # type: ignore[return-value]


promote = _promoter(_standard, "The arguments checked, converted to one dtype, brought to one rank: ready for lax.")
promote_inexact = _promoter(_inexact, "Like `promote`, but integers and booleans become floating.")
promote_numeric = _promoter(_numeric, "Like `promote`, but booleans become integers.")


def promote_ranks(name: str, *args) -> list[Any]:
    """Leading axes of size 1 for arguments of lower rank; scalars stay as they are, lax stretches them."""
    shapes = [aval_of(arg).shape for arg in args]
    ranks = {len(shape) for shape in shapes if shape}
    if len(ranks) < 2:
        return list(args)
    if config.numpy_rank_promotion.value != "allow":
        _report_rank_promotion(name, shapes)
    shaping.broadcast_shapes(*shapes)  # a ValueError if they do not fit
    rank = max(ranks)
    return [shaping.broadcast_in_dim(arg, (1,) * (rank - len(shape)) + shape, range(rank - len(shape), rank))
            if shape else arg for arg, shape in zip(args, shapes, strict=True)]


def _report_rank_promotion(name: str, shapes: list[Ints]) -> None:
    shown = " ".join(map(str, shapes))
    if config.numpy_rank_promotion.value == "raise":
        raise ValueError(f"Operands could not be broadcast together for {name} on shapes {shown} and with the config "
                         "option numpy_rank_promotion='raise'. Reshape the operands to equal ranks.")
    source.warn(f"Following NumPy automatic rank promotion for {name} on shapes {shown}. Set the "
                "numpy_rank_promotion config option to 'allow' to silence this; reshape the operands to equal ranks.")


_ARRAYS = (Tracer, ArrayImpl)


def dtype_of(x):
    """The dtype of an array, tracer or scalar."""
    return x.aval.dtype if isinstance(x, _ARRAYS) else aval_of(x).dtype


def unwrapped(args) -> list[Any]:
    """Arguments with `__jax_array__`, and scalars of subclasses, as arrays and plain scalars."""
    return [arg if type(arg) in AVAL_OF or isinstance(arg, Tracer) else
            arg.__jax_array__() if hasattr(arg, "__jax_array__") else _plain_scalar(arg) for arg in args]


def _plain_scalar(x):
    kind: Any
    for kind in (bool, int, float, complex):  # subclasses, such as members of an IntEnum
        if isinstance(x, kind) and not isinstance(x, np.generic):
            return kind(x)
    aval_of(x)  # raises for arrays of strings, objects, dates
    return np.asarray(x)


def canonical_axes(axis, rank: int) -> Ints:
    """An axis argument (None for all, an int, or a tuple of ints) as a tuple of axes in [0, rank).

    Raises: ValueError for axes out of range or named twice.
    """
    if are_plain_axes(axis):
        return plain_axes(axis, rank)
    return _make_axes(each_axis(axis), rank)


def each_axis(axis):
    """The axes that an axis argument names: an axis, or several of them in a tuple, a list, a range or an array."""
    several = hasattr(axis, "__len__") and not isinstance(axis, str) and getattr(axis, "ndim", True)
    return axis if isinstance(axis, (tuple, list)) else tuple(axis) if several else (axis,)


_INT = frozenset((int,))


def are_plain_axes(axis) -> bool:
    """Whether an axis argument is None, an int or a tuple of ints, and no True, NumPy integer or name."""
    return type(axis) is int or axis is None or (type(axis) is tuple and _INT.issuperset(map(type, axis)))


@functools.lru_cache(1024)
def plain_axes(axis: int | Ints | None, rank: int) -> Ints:
    """`canonical_axes` of what `are_plain_axes` accepts."""
    return tuple(range(rank)) if axis is None else _make_axes(axis if isinstance(axis, tuple) else (axis,), rank)


def _make_axes(axes, rank: int) -> Ints:
    result = tuple(shaping.canonical_axis(each, rank) for each in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"duplicate value in 'axis': {axes}")
    return result


def refuse_out(name: str, out, argument: str = "out") -> None:
    """Raises NotImplementedError for an array that NumPy would write into: arrays are immutable."""
    if out is not None:
        raise NotImplementedError(f"The {argument!r} argument to jnp.{name} is not supported.")


def is_complex(x) -> bool:
    """Whether an array has a complex dtype."""
    return dtypes.kind(aval_of(x).dtype) == "c"
