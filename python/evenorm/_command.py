"""The console command `evenorm`: becomes the program inside the package. It knows nothing of what that does."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "evenorm"
    os.execv(program, ["evenorm", *sys.argv[1:]])
