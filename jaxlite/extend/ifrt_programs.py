"""Programs for runtimes that are reached through IFRT: jaxlib's module of this name."""

from lowering.xla import ifrt_programs as ifrt_programs
