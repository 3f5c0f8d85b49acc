"""Random bits, uniform numbers and tokens of lax."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax

KEY = np.array([1, 2, 3, 4], np.uint32)
THREE_FRY, PHILOX = lax.RandomAlgorithm.RNG_THREE_FRY, lax.RandomAlgorithm.RNG_PHILOX

# Bits that JAX 0.10.2 gives for this key on the CPU.
BITS = [
    (THREE_FRY, np.uint8, [1, 2, 6, 4], [[236, 168, 67], [142, 94, 25]]),
    (THREE_FRY, np.uint16, [1, 2, 6, 4], [[13292, 43176, 26179], [6542, 64094, 6425]]),
    (THREE_FRY, np.uint32, [1, 2, 6, 4],
     [[1576285164, 740599976, 2436392515], [2249660814, 2425682526, 1497962777]]),
    (PHILOX, np.uint32, [1, 2, 5, 4], [[512747620, 1298009047, 1267190206], [761827841, 1383286907, 1639995030]]),
]


@pytest.mark.parametrize("algorithm, dtype, new_key, bits", BITS, ids=str)
def test_bits_are_those_of_jax(algorithm, dtype, new_key, bits):
    got_key, got = lax.rng_bit_generator(KEY, (2, 3), dtype, algorithm)
    assert got.dtype == dtype and got_key.dtype == np.uint32
    assert got_key.tolist() == new_key and got.tolist() == bits


def test_64_bit_keys_and_bits(x64):
    key, bits = lax.rng_bit_generator(np.array([5, 6], np.uint64), (3,), np.uint64, THREE_FRY)
    assert key.tolist() == [5, 9]
    assert bits.tolist() == [17059160161795817124, 4568218857448468851, 8837050182540938565]


def test_keys_make_streams():
    first_key, first = lax.rng_bit_generator(KEY, (100,))
    again = lax.rng_bit_generator(KEY, (100,))[1]
    later = lax.rng_bit_generator(first_key, (100,))[1]
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, later).any()
    for shape in ((), (0,), (2, 0)):
        assert lax.rng_bit_generator(KEY, shape)[1].shape == shape


def test_the_new_key_has_the_type_of_the_old():
    text = str(jaxlite.make_jaxpr(lambda k: lax.rng_bit_generator(k, (3,), algorithm=1))(KEY))
    assert "b:u32[4] c:u32[3] = rng_bit_generator[" in text and "algorithm=1" in text.replace("RNG_THREE_FRY", "1")


@pytest.mark.parametrize("key, dtype, error", [
    (KEY[:2], np.uint32, TypeError), (KEY.astype(np.int32), np.uint32, TypeError), (KEY.reshape(2, 2), np.uint32, TypeError),
    (KEY, np.int32, TypeError), (KEY, np.float32, TypeError), (KEY, jnp.uint4, TypeError)], ids=str)
def test_keys_and_dtypes_are_checked(key, dtype, error):
    with pytest.raises(error, match="rng_bit_generator"):
        lax.rng_bit_generator(key, (3,), dtype)


def test_algorithms_are_checked():
    with pytest.raises(ValueError, match="RandomAlgorithm"):
        lax.rng_bit_generator(KEY, (3,), np.uint32, 5)
    assert str(THREE_FRY) == "RNG_THREE_FRY"


def test_uniform_numbers_lie_between_their_bounds():
    numbers = np.asarray(lax.rng_uniform(2.0, 3.0, (4000,)))
    assert numbers.min() >= 2 and numbers.max() < 3
    assert abs(numbers.mean() - 2.5) < 0.05 and len(np.unique(numbers)) > 3900
    assert set(np.asarray(lax.rng_uniform(np.int32(-1), np.int32(2), (200,))).tolist()) == {-1, 0, 1}
    assert lax.rng_uniform(jnp.bfloat16(1), jnp.bfloat16(2), (2, 0)).shape == (2, 0)
    coarse = np.asarray(lax.rng_uniform(jnp.bfloat16(2), jnp.bfloat16(3), (40000,))).astype(np.float32)
    assert coarse.min() == 2 and coarse.max() < 3 and abs(coarse.mean() - 2.5) < 0.02


@pytest.mark.parametrize("low, high, error", [
    (np.zeros(2, np.float32), np.float32(1), ValueError), (np.float32(0), np.int32(1), ValueError),
    (np.complex64(0), np.complex64(1), TypeError), (np.int8(0), np.int8(1), TypeError), (False, True, TypeError)], ids=str)
def test_what_has_no_uniform_distribution(low, high, error):
    with pytest.raises(error, match="rng_uniform"):
        lax.rng_uniform(low, high, (3,))


def test_tokens_order_nothing_away():
    def chained(x):
        token = lax.after_all(lax.create_token(x), lax.create_token())
        assert lax.after_all(token) is not token
        return x + 1

    assert jaxlite.jit(chained)(1) == 2
    assert str(jaxlite.make_jaxpr(lambda: lax.after_all(lax.create_token()))()).count("after_all") == 1
    lax.after_all(lax.create_token(), lax.after_all())
    with pytest.raises(TypeError, match="must be tokens"):
        lax.after_all(np.float32(1))
