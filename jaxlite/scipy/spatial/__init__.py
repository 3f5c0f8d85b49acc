"""jaxlite.scipy.spatial: rotations of space, in `transform`."""

from jaxlite.scipy.spatial import transform as transform
