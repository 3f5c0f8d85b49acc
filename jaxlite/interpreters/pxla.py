"""What is left of `jax.interpreters.pxla`: views, and the mesh of a `with mesh:` block under its name of before."""

from collections.abc import Hashable as MeshAxisName

from jaxlite.devices.mesh import Mesh, empty_mesh, entered_context
from lowering.executable import compile_options as create_compile_options

__all__ = ["MeshAxisName", "create_compile_options", "thread_resources"]


class _Environment:
    """The mesh of this thread: `physical_mesh`, the empty one outside of all blocks."""

    __slots__ = ()

    @property
    def physical_mesh(self) -> Mesh:
        return entered_context.value or empty_mesh()


class _ThreadResources:
    """What this thread works on: `thread_resources.env.physical_mesh`."""

    __slots__ = ()
    env = _Environment()


thread_resources = _ThreadResources()
