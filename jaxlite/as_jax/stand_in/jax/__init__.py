"""`import jax` in child processes of `python -m jaxlite`: jaxlite or, in a Python without jaxlite, the real JAX."""

import importlib
import importlib.util
import os
import sys

del sys.modules[__name__]  # this module, which the other takes the place of
if importlib.util.find_spec("jaxlite") is not None:
    importlib.import_module("jaxlite.as_jax")
else:
    _here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [_each for _each in sys.path if os.path.abspath(_each) != _here]
importlib.import_module(__name__)
