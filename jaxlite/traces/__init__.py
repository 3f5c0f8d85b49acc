"""The transformations of primitives: eager, derivatives, transposition, batching."""
