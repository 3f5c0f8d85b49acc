"""The sizes from which on passes of `lowering` change a program, set so low that they change those of nearly every test.

Tests have small arrays, since compiling is what they take, and the passes are about large ones. With `TESTS_SMALLEST=1`, as in
`make test-passes`, what holds for the values of an operation is shown of what the passes make of it as well.
"""

from __future__ import annotations

import importlib

PASSES = "lowering.passes."
LIMITS = {
    PASSES + "batched_products": {"_ROW": 1, "_WORK": 1},
    PASSES + "flat": {"_LEAST": 1, "_COSTLY": 0},
    PASSES + "fusion": {"_BLOW_UP": 1.0, "_LITTLE": 0, "_SAVING": 0, "_SAVING_IF_WRITTEN": 0},
    PASSES + "lean": {"_LEAST": 1},
    PASSES + "library_reads": {"_SEARCHED": 0, "_SEARCHED_EACH": 0, "_SEARCHED_WORK": 0},
    PASSES + "products": {"_LARGE": 1, "_COPIED": 1, "_WORK": 1, "_MANY": 1},
    PASSES + "recomputed": {"_SHARED": 1, "_SHARED_EACH": 2, "_HASHES": 1, "_REPEATED": 1, "_REPEATED_WORK": 2, "_RESHAPED": 1,
                            "_REPEATED_SCALAR": 1, "_REPEATED_FACTOR": 1, "_REPEATED_IF_WRITTEN": 1,
                            "_LARGE": 1, "_PADDED": (1, 1)},
    PASSES + "shifts": {"_ROW": 1, "_SIZE": 1, "_MARGIN": 1.0},
    PASSES + "short_rows": {"_ROWS": 1, "_ROWS_SAVING_LESS": 1, "LIBRARY_REDUCTION": 1, "_FEW_ROWS": 1},
    PASSES + "places": {"_LEAST": 1, "_SAVED": 1},
    PASSES + "short_sorts": {"_LEAST": 1, "_LEAST_TOP": 1},
    PASSES + "siblings": {"_LEAST": 1, "_LEAST_RAGGED": 1},
    PASSES + "tails": {"_LEAST": 0},
    PASSES + "thin_products": {"_LEAST": 1, "_LEAST_APART": 1, "_LEAST_WRITTEN": 1},
    PASSES + "unrolled_reductions": {"LIBRARY_REDUCTION": 1},
    PASSES + "unrolling": {"_LEAST": 0},
    PASSES + "updates": {"_LARGE": 1, "_PART": 0, "_ROW": 1},
    PASSES + "values": {"LIBRARY_REDUCTION": 1, "MANY_BITS": 1},
    "lowering.small_products": {"_ROWS": 1, "_MANY": 1, "_LIBRARY": 1},
    "lowering.vector_products": {"_LEAST": 1, "_LARGE": 1},
}  # fmt: skip


def set_limits() -> None:
    """From here on, the passes change programs of any size. Raises: AttributeError for a limit that is no longer there."""
    for name, limits in LIMITS.items():
        module = importlib.import_module(name)
        for limit, value in limits.items():
            getattr(module, limit)
            setattr(module, limit, value)
