"""Performs the missing runs in several processes, and writes each result when its run ends.

Each run uses one thread, so the number of processes does not change results.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import connection
from pathlib import Path
from typing import Any

from . import _sections, _setup, _store


def perform(name: str, run: _sections.Run) -> tuple[Any, float]:
    """Performs one run. Returns its result and its processor time in seconds."""
    _setup.prepare(run.seed)
    start = time.process_time()
    result = _sections.load(name).run(run.settings, run.seed)
    return result, time.process_time() - start


def begin_worker() -> None:
    """Makes this worker ignore Ctrl-C, which the parent handles, and end when the parent ends for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


class Workers:
    """A pool of processes for all sections. It starts at the first use."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.pool: ProcessPoolExecutor | None = None

    def results(self, name: str, runs: list[_sections.Run]) -> Iterator[tuple[_sections.Run, Any, float]]:
        """Yields each run, its result and its seconds, in the order in which the runs end."""
        if self.jobs == 1 or len(runs) <= 1:
            for run in runs:
                yield (run, *perform(name, run))
            return
        if self.pool is None:
            spawn = multiprocessing.get_context("spawn")  # PyTorch's threads do not survive a fork
            self.pool = ProcessPoolExecutor(self.jobs, mp_context=spawn, initializer=begin_worker)
        waiting: dict[Future[tuple[Any, float]], _sections.Run] = {}
        for run in runs:
            waiting[self.pool.submit(perform, name, run)] = run
        for future in as_completed(waiting):
            yield (waiting[future], *future.result())

    def end(self, at_once: bool) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=not at_once, cancel_futures=at_once)
            for child in multiprocessing.active_children() if at_once else []:
                child.terminate()


def complete(
    section: _sections.Section, folder: Path, smoke: bool, workers: Workers
) -> tuple[list[dict[str, Any]], float]:
    """Performs the missing runs of a section. Returns all of its runs in order, and their total seconds."""
    store, runs = _store.Runs(folder, section), section.runs(smoke)
    missing = [run for run in runs if store.read(run) is None]
    for done, (run, result, seconds) in enumerate(workers.results(section.name, missing), 1 + len(runs) - len(missing)):
        store.write(run, result, seconds)
        if sys.stderr.isatty():
            end = "\n" if done == len(runs) else ""
            print(f"\r{section.name}: {done} of {len(runs)} runs", end=end, file=sys.stderr, flush=True)
    found = []
    for run in runs:  # read from the files, so a resumed study gives the same JSON
        one = store.read(run)
        assert one is not None
        found.append(one)
    kept = [{name: one[name] for name in ("settings", "seed", "result")} for one in found]
    return kept, sum(one["seconds"] for one in found)
