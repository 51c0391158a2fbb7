"""PYTHONPATH=learn python -m study"""

import sys

from ._command import main

if __name__ == "__main__":  # worker processes import this module under another name
    sys.exit(main())
