"""Pickles that JAX wrote, read under the name `jax`: each is what the same program makes here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("jax_pickles")
PROGRAM = """
import jaxlite.as_jax
import pickle, re, sys
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name, saved_residuals
sys.path.insert(0, sys.argv[1])
from objects import objects, keys

def text(each):
    return re.sub(" at 0x[0-9a-f]+", "", repr(each))

with open(sys.argv[2], "rb") as file:
    read, policies = pickle.load(file)
assert len(read) == len(objects)
for one, other in zip(read, objects):
    for each in (one, pickle.loads(pickle.dumps(one))):
        assert isinstance(each, type(other)) and text(each) == text(other), (each, other)
    if not hasattr(other, "func"):
        assert jax.tree.all(jax.tree.map(lambda a, b: jnp.all(a == b), one, other)), (one, other)

drawn = next(each for each in read if isinstance(each, jax.Array) and each.shape == (2,))
assert jax.random.normal(drawn[1]) == jax.random.normal(keys[1]) and drawn.dtype is keys.dtype
dtype = next(each for each in read if repr(each) == "key<fry>")
assert dtype == keys.dtype and keys.dtype == dtype and jnp.issubdtype(dtype, jax.dtypes.prng_key)
assert {keys.dtype: 1}[dtype] and jax.core.ShapedArray((2,), dtype) == jax.typeof(keys)

samples, grid = (next(getattr(each, "func", each) for each in read if name in repr(each)) for name in ("kde(", "RegularGrid"))
assert samples(1.0) == type(samples)(jnp.array([0.0, 2.0]), 0.5)(1.0) and grid(jnp.array([2.0])) == 15.0

def saved(policy):
    f = jax.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.sin(x @ x), "a") @ x), policy=policy)
    return [(str(aval), why) for aval, why in saved_residuals(f, jnp.eye(2))]

own = jax.checkpoint_policies
own = (own.dots_saveable, own.dots_with_no_batch_dims_saveable,
       own.save_only_these_names("a"), own.save_any_names_but_these("a"))
assert len(policies) >= 2
for one, other in zip(policies, own):
    assert saved(one) == saved(other)
"""


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.pickle")), ids=lambda file: file.stem)
def test_what_jax_pickled_is_what_is_made_here(file):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(FOLDER), str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
