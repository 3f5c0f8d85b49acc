"""The stages of compilation as objects: traced, lowered, compiled."""

from jaxlite.interpreters.stages import ArgInfo as ArgInfo
from jaxlite.interpreters.stages import Compiled as Compiled
from jaxlite.interpreters.stages import CompilerOptions as CompilerOptions
from jaxlite.interpreters.stages import Lowered as Lowered
from jaxlite.interpreters.stages import Traced as Traced
from jaxlite.interpreters.stages import Wrapped as Wrapped
