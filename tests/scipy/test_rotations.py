"""Rotations agree with SciPy's, in all of their forms."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy.spatial import transform as reference

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import random
from jaxlite.scipy.spatial.transform import Rotation, Slerp

RNG = np.random.default_rng(0)
QUATS = np.concatenate([np.eye(4), -np.eye(4)[3:], RNG.normal(size=(4, 4))])
VECTORS = RNG.normal(size=(len(QUATS), 3))
SEQUENCES = ["".join(each) for each in itertools.product("xyz", repeat=3) if each[0] != each[1] != each[2]]


def test_forms_and_operations(x64):
    def forms(module, rotation):
        kind = module.Rotation if module is reference else Rotation
        return [rotation.as_quat(), rotation.as_quat(canonical=True), rotation.as_quat(scalar_first=True), rotation.as_matrix(),
                rotation.as_rotvec(degrees=True), rotation.as_mrp(), rotation.apply(VECTORS),
                rotation.apply(VECTORS, inverse=True), rotation[5].apply(VECTORS[0]), rotation.magnitude(),
                rotation.inv().as_matrix(),
                (rotation * rotation[6]).as_matrix(), rotation.mean(np.arange(1.0, 1 + len(QUATS))).as_matrix(),
                kind.from_matrix(rotation.as_matrix()).as_matrix(), kind.from_rotvec(VECTORS).as_quat(),
                kind.from_rotvec(1e-5 * VECTORS).as_rotvec(), kind.from_mrp(VECTORS).as_matrix(),
                kind.concatenate([rotation, rotation[5]]).as_matrix()]

    mine = jaxlite.jit(lambda quats: forms(None, Rotation.from_quat(quats)))(QUATS)
    for place, (one, two) in enumerate(zip(mine, forms(reference, reference.Rotation.from_quat(QUATS)), strict=True)):
        np.testing.assert_allclose(one, two, atol=1e-12, err_msg=str(place))


def test_euler_angles(x64):
    names = [*SEQUENCES, *map(str.upper, SEQUENCES)]
    angles = RNG.uniform(-3, 3, (5, 3))

    @jaxlite.jit
    def all_of_them(quats):
        rotation = Rotation.from_quat(quats)
        return [(Rotation.from_euler(name, angles).as_matrix(), rotation[5:].as_euler(name, degrees=True),
                 Rotation.from_euler(name, rotation.as_euler(name)).as_matrix()) for name in names]

    rotation = reference.Rotation.from_quat(QUATS)
    for name, (made, taken, again) in zip(names, all_of_them(QUATS), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of gimbal lock
            np.testing.assert_allclose(made, reference.Rotation.from_euler(name, angles).as_matrix(), atol=1e-12, err_msg=name)
            np.testing.assert_allclose(taken, rotation[5:].as_euler(name, degrees=True), atol=1e-9, err_msg=name)
        np.testing.assert_allclose(again, rotation.as_matrix(), atol=1e-7, err_msg=name)
    np.testing.assert_allclose(Rotation.from_euler("z", jnp.array(0.3)).as_rotvec(), [0, 0, 0.3], atol=1e-12)
    for wrong in ("", "xx", "xY", "abc", "xyzx"):
        with pytest.raises(ValueError, match="xpected"):
            Rotation.from_euler(wrong, angles)


def test_slerp(x64):
    times, at = np.array([0.0, 1, 2.5, 3]), np.array([0.0, 0.5, 1, 2.4, 3])
    made = jaxlite.jit(lambda at: Slerp.init(times, Rotation.from_quat(QUATS[5:]))(at).as_matrix())
    want = reference.Slerp(times, reference.Rotation.from_quat(QUATS[5:]))
    np.testing.assert_allclose(made(at), want(at).as_matrix(), atol=1e-12)
    np.testing.assert_allclose(made(1.3), want(1.3).as_matrix(), atol=1e-12)
    with pytest.raises(ValueError, match="number of rotations"):
        Slerp.init(times[1:], Rotation.from_quat(QUATS[5:]))


def test_as_pytrees_and_derivatives():
    rotation = jaxlite.jit(lambda key: Rotation.random(key, 3))(random.key(0))
    np.testing.assert_allclose(jnp.linalg.norm(rotation.quat, axis=-1), 1, rtol=1e-6)
    assert jaxlite.jit(jaxlite.vmap(lambda each: each.as_euler("xyz")))(rotation).shape == (3, 3) and len(rotation) == 3
    slope = jaxlite.jit(jaxlite.jacobian(lambda v: Rotation.from_rotvec(v).as_matrix()))(jnp.zeros(3))
    np.testing.assert_allclose(slope[:, :, 2], [[0, -1, 0], [1, 0, 0], [0, 0, 0]], atol=1e-6)
    back = jaxlite.jit(jaxlite.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec()))(jnp.zeros(3))
    np.testing.assert_allclose(back, np.eye(3), atol=1e-6)
    assert Rotation.identity().single and Rotation.identity(2).quat.shape == (2, 4)
