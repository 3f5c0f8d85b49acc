"""Where data lives and programs run."""
