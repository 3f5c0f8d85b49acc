"""Programs of several processes: starting them, under JAX's names. See docs/processes.md."""

from jaxlite.devices.processes import initialize as initialize
from jaxlite.devices.processes import is_initialized as is_initialized
from jaxlite.devices.processes import shutdown as shutdown
