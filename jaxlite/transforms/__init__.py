"""The public transformations: derivatives, vmap, custom rules, checkpoint, make_jaxpr."""
