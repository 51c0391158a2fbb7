"""Many threads at once, forked children, and memory over a hundred thousand calls."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from test_numpy_layouts import same_bits, tensor

import evenorm
import numpy_inputs as inputs


@pytest.fixture(params=[1, 2])
def threads(request):
    evenorm.set_num_threads(request.param)
    yield request.param
    evenorm.set_num_threads(1)


def test_8_threads_1000_calls_each(threads):
    shapes = [(2, 33), (64, 257), (300, 768)]
    problems = []
    for shape in shapes:
        x, weight = tensor("f32", *shape), inputs.weight("f32", shape[1])
        y = evenorm.layer_norm(x, shape[1], weight)
        problems.append((x, weight, y, evenorm.layer_norm_backward(y, x, shape[1], weight)))
    wrong = []

    def work(seed):
        for i in range(1000):
            x, weight, y, gradients = problems[0 if (i + seed) % 10 else (i // 10) % 3]
            if i % 3 == 0:
                right = all(map(same_bits, evenorm.layer_norm_backward(y, x, x.shape[1], weight), gradients))
            else:
                right = same_bits(evenorm.layer_norm(x, x.shape[1], weight), y)
            if not right:
                wrong.append((seed, i))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_other_threads_run_meanwhile():
    x = tensor("f32", 1, 1 << 20)
    x = np.repeat(x, 64, axis=0)
    out = np.empty_like(x)
    ticks, done = [0], threading.Event()

    def count():
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.0002)

    counter = threading.Thread(target=count)
    counter.start()
    start = time.perf_counter()
    evenorm.layer_norm(x, x.shape[1], out=out)
    passed, counted = time.perf_counter() - start, ticks[0]
    done.set()
    counter.join()
    # A thread that had to wait for the GIL would have counted once or twice.
    assert counted >= 5, f"{counted} ticks in {passed:.3f} s"


def test_a_large_call_uses_threads():
    code = """
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
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def in_child(work):
    """What work() returns in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, work())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return result


def test_after_fork(threads):
    x, weight = tensor("bf16", 500, 257), inputs.weight("bf16", 257)
    y = evenorm.layer_norm(x, 257, weight)  # the pool is running
    gradients = b"".join(gradient.tobytes() for gradient in evenorm.layer_norm_backward(y, x, 257, weight))
    for _ in range(3):
        assert in_child(lambda: evenorm.layer_norm(x, 257, weight)[-200:].tobytes()) == y[-200:].tobytes()
        found = in_child(lambda: b"".join(g.tobytes()[-9000:] for g in evenorm.layer_norm_backward(y, x, 257, weight)))
        assert gradients.endswith(found[-1028:]) and len(found) == 9000 + 2 * 1028
    assert same_bits(evenorm.layer_norm(x, 257, weight), y)


LEAKS = """
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
        evenorm.layer_norm_pair(lender, axis=(0, 1), out=(out, None))
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


def test_100000_calls_leave_nothing():
    subprocess.run([sys.executable, "-c", textwrap.dedent(LEAKS)], check=True)


def test_refused_calls_leave_nothing_behind():
    x = np.zeros((2, 3), np.float32)
    before = sys.getrefcount(x)
    for _ in range(100):
        with pytest.raises(ValueError):
            evenorm.layer_norm(x, 4, out=x)
    gc.collect()
    assert sys.getrefcount(x) == before
