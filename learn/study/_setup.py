"""Makes a run repeatable: one thread, deterministic algorithms, a seed."""

THREADS = 1


def prepare(seed: int) -> None:
    """Prepares a run, so that its numbers depend only on its settings and its seed."""
    import torch

    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.manual_seed(seed)
