"""`print_environment_info`: versions and machine, for bug reports."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

import numpy as np

from jaxlite.version import __version__
from lowering import platforms, xla


def print_environment_info(return_string: bool = False) -> str | None:
    """Print the versions of jaxlite, jaxlib, NumPy and Python, the devices and the environment's options, for reports of
    problems; or return them as text.

    >>> import jaxlite
    >>> jaxlite.print_environment_info(return_string=True).splitlines()[0].split(":")[0]
    'jaxlite'
    """
    devices, local = platforms.all_devices(), platforms.devices()
    options = {name: value for name, value in sorted(os.environ.items()) if name.startswith(("JAX", "XLA", "TF_CPP", "LIBTPU"))}
    lines = [f"jaxlite: {__version__}", f"jaxlib: {xla.VERSION_TEXT}", f"numpy:  {np.__version__}",
             f"python: {' '.join(sys.version.split())}",
             f"device info: {devices[0].device_kind}-{len(devices)}, {len(local)} local devices",
             f"process_count: {len({device.process_index for device in devices})}",
             f"platform: {platform.uname()}",
             *(f"plugin: {name} {plugin.library}" for name, plugin in platforms.installed().items()),
             *(f"{name}={value}" for name, value in options.items())]
    tool = shutil.which("nvidia-smi") if devices[0].platform == "gpu" else None
    if tool:
        lines += ["", "$ nvidia-smi", subprocess.run([tool], capture_output=True, text=True, timeout=60, check=False).stdout]
    text = "\n".join(lines)
    if return_string:
        return text
    print(text)
    return None
