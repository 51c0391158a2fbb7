"""The NumPy functions and evenorm.torch with many threads at once, after fork(), and over many calls without leaks."""

import gc
import os
import threading
import time

import numpy as np
import pytest
import torch

import evenorm
import evenorm.torch
from numpy_inputs import normal, run_program, weight


def passes_of_numpy(x, w):
    y = evenorm.layer_norm(x, x.shape[1], w)
    return y, *evenorm.layer_norm_backward(y, x, x.shape[1], w)


def passes_of_torch(x, w):
    x, w = torch.from_numpy(x).requires_grad_(), torch.from_numpy(w).requires_grad_()
    bias = torch.zeros_like(w, requires_grad=True)
    y = evenorm.torch.layer_norm(x, x.shape[1:], w, bias)
    return [t.detach().numpy() for t in (y, *torch.autograd.grad(y, (x, w, bias), y.detach()))]


def bits(passes, x, w):
    return [result.tobytes() for result in passes(x, w)]


# The passes, the function that sets their number of threads, and the number before the tests.
KINDS = {
    "numpy": (passes_of_numpy, evenorm.set_num_threads, evenorm.get_num_threads()),
    "torch": (passes_of_torch, torch.set_num_threads, torch.get_num_threads()),
}


@pytest.fixture(params=KINDS)
def kind(request):
    passes, set_threads, before = KINDS[request.param]
    yield passes, set_threads
    set_threads(before)


def test_any_number_of_threads(kind):
    passes, set_threads = kind
    problem = normal("f32", 1100, 300), weight("f32", 300)
    set_threads(1)
    alone = bits(passes, *problem)
    for threads in (2, 3, 7):
        set_threads(threads)
        assert bits(passes, *problem) == alone


@pytest.mark.parametrize("threads", [1, 2])
def test_8_threads_at_once(kind, threads):
    passes, set_threads = kind
    set_threads(threads)
    problems = [(normal("f32", rows, cols), weight("f32", cols)) for rows, cols in ((2, 33), (64, 257), (300, 768))]
    expected = [bits(passes, *problem) for problem in problems]
    wrong = []

    def work(seed):
        for i in range(500):
            which = (i // 10) % 3 if (i + seed) % 10 == 0 else 0
            if bits(passes, *problems[which]) != expected[which]:
                wrong.append((seed, i))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def norm_of_numpy(x):
    evenorm.layer_norm(x, x.shape[1], out=x)


def norm_of_torch(x):
    evenorm.torch.layer_norm(torch.from_numpy(x), x.shape[1:]).numpy()


@pytest.mark.parametrize("norm", [norm_of_numpy, norm_of_torch])
def test_other_threads_run_during_a_norm(norm):
    """A norm releases the interpreter's lock: another thread counts in the middle of a long norm."""
    x = np.repeat(normal("f32", 1, 1 << 20), 64, axis=0)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    other = threading.Thread(target=tick)
    other.start()
    start = time.perf_counter()
    norm(x)
    end = time.perf_counter()
    done.set()
    other.join()
    quarter = (end - start) / 4  # near the ends the interpreter may switch threads by itself
    assert any(start + quarter < t < end - quarter for t in ticks)


def test_a_large_call_uses_threads():
    run_program("""
        import os
        import evenorm, numpy as np
        def count():
            return len(os.listdir("/proc/self/task"))
        x, before = np.ones((4000, 768), np.float32), count()
        evenorm.layer_norm(x, 768)
        assert count() == before
        evenorm.set_num_threads(3)
        evenorm.layer_norm(x[:1], 768)
        assert count() == before
        evenorm.layer_norm(x, 768)
        assert count() > before
    """)


@pytest.mark.parametrize("threads", [1, 2])
def test_after_fork(kind, threads):
    passes, set_threads = kind
    set_threads(threads)
    # For evenorm.torch only the forward pass: autograd in a forked child depends on PyTorch.
    problem = normal("f32", 1100, 300), weight("f32", 300)
    expected = bits(passes, *problem)  # starts the threads
    for _ in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if passes is passes_of_numpy:
                    found = bits(passes, *problem)
                else:
                    x, w = map(torch.from_numpy, problem)
                    found = [evenorm.torch.layer_norm(x, (300,), w).numpy().tobytes()]
                status = found != expected[: len(found)]
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bits(passes, *problem) == expected


LEAKS_OF_NUMPY = """
    import array, gc, resource, sys
    import numpy as np
    import evenorm

    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    weight, out, held = np.ones(64, np.float32), np.empty_like(x), array.array("f", range(64))
    strided = np.asfortranarray(x)

    class Lender:
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

    lender = Lender()
    objects = [x, weight, out, held, strided, lender, None, np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int8)]

    def refused(call):
        try:
            call()
        except (TypeError, ValueError):
            return
        raise AssertionError("not refused")

    def some():
        evenorm.layer_norm(x, 64, weight, weight, return_stats=True)
        evenorm.layer_norm(x, (64,), [1.0] * 64, out=out)
        evenorm.rms_norm(strided, axis=-1)
        evenorm.layer_norm_backward(x, x, 64, weight, out=(out, None, None))
        evenorm.rms_norm_backward(x, x, [4, 64], param_dtype="f8")
        evenorm.add_layer_norm(x, lender, 64)
        evenorm.layer_norm_int8(held, 64)
        evenorm.layer_norm(lender, axis=(0, 1), out=out)
        refused(lambda: evenorm.layer_norm(x, 65))
        refused(lambda: evenorm.layer_norm(held, 64, out=bytes(256)))

    def resident():
        gc.collect()
        with open("/proc/self/statm") as statistics:
            return int(statistics.read().split()[1]) * resource.getpagesize()

    for _ in range(1000):
        some()
    before, counts = resident(), [sys.getrefcount(thing) for thing in objects]
    blocks = sys.getallocatedblocks()
    for _ in range(10000):
        some()
    grown = resident() - before
    changed = [abs(sys.getrefcount(thing) - count) for thing, count in zip(objects, counts)]
    assert max(changed) < 50, changed
    assert sys.getallocatedblocks() - blocks < 500, sys.getallocatedblocks() - blocks
    assert grown < 1 << 20, grown
    assert len(held) == 64 and held.append(1) is None
"""


def test_100000_calls_leak_nothing():
    run_program(LEAKS_OF_NUMPY)


def resident_kib():
    gc.collect()
    with open("/proc/self/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmRSS")))


def test_100000_operators_of_torch_leak_nothing():
    x, dy, w, b = torch.randn(2, 64), torch.randn(2, 64), torch.randn(64), torch.randn(64)

    def call(count):
        for _ in range(count):
            leaves = [t.detach().requires_grad_() for t in (x, w, b)]
            evenorm.torch.layer_norm(leaves[0], (64,), leaves[1], leaves[2]).backward(dy)
            evenorm.torch.rms_norm(x, (64,), w)
            evenorm.torch.add_rms_norm(x, dy, (64,), w)

    call(2000)
    before = resident_kib()
    call(34_000)
    assert resident_kib() - before < 1024
