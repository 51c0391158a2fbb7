"""The console command `evenorm`: replaces the Python process by the program inside the package."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "evenorm"
    os.execv(program, ["evenorm", *sys.argv[1:]])
