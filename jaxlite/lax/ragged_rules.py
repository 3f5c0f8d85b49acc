"""Rules of the ragged and scaled products: those of the products of which they are made up."""

from jaxlite.lax.ragged import ragged_dot_general_p, scaled_dot_p
from jaxlite.traces.decompose import rules_by_parts

rules_by_parts(ragged_dot_general_p)
rules_by_parts(scaled_dot_p)
