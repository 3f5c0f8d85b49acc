"""The option debug_key_reuse: keys that are used twice, eagerly, in programs, in loops."""

import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax, random
from jaxlite.errors import KeyReuseError


@pytest.fixture(autouse=True)
def checked():
    with jaxlite.debug_key_reuse(True):
        yield


def twice(use, key, message="Previously-consumed key passed to"):
    use(key)
    with pytest.raises(KeyReuseError, match=message):
        use(key)


def test_concrete_keys():
    key = random.key(0)
    twice(random.uniform, key, "^Previously-consumed key passed to jit-compiled function at index 0$")
    twice(random.split, random.key(0), "^Previously-consumed key passed to random_split at index 0$")
    twice(jaxlite.jit(lambda x, key: random.bits(key) + x).__get__(1), random.key(0), "index 1$")
    random.uniform(random.clone(key))
    assert random.key_data(key).tolist() == [0, 0] and (key == key)
    with jaxlite.debug_key_reuse(False):
        random.uniform(key)
    keys = random.split(random.key(0), 4)
    random.fold_in(keys[0], 1)
    random.uniform(keys[1])
    for consumed in (lambda: keys[1], lambda: keys[0:2], lambda: jnp.stack([keys[2], key])):
        with pytest.raises(KeyReuseError):
            consumed()
    given = random.key(1)
    used, same = jaxlite.jit(lambda key: (random.bits(key), key))(given)
    with pytest.raises(KeyReuseError):
        random.bits(same)
    raw = random.PRNGKey(0)
    assert random.uniform(raw) == random.uniform(raw)


def reuses(f, *avals, message=r"is already consumed\.$"):
    with pytest.raises(KeyReuseError, match=message):
        jaxlite.make_jaxpr(f)(*avals)


def test_keys_in_programs():
    keys = jaxlite.eval_shape(lambda: random.split(random.key(0), 4))
    key = jaxlite.eval_shape(lambda: random.key(0))
    reuses(lambda key: (random.bits(key), jaxlite.jit(random.bits)(key)), key,
           message=r"^In jit, argument 0 is already consumed\.$")
    reuses(lambda key: (random.bits(key), random.split(key)), key)
    reuses(lambda keys: (random.bits(keys[0]), random.bits(keys.reshape(2, 2)[0, 0])), keys)
    reuses(lambda key: (lax.cond(True, random.bits, lambda key: jnp.uint32(1), key), random.bits(key)), key)
    reuses(lambda key: (jaxlite.checkpoint(random.bits)(key), random.bits(key)), key)
    reuses(lambda keys: (jaxlite.vmap(random.bits)(keys), keys[1:]), keys)
    made = jaxlite.make_jaxpr(lambda key: (random.bits(random.fold_in(key, 1)), random.bits(random.clone(key)),
                                           lax.cond(True, random.bits, random.bits, key)))(key)
    assert "random_clone" in str(made)


def test_keys_in_loops():
    key = jaxlite.eval_shape(lambda: random.key(0))
    scan = lambda body, carry: lax.scan(body, carry, None, length=2)
    reuses(lambda key: scan(lambda c, _: (c, random.bits(key)), 0), key, message="^scan body function leads to key reuse when "
           "repeatedly executed, because key constants are repeatedly consumed:")
    reuses(lambda key: scan(lambda c, _: (c[::-1], random.bits(c[0])), [key, key]), key,
           message="because consumed inputs don't match sourced outputs:")
    reuses(lambda key: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + random.bits(c[1]), c[1]), (jnp.uint32(0), key)),
           key, message="^while_loop body function leads to key reuse")
    reuses(lambda key: lax.while_loop(lambda c: random.bits(c[1]) > 3, lambda c: c, (0, key)), key,
           message="^while_loop cond function leads to key reuse")

    def step(key, _):
        key, drawn = random.split(key)
        return key, random.bits(drawn)

    jaxlite.make_jaxpr(lambda key: scan(step, key))(key)
    many = jaxlite.eval_shape(lambda: random.split(random.key(0), 2))
    jaxlite.make_jaxpr(lambda keys: jaxlite.vmap(lambda key: lax.while_loop(
        lambda c: c[0] > 3, lambda c: step(c[1], None)[::-1], (jnp.uint32(9), key))[0])(keys))(many)


@pytest.mark.parametrize("draw", [
    lambda key: random.poisson(key, 1.0), lambda key: random.binomial(key, 9, 0.3), lambda key: random.beta(key, 1.0, 2.0),
    lambda key: random.multinomial(key, 5, jnp.ones(3) / 3), lambda key: random.choice(key, 5, (3,), replace=False),
    lambda key: random.ball(key, 3), lambda key: random.t(key, 3.0), lambda key: random.double_sided_maxwell(key, 1.0, 1.0),
    lambda key: random.randint(key, (3,), 0, 9), lambda key: random.orthogonal(key, 3), random.rademacher])
def test_no_sampler_uses_its_key_twice(draw):
    jaxlite.make_jaxpr(draw)(random.key(0))
    jaxlite.make_jaxpr(jaxlite.vmap(draw))(random.split(random.key(0)))


def test_functions_that_are_called_twice_on_each_of_many_levels():
    f = jaxlite.jit(random.bits)
    for _ in range(25):
        f = jaxlite.jit(lambda key, f=f: sum(map(f, random.split(key))))
    jaxlite.make_jaxpr(f)(random.key(0))  # each program is looked at once, not 2^25 times
    last = jaxlite.jit(lambda key: f(key) + random.bits(key))
    with pytest.raises(KeyReuseError, match="In jit, argument 0 is already consumed|In random_bits, argument 0"):
        last.lower(random.key(0))
