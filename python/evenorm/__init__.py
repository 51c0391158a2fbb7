"""Layer norm and RMS norm on the CPU: exact, fast, the same bits everywhere. This is the NumPy side.

PyTorch's is `evenorm.torch`, which is imported by itself.
"""

from evenorm._core import numerics_revision, target, targets, version

__version__ = version()

__all__ = ["__version__", "numerics_revision", "target", "targets", "version"]
