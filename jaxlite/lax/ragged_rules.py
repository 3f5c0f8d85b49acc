"""Rules of ragged and scaled products, which follow from their decompositions."""

from jaxlite.lax.ragged import ragged_dot_general_p, scaled_dot_p
from jaxlite.traces.decompose import rules_by_parts

rules_by_parts(ragged_dot_general_p)
rules_by_parts(scaled_dot_p)
