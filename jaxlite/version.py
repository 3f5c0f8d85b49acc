"""The version number: read here by the build and by `jaxlite.__version__`."""

__version__ = "0.1.0"
