"""Set-up that all Python tests share."""

import os
import tempfile

import pytest

CACHE = "TORCHINDUCTOR_CACHE_DIR"  # one for each run: its keys do not depend on evenorm's code
# The slowest test files. They run first, so that none of them starts last.
LONGEST = ("study", "torch_look_alikes", "torch_sharded", "torch_operators", "torch_subsets", "torch_fallback", "jax",
           "torch_exporters", "torch_distributed_training", "torch_convert_ranks", "torch_convert_models", "minilm",
           "torch_distributed_example", "torch_recurrent")  # fmt: skip


def pytest_configure(config):
    if CACHE not in os.environ:  # the processes of one run share it
        folder = tempfile.TemporaryDirectory(prefix="evenorm-inductor-", ignore_cleanup_errors=True)
        os.environ[CACHE] = folder.name
        config.add_cleanup(folder.cleanup)
        config.add_cleanup(lambda: os.environ.pop(CACHE))


def pytest_collection_modifyitems(items):
    place = {f"test_{name}": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


@pytest.fixture
def norm_calls(monkeypatch):
    """The names and shapes of x of the calls that replaced look-alikes make to evenorm's functions."""
    from evenorm.torch import _look_alikes

    calls = []
    for name in ("layer_norm", "rms_norm"):
        original = getattr(_look_alikes, name)
        note = lambda *a, f=original, n=name: calls.append((n, tuple(a[0].shape))) or f(*a)  # noqa: E731
        monkeypatch.setattr(_look_alikes, name, note)
    return calls
