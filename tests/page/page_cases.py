"""The cases of pages: the arguments after `evenorm explain`. This module does not depend on the pages."""

import array
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "evenorm"
PARAMETERS = ("--weight", "1.5 1 0.5", "--bias", "0.5 0 -0.5")


def write_npy(path, shape, seed):
    """Writes normally distributed f32 around 1, the same in each run."""
    numbers = random.Random(seed)
    count = 1
    for size in shape:
        count *= size
    values = array.array("f", (numbers.gauss(1, 2) for _ in range(count)))
    if sys.byteorder == "big":
        values.byteswap()
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head = head.ljust(117) + "\n"  # makes the header a multiple of 64 bytes, with the 10 bytes before it
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + values.tobytes())
    return path


class File:
    """An argument that stands for a .npy file of that shape."""

    def __init__(self, *shape):
        self.shape = shape

    def path(self, folder):
        path = folder / ("x".join(map(str, self.shape)) + ".npy")
        return path if path.exists() else write_npy(path, self.shape, seed=22)


CASES = {
    # The worked examples.
    "by_hand": ("4 2 8", *PARAMETERS),
    "two_words": ("[[[0.2 0.1 0.3]] [[0.5 0.1 0.1]]]", "--normalized-shape", "1,3", "--batch-axis", "1"),
    "sequence": (File(5, 3, 8),),
    # Real activations, (4, 64, 384).
    "minilm": (ROOT / "examples" / "minilm" / "hidden.npy",),
    "one_number": ("5",),
    "not_finite": ("[[1 nan 3] [inf 2 3] [-inf inf 0] [1 2 4]]",),
    "constant": ("3 3 3 3",),
    "wide": (File(2, 10000),),
    "no_map": (File(700, 400),),  # more elements than the page draws
    "far_apart": ("1e-7 3e8 -2.5e-6 12345678 0.00012", "--dtype", "f64"),
    "grad": ("[[4 2 8] [1 5 -3]]", "--grad", "[[1 0 -1] [0.5 0.25 2]]", *PARAMETERS),
    "grad_wide": (File(6, 96), "--grad", File(6, 96), "--rows", "all"),
    "grad_not_finite": ("[[1 nan 3] [1 1 1] [1 2 4]]", "--grad", "[[1 0 -1] [1 2 3] [0 inf 1]]"),
    "rms": ("[[4 2 8] [1 5 -3]]", "--rms"),
    "rms_grad": ("[[4 2 8] [1 5 -3]]", "--rms", "--grad", "[[1 0 -1] [0.5 0.25 2]]"),
    "round": ("4 2 8", "--round", "2", *PARAMETERS),
    "round_grad": ("4 2 8", "--round", "2", "--grad", "1 0 -1", *PARAMETERS),
    "zero_centered": ("4 2 8", "--zero-centered", "--weight", "0.5 0 -0.5"),
    "batch_axis": (File(3, 4, 6), "--axes", "0,2", "--batch-axis", "0"),
    "first_axis": ("[[1, 2], [3, 5]]", "--axes", "0"),
    "four_axes": (File(2, 3, 4, 5), "--normalized-shape", "4,5"),
    "decimals": ("4 2 8", "--decimals", "6"),
    "f64": (File(4, 6), "--dtype", "f64", "--eps", "1e-12"),
    "bf16": ("[[0.1 0.2 0.4] [3 5 7]]", "--dtype", "bf16"),
    "slips": ("--slips",),
}
FORWARD = [name for name, words in CASES.items() if name != "slips" and "--grad" not in words]
GRADIENTS = [name for name, words in CASES.items() if "--grad" in words]
EXPLAINED = FORWARD + GRADIENTS


def command(name, folder, page):
    """The command that writes `page` and prints its JSON."""
    words = [word.path(folder) if isinstance(word, File) else word for word in CASES[name]]
    return [str(word) for word in (PROGRAM, "explain", *words, "--html", page, "--json")]
