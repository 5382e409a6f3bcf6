"""`python -m opwatch`."""

import sys

from opwatch.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
