"""Interpreters: what a primitive can mean. One meaning a file: running it, staging it to a jaxpr, ..."""
