"""Python functions that run on the host of the devices of their arguments.

All devices of jaxlite belong to this process, so it calls such a function directly, with arrays on CPU devices.
"""

from jaxlite.experimental.colocated_python.api import colocated_cpu_devices as colocated_cpu_devices
from jaxlite.experimental.colocated_python.api import colocated_python as colocated_python
from jaxlite.experimental.colocated_python.api import colocated_python_class as colocated_python_class
