"""Recomputing instead of keeping: checkpoint, its policies, and what a backward pass keeps."""

from jaxlite.traces.remat_rules import name_p
from jaxlite.traces.saving import Offloadable, Recompute, Saveable
from jaxlite.transforms.checkpoint import (
    checkpoint,
    checkpoint_name,
    checkpoint_name_fwd,
    checkpoint_policies,
    print_saved_residuals,
    remat,
    saved_residuals,
)

__all__ = [
    "Offloadable",
    "Recompute",
    "Saveable",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_name_fwd",
    "checkpoint_policies",
    "name_p",
    "print_saved_residuals",
    "remat",
    "saved_residuals",
]
