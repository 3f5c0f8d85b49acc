"""`jaxlite.explore(f, *args)` and `python -m jaxlite.explore prog.py`: a page that shows a compile."""

import sys

from jaxlite.commands.explore import CallableModule, explore, main

__all__ = ["explore"]

sys.modules[__name__].__class__ = CallableModule

if __name__ == "__main__":
    sys.exit(main())
