"""`python -m evenorm.torch`: prints which operators are in use, and why."""

from evenorm.torch import info

for name, value in info().items():
    print(f"{name + ':':11} {value}")
