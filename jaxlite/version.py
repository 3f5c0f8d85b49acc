"""The version number: read here by the build and by `jaxlite.__version__`."""

__version__ = "0.1.0"
__version_info__ = tuple(map(int, __version__.split(".")))
