"""Settings of glibc's allocator that make it keep freed memory.

PyTorch allocates its results at each call. An allocator that returns memory to the system would take longer than the
norm. glibc reads these variables when a process starts.
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
    """Restarts this process with the settings if it does not have them."""
    if any(os.environ.get(name) != value for name, value in KEEPS_MEMORY.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEPS_MEMORY})
