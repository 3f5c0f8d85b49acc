"""Checks that no random key is used twice, which the option `jax_debug_key_reuse` turns on.

>>> import jaxlite
>>> with jaxlite.debug_key_reuse(True):
...     key = jaxlite.random.key(0)
...     first = jaxlite.random.normal(key)
...     second = jaxlite.random.normal(key)
Traceback (most recent call last):
    ...
jaxlite.core.errors.KeyReuseError: Previously-consumed key passed to jit-compiled function at index 0
"""

__all__: list[str] = []
