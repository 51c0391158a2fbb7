"""How well a norm was computed, from the caller's own rows: `check`. The program inside the package measures it."""

import contextlib
import json
import operator
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any, SupportsFloat

import numpy as np

from ._command import PROGRAM
from ._norms import Array, Axes


class Check(dict[str, Any]):
    """The numbers that `evenorm check --x --json` prints. Printed, it is the text of `evenorm check --x`."""

    def __str__(self) -> str:
        return str(self["text"])


def check(
    x: Array,
    y: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: Axes = -1,
    rms: bool = False,
    zero_centered: bool = False,
    within: SupportsFloat | None = None,
) -> Check:
    """Measures a layer norm or RMS norm of x against the exact result, and says what x's rows are like.

    Args:
        x, weight, bias, eps, axis, zero_centered: as in `layer_norm`; NumPy, PyTorch or JAX arrays. They are copied.
        y: the result to measure, of x's shape and any of the four types. None: evenorm's own, of x's type.
        rms: whether the norm is an RMS norm.
        within: the largest error that passes, in u = 2**-24 (2**-53 if an array is float64) of
            |weight| max|xhat| + |bias|. None: any.

    Returns:
        A dictionary of the rows' numbers and of the errors: "error" has the largest one and its row and column, the median
        and 99 % of the rows' largest; "bound" is evenorm's; "misrounded" counts 16-bit results that are not rounded
        correctly; "pass". An infinite error is None. It prints as a text.

    Raises:
        TypeError, ValueError: an array has another type or shape.

    >>> import numpy as np
    >>> x = np.array([[4, 2, 8], [1000, 1001, 1002]], dtype=np.float32)
    >>> variance = (x * x).mean(1, keepdims=True) - x.mean(1, keepdims=True) ** 2  # loses digits where the mean is large
    >>> found = check(x, (x - x.mean(1, keepdims=True)) / np.sqrt(variance + np.float32(1e-5)), within=4)
    >>> found["pass"], found["error"]["row"]
    (False, 1)
    >>> check(x, within=4)["pass"]
    True
    """
    arrays = {"x": x, "y": y, "weight": weight, "bias": bias}
    words = [str(PROGRAM), "check", "--json", f"--eps={float(eps)!r}"]
    words += [f"--axes={','.join(str(operator.index(one)) for one in np.atleast_1d(axis))}"]
    words += ["--rms"] * bool(rms) + ["--zero-centered"] * bool(zero_centered)
    words += [] if within is None else [f"--within={float(within)!r}"]
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(_file(a, name)) for name, a in arrays.items() if a is not None or name == "x"
        }
        words += [f"--{name}=/dev/fd/{number}" for name, number in files.items()]
        made = subprocess.run(words, pass_fds=[*files.values()], capture_output=True, text=True)
    said = made.stdout or made.stderr.strip().removeprefix("evenorm: ").replace("--axes", "axis")
    names = {str(number): name for name, number in files.items()}
    said = re.sub(r"/dev/fd/(\d+)", lambda found: names.get(found[1], found[0]), said)
    if not made.stdout:
        raise ValueError(said)
    return Check(json.loads(said))


@contextlib.contextmanager
def _file(array: Array, name: str) -> Iterator[int]:
    """A file in memory with the array as .npy. bfloat16, which NumPy lacks, has the type V2 there."""
    if hasattr(array, "detach"):
        import torch

        array = array.detach()
        array = array.view(torch.int16).numpy().view("V2") if array.dtype == torch.bfloat16 else array.numpy()
    array = np.asarray(array)
    array = array.view("V2") if array.dtype.name == "bfloat16" else array
    if array.dtype.name not in ("float16", "float32", "float64", "void16"):
        raise TypeError(f"{name} has dtype {array.dtype}, but it should be float64, float32, bfloat16 or float16")
    descriptor = os.memfd_create(name)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            np.save(file, np.asarray(array, order="C"))
        yield descriptor
    finally:
        os.close(descriptor)
