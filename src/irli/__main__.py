"""`python -m irli` is the command `irli`."""

import sys

from irli.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
