"""convert() finds a norm however it is spelled, and keeps the function of a chain that is almost a norm."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from numpy_inputs import one_of

onnxruntime = pytest.importorskip("onnxruntime")
import evenorm.onnx  # noqa: E402

TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "f64": TensorProto.DOUBLE}
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "f64": 2.0**-53}
AXES_SINCE = {"Unsqueeze": 13, "ReduceSum": 13, "ReduceMean": 18, "ReduceMax": 18}  # opsets with axes as an input
LARGER = -1  # an axis that is larger than x's
NEAR_LAYER = ["other mean", "eps in mean", "squared mean", "x divided"]
NEAR = [*NEAR_LAYER, "abs", "clamped centred", "clamped variance", "clamped x", "computed eps", "eps of columns",
        "eps outside", "inner output", "integers", "larger weight", "max", "n - 1", "other length", "other power",
        "other variance", "used twice", "weight inside", "x added"]  # fmt: skip


def reduce(function):
    return lambda x, axes=None, keepdims=1: function(x, tuple(axes), keepdims=bool(keepdims))


OPERATORS = {
    **{name: getattr(np, name.lower()) for name in ("Abs", "Add", "Clip", "Reciprocal", "Reshape", "Shape", "Sqrt")},
    "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract, "Pow": np.power, "Max": np.maximum,
    "Cast": lambda x, to: np.trunc(x) if to == TensorProto.INT32 else np.array(x), "Gather": lambda x, i: np.array(x[i]),
    "ReduceMean": reduce(np.mean), "ReduceSum": reduce(np.sum), "ReduceMax": reduce(np.max),
    "Unsqueeze": lambda x, axes=None: np.expand_dims(x, tuple(axes)),
}  # fmt: skip


class Chain:
    """A graph that computes a norm, or almost one if `near` is given."""

    def __init__(self, seed, near):
        self.rng = rng = np.random.default_rng(seed)
        self.outer, self.near, rank = one_of(rng, ["f32", "f32", "f16", "f64"]), near, int(rng.integers(2, 5))
        oldest = 2 if self.outer == "f16" else 1 if near else 0  # f16 needs opset 15, and Clip of f64 opset 12
        self.opset, self.type = one_of(rng, [11, 13, 17, 18, 21][oldest:]), self.outer
        self.known, fixed, last = one_of(rng, ["sizes", "names", "nothing"]), rng.random() < 0.7, rank - 1
        self.all, self.rows = range(rank), one_of(rng, [[last], [last], [last - 1, last], [1]])
        self.rows = [last] if self.known == "nothing" and self.rows == [1] else self.rows
        self.free = [] if self.known == "sizes" else [a for a in self.all if not fixed or a not in self.rows]
        few = 2 if len(self.rows) > 1 else 4
        sizes = [few, 2 * few] if self.outer == "f16" else range(few, 4 * few)  # 1 / n has to be exact in f16
        self.sizes = {a: int(one_of(rng, sizes)) if a in self.rows else 3 for a in self.all} | {None: 1, LARGER: 5}
        self.sizes |= {0: 1} if near == "larger weight" and 0 not in self.rows else {}
        self.nodes, self.constants, self.tensors, self.inputs, self.outputs = [], {}, ([], []), {}, []
        self.build()

    def __getattr__(self, op):
        return lambda *inputs, **attributes: self.add(op, *inputs, **attributes)

    def add(self, op, *inputs, **attributes):
        inputs = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        if op in ("Add", "Mul", "Max") and self.coin():
            inputs.reverse()
        self.nodes.append((op, inputs, attributes))
        return f"v{len(self.nodes) - 1}"

    def coin(self, chance=0.5):
        return bool(self.rng.random() < chance)

    def constant(self, value, dtype=None):
        array, name = np.asarray(value), f"c{len(self.constants)}"
        number = TensorProto.INT64 if array.dtype.kind == "i" else TYPES[dtype or self.type]
        tensor = helper.make_tensor(name, number, array.shape, array.flatten())
        is_exact = (
            array.size == 1 and number != TensorProto.FLOAT16
        )  # a scalar such as 1 / n stands for its exact value
        array = array if is_exact else numpy_helper.to_array(tensor)
        self.constants[name] = array if array.dtype.kind == "i" else array.astype(np.float64)
        self.tensors[self.coin()].append(tensor)
        return name

    def cast(self, x, dtype):
        return self.Cast(x, to=TYPES[dtype])

    def over(self, op, x, axes, **attributes):
        if self.opset < AXES_SINCE[op]:
            return self.add(op, x, axes=axes, **attributes)
        return self.add(op, x, np.array(axes), **attributes)

    def reduce(self, op, x, axes):
        # onnx.reference computes Unsqueeze of several negative axes wrongly before opset 13.
        if self.coin(0.7) or (self.opset < 13 and len(axes) > 1):
            return self.over(op, x, axes, keepdims=1)
        return self.over("Unsqueeze", self.over(op, x, axes, keepdims=0), axes)

    def mean(self, x, axes, n, may_round):
        """n: what to divide by; None: the model computes it. may_round: 1 / n may be a constant, which is rounded."""
        if self.coin(0.4):
            return self.reduce("ReduceMean", x, axes)
        total = self.reduce("ReduceSum", x, axes)
        if n is not None:
            return self.Mul(total, 1 / n) if may_round and self.coin() else self.Div(total, float(n))
        sizes = [self.Gather(self.Shape(x), axis) for axis in axes]
        return self.Div(total, self.cast(sizes[0] if len(sizes) == 1 else self.Mul(*sizes), self.type))

    def input(self, axes, dtype=None):
        """A model's input with the sizes of these axes of x; None: 1."""
        self.inputs[f"in{len(self.inputs)}"] = axes, dtype or self.type
        return f"in{len(self.inputs) - 1}"

    def parameter(self, dtype, per_sample=False):
        """A weight or bias; None: absent."""
        source = one_of(self.rng, [None, "constant", "constant", "input", "computed"])
        row = [a if a in self.rows else None for a in self.all[self.rows[0] :]]
        sample = [a if a in (0, *self.rows) else None for a in self.all]
        axes = one_of(self.rng, [[], [None], row, row, sample if per_sample and self.known != "nothing" else row])
        if source == "constant" and axes == row and not set(row) & set(self.free):
            return self.constant(self.rng.standard_normal([self.sizes[a] for a in axes]), dtype)
        name = self.input(axes, dtype) if source else None
        return self.Add(name, self.constant(1.0, dtype)) if source == "computed" else name

    def clamped(self, x, low=-1.0):
        bound = 10.0 ** self.rng.uniform(-1, 4)
        return self.Clip(x, low * bound, bound)

    def build(self):
        near, rows = self.near, self.rows
        x = self.input(self.all)
        if self.coin(0.3):
            x = self.Add(x, self.input(self.all))
            self.outputs += [x] if self.coin() else []
        x = self.Reshape(x, self.Shape(x)) if self.known == "nothing" else x  # ONNX does not infer its number of axes
        if self.outer == "f16" and self.coin(0.7):
            x, self.type = self.cast(x, "f32"), "f32"
        start, core, exact = x, self.type, self.known != "nothing" and not set(rows) & set(self.free)
        axes = [a - len(self.all) for a in rows] if self.known == "nothing" or self.coin() else rows
        others = [0] if 0 not in rows else [-1]
        n = int(np.prod([self.sizes[a] for a in rows])) if exact else None
        n = (n or 7) + 1 if near == "other length" else n
        layer, form = (
            near in NEAR_LAYER or self.coin(0.6),
            one_of(self.rng, ["divided", "product", "folded", "shifted"]),
        )
        form = "folded" if form == "shifted" and (near or not layer) else form
        by_squares = layer and core == "f32" and not near and self.coin(0.3)

        x = self.clamped(x) if near == "clamped x" else x
        mean = self.mean(x, others if near == "other mean" else axes, n, not by_squares) if layer else None
        mean = self.Add(mean, 0.01) if near == "eps in mean" else mean
        centred = self.Sub(x, mean) if layer and not (by_squares and form == "shifted") else x
        centred = self.Mul(centred, self.parameter(core) or 2.0) if near == "weight inside" else centred
        inner = self.clamped(centred) if near == "clamped centred" else x if by_squares else centred
        inner = self.cast(self.Cast(inner, to=TensorProto.INT32), core) if near == "integers" else inner
        square = self.Abs(inner) if near == "abs" else self.Mul(inner, inner) if self.coin() else self.Pow(inner, 2.0)
        over = others if near == "other variance" else axes
        var = self.reduce("ReduceMax", square, axes) if near == "max" else self.mean(square, over, n, not by_squares)
        var = self.Sub(var, self.Mul(mean, mean)) if by_squares else var
        var = self.Max(var, 0.0) if by_squares and self.coin() else var
        var = self.Mul(var, n / (n - 1) if n else 1.25) if near == "n - 1" else var
        var = self.Add(var, self.Mul(self.Mul(mean, mean), 0.001)) if near == "squared mean" else var
        self.eps = float(np.float32(one_of(self.rng, [1e-3, 1e-5] if core == "f16" else [1e-2, 1e-5, 1e-6, 1e-12])))
        eps = self.Abs(self.input([])) if near == "computed eps" else self.eps
        if near == "eps of columns":
            shape = [self.sizes[a] if exact and a in rows else 1 for a in self.all[rows[0] :]]
            eps = np.linspace(self.eps, 1, int(np.prod(shape))).reshape(shape)
        var = var if near == "eps outside" else self.Add(var, eps)
        var = self.clamped(var, 0.0) if near == "clamped variance" else var

        power, inverse = (
            0.45 if near == "other power" else 0.5,
            form != "divided" and near != "eps outside" and self.coin(),
        )
        plain = power == 0.5 and not inverse and self.coin()
        root = self.Sqrt(var) if plain else self.Pow(var, -power if inverse else power)
        root = self.Add(root, eps) if near == "eps outside" else root
        after = form in ("divided", "product")  # weight and bias
        last = self.outer if after and self.coin() else core  # their type
        weight, bias = self.parameter(last, after), self.parameter(last, after) if layer else None
        if near == "larger weight" and 0 not in rows:
            weight = self.input([LARGER, *(a if a in rows else None for a in self.all[1:])], last)
        if form != "divided":
            root = root if inverse else self.Reciprocal(root) if self.coin() else self.Div(1.0, root)
            root, weight = (self.Mul(root, weight), None) if form != "product" and weight else (root, weight)
        shown = start if near == "x divided" else x if form == "shifted" else centred
        y = self.Div(shown, root) if form == "divided" else self.Mul(shown, root)
        if form == "shifted":
            shift = self.Mul(mean, root)
            y, bias = (self.Add(y, self.Sub(bias, shift)) if bias else self.Sub(y, shift)), None
        y = self.cast(y, last) if last != core else y
        y = self.Mul(y, weight) if weight else y
        y = self.Add(y, bias) if bias else y
        inner = one_of(self.rng, [centred, var, root])
        if last == core:
            y = self.Add(y, self.Mul(inner, 0.5)) if near == "used twice" else y
            y = self.Add(y, self.Mul(start, 0.01)) if near == "x added" else y
        self.outputs += [inner] if near == "inner output" and core == self.outer and inner != start else []
        self.outputs.append(self.cast(y, self.outer) if last != self.outer else y)

    def model(self):
        value = lambda name, dtype, shape: helper.make_tensor_value_info(name, TYPES[dtype], shape)  # noqa: E731
        shape = lambda axes: [f"d{a}" if a in self.free else self.sizes[a] for a in axes]  # noqa: E731
        inputs = [value(name, dtype, shape(axes)) for name, (axes, dtype) in self.inputs.items()]
        outputs = [value(one, self.outer, [f"{one}_{a}" for a in self.all]) for one in self.outputs]
        nodes = [helper.make_node("Constant", [], [one.name], value=one) for one in self.tensors[1]]
        nodes += [helper.make_node(op, names, [f"v{i}"], **rest) for i, (op, names, rest) in enumerate(self.nodes)]
        graph = helper.make_graph(nodes, "chain", inputs, outputs, self.tensors[0])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def feeds(self):
        """Inputs of several sizes and magnitudes."""
        for mean, scale in [(0, 1), (3, 1), (-200, 100), (0, 0.01), (30, 0.1), (0, 5e3), (0, self.eps**0.5)]:
            free = {a: int(self.rng.integers(4, 9) if a in self.rows else self.rng.integers(1, 4)) for a in self.free}
            sizes = self.sizes | free | ({0: 1} if self.sizes[0] == 1 else {})
            feeds = {}
            for name, (axes, dtype) in self.inputs.items():
                array = self.rng.standard_normal([sizes[a] for a in axes])
                array = mean + scale * array if axes is self.all else array
                feeds[name] = array.astype(helper.tensor_dtype_to_np_dtype(TYPES[dtype]))
            yield feeds

    def evaluate(self, feeds, noise=0.0):
        """All values in float64. noise: relative, of the inputs."""
        random = np.random.default_rng(1)
        noisy = {name: a * (1 + noise * random.uniform(-1, 1, a.shape)) for name, a in feeds.items()}
        values = self.constants | noisy
        with np.errstate(all="ignore"):
            for i, (op, names, attributes) in enumerate(self.nodes):
                values[f"v{i}"] = OPERATORS[op](*[values[name] for name in names], **attributes)
        return values


def options(level):
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads, made.graph_optimization_level = 1, level
    return made


def check(seed):
    near = NEAR[seed // 2 % len(NEAR)] if seed % 2 else ""
    chain = Chain(seed, near)
    model = chain.model()
    conversion = evenorm.onnx.convert(model)
    onnx.checker.check_model(conversion.model, full_check=True)
    assert near or len(conversion.replaced) == 1, conversion
    levels = onnxruntime.GraphOptimizationLevel
    # ONNX Runtime's fusions change the function of some originals, or fail.
    level = levels.ORT_DISABLE_ALL if near or seed % 3 else levels.ORT_ENABLE_ALL
    original = onnxruntime.InferenceSession(model.SerializeToString(), options(levels.ORT_DISABLE_ALL))
    alone = onnxruntime.InferenceSession(conversion.model.SerializeToString(), options(level))
    with_library = evenorm.onnx.session(conversion.model, options(level))
    # A part of a chain in float64 may be a norm whose epsilon is no float32.
    u = ROUNDING["f32" if near and chain.outer == "f64" else chain.outer]
    for feeds in chain.feeds():
        exact, noisy, old = chain.evaluate(feeds), chain.evaluate(feeds, 4 * u), original.run(None, feeds)
        for session in (alone, with_library):
            for name, y, other in zip(chain.outputs, session.run(None, feeds), old, strict=True):
                error = np.abs(y - exact[name])
                tolerance = 16 * u * np.abs(exact[name]).max() + 4 * np.abs(noisy[name] - exact[name]).max()
                if near:  # what is left may be inexact, or overflow
                    tolerance += 4 * np.abs(other - exact[name]).max()
                    error = np.where((y == other) | (np.isnan(y) & np.isnan(other)), 0, error)
                assert y.dtype == other.dtype and y.shape == exact[name].shape == other.shape
                assert np.all(error <= tolerance), (conversion, session is alone, error.max(), tolerance)


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_random_chains(first):
    for seed in range(first, first + 25):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(200, 2200, 100))
def test_more_random_chains(first):
    for seed in range(first, first + 100):
        check(seed)
