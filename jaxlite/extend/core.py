"""Programs as data: the parts of a jaxpr, primitives, and what reads them."""

from jaxlite.core.aval import AbstractToken as AbstractToken
from jaxlite.core.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from jaxlite.core.errors import JaxprTypeError as JaxprTypeError
from jaxlite.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from jaxlite.core.jaxpr import DebugInfo as DebugInfo
from jaxlite.core.jaxpr import DropVar as DropVar
from jaxlite.core.jaxpr import Effects as Effects
from jaxlite.core.jaxpr import Jaxpr as Jaxpr
from jaxlite.core.jaxpr import JaxprEqn as JaxprEqn
from jaxlite.core.jaxpr import Literal as Literal
from jaxlite.core.jaxpr import Var as Var
from jaxlite.core.jaxpr import check_jaxpr as check_jaxpr
from jaxlite.core.jaxpr import jaxpr_as_fun as jaxpr_as_fun
from jaxlite.core.jaxpr import jaxprs_in_params as jaxprs_in_params
from jaxlite.core.jaxpr import no_effects as no_effects
from jaxlite.core.jaxpr import subjaxprs as subjaxprs
from jaxlite.core.primitive import Primitive as Primitive
