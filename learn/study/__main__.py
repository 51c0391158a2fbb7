"""PYTHONPATH=learn python -m study"""

import sys

from ._command import main

if __name__ == "__main__":  # workers import this module by another name
    sys.exit(main())
