"""What the C library does with memory that is freed: it keeps it, for the next call of a program.

glibc gives blocks of 128 KiB or more back to the system, and takes new ones, whose pages are zeroed one by one when they are
first written, until a larger block was freed by chance. And in a thread other than the first one, it gives back a whole region
of 64 MiB if the one before it has a little room, so that a block that fits into neither is mapped anew in each call.
"""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as in `malloc.h`
_LARGEST = 32 << 20  # bytes of a block that glibc may keep
LARGEST_KEPT = 30 << 20  # of what a program keeps in one: two of them fit into a thread's region
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_")


def keep_freed() -> None:
    """Have glibc keep blocks of up to 32 MiB, and twice as much in all, if the user has not told it what to do.

    What a thread made a region for is kept as well: glibc gives a region back if the one before it has room for the padding of
    a region, which is as large as the largest block here.
    """
    is_told = any(name in os.environ for name in _VARIABLES) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or is_told:
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if set_option is not None:
        for option, size in ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, 2 * _LARGEST), (_TOP_PAD, _LARGEST)):
            set_option(option, size)
