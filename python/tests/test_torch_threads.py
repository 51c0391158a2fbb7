"""evenorm.torch under threads, after fork(), and over many calls."""

import gc
import os
import resource
import threading
import time

import pytest
import torch
from torch_cases import bits

import evenorm.torch


def step(x, w, b, dy):
    leaves = [t.detach().requires_grad_() for t in (x, w, b)]
    y = evenorm.torch.layer_norm(leaves[0], (x.shape[-1],), leaves[1], leaves[2])
    return [bits(t) for t in (y, *torch.autograd.grad(y, leaves, dy))]


@pytest.fixture
def inputs():
    return torch.randn(130, 300), torch.randn(300), torch.randn(300), torch.randn(130, 300)


def test_any_number_of_pytorchs_threads(inputs):
    large = (torch.randn(1100, 300), *inputs[1:3], torch.randn(1100, 300))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = step(*large)
        for threads in (2, 3, 7):
            torch.set_num_threads(threads)
            assert step(*large) == alone
    finally:
        torch.set_num_threads(before)


def test_eight_threads_at_once(inputs):
    expected = step(*inputs)
    wrong = []

    def work():
        for _ in range(125):
            if step(*inputs) != expected:
                wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_call_lets_other_threads_run():
    """While one thread is in a long norm, another goes on: the interpreter's lock is released."""
    x = torch.randn(64, 1 << 20)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    other = threading.Thread(target=tick)
    other.start()
    start = time.perf_counter()
    y = evenorm.torch.layer_norm(x, x.shape[1:])  # kept: PyTorch gives the lock up while it frees a tensor
    end = time.perf_counter()
    done.set()
    other.join()
    assert y.shape == x.shape
    quarter = (end - start) / 4  # at either end the interpreter itself may change threads
    assert any(start + quarter < t < end - quarter for t in ticks)


def test_after_fork(inputs):
    large = (torch.randn(1100, 300), *inputs[1:3], torch.randn(1100, 300))
    expected = step(*large)  # PyTorch's threads are there before the child is
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            y = bits(evenorm.torch.layer_norm(large[0], (300,), *large[1:3]))
        os._exit(0 if y == expected[0] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def peak_kib():
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_nothing_leaks(inputs):
    x, w, b, dy = (t[:2, :64] if t.dim() == 2 else t[:64] for t in inputs)
    x, dy = x.contiguous(), dy.contiguous()

    def call(count):
        for _ in range(count):
            leaves = [t.detach().requires_grad_() for t in (x, w, b)]
            evenorm.torch.layer_norm(leaves[0], (64,), leaves[1], leaves[2]).backward(dy)
            evenorm.torch.rms_norm(x, (64,), w)
            evenorm.torch.add_rms_norm(x, dy, (64,), w)

    call(2000)
    before = peak_kib()
    call(34_000)  # over 100,000 operators
    assert peak_kib() - before < 1024
