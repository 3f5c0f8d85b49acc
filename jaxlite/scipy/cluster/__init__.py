"""jaxlite.scipy.cluster: `vq`."""

from jaxlite.scipy.cluster import vq as vq
