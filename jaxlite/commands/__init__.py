"""Programs for the command line. `python -m jaxlite.NAME` runs them: `jaxlite/NAME.py` imports the one of its name."""
