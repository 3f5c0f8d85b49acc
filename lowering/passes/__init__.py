"""Passes: dead-code elimination on jaxprs before lowering, and optimizations of modules for XLA:CPU before a compile."""
