"""Arrays that are read shifted are written once with margins: which, that values stay what they were, and the module too."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import shifts

pytestmark = pytest.mark.usefixtures("uncached")

X = np.random.default_rng(0).integers(-9, 9, (64, 80)).astype(np.float32)
X[3, 4], X[5, 0], X[6, 79] = np.nan, -0.0, 1e-40  # moved, not computed with


def found(f, x=X):
    return shifts.find(jax.make_jaxpr(f)(x).jaxpr, False)


def cut(x, rows, columns, margin=1):
    return x[margin - rows:x.shape[0] - margin - rows, margin - columns:x.shape[1] - margin - columns]


def rotations(x):
    y = x[::-1]
    return [jnp.roll(x, 1, 1), jnp.roll(x, -3, 1), jnp.roll(x, 10, 1), jnp.roll(y, 2, 1), jnp.roll(y, 3, 1)]


def edges(x):
    return [cut(jnp.pad(x, 1, mode="edge"), *by) for by in ((0, 1), (0, -1), (1, 0))]


def paddings(x):
    return [cut(jnp.pad(x, ((2, 0), (first, 4 - first)), constant_values=7), -1, 1, 1) for first in (0, 1, 4)]


def test_moved_elements_keep_their_bits():
    lowered = jax.jit(lambda x: (rotations(x), edges(x), paddings(x))).lower(X)
    before = lowered.as_text()
    compiled = lowered.compile()
    turned = X[::-1]
    wide = np.pad(X, 1, mode="edge")
    expected = ([np.roll(X, by, 1) for by in (1, -3, 10)] + [np.roll(turned, by, 1) for by in (2, 3)]
                + [cut(wide, *by) for by in ((0, 1), (0, -1), (1, 0))]
                + [cut(np.pad(X, ((2, 0), (first, 4 - first)), constant_values=7), -1, 1, 1) for first in (0, 1, 4)])
    for ours, theirs in zip(jax.tree_util.tree_leaves(compiled(X)), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours).view(np.uint32), theirs.view(np.uint32))
    assert lowered.as_text() == before
    # between two columns, its mirror image with three more before, and x with ten before and three behind
    joined = re.findall(r"f32\[6\d,(\d+)\]\S* concatenate\(", compiled.as_text())
    assert sorted(each for each in joined if each != "80") == ["82", "83", "93"]


def test_in_a_loop():
    step = lambda x: jnp.minimum(jnp.roll(x, 1, 1), jnp.roll(x, -1, 1)) + jnp.maximum(jnp.roll(x, 1, 0), x)
    assert len(found(lambda x: lax.fori_loop(0, 3, lambda _, x: step(x), x))) == 2
    expected = x = np.where(np.isnan(X), 0, X)
    for _ in range(3):
        near = np.minimum(np.roll(expected, 1, 1), np.roll(expected, -1, 1))
        expected = near + np.maximum(np.roll(expected, 1, 0), expected)
    np.testing.assert_array_equal(jax.jit(lambda x: lax.fori_loop(0, 3, lambda _, x: step(x), x))(x), expected)


def test_the_gradient_of_a_stencil_pads_by_several_amounts():
    loss = lambda x: ((cut(jnp.pad(x, 1), 0, 1) + cut(jnp.pad(x, 1), 0, -1)) ** 2).sum()
    assert [each.why for each in found(jax.grad(loss)).values()] == ["paddings of an array (5412 elements)"] * 2
    x = np.nan_to_num(X)
    wide = np.pad(x, ((0, 0), (2, 2)))  # 2 (x[j - 1] + x[j + 1]) of the neighbours at j - 1 and j + 1 that there are
    sums = np.pad(2 * (wide[:, 1:-3] + wide[:, 3:-1]), ((0, 0), (1, 1)))
    np.testing.assert_array_equal(jax.jit(jax.grad(loss))(x), sums[:, :-2] + sums[:, 2:])


@pytest.mark.parametrize("f", [
    lambda x: x + jnp.roll(x, 1, 1),  # one rotation
    lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0),  # whole rows
    lambda x: jnp.roll(x, 40, 1) + jnp.roll(x, 39, 1),  # wide margins
    lambda x: jnp.roll(x[:8], 1, 1) + jnp.roll(x[:8], -1, 1),  # few elements
    lambda x: (jnp.pad(x, 1, mode="edge"), cut(jnp.pad(x, 1, mode="edge"), 0, 1)),  # a result
    lambda x: cut(jnp.pad(x, 1, mode="edge"), 1, 0) + cut(jnp.pad(x, 1, mode="edge"), 0, 1),  # one column beyond the rows
    lambda x: jnp.pad(x, ((0, 0), (1, 0))) + jnp.pad(x, ((0, 0), (0, 1))),  # read whole
    lambda x: cut(jnp.pad(x, 1), 1, 0) + cut(jnp.pad(x, 1), 0, 1),  # one padding
    lambda x: cut(jnp.pad(x, ((1, 1), (0, 2))), 0, 0) + cut(jnp.pad(x, ((1, 1), (2, 0)), constant_values=1), 0, 0),
    lambda x: jnp.concatenate([x[:, 1:], x[:, :2]], 1) + jnp.concatenate([x[:, 2:], x[:, :3]], 1),  # no rotations
])
def test_left_alone(f):
    assert not found(f)


def test_a_long_chain_is_walked_once():
    def chain(x):
        for _ in range(1500):
            x = jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)
        return x

    jaxpr = jax.make_jaxpr(chain)(X).jaxpr
    assert len(shifts.find(jaxpr, False)) == 3000


@pytest.mark.skipif(bool(xla.BARRIER_DROPPER), reason="there are no barriers in loops")
@pytest.mark.own_code
def test_a_loop_joins_once_for_all_rotations():
    step = lambda x: sum(jnp.roll(x, by, 1) for by in (1, -1, 2, -2))
    text = jax.jit(lambda x: lax.fori_loop(0, 3, lambda _, x: step(x), x)).lower(X).compile().as_text()
    assert len(re.findall(r"concatenate\(", text)) == 1
