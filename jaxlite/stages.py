"""The stages of compilation as objects: traced, lowered, compiled."""

from jaxlite.compilation.stages import ArgInfo as ArgInfo
from jaxlite.compilation.stages import Compiled as Compiled
from jaxlite.compilation.stages import CompilerOptions as CompilerOptions
from jaxlite.compilation.stages import Lowered as Lowered
from jaxlite.compilation.stages import Traced as Traced
from jaxlite.compilation.stages import Wrapped as Wrapped
