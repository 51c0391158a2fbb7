"""Runs a function in several processes that share a gloo process group, for tests.

`run` requires that every process succeeds; `outcomes` reports how each one ended, killed ones too. Processes are forked
from a server that has imported PyTorch and started no threads, so that starting one takes tenths of a second.
"""

from __future__ import annotations

import datetime
import math
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed


@dataclass
class Outcome:
    """How one process ended: its result, or the traceback of its exception, and its exit code."""

    rank: int
    result: Any = None
    error: str = ""
    exit_code: int | None = None  # -9: killed by signal 9
    in_time: bool = True

    @property
    def failed(self) -> bool:
        return self.exit_code != 0

    def __str__(self) -> str:
        if self.error:
            return f"rank {self.rank}: {self.error}"
        return f"rank {self.rank} ended with {self.exit_code}" if self.in_time else f"rank {self.rank} was not in time"


def run(function: Callable[..., Any], size: int, *arguments: Any, **limits: float) -> list[Any]:
    """Returns the result of function(rank, *arguments) in each of `size` processes. The limits are those of `outcomes`.

    Raises:
        RuntimeError: a process failed; the message has the tracebacks.
    """
    found = outcomes(function, size, *arguments, **limits)
    failures = [str(outcome) for outcome in found if outcome.failed]
    if failures:
        raise RuntimeError("\n".join(failures))
    return [outcome.result for outcome in found]


def outcomes(
    function: Callable[..., Any], size: int, *arguments: Any, timeout: float = 60, group_timeout: float | None = None
) -> list[Outcome]:
    """Returns how each process ended, by rank. Does not raise their exceptions.

    The function, its arguments and its results are pickled. Processes that run longer than `timeout` seconds are
    killed. `group_timeout` limits collective operations. By default it is most of `timeout`, because one process may
    compile while another waits.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "evenorm.torch"])
    found = [Outcome(rank) for rank in range(size)]
    work = pickle.dumps((function, arguments))
    # The folder from which the function's module can be imported: pytest names test modules such as python.tests.x.
    name = function.__module__
    module_folder = str(Path(str(sys.modules[name].__file__)).resolve().parents[name.count(".")])
    with tempfile.TemporaryDirectory() as folder:
        limit = 0.8 * timeout if group_timeout is None else group_timeout
        fixed = (size, module_folder, work, folder, timeout, limit)
        processes = [context.Process(target=_work, args=(one.rank, *fixed), daemon=True) for one in found]
        deadline = time.monotonic() + timeout
        try:
            for process in processes:
                process.start()
            for process, outcome in zip(processes, found, strict=True):
                process.join(max(0.0, deadline - time.monotonic()))
                outcome.in_time = process.exitcode is not None
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()
        for process, outcome in zip(processes, found, strict=True):
            outcome.exit_code = process.exitcode
            answer = Path(folder) / f"answer{outcome.rank}"
            if answer.exists():
                outcome.result, outcome.error = pickle.loads(answer.read_bytes())
    return found


def _work(
    rank: int, size: int, module_folder: str, work: bytes, folder: str, timeout: float, group_timeout: float
) -> None:
    """Runs in each process."""
    signal.alarm(math.ceil(timeout) + 5)  # in case the tests were killed and cannot kill this process
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the machine's name may resolve to another interface
    limit = datetime.timedelta(seconds=group_timeout)
    error = ""
    try:
        sys.path.append(module_folder)
        function, arguments = pickle.loads(work)
        store = torch.distributed.FileStore(f"{folder}/store", size)
        store.set_timeout(limit)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
        store.set(f"connected{rank}", "")  # connecting fails if another process ends meanwhile
        store.wait([f"connected{other}" for other in range(size)])
        answer = pickle.dumps((function(rank, *arguments), ""))
    except BaseException:
        error = traceback.format_exc()
        answer = pickle.dumps((None, error))
    unfinished = Path(folder) / f"unfinished{rank}"
    unfinished.write_bytes(answer)
    unfinished.replace(Path(folder) / f"answer{rank}")
    if error:
        sys.exit(1)  # without waiting for the others
    torch.distributed.destroy_process_group()
