"""`python -m jaxlite.cache`: the persistent compile cache from the command line"""

import sys

from jaxlite.commands.cache import main

if __name__ == "__main__":
    sys.exit(main())
