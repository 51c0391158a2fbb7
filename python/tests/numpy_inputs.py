"""The rows and digests of the library's own tables (contracts/inputs.cpp, contracts/digests.cpp), made in NumPy.

Knows nothing of evenorm: equal digests then say that the package computes what every other front end does.
"""

import ml_dtypes
import numpy as np

DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
LARGEST = {"f64": float(np.finfo(np.float64).max), "f32": float(np.finfo(np.float32).max), "f16": 65504.0,
           "bf16": float.fromhex("0x1.FEp127")}  # fmt: skip
SMALLEST_NORMAL = {"f64": 2.0**-1022, "f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}
FRACTION_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
MASK = (1 << 64) - 1


def smallest_subnormal(kind):
    return SMALLEST_NORMAL[kind] * 2.0 ** -FRACTION_BITS[kind]


def stored(values, kind):
    """The values as the type holds them, each rounded once (ml_dtypes rounds float64 twice)."""
    values = np.asarray(values, dtype=np.float64)
    if kind != "bf16":
        with np.errstate(over="ignore"):
            return values.astype(DTYPES[kind])
    _, exponent = np.frexp(values)
    quantum = np.ldexp(1.0, np.maximum(exponent - 1, -126) - 7)
    return (np.rint(values / quantum) * quantum).astype(np.float32).astype(ml_dtypes.bfloat16)


class Random:
    """splitmix64, as many words at once as are wanted."""

    def __init__(self, seed):
        self.state = seed & MASK

    def words(self, count):
        step = 0x9E3779B97F4A7C15
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(step)
        z = np.uint64(self.state) + steps
        self.state = (self.state + count * step) & MASK
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    def uniform(self, count):
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, count):
        """Each a sum of twelve uniforms of 16 bits, from three words, and of a fourth word's."""
        words = self.words(4 * count).reshape(count, 4)
        parts = sum((words[:, :3] >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(4)).sum(axis=1)
        fine = (words[:, 3] >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return (parts.astype(np.float64) + fine + 5.5) * 2.0**-16 - 6


NORMAL = {"normal": (0, 1), "mean_1e2": (1e2, 1), "mean_1e4": (1e4, 1), "std_1e4": (0, 1e4), "std_1e30": (0, 1e30),
          "std_1e-30": (0, 1e-30), "std_1e-300": (0, 1e-300), "mean_1e6": (1e6, 1)}  # fmt: skip
NEEDS_UP_TO = {"mean_1e4": 2e4, "std_1e30": 1e32, "outlier_10000_at_5": 1e4, "mean_1e6": 2e6}
NEEDS_DOWN_TO = {"std_1e-30": 1e-36, "std_1e-300": 1e-301}
NEEDS_COLS = {"outlier_10000_at_5": 6, "one_ulp_0.1": 2}


def fits(name, kind, cols):
    return (
        NEEDS_UP_TO.get(name, 1) <= LARGEST[kind]
        and NEEDS_DOWN_TO.get(name, np.inf) >= smallest_subnormal(kind)
        and cols >= NEEDS_COLS.get(name, 1)
    )


def row(name, kind, cols, seed=1):
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = ((digest ^ byte) * 0x100000001B3) & MASK
    random = Random(digest ^ ((seed * 0x9E3779B97F4A7C15) & MASK) ^ cols)
    if name in NORMAL:
        mean, deviation = NORMAL[name]
        values = mean + deviation * random.normal(cols)
    elif name == "outlier_10000_at_5":
        values = random.normal(cols)
        values[5] = 10000
    elif name == "huge":
        values = np.where(random.words(cols) % np.uint64(2) == 0, 1.0, -1.0) * LARGEST[kind]
    elif name == "subnormal":
        values = np.floor((2 * random.uniform(cols) - 1) * 2.0 ** FRACTION_BITS[kind]) * smallest_subnormal(kind)
    elif name == "constant_0.1":
        values = np.full(cols, 0.1)
    elif name == "one_ulp_0.1":
        held = stored([0.1], kind)
        below = (held.view(f"u{held.itemsize}") - 1).astype(f"u{held.itemsize}").view(held.dtype)
        values = np.full(cols, held.astype(np.float64)[0])
        values[cols // 2] = below.astype(np.float64)[0]
    else:
        raise KeyError(name)
    return stored(np.clip(values, -LARGEST[kind], LARGEST[kind]), kind)


def weight(kind, cols, seed=2):
    values = 1 + 0.5 * Random(seed ^ (cols << 20)).normal(cols)
    if cols > 2:
        values[cols // 3] = 0
    return stored(values, kind)


def bias(kind, cols, seed=3):
    values = 0.25 * Random(seed ^ (cols << 20)).normal(cols)
    if cols > 2:
        values[cols // 2] = 0
    return stored(values, kind)


def forward_rows(kind, cols):
    extreme = "huge" if kind == "f16" else "std_1e30"
    names = ["normal", "mean_1e4", "outlier_10000_at_5", extreme, "subnormal", "constant_0.1", "one_ulp_0.1"]
    return np.stack(
        [row(name if fits(name, kind, cols) else "std_1e4", kind, cols, i + 1) for i, name in enumerate(names)]
    )


def repeated_rows(names, kind, rows, cols, seed):
    made = [row(name if fits(name, kind, cols) else "normal", kind, cols, seed + i + 1) for i, name in enumerate(names)]
    return np.stack([made[r % len(made)] for r in range(rows)])


def gradient_rows(x_kind, dy_kind, rows, cols):
    """x and dy of the gradients' table."""
    extreme = "huge" if x_kind == "f16" else "std_1e30"
    x_names = ["normal", "mean_1e4", "outlier_10000_at_5", extreme, "normal", "subnormal", "constant_0.1",
               "one_ulp_0.1", "std_1e-300"]  # fmt: skip
    dy_names = ["normal", "mean_1e2", "normal", "std_1e-30", "normal", "subnormal", "std_1e-300"]
    return repeated_rows(x_names, x_kind, rows, cols, 100), repeated_rows(dy_names, dy_kind, rows, cols, 200)


class Digest:
    def __init__(self):
        self.value = 0xCBF29CE484222325

    def word(self, word):
        value = ((self.value ^ int(word)) * 0x100000001B3) & MASK
        self.value = value ^ (value >> 32)

    def array(self, array):
        data = np.ascontiguousarray(array).tobytes()
        for word in np.frombuffer(data + bytes(-len(data) % 8), dtype=np.uint64).tolist():
            self.word(word)
        self.word(len(data))


def digest_of(*arrays):
    digest = Digest()
    for array in arrays:
        digest.array(array)
    return digest.value


def joined(digests):
    digest = Digest()
    for value in digests:
        digest.word(value)
    return f"{digest.value:016x}"
