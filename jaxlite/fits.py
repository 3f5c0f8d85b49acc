"""`python -m jaxlite.fits`: does a program fit an accelerator that is not in this machine?"""

import sys

from jaxlite.commands.fits import main

if __name__ == "__main__":
    sys.exit(main())
