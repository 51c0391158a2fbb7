"""Measures evenorm's passes on a GPU beside PyTorch, torch.compile and a plain Triton kernel.

Each figure is the median over runs that alternate between two sets of tensors, so that none is in the L2 cache when it is
read. GB/s counts what a pass must move: x and y forward; x, dy and dx backward. `copy` is a copy of x.
"""

import argparse
import ctypes
import json
import statistics
import sys

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
COLUMNS = [64, 128, 256, 257, 512, 768, 1024, 1031, 2048, 4096, 4097, 8192, 16384, 32768, 65536]


class Tensor(ctypes.Structure):
    """evenorm_tensor, and evenorm_const_tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class Forward(ctypes.Structure):
    """evenorm_forward."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("zero_centered", ctypes.c_int32)]
        + [("eps", ctypes.c_double), ("x", Tensor), ("y", Tensor)]
        + [("normalized_shape", ctypes.POINTER(ctypes.c_int64)), ("normalized_shape_count", ctypes.c_size_t)]
        + [("axes", ctypes.POINTER(ctypes.c_int64)), ("axes_count", ctypes.c_size_t)]
        + [(name, Tensor) for name in ("weight", "bias", "mean", "rstd", "residual")]
        + [("residual_scale", ctypes.c_double)]
        + [(name, Tensor) for name in ("sum", "scale")]
        + [("given_scale", ctypes.c_double)]
    )


class Backward(ctypes.Structure):
    """evenorm_backward."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("zero_centered", ctypes.c_int32)]
        + [("accumulate", ctypes.c_int32), ("eps", ctypes.c_double), ("x", Tensor), ("dy", Tensor)]
        + [("normalized_shape", ctypes.POINTER(ctypes.c_int64)), ("normalized_shape_count", ctypes.c_size_t)]
        + [("axes", ctypes.POINTER(ctypes.c_int64)), ("axes_count", ctypes.c_size_t)]
        + [(name, Tensor) for name in ("weight", "mean", "rstd", "dx", "dweight", "dbias", "dsum")]
    )


class Library:
    """evenorm's C API."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.evenorm_last_error.restype = ctypes.c_char_p
        self.kept = []  # shapes that structures point to

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.evenorm_last_error().decode())

    def shape(self, *sizes):
        self.kept.append((ctypes.c_int64 * len(sizes))(*sizes))
        return self.kept[-1]

    def tensor(self, t):
        code = {torch.float64: 0, torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}[t.dtype]
        return Tensor(t.data_ptr(), code, t.dim(), self.shape(*t.shape), None)

    def new(self, kind, init, cols):
        described = kind()
        self.check(init(ctypes.byref(described), ctypes.c_size_t(ctypes.sizeof(kind))))
        described.normalized_shape, described.normalized_shape_count = self.shape(cols), 1
        return described

    def forward(self, x, y, weight, bias, mean=None, rstd=None):
        f = self.new(Forward, self.lib.evenorm_forward_init, x.shape[-1])
        f.x, f.y, f.weight, f.bias = (self.tensor(t) for t in (x, y, weight, bias))
        if mean is not None:
            f.mean, f.rstd = self.tensor(mean), self.tensor(rstd)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return lambda: self.check(self.lib.evenorm_cuda_run(ctypes.byref(f), 0, stream))

    def backward(self, x, dy, weight, mean, rstd, dx, dweight, dbias):
        b = self.new(Backward, self.lib.evenorm_backward_init, x.shape[-1])
        names = ("x", "dy", "weight", "mean", "rstd", "dx", "dweight", "dbias")
        for name, t in zip(names, (x, dy, weight, mean, rstd, dx, dweight, dbias), strict=True):
            setattr(b, name, self.tensor(t))
        size = ctypes.c_size_t()
        self.check(self.lib.evenorm_cuda_scratch_bytes(ctypes.byref(b), ctypes.byref(size)))
        scratch = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        stream, place = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_void_p(scratch.data_ptr())
        self.kept.append(scratch)
        return lambda: self.check(self.lib.evenorm_cuda_run_backward(ctypes.byref(b), place, size, 0, stream))


def milliseconds(calls, runs):
    """The median time of the calls, which are made in turn."""
    for call in calls:
        call()
    times = []
    for i in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        calls[i % len(calls)]()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def triton_norm():
    """Returns a layer norm of one program per row in Triton, or None without Triton."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    @triton.jit
    def kernel(x, y, weight, bias, cols, eps, block: tl.constexpr):
        at = tl.arange(0, block)
        mask = at < cols
        row = tl.program_id(0).to(tl.int64) * cols
        values = tl.load(x + row + at, mask=mask, other=0.0).to(tl.float32)
        mean = tl.sum(values, axis=0) / cols
        centred = tl.where(mask, values - mean, 0.0)
        rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps)
        gamma, beta = tl.load(weight + at, mask=mask), tl.load(bias + at, mask=mask)
        tl.store(y + row + at, centred * rstd * gamma + beta, mask=mask)

    def run(x, y, weight, bias):
        block = triton.next_power_of_2(x.shape[1])
        warps = min(max(block // 256, 1), 16)
        kernel[(x.shape[0],)](x, y, weight, bias, x.shape[1], 1e-5, block, num_warps=warps)

    return run


def measure(library, rivals, dtype, rows, cols, runs):
    torch_dtype = DTYPES[dtype]
    compiled = rivals.get("compile")
    sets = [[torch.randn(rows, cols, device="cuda", dtype=torch_dtype) for _ in range(2)] for _ in range(2)]
    outs = [torch.empty_like(sets[0][0]) for _ in range(2)]
    weight, bias = (torch.randn(cols, device="cuda", dtype=torch_dtype) for _ in range(2))
    dweight, dbias = torch.empty_like(weight), torch.empty_like(bias)
    mean, rstd = (torch.empty(rows, device="cuda", dtype=torch.float64) for _ in range(2))
    nbytes, times = sets[0][0].nbytes, {}

    def add(name, make):
        times[name] = milliseconds([make(*s, out) for s, out in zip(sets, outs, strict=True)], runs)

    add("copy", lambda x, _, out: lambda: out.copy_(x))
    add("evenorm", lambda x, _, out: library.forward(x, out, weight, bias))
    add("torch", lambda x, _, out: lambda: F.layer_norm(x, (cols,), weight, bias))
    if compiled is not None:
        add("compile", lambda x, _, out: lambda: compiled(x, (cols,), weight, bias))
    if rivals.get("triton") is not None:
        add("triton", lambda x, _, out: lambda: rivals["triton"](x, out, weight, bias))
    library.forward(sets[0][0], outs[0], weight, bias, mean, rstd)()
    add("evenorm backward", lambda x, dy, out: library.backward(x, dy, weight, mean, rstd, out, dweight, dbias))
    _, m32, r32 = torch.native_layer_norm(sets[0][0], (cols,), weight, bias, 1e-5)
    add(
        "torch backward",
        lambda x, dy, out: (
            lambda: torch.ops.aten.native_layer_norm_backward(dy, x, (cols,), m32, r32, weight, bias, [True] * 3)
        ),
    )
    return {name: round((3 if "backward" in name else 2) * nbytes / ms * 1e-6, 1) for name, ms in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="libevenorm.so, built with EVENORM_CUDA")
    parser.add_argument("--columns", type=int, nargs="*", default=COLUMNS)
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args()
    rivals = {"triton": triton_norm(), "compile": None if args.no_compile else torch.compile(F.layer_norm)}
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    results = []
    for dtype in args.dtypes:
        for cols in args.columns:
            library = Library(args.library)
            figures = measure(library, rivals, dtype, args.rows, cols, args.runs)
            results.append({"dtype": dtype, "rows": args.rows, "cols": cols, "gbs": figures})
            text = ", ".join(f"{name} {figure:.0f}" for name, figure in figures.items())
            ratio = figures["evenorm"] / figures["copy"], figures["evenorm backward"] / figures["copy"]
            print(f"{dtype} {args.rows} x {cols}: {text} GB/s; of a copy {ratio[0]:.2f}, backward {ratio[1]:.2f}")
            sys.stdout.flush()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
