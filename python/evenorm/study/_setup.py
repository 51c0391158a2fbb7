"""What makes a run repeatable: one thread, deterministic algorithms, a seed. Also where the repository's data are."""

import os
from pathlib import Path

THREADS = 1
SOURCES = "EVENORM_SOURCES"  # the root of evenorm's sources; --sources sets it


def prepare(seed: int) -> None:
    """Before each run: its numbers depend on its settings and its seed alone."""
    import torch

    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.manual_seed(seed)


def in_sources(path: str) -> Path:
    """A file of evenorm's repository, which no wheel has."""
    roots = [Path(os.environ[SOURCES])] if SOURCES in os.environ else [Path.cwd(), *Path.cwd().parents]
    for root in roots:
        if (root / path).exists():
            return root / path
    raise FileNotFoundError(f"{path} is in evenorm's sources; run from there, or name their root: --sources DIR")
