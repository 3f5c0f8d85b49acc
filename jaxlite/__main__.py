"""`python -m jaxlite program.py arguments`: run a JAX program, unedited, with jaxlite in jax's place.

    python -m jaxlite program.py ...     a file, or a folder or archive with a __main__.py
    python -m jaxlite -m module ...      a module, such as pytest
    python -m jaxlite -c code ...        a program given as text
"""

import sys

from jaxlite.commands.programs import run_program


def main(arguments: list[str]) -> None:
    """Run what the arguments of the command line name."""
    wants_help = arguments[:1] in (["-h"], ["--help"])
    if wants_help or not arguments or arguments[0] in ("-m", "-c") and len(arguments) < 2:
        print(__doc__)
        sys.exit(0 if wants_help else 2)
    run_program(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
