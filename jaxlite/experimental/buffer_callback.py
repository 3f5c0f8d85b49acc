"""Python functions that fill the buffers of results in place: `buffer_callback`."""

from jaxlite.lax.foreign import buffer_callback as buffer_callback
from lowering.xla import Buffer as Buffer
from lowering.xla import ExecutionContext as ExecutionContext
from lowering.xla import ExecutionStage as ExecutionStage
