"""Export: functions as portable programs in files, in JAX's format. See `docs/export.md`."""

from jaxlite.core.symbolic import SymbolicScope
from jaxlite.export.exported import (
    DisabledSafetyCheck,
    Exported,
    default_export_platform,
    deserialize,
    export,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from jaxlite.export.serialization import (
    register_namedtuple_serialization,
    register_pytree_node_serialization,
)
from jaxlite.export.symbolic_shapes import (
    is_symbolic_dim,
    symbolic_args_specs,
    symbolic_dim_bounds,
    symbolic_shape,
)

__all__ = [
    "DisabledSafetyCheck", "Exported", "SymbolicScope", "default_export_platform", "deserialize", "export",
    "is_symbolic_dim",    "maximum_supported_calling_convention_version", "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization", "register_pytree_node_serialization",
    "symbolic_args_specs", "symbolic_dim_bounds", "symbolic_shape",
]
