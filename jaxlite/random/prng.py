"""PRNG keys: their dtypes, arrays of them, the generators behind them, and the primitives that use them.

A key is a scalar of an extended dtype, printed `key<fry>[]`; behind it are a few words of uint32. Programs see the
keys, buffers and executables the words. Legacy keys are the words themselves, in a plain array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import Ints, ShapedArray, layouts, shaped_array
from jaxlite.core.axes import other_axes
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import AVAL_OF, aval_of
from jaxlite.devices import placement
from jaxlite.devices.extended import EArray, outer_aval
from jaxlite.random import random123, rbg, threefry
from jaxlite.traces.decompose import trace_alone
from jaxlite.traces.jvp import def_zero
from lowering import xla
from lowering.rules import register_decomposition

_u32 = dtypes.uint32


# --- generators --------------------------------------------------------------------------------------


class Implementation:
    """A generator: how many words a key has, and the functions on raw keys, arrays of uint32[..., words].

    `seed(integers)`, `split(keys, shape)`, `fold_in(keys, numbers)` give raw keys, `random_bits(keys, width, shape)`
    bits. `tag` is the name in printed types.
    """

    __slots__ = ("name", "tag", "words", "seed", "split", "fold_in", "random_bits", "dtype")

    def __init__(self, name: str, tag: str, words: int, seed: Callable, split: Callable, fold_in: Callable,
                 random_bits: Callable):
        self.name, self.tag, self.words = name, tag, words
        self.seed, self.split, self.fold_in, self.random_bits = seed, split, fold_in, random_bits
        self.dtype = KeyDType(self)

    def __repr__(self) -> str:
        return self.tag

    def __reduce__(self):
        return implementation, (self.name,)


class KeyDType(dtypes.ExtendedDType):
    """The dtype of the keys of one generator."""

    type = dtypes.prng_key

    def __init__(self, impl: Implementation):
        self.impl, self.name, self.itemsize = impl, f"key<{impl.tag}>", 4 * impl.words
        dtypes.EXTENDED_DTYPES[self.name] = self
        self._element = shaped_array((impl.words,), _u32, False)

    def physical_element(self) -> ShapedArray:
        """The type of the words behind one key."""
        return self._element

    def wrap(self, words) -> PRNGKeyArray:
        """Keys from a concrete array of words."""
        return PRNGKeyArray(self, words)

    def __reduce__(self):
        return key_dtype, (self.impl.name,)


def _of_generator(name: str, tag: str, words: int, counters: int) -> Implementation:
    generator = random123.Generator(getattr(random123, name), words, counters)
    return Implementation(name, tag, words, generator.seed, generator.split, generator.fold_in, generator.random_bits)


IMPLEMENTATIONS = {each.name: each for each in (
    Implementation("threefry2x32", "fry", 2, threefry.seed, threefry.split, threefry.fold_in, threefry.random_bits),
    Implementation("rbg", "rbg", 4, rbg.seed, rbg.split, rbg.fold_in, rbg.random_bits),
    Implementation("unsafe_rbg", "urbg", 4, rbg.seed, rbg.unsafe_split, rbg.unsafe_fold_in, rbg.random_bits),
    _of_generator("threefry4x32", "fry4", 4, 4),
    _of_generator("philox2x32", "phx2", 1, 2),
    _of_generator("philox4x32", "phx4", 2, 4),
)}


def implementation(spec=None) -> Implementation:
    """The generator of a name, of a key dtype, or the default one. Raises: ValueError for unknown names."""
    if spec is None:
        spec = config.default_prng_impl.value
    if isinstance(spec, Implementation):
        return spec
    if isinstance(spec, KeyDType):
        return spec.impl
    if isinstance(spec, str):
        if spec not in IMPLEMENTATIONS:
            raise ValueError(f'unrecognized PRNG implementation "{spec}". Did you mean one of: '
                             + ", ".join(f'"{name}"' for name in IMPLEMENTATIONS) + "?")
        return IMPLEMENTATIONS[spec]
    raise TypeError(f"unrecognized type {type(spec)} for specifying PRNG implementation; give its name")


def key_dtype(impl_spec=None) -> KeyDType:
    """The dtype of the keys of a generator, given by name; of the default one without a name."""
    return implementation(impl_spec).dtype


# --- arrays of keys ----------------------------------------------------------------------------------


class PRNGKeyArray(EArray):
    """A concrete array of keys: it holds the words, uint32[*shape, words]."""

    __module__ = "jax.random"  # autoray and others tell by it whose functions are for it; other arrays are jaxlib's
    __slots__ = ("dtype", "_consumed")

    def __init__(self, dtype: KeyDType, words):
        self._base_array, self.dtype = words, dtype
        self.aval = outer_aval(dtype, words, 1) if layouts.exist else shaped_array(words.shape[:-1], dtype, False)
        self._consumed: Any = False  # what of it was used, with the option `debug_key_reuse`

    def __setstate__(self, state: Any) -> None:
        """Fill what a pickle of JAX makes."""
        PRNGKeyArray.__init__(self, state["_impl"].dtype, state["_base_array"])

    def __bool__(self) -> bool:
        raise TypeError("key array cannot be converted to boolean.")

    def on_device_size_in_bytes(self) -> int:
        return self._base_array.on_device_size_in_bytes()

    def item(self, *args):
        raise NotImplementedError("an array of keys has no elements that Python can read; see jaxlite.random.key_data")

    def __array__(self, *args, **kwargs):
        raise TypeError("JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use "
                        "jaxlite.random.key_data(arr) if you wish to extract the underlying integer array.")

    def __repr__(self) -> str:
        return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{self._base_array}"


AVAL_OF[PRNGKeyArray] = lambda key: key.aval
xla.call_registry.register_node(PRNGKeyArray, lambda key: ((key._base_array,), key.dtype),
                                lambda dtype, words: dtype.wrap(*words))


def _by_tag(tag: str) -> Implementation:
    return next(each for each in IMPLEMENTATIONS.values() if each.tag == tag)


def words_aval(aval: ShapedArray) -> ShapedArray:
    """The type of the words behind an array of keys, or behind one of a library's dtype; other types are their own."""
    if not isinstance(aval.dtype, dtypes.ExtendedDType):
        return aval
    element = aval.dtype.physical_element()
    return shaped_array((*aval.shape, *element.shape), element.dtype, False)


# --- primitives --------------------------------------------------------------------------------------


def _require_keys(name: str, aval) -> None:
    if not isinstance(aval.dtype, KeyDType):
        raise TypeError(f"{name} requires an array of PRNG keys, got {aval}")


random_seed_p = Primitive("random_seed")
random_split_p = Primitive("random_split")
random_fold_in_p = Primitive("random_fold_in")
random_bits_p = Primitive("random_bits")


def split_keys(keys, shape: Sequence[int]):
    """New keys from each key: the shape `(*keys.shape, *shape)`."""
    return random_split_p.bind(keys, shape=shape, **_counting())


def draw_bits(keys, width: int, shape: Sequence[int]):
    """Unsigned integers from each key: the shape `(*keys.shape, *shape)`."""
    return random_bits_p.bind(keys, bit_width=width, shape=shape, **_counting())


def _counting() -> dict[str, bool]:
    """How threefry counts where the equation is written; the usual way needs no word."""
    return {} if config.threefry_partitionable.value else {"partitionable": False}


random_clone_p = Primitive("random_clone")
random_wrap_p = Primitive("random_wrap")
random_seed_p.param_readers = random_wrap_p.param_readers = {"impl": _by_tag}
random_unwrap_p = Primitive("random_unwrap")


@random_seed_p.def_abstract_eval
def _random_seed_aval(seeds, *, impl: Implementation) -> ShapedArray:
    return shaped_array(seeds.shape, impl.dtype, False)


@random_split_p.def_abstract_eval
def _random_split_aval(keys, *, shape: Ints, partitionable: bool = True) -> ShapedArray:
    _require_keys("random_split", keys)
    return shaped_array(keys.shape + shape, keys.dtype, False)


@random_fold_in_p.def_abstract_eval
def _random_fold_in_aval(keys, data) -> ShapedArray:
    _require_keys("random_fold_in", keys)
    if data.dtype != _u32 or data.shape and keys.shape and len(data.shape) != len(keys.shape):
        raise TypeError(f"random_fold_in requires uint32 numbers, one for each key; got {data} for {keys}")
    return shaped_array(lax.broadcast_shapes(keys.shape, data.shape), keys.dtype, False)


@random_bits_p.def_abstract_eval
def _random_bits_aval(keys, *, bit_width: int, shape: Ints, partitionable: bool = True) -> ShapedArray:
    _require_keys("random_bits", keys)
    return shaped_array(keys.shape + shape, np.dtype(f"uint{bit_width}"), False)


@random_wrap_p.def_abstract_eval
def _random_wrap_aval(words, *, impl: Implementation) -> ShapedArray:
    check_words(words, impl)
    return shaped_array(words.shape[:-1], impl.dtype, False)


@random_unwrap_p.def_abstract_eval
def _random_unwrap_aval(keys) -> ShapedArray:
    _require_keys("random_unwrap", keys)
    return words_aval(keys)


def check_words(words, impl: Implementation) -> None:
    """Raises TypeError unless a value is an array of words for keys of a generator."""
    if not all(hasattr(words, name) for name in ("ndim", "shape", "dtype")):
        raise TypeError("JAX encountered invalid PRNG key data: expected key_data to have ndim, shape, and dtype "
                        f"attributes. Got {words}")
    if tuple(words.shape[-1:]) != (impl.words,):
        raise TypeError(f"JAX encountered invalid PRNG key data: expected key_data.shape to end with ({impl.words},); "
                        f"got shape={words.shape} for impl={impl.name}")
    if words.dtype != _u32:
        raise TypeError("JAX encountered invalid PRNG key data: expected key_data.dtype = uint32; got "
                        f"dtype={words.dtype}")


def check_legacy(words, impl: Implementation) -> None:
    """`check_words` for a legacy key: the option `legacy_prng_key` may refuse it, or warn."""
    check_words(words, impl)
    if config.legacy_prng_key.value != "allow":
        message = ("Legacy uint32 key array passed as key to jax.random function. Please create keys using jax.random.key(). "
                   'If use of a raw key array was intended, set jax_legacy_prng_key="allow".')
        if config.legacy_prng_key.value == "error":
            raise ValueError(message)
        source.warn(message)


@random_clone_p.def_abstract_eval
def _random_clone_aval(keys) -> ShapedArray:
    _require_keys("random_clone", keys)
    return keys


@random_clone_p.def_eager
def _random_clone_eager(keys) -> PRNGKeyArray:
    return keys.dtype.wrap(placement.on_context(keys._base_array))


@random_wrap_p.def_eager
def _random_wrap_eager(words, *, impl: Implementation) -> PRNGKeyArray:
    check_words(words, impl)
    return impl.dtype.wrap(words if type(words) is arrays.ArrayImpl else arrays.make_array(words))


@random_unwrap_p.def_eager
def _random_unwrap_eager(keys):
    _require_keys("random_unwrap", aval_of(keys))
    return keys._base_array


for _primitive in (random_seed_p, random_split_p, random_fold_in_p, random_bits_p, random_clone_p, random_wrap_p,
                   random_unwrap_p):
    def_zero(_primitive)
    _primitive.no_transpose("keys and bits are not linear in anything")


# --- lowering: programs on words -----------------------------------------------------------------------

_PROGRAM_LIMIT = 1024


def lowers_on_words(register: Callable, name: str, rule: Callable[..., Any]) -> None:
    """Lower a primitive through `rule(avals, *words, **params)`, which works on the words behind keys.

    `register` is what takes the jaxpr-valued function: `register_decomposition` for primitives that are always
    lowered so, `register_extended` for those that are where an operand is an array of keys.
    """

    @functools.lru_cache(_PROGRAM_LIMIT)
    def program(avals: tuple[Any, ...], params: tuple[tuple[str, Any], ...], by_kernel: bool) -> ClosedJaxpr:
        def flat(*words) -> Sequence[Any]:
            out = rule(avals, *words, **dict(params))
            return out if isinstance(out, list) else [out]

        # The types are settled: 64-bit ones in the program stay, whatever the option says while it is compiled.
        words = [shaped_array(each.shape, each.dtype, False) for each in map(words_aval, avals)]
        return trace_alone(flat, words, name)

    register(name, lambda avals, params: program(
        tuple(avals), tuple(params.items()), config.threefry_gpu_kernel_lowering.value))


def _as_asked(partitionable: bool, rule: Callable, *args):
    with config.threefry_partitionable(partitionable):
        return rule(*args)


_RULES: dict[str, Callable[..., Any]] = {
    "random_seed": lambda avals, seeds, impl: impl.seed(seeds),
    "random_split": lambda avals, keys, shape, partitionable=True: _as_asked(
        partitionable, avals[0].dtype.impl.split, keys, shape),
    "random_bits": lambda avals, keys, bit_width, shape, partitionable=True: _as_asked(
        partitionable, avals[0].dtype.impl.random_bits, keys, bit_width, shape),
    "random_clone": lambda avals, keys: keys,
    "random_wrap": lambda avals, words, impl: words,
    "random_unwrap": lambda avals, keys: keys,
}
for _name, _rule in _RULES.items():
    lowers_on_words(register_decomposition, _name, _rule)


def _fold_in_words(avals: Sequence[Any], keys, data):
    impl, shape = avals[0].dtype.impl, lax.broadcast_shapes(avals[0].shape, avals[1].shape)
    rank = len(shape)
    if avals[0].shape != shape:
        keys = lax.broadcast_in_dim(keys, (*shape, impl.words), range(rank - len(avals[0].shape), rank + 1))
    if avals[1].shape != shape and impl.fold_in is not rbg.unsafe_fold_in:
        data = lax.broadcast_in_dim(data, shape, range(rank - len(avals[1].shape), rank))
    return impl.fold_in(keys, data)


lowers_on_words(register_decomposition, "random_fold_in", _fold_in_words)


# --- batching ----------------------------------------------------------------------------------------


def _to_front(value, dim: int | None):
    if not dim:
        return value
    return lax.transpose(value, (dim, *other_axes(aval_of(value).ndim, (dim,))))


def _batch_unary(primitive: Primitive) -> None:
    @primitive.def_batching
    def batch(axis, args: Sequence[Any], dims: Sequence[int | None], **params) -> tuple[Any, int]:
        return primitive.bind(_to_front(args[0], dims[0]), **params), 0


for _primitive in (random_seed_p, random_split_p, random_bits_p, random_clone_p, random_wrap_p, random_unwrap_p):
    _batch_unary(_primitive)


@random_fold_in_p.def_batching
def _random_fold_in_batch(axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
    """What is not batched gets an axis of size 1, or stays a scalar: `unsafe_rbg` draws once for each of the numbers."""
    values = [_to_front(arg, dim) for arg, dim in zip(args, dims, strict=True)]
    rank = max(len(aval_of(value).shape) + (dim is None and bool(aval_of(value).shape))
               for value, dim in zip(values, dims, strict=True))
    for i, (value, dim) in enumerate(zip(values, dims, strict=True)):
        shape = aval_of(value).shape
        if dim is None and shape:
            values[i] = lax.expand_dims(value, (0,))
        elif dim is not None and len(shape) < rank:  # one key for many numbers, or many for one
            values[i] = lax.expand_dims(value, range(len(shape), rank))
    return random_fold_in_p.bind(*values), 0
