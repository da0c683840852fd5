"""`python -m pyspec`: the command line without its script on the PATH.

Owns nothing; everything is in `pyspec.cli`.
"""

import sys

from pyspec.cli import main

if __name__ == "__main__":
    sys.exit(main())
