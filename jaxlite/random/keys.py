"""What users do with keys: make them, split them, fold numbers into them, look at their words.

Also here: the checks that every sampler makes of its key, and the decorator that makes a sampler.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NewType, TypeVar

import numpy as np

from jaxlite import lax
from jaxlite.compilation.jit import jit
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.errors import UnexpectedTracerError
from jaxlite.core.filtering import boundary, hide_own_frames
from jaxlite.core.lazy import loader
from jaxlite.core.symbolic import as_size
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices.placement import laid_out, put_new
from jaxlite.lax.shaping import canonical_shape
from jaxlite.numpy import array_methods
from jaxlite.numpy.api import hashable
from jaxlite.random import rbg, threefry
from jaxlite.random import words as words  # registers how operations on keys run
from jaxlite.random.prng import (
    IMPLEMENTATIONS,
    Implementation,
    KeyDType,
    PRNGKeyArray,
    check_legacy,
    implementation,
    random_clone_p,
    random_fold_in_p,
    random_seed_p,
    random_unwrap_p,
    random_wrap_p,
    split_keys,
)  # fmt: skip

Key = NewType("Key", ArrayImpl)  # type: ignore[valid-newtype]  # for annotations: an array of keys
F = TypeVar("F", bound=Callable[..., Any])
key_reuse = loader("jaxlite.compilation.key_reuse")

# --- checks ------------------------------------------------------------------------------------------


def _is_typed(key) -> bool:
    return type(key) is PRNGKeyArray or isinstance(key, Tracer) and isinstance(key.aval.dtype, KeyDType)


def check_key(name: str, key) -> tuple[Any, Implementation, bool]:
    """A key that a function got: the value, its generator, whether it is typed. One key, no array of them.

    Raises: TypeError if it is not a key, ValueError if it is several.
    """
    if _is_typed(key):
        if key.aval.shape:
            raise ValueError(f"{name} accepts a single key, but was given a key array of shape {key.aval.shape} != (). "
                             "Use jax.vmap for batching.")
        return key, key.aval.dtype.impl, True
    if not hasattr(key, "shape") and not isinstance(key, (int, float, complex, np.generic)):
        raise TypeError(f"unexpected PRNG key type {type(key)}")
    impl = implementation()
    check_legacy(key, impl)
    if len(key.shape) > 1:
        raise ValueError(f"{name} accepts a single key, but was given a key array of shape {tuple(key.shape)} != (). "
                         "Use jax.vmap for batching.")
    return key, impl, False


def _words_of(key, typed: bool):
    """The words of a concrete key. Raises: UnexpectedTracerError for a typed one that a traced function let out."""
    if not typed:
        return key  # jit looks at it
    if isinstance(key, Tracer):
        raise UnexpectedTracerError(key)
    return key._base_array


def _as_typed(key, impl: Implementation, typed: bool):
    return key if typed else random_wrap_p.bind(key, impl=impl)


# --- making keys -------------------------------------------------------------------------------------


def _seeded(name: str, seed, impl: Implementation):
    """A typed key from a seed."""
    if isinstance(seed, int):
        seed = np.int64(seed) if config.enable_x64.value else np.int64(seed).astype(np.int32)
    if hasattr(seed, "dtype") and isinstance(seed.dtype, dtypes.ExtendedDType):
        raise TypeError(f"{name} accepts a scalar seed, but was given a PRNG key array. Keys are made from integers.")
    aval = aval_of(seed)
    if aval.shape:
        raise TypeError(f"{name} accepts a scalar seed, but was given an array of shape {aval.shape} != (). Use "
                        "jax.vmap for batching")
    if dtypes.kind(aval.dtype) not in ("i", "u"):
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")
    offset = config.random_seed_offset.value
    if offset:
        more = np.asarray(offset).astype(aval.dtype)
        if isinstance(seed, (np.generic, np.ndarray)):
            with np.errstate(over="ignore"):
                seed = np.asarray(np.asarray(seed).astype(aval.dtype) + more)
        else:
            seed = lax.add(seed, more)
    if isinstance(seed, (np.generic, np.ndarray)) and is_eager() and impl.seed in (threefry.seed, rbg.seed):
        # The words of the key are those of the seed: no need to compile.
        value = np.asarray(seed).astype(aval.dtype).item()
        pair = np.array([value >> 32 & 0xFFFFFFFF if aval.dtype.itemsize == 8 else 0, value & 0xFFFFFFFF], np.uint32)
        return impl.dtype.wrap(put_new(np.tile(pair, impl.words // 2)))
    return random_seed_p.bind(seed, impl=impl)


def _chosen(impl, dtype) -> Implementation:
    if dtype is not None:
        if impl is not None:
            raise ValueError("dtype and impl cannot both be specified")
        if not isinstance(dtype, (KeyDType, str)):
            raise TypeError(f"unrecognized type {type(dtype)} for specifying PRNG implementation: a key dtype or a name")
    return implementation(impl if dtype is None else dtype)


@boundary
def key(seed, *, impl=None, dtype=None):
    """A typed PRNG key from an integer seed.

    Args:
      seed: an integer, Python's, NumPy's or traced; its low 32 bits count, with x64 all 64.
      impl: 'threefry2x32' (the default), 'threefry4x32', 'philox2x32', 'philox4x32', 'rbg' or 'unsafe_rbg'.
      dtype: a key dtype, instead of `impl`.
    Returns: a scalar of dtype `key<fry>` or the like.
    Raises: TypeError for seeds that are not integer scalars, OverflowError for those beyond 64 bits.

    >>> from jaxlite import random
    >>> random.key_data(random.key(3))
    Array([0, 3], dtype=uint32)
    """
    return _seeded("key", seed, _chosen(impl, dtype))


@boundary
def PRNGKey(seed, *, impl=None):
    """A legacy PRNG key from an integer seed: the words of `key(seed)` in an array of uint32.

    >>> from jaxlite import random
    >>> random.PRNGKey(3)
    Array([0, 3], dtype=uint32)
    """
    made = _seeded("PRNGKey", seed, implementation(impl))
    return made if config.enable_custom_prng.value else random_unwrap_p.bind(made)


@boundary
def wrap_key_data(key_bits_array, *, impl=None, dtype=None):
    """Typed keys from their words: uint32[..., 2] for threefry, uint32[..., 4] for rbg."""
    return random_wrap_p.bind(key_bits_array, impl=_chosen(impl, dtype))


def key_data(keys):
    """The words of keys, typed or legacy, as an array of uint32."""
    if _is_typed(keys):
        return random_unwrap_p.bind(keys)
    check_legacy(keys, implementation())
    return keys if isinstance(keys, (arrays.ArrayImpl, Tracer)) else arrays.make_array(keys)


def key_impl(keys):
    """The name of the keys' generator, or a user-defined generator itself; legacy keys have the default one."""
    if _is_typed(keys):
        impl = keys.aval.dtype.impl
        return impl.name if impl.name in IMPLEMENTATIONS else impl
    impl = implementation()
    check_legacy(keys, impl)
    return impl.name


def clone(key):
    """A copy of a key, to use it again on purpose."""
    if not _is_typed(key):
        check_legacy(key, implementation())
        return key
    return random_clone_p.bind(key)


# --- from keys to keys -------------------------------------------------------------------------------


def _split_words(words, *, impl: Implementation, shape: Ints):
    return random_unwrap_p.bind(split_keys(random_wrap_p.bind(words, impl=impl), shape))


def _fold_in_words(words, data, *, impl: Implementation):
    return random_unwrap_p.bind(random_fold_in_p.bind(random_wrap_p.bind(words, impl=impl), data))


_split_compiled = jit(_split_words, static_argnames=("impl", "shape"))
_fold_in_compiled = jit(_fold_in_words, static_argnames=("impl",))


@boundary
def split(key, num: int | Ints = 2):
    """New independent keys from one.

    Args:
      key: one key, typed or legacy; do not use it again.
      num: how many, or the shape of the array of keys.
    Returns: an array of keys of that shape; for a legacy key uint32[num, 2].
    Raises: ValueError for an array of keys, TypeError for what is not a key.

    >>> from jaxlite import random
    >>> random.split(random.key(0), 3).shape
    (3,)
    """
    key, impl, typed = check_key("split", key)
    shape = canonical_shape(tuple(map(as_size, num)) if isinstance(num, Sequence) else (as_size(num),))
    if is_eager():
        if config.debug_key_reuse.value and typed:
            key_reuse().check("random_split", key)
            key_reuse().consume(key)
        out = _split_compiled(_words_of(key, typed), impl=impl, shape=shape)
        return impl.dtype.wrap(out) if typed else out
    out = split_keys(_as_typed(key, impl, typed), shape)
    return out if typed else random_unwrap_p.bind(out)


@boundary
def fold_in(key, data):
    """A new key from a key and an integer.

    Args:
      key: one key, typed or legacy.
      data: an integer in [0, 2**32), concrete or traced.
    Raises: ValueError for an array of keys, TypeError for an array of numbers, OverflowError for a Python int that
      does not fit.
    """
    key, impl, typed = check_key("fold_in", key)
    shape = getattr(data, "shape", ())
    if shape:
        raise TypeError(f"fold_in accepts a scalar, but was given an array of shape {shape} != (). Use jax.vmap for "
                        "batching.")
    if isinstance(data, complex) or dtypes.kind(getattr(data, "dtype", dtypes.int32)) == "c":
        raise TypeError(f"fold_in takes an integer, got {data!r}")
    if isinstance(data, (int, float)):
        data = np.uint32(data)
    elif isinstance(data, (np.generic, np.ndarray)):
        data = np.asarray(data).astype(np.uint32)[()]
    else:
        data = lax.convert_element_type(data, np.uint32)
    if is_eager():
        out = _fold_in_compiled(_words_of(key, typed), data, impl=impl)
        return impl.dtype.wrap(out) if typed else out
    out = random_fold_in_p.bind(_as_typed(key, impl, typed), data)
    return out if typed else random_unwrap_p.bind(out)


# --- samplers ----------------------------------------------------------------------------------------


def sampler(*static: str, **passed: Any) -> Callable[[F], F]:
    """Decorator for a function of a key: its body gets a typed key, and an eager call is one compiled call.

    Args:
      static: the names of parameters that are Python values: each new value is a new compile. All others are arrays,
        scalars or None. `shape` becomes a tuple; `dtype` is checked to be one.
      passed: defaults that an eager call passes as it passes a value: for a constant the compiler may round otherwise.
    """
    static = (*static, "out_sharding")

    def decorate(fun):
        name = fun.__name__
        signature = inspect.signature(fun)
        parameters = list(signature.parameters)
        first, positional = parameters[0], fun.__code__.co_argcount

        def body(words, kwargs: dict[str, Any], impl: Implementation, **options):
            return fun(random_wrap_p.bind(words, impl=impl), **kwargs, **options)

        body.__name__ = name
        compiled = jit(body, static_argnames=("impl", *(each for each in static if each in parameters)))

        @functools.wraps(fun)
        def sample(*args, **kwargs):
            try:
                if len(args) > positional:
                    raise TypeError(f"{name}() takes {positional} positional arguments but {len(args)} were given")
                for parameter, arg in zip(parameters, args, strict=False):
                    if parameter in kwargs:
                        raise TypeError(f"{name}() got multiple values for argument {parameter!r}")
                    kwargs[parameter] = arg
                if first not in kwargs:
                    raise TypeError(f"{name}() missing 1 required positional argument: {first!r}")
                key, impl, typed = check_key(name, kwargs.pop(first))
                shape = kwargs.get("shape")
                if shape is not None and (
                        type(shape) is not tuple or any([type(size) is not int or size < 0 for size in shape])):
                    kwargs["shape"] = canonical_shape(shape)
                out_sharding = kwargs.pop("out_sharding", None)
                if not is_eager():
                    return laid_out(fun(_as_typed(key, impl, typed), **kwargs), out_sharding)
                if config.debug_key_reuse.value and typed:
                    key_reuse().check("jit-compiled function" if name != "bits" else "random_bits", key)
                    key_reuse().consume(key)
                options = {each: kwargs.pop(each) if each == "dtype" else hashable(kwargs.pop(each))
                           for each in static if each in kwargs}
                kwargs = {**passed, **kwargs}
                return laid_out(compiled(_words_of(key, typed), kwargs, impl=impl, **options), out_sharding)
            except Exception as error:
                hide_own_frames(error)
                raise

        sample.__signature__ = signature  # type: ignore[attr-defined]
        return sample

    return decorate


def key_of_arrays(cls) -> None:
    """Give arrays of keys the operators and methods of arrays; those that are arithmetic refuse them."""
    names = set(vars(cls))
    donor = type("donor", (), {})
    array_methods.attach(donor)
    for name, value in vars(donor).items():
        if name not in names and name not in ("__dict__", "__weakref__", "__module__", "__doc__"):
            setattr(cls, name, value)


key_of_arrays(PRNGKeyArray)
