"""`python -m jaxlite.aot`: export from a command line"""

import sys

from jaxlite.commands.aot import main

if __name__ == "__main__":
    sys.exit(main())
