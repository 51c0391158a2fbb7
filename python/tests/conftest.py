"""What torch.compile made is kept under what it compiled, whatever the evenorm that it calls: each run keeps its own."""

import os
import tempfile

CACHE = "TORCHINDUCTOR_CACHE_DIR"


def pytest_configure(config):
    if CACHE not in os.environ:  # else the processes of one run share theirs
        folder = tempfile.TemporaryDirectory(prefix="evenorm-inductor-", ignore_cleanup_errors=True)
        os.environ[CACHE] = folder.name
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: os.environ.pop(CACHE))
