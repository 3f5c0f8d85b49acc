"""What a primitive means under each trace: eager, derivatives, transposition, batching."""
