"""Tests that need eight devices: their module runs in a process of its own, which makes them of this one processor.

A module calls `own_process(__file__)` first. In the ordinary process it gives a test that runs the module in another one; there
it gives None, and the module goes on to define its tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import jaxlite

_MARK = "TESTS_WITH_EIGHT_DEVICES"


def own_process(file: str) -> Callable[[], None] | None:
    if os.environ.get(_MARK):
        jaxlite.config.update("jax_platforms", "cpu")
        return None

    def test_on_eight_devices() -> None:
        env = {**os.environ, _MARK: "1", "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
               "PYTEST_XDIST_WORKER": "eight"}  # the compile cache of the run is kept
        env.pop("PYTEST_CURRENT_TEST", None)
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", file],
                              env=env, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.fail(done.stdout[-6000:] + done.stderr[-2000:], pytrace=False)

    return test_on_eight_devices


def short(aval: object) -> str:
    """A type as jaxprs print it."""
    return aval.str_short(short_dtypes=True)  # type: ignore[attr-defined]
