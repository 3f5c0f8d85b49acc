"""What libraries built on jaxlite may use, beyond what programs use."""

from jaxlite.extend import core as core
