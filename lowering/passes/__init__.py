"""Passes over jaxprs, after all transformations: what is dropped before lowering, what is written to memory in a compile."""
