"""Rotations of space as unit quaternions: `Rotation`, and `Slerp`, which interpolates between them.

Quaternions are [x, y, z, w], the scalar last. Both classes are pytrees whose leaves are arrays: one rotation, or a row of
them. Matrices to quaternions: S. W. Shepperd, "Quaternion from rotation matrix", 1978. Euler angles from quaternions:
E. Bernardes and S. Viollet, "Quaternion to Euler angles conversion", 2022. Means: F. L. Markley et al., "Averaging
quaternions", 2007.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlite import numpy as jnp
from jaxlite import random
from jaxlite.numpy import linalg

__all__ = ["Rotation", "Slerp"]
__dir__ = lambda: __all__


def _inexact(x):
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def _normalized(quat):
    return quat / linalg.norm(quat, axis=-1, keepdims=True)


def _product(p, q):
    """Hamilton's product: the rotation `q`, then `p`."""
    u, v, a, b = p[..., :3], q[..., :3], p[..., 3:], q[..., 3:]
    return jnp.concatenate([a * v + b * u + jnp.cross(u, v), a * b - (u * v).sum(-1, keepdims=True)], -1)


def _axes(seq: str) -> tuple[list[int], bool]:
    """The axes of Euler angles as numbers, and whether each turns in the frame that the ones before it have turned."""
    if not 1 <= len(seq) <= 3:
        raise ValueError(f"Expected axis specification to be a non-empty string of up to 3 characters, got {seq}")
    intrinsic, extrinsic = re.fullmatch("[XYZ]{1,3}", seq) is not None, re.fullmatch("[xyz]{1,3}", seq) is not None
    if not (intrinsic or extrinsic):
        raise ValueError("Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got " + seq)
    if any(seq[i] == seq[i + 1] for i in range(len(seq) - 1)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(name) for name in seq.lower()], intrinsic


class Rotation(NamedTuple):
    """A rotation in 3 dimensions, or a row of them. Make one with `from_quat`, `from_matrix`, `from_rotvec`, `from_mrp`,
    `from_euler`, `identity`, `random` or `concatenate`.

    >>> import jaxlite.numpy as jnp
    >>> turn = Rotation.from_euler("z", jnp.array(90.0), degrees=True)
    >>> print(turn.apply(jnp.array([1.0, 0.0, 0.0])).round(3))
    [0. 1. 0.]
    """

    quat: Any

    # --- making them

    @classmethod
    def from_quat(cls, quat) -> Rotation:
        """From quaternions [..., 4], scalar last; they are normalized."""
        return cls(_normalized(_inexact(quat)))

    @classmethod
    def from_matrix(cls, matrix) -> Rotation:
        """From orthogonal matrices [..., 3, 3]."""
        m = _inexact(matrix)
        diagonal = jnp.diagonal(m, axis1=-2, axis2=-1)
        decision = jnp.concatenate([diagonal, diagonal.sum(-1, keepdims=True)], -1)
        trace = decision[..., 3]
        cases = []
        for i in range(3):  # the largest of the components divides the others
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = {i: 1 - trace + 2 * m[..., i, i], j: m[..., j, i] + m[..., i, j], k: m[..., k, i] + m[..., i, k],
                     3: m[..., k, j] - m[..., j, k]}
            cases.append(jnp.stack([parts[place] for place in range(4)], -1))
        cases.append(jnp.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1],
                                1 + trace], -1))
        chosen = decision.argmax(-1)[..., None]
        quat = jnp.select([chosen == place for place in range(4)], cases)
        return cls(_normalized(quat))

    @classmethod
    def from_rotvec(cls, rotvec, degrees: bool = False) -> Rotation:
        """From vectors [..., 3] along the axes, whose lengths are the angles."""
        rotvec = _inexact(rotvec)
        rotvec = jnp.deg2rad(rotvec) if degrees else rotvec
        square = (rotvec * rotvec).sum(-1, keepdims=True)
        small = square <= 1e-6
        angle = jnp.sqrt(jnp.where(small, 1, square))
        scale = jnp.where(small, 0.5 - square / 48 + square * square / 3840, jnp.sin(angle / 2) / angle)
        cosine = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(angle / 2))
        return cls(_normalized(jnp.concatenate([scale * rotvec, cosine], -1)))

    @classmethod
    def from_mrp(cls, mrp) -> Rotation:
        """From modified Rodrigues parameters [..., 3]: along the axes, as long as the tangent of a quarter of the angles."""
        mrp = _inexact(mrp)
        square = (mrp * mrp).sum(-1, keepdims=True)
        return cls(jnp.concatenate([2 * mrp, 1 - square], -1) / (1 + square))

    @classmethod
    def from_euler(cls, seq: str, angles, degrees: bool = False) -> Rotation:
        """From angles about axes: 'xyz' of the fixed frame, 'XYZ' of the turning one.

        Args: `angles` [..., len(seq)]; about a single axis also a scalar.
        Raises: ValueError for other axes, and for as many angles as there are not axes.
        """
        axes, intrinsic = _axes(seq)
        angles = _inexact(angles)
        if not angles.ndim:
            angles = angles[None]
        if angles.shape[-1:] != (len(axes),):
            raise ValueError(f"Expected angles to have a last axis of size {len(axes)}, got shape {angles.shape}")
        half = (jnp.deg2rad(angles) if degrees else angles) / 2
        total = None
        for place, axis in enumerate(axes):
            unit = np.eye(3, dtype=half.dtype)[axis]
            turn = jnp.concatenate([jnp.sin(half[..., place, None]) * unit, jnp.cos(half[..., place, None])], -1)
            total = turn if total is None else _product(total, turn) if intrinsic else _product(turn, total)
        return cls(_normalized(total))

    @classmethod
    def identity(cls, num: int | None = None, dtype=float) -> Rotation:
        """The rotation that moves nothing, or `num` of them."""
        quat = jnp.array([0, 0, 0, 1], dtype=dtype)
        return cls(quat if num is None else jnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key, num: int | None = None) -> Rotation:
        """A rotation drawn uniformly, or `num` of them."""
        return cls(_normalized(random.normal(random_key, (4,) if num is None else (num, 4))))

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """All rotations in one row."""
        return cls(jnp.concatenate([jnp.atleast_2d(each.quat) for each in rotations]))

    # --- what they are

    @property
    def single(self) -> bool:
        """Whether it is one rotation, not a row."""
        return self.quat.ndim == 1

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, indexer):
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def as_quat(self, canonical: bool = False, scalar_first: bool = False):
        """Quaternions [..., 4]. With `canonical` the one of each pair whose first component that is not zero, from the scalar
        on, is positive; with `scalar_first` as [w, x, y, z]."""
        quat = self.quat
        if canonical:
            x, y, z, w = (quat[..., place, None] for place in range(4))
            negative = (w < 0) | (w == 0) & ((x < 0) | (x == 0) & ((y < 0) | (y == 0) & (z < 0)))
            quat = jnp.where(negative, -quat, quat)
        return jnp.roll(quat, 1, -1) if scalar_first else quat

    def as_matrix(self):
        """Matrices [..., 3, 3]."""
        x, y, z, w = (self.quat[..., place] for place in range(4))
        rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w]]
        return jnp.stack([jnp.stack(row, -1) for row in rows], -2)

    def as_rotvec(self, degrees: bool = False):
        """Vectors [..., 3] along the axes, of the length of the angles, which are at most half a turn."""
        quat = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        vector, scalar = quat[..., :3], quat[..., 3:]
        square = (vector * vector).sum(-1, keepdims=True)
        small = square <= 2.5e-7
        sine = jnp.sqrt(jnp.where(small, 1, square))
        angle = 2 * jnp.arctan2(jnp.where(small, jnp.sqrt(jnp.where(square == 0, 1, square)), sine), scalar)
        scale = jnp.where(small, 2 + square / 3 + 3 * square * square / 20, angle / sine)
        rotvec = scale * vector
        return jnp.rad2deg(rotvec) if degrees else rotvec

    def as_mrp(self):
        """Modified Rodrigues parameters [..., 3], of at most length 1."""
        quat = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        return quat[..., :3] / (1 + quat[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False):
        """Angles [..., 3] about three axes, as in `from_euler`. In gimbal lock the third one is 0."""
        if len(seq) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.")
        axes, intrinsic = _axes(seq)
        i, j, k = axes if not intrinsic else axes[::-1]
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2  # of the permutation
        q = [self.quat[..., place] for place in range(4)]
        if symmetric:
            a, b, c, d = q[3], q[i], q[j], q[k] * sign
        else:
            a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        near_zero, near_pi = abs(middle) <= 1e-7, abs(middle - np.pi) <= 1e-7
        half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        locked = near_zero | near_pi
        alone = jnp.where(near_zero, 2 * half_sum, 2 * half_difference * (1 if intrinsic else -1))
        first, third = half_sum - half_difference, half_sum + half_difference
        if intrinsic:
            first, third = third, first
        first, third = jnp.where(locked, alone, first), jnp.where(locked, 0, third)
        if not symmetric:
            moved = third if not intrinsic else first
            moved = moved * sign
            first, third = (first, moved) if not intrinsic else (moved, third)
            middle = middle - np.pi / 2
        angles = jnp.stack([first, middle, third], -1)
        angles = jnp.where(angles < -np.pi, angles + 2 * np.pi, jnp.where(angles > np.pi, angles - 2 * np.pi, angles))
        return jnp.rad2deg(angles) if degrees else angles

    # --- what they do

    def apply(self, vectors, inverse: bool = False):
        """Vectors [..., 3], turned; with `inverse` turned back."""
        matrix = self.as_matrix()
        return jnp.einsum("...kj,...k->...j" if inverse else "...jk,...k->...j", matrix, _inexact(vectors))

    def inv(self) -> Rotation:
        """The inverse rotations."""
        return Rotation(self.quat * np.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self):
        """The angles, from 0 to pi."""
        return 2 * jnp.arctan2(linalg.norm(self.quat[..., :3], axis=-1), abs(self.quat[..., 3]))

    def mean(self, weights=None) -> Rotation:
        """The rotation that is nearest to all of them, in the mean of squares of the distances of matrices."""
        quat = jnp.atleast_2d(self.quat)
        weights = jnp.ones(quat.shape[0], quat.dtype) if weights is None else jnp.asarray(weights)
        if weights.ndim != 1 or weights.shape[0] != quat.shape[0]:
            raise ValueError("Expected `weights` to be a 1-dimensional array with one number for each of the "
                             f"{quat.shape[0]} rotations, got shape {weights.shape}.")
        return Rotation(linalg.eigh((weights * quat.T) @ quat)[1][:, -1])

    def __mul__(self, other):  # type: ignore[override]
        """The rotation `other`, then this one."""
        if not isinstance(other, Rotation):
            return NotImplemented
        return Rotation(_normalized(_product(self.quat, other.quat)))


class Slerp(NamedTuple):
    """Interpolation between rotations at times, with constant speed of turning between neighbours.

    >>> import jaxlite.numpy as jnp
    >>> ends = Rotation.from_euler("z", jnp.array([[0.0], [90.0]]), degrees=True)
    >>> halfway = Slerp.init(jnp.array([0.0, 1.0]), ends)(jnp.array(0.5))
    >>> print(halfway.as_rotvec(degrees=True).round(2))
    [ 0.  0. 45.]
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times, rotations: Rotation) -> Slerp:
        """From increasing times [n] and as many rotations, at least two.

        Raises: ValueError for a single rotation and for times that are not one for each.
        """
        if not isinstance(rotations, Rotation):
            raise TypeError("`rotations` must be a `Rotation` instance.")
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        times = _inexact(times)
        if times.ndim != 1:
            raise ValueError(f"Expected times to be specified in a 1 dimensional array, got {times.ndim} dimensions.")
        if times.shape[0] != len(rotations):
            raise ValueError(f"Expected number of rotations to be equal to number of timestamps given, got {len(rotations)} "
                             f"rotations and {times.shape[0]} timestamps.")
        start, end = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, jnp.diff(times), start, (start.inv() * end).as_rotvec())

    def __call__(self, times) -> Rotation:
        """The rotations at times, a scalar or a vector, within the given ones."""
        times = _inexact(times)
        if times.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        place = jnp.maximum(jnp.searchsorted(self.times, times, side="right") - 1, 0)
        place = jnp.minimum(place, self.timedelta.shape[0] - 1)
        fraction = (times - self.times[place]) / self.timedelta[place]
        return self.rotations[place] * Rotation.from_rotvec(self.rotvecs[place] * fraction[..., None])
