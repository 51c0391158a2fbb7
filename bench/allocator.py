"""PyTorch allocates its results at each call: an allocator that gives memory back would cost more than the norm.

glibc reads these when a process begins.
"""

from __future__ import annotations

import os
import sys

KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def restart_with_it() -> None:
    """Where this process has another, it begins anew."""
    if any(os.environ.get(name) != value for name, value in KEEPS_MEMORY.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEPS_MEMORY})
