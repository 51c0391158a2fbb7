"""The console command `evenorm`: replaces the Python process by the program inside the package."""

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).parent / "bin" / "evenorm"


def main() -> None:
    os.execv(PROGRAM, ["evenorm", *sys.argv[1:]])
