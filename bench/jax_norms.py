"""Times Flax's compiled LayerNorm and evenorm's.

Both modules take turns, and XLA allocates all results. A row shows medians and the median of the paired ratios (Flax's time
over evenorm's: above 1, evenorm is faster).

    .venv/bin/python bench/jax_norms.py --one-thread
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import allocator


def seconds(call, arguments, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call(*arguments)[0].block_until_ready()
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--one-thread", action="store_true", help="XLA's threads: the calling thread")
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    allocator.restart_with_it()
    if arguments.one_thread:  # XLA reads both when it starts
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import flax.linen
    import jax

    import evenorm.jax.linen

    print(f"JAX {jax.__version__}\n{'rows x width':14}{'pass':>10}{'flax us':>12}{'evenorm us':>12}{'ratio':>8}")
    for rows, width in ((64, 768), (4096, 768)):
        x, dy = jax.random.normal(jax.random.key(0), (2, rows, width))
        norms = [module.LayerNorm() for module in (flax.linen, evenorm.jax.linen)]
        variables = norms[0].init(jax.random.key(1), x)
        forward = [jax.jit(lambda v, x, dy, norm=norm: [norm.apply(v, x)]) for norm in norms]
        gradients = [jax.jit(lambda v, x, dy, norm=norm: jax.vjp(norm.apply, v, x)[1](dy)[::-1]) for norm in norms]
        for name, calls in (("forward", forward), ("gradients", gradients)):
            slowest = [max(seconds(call, (variables, x, dy), 5) for call in calls) for _ in range(2)][1]
            count = max(3, int(0.02 / slowest))
            times = [[seconds(call, (variables, x, dy), count) for call in calls] for _ in range(arguments.rounds)]
            flax_us, ours = (1e6 * statistics.median(column) for column in zip(*times, strict=True))
            ratio = statistics.median(theirs / mine for theirs, mine in times)
            print(f"{f'{rows} x {width}':14}{name:>10}{flax_us:12.1f}{ours:12.1f}{ratio:8.2f}", flush=True)


if __name__ == "__main__":
    main()
