"""What torch.compile made is kept under what it compiled, whatever the evenorm that it calls: each run keeps its own."""

import os
import tempfile

CACHE = "TORCHINDUCTOR_CACHE_DIR"
# Files of tests that take longest, in that order: processes share files out, and none of these is to begin last.
LONGEST = ("study", "torch_sharded", "torch_operators", "torch_exporters", "torch_distributed_training", "minilm",
           "torch_fallback", "torch_convert_ranks", "torch_distributed_example", "torch_recurrent")  # fmt: skip


def pytest_configure(config):
    if CACHE not in os.environ:  # else the processes of one run share theirs
        folder = tempfile.TemporaryDirectory(prefix="evenorm-inductor-", ignore_cleanup_errors=True)
        os.environ[CACHE] = folder.name
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: os.environ.pop(CACHE))


def pytest_collection_modifyitems(items):
    place = {f"test_{name}": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))
