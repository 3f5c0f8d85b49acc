"""Arrays of many devices in files."""
