"""The persistent compile cache: entries on disk, their keys, and the index by jaxpr."""
