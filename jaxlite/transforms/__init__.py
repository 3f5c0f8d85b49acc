"""What users call to transform a function: derivatives, vmap, custom rules, checkpoint, make_jaxpr."""
