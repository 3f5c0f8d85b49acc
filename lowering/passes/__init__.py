"""Passes: jaxpr to jaxpr, after all transformations and before StableHLO."""
