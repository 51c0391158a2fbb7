"""evenorm.jax: the bits of the NumPy functions under JAX's transformations, and the modules for Flax."""

import contextlib
import doctest
import functools
import importlib
import inspect
import os
import subprocess
import sys

import numpy as np
import pytest

import evenorm
from numpy_inputs import DTYPES, all_same_bits, bias, normal, same_bits, weight

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("flax", reason="Flax is not installed")
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import evenorm.jax  # noqa: E402
import evenorm.jax.linen  # noqa: E402
import evenorm.jax.nnx  # noqa: E402

linen = importlib.import_module("flax.linen")
nnx = importlib.import_module("flax.nnx")
NORMS = ("layer_norm", "rms_norm")
MODULES = ("LayerNorm", "RMSNorm")
SHAPES = [(), (5,), (0,), (2, 3)]  # of the axes before the normalised ones


@contextlib.contextmanager
def x64(enabled):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", enabled)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(autouse=True)
def with_x64():
    with x64(True):
        yield


def backward(name, dy, x, *arguments, **options):
    """NumPy's gradients, in the types of the arrays that they belong to: (dx, dweight, dbias)."""
    if name == "layer_norm":
        return evenorm.layer_norm_backward(dy, x, *arguments, **options)
    dbias = evenorm.layer_norm_backward(dy, x, *arguments, **options)[2]  # the sum of dy over rows
    return (*evenorm.rms_norm_backward(dy, x, *arguments, **options), dbias)


def gradients(function, dy, *arrays):
    return jax.vjp(function, *arrays)[1](jnp.asarray(dy))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("parameters", ["f64", "f32", "bf16", "f16", None])
@pytest.mark.parametrize("dtype", DTYPES)
def test_types(dtype, parameters, name):
    x, dy = normal(dtype, 5, 70), normal(dtype, 5, 70, seed=4)
    w, b = (weight(parameters, 70), bias(parameters, 70)) if parameters else (None, None)
    norm = functools.partial(getattr(evenorm.jax, name), normalized_shape=70)
    expected = getattr(evenorm, name)(x, 70, w, bias=b)
    assert same_bits(norm(x, weight=w, bias=b), expected)
    if parameters is None:
        assert same_bits(gradients(norm, dy, x)[0], backward(name, dy, x, 70)[0])
        return
    found = jax.jit(functools.partial(gradients, lambda x, w, b: norm(x, weight=w, bias=b)))(dy, x, w, b)
    assert all_same_bits(found, backward(name, dy, x, 70, w, param_dtype=DTYPES[parameters]))


@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("cols", [1, 7, 1500])
@pytest.mark.parametrize("outer", SHAPES)
def test_shapes(outer, cols, has_bias, has_weight):
    x, dy = normal("f32", *outer, cols), normal("f32", *outer, cols, seed=4)
    given = {"weight": weight("f32", cols)} if has_weight else {}
    given |= {"bias": bias("f32", cols)} if has_bias else {}
    norm = jax.jit(lambda x, given: evenorm.jax.layer_norm(x, cols, eps=1e-3, **given))
    assert same_bits(norm(x, given), evenorm.layer_norm(x, cols, eps=1e-3, **given))
    dx, sums = gradients(norm, dy, x, given)
    expected = backward("layer_norm", dy, x, cols, given.get("weight"), eps=1e-3)
    names = ["weight"] * has_weight + ["bias"] * has_bias
    assert same_bits(dx, expected[0])
    assert all_same_bits([sums[n] for n in names], [expected[{"weight": 1, "bias": 2}[n]] for n in names])


@pytest.mark.parametrize("axis", [0, -2, (0, 2), (2, 1)])
@pytest.mark.parametrize("name", NORMS)
def test_axis_and_options(name, axis):
    x, dy = normal("f32", 4, 5, 6), normal("f64", 4, 5, 6, seed=4)
    shape = [4, 5, 6] if axis == 3 else [x.shape[a] for a in sorted(np.arange(3)[np.atleast_1d(axis)])]
    w = weight("f32", *shape)
    options = {"axis": axis, "eps": 0.25, "zero_centered": True}
    y = np.empty(x.shape)
    getattr(evenorm, name)(x, weight=w, out=y, **options)
    norm = functools.partial(getattr(evenorm.jax, name), **options, dtype=np.float64)
    assert same_bits(norm(x, weight=w), y)
    found = gradients(lambda x, w: norm(x, weight=w), dy, x, w)
    assert all_same_bits(found, backward(name, dy, x, weight=w, param_dtype=np.float32, **options)[:2])


def test_rows_with_a_large_mean():
    x = (1e6 + np.random.default_rng(1).standard_normal((64, 768))).astype(np.float32)
    exact = x.astype(np.float64) - x.mean(-1, dtype=np.float64, keepdims=True)
    exact /= np.sqrt(np.square(exact).mean(-1, keepdims=True) + 1e-6)
    found = jax.jit(lambda x: evenorm.jax.layer_norm(x, 768, eps=1e-6))(x)
    flax = jax.jit(linen.LayerNorm(use_bias=False, use_scale=False).apply)({}, x)
    limit = 4.1 * 2.0**-24 * np.abs(exact).max(-1, keepdims=True)
    assert (np.abs(found - exact) <= limit).all()
    assert np.abs(flax - exact).max() > 0.5


# --- vmap: each sample has the bits that it has alone

BATCHES = [(0, None, None), (1, None, None), (None, 0, None), (0, 1, None), (0, None, 0), (2, 0, 0), (None, None, 0)]


def batched(axes, samples, *shapes):
    """Arrays of these shapes, each with a batch axis where axes names one; and a function that returns sample i."""
    arrays = [normal("f32", *shape, seed=i) for i, shape in enumerate(shapes)]
    inputs = [
        a if axis is None else np.stack([a + np.float32(i) for i in range(samples)], axis)
        for a, axis in zip(arrays, axes, strict=True)
    ]
    return inputs, lambda i: [a if x is None else np.take(a, i, x) for a, x in zip(inputs, axes, strict=True)]


@pytest.mark.parametrize("axes", BATCHES)
@pytest.mark.parametrize("samples", [1, 3])
def test_vmap(samples, axes):
    inputs, sample = batched(axes, samples, (4, 9), (9,), (9,))
    norm = lambda x, w, b: evenorm.jax.layer_norm(x, 9, w, b)  # noqa: E731
    found = jax.jit(jax.vmap(norm, axes))(*inputs)
    assert same_bits(found, np.stack([evenorm.layer_norm(*sample(i)[:1], 9, *sample(i)[1:]) for i in range(samples)]))


@pytest.mark.parametrize("axes", BATCHES)
@pytest.mark.parametrize("dy_axis", [None, 0])
def test_gradients_under_vmap(dy_axis, axes):
    inputs, sample = batched((*axes, dy_axis), 3, (4, 9), (9,), (9,), (4, 9))
    norm = lambda x, w, b: evenorm.jax.layer_norm(x, 9, w, b)  # noqa: E731
    found = jax.vmap(lambda *a: gradients(norm, a[3], *a[:3]), (*axes, dy_axis))(*inputs)
    for i in range(3):
        x, w, _, dy = sample(i)
        assert all_same_bits([g[i] for g in found], evenorm.layer_norm_backward(dy, x, 9, w))


def test_nested_vmap():
    x, w, b = normal("f32", 2, 4, 3, 9), weight("f32", 3, 9), bias("f32", 2, 9)
    norm = lambda x, w, b: evenorm.jax.layer_norm(x, 9, w, b)  # noqa: E731
    per_sample = lambda x, w, b: (norm(x, w, b), *gradients(norm, jnp.ones_like(x), x, w, b))  # noqa: E731
    inner = jax.vmap(per_sample, (1, 0, None))
    found = jax.vmap(inner, (0, None, 0))(x, w, b)
    for i, j in np.ndindex(2, 3):
        row = np.ascontiguousarray(x[i, :, j])
        expected = [
            evenorm.layer_norm(row, 9, w[j], b[i]),
            *evenorm.layer_norm_backward(np.ones_like(row), row, 9, w[j]),
        ]
        assert all_same_bits([part[i, j] for part in found], expected)


def test_vmap_of_an_empty_batch_and_of_rows_alone():
    norm = functools.partial(evenorm.jax.rms_norm, normalized_shape=9)
    weights = functools.partial(norm, weight=jnp.ones(9, "f"))
    assert [jax.vmap(f)(jnp.ones((0, 4, 9), "f")).shape for f in (norm, weights)] == [(0, 4, 9)] * 2
    x = normal("f32", 6, 9)
    assert same_bits(jax.vmap(norm)(x), evenorm.rms_norm(x, 9))
    row, tiled = x[0], np.tile(x[0], (6, 1))
    of_x = lambda x, dy: gradients(norm, dy, x)[0]  # noqa: E731
    assert same_bits(jax.vmap(of_x, (0, None))(x, row), evenorm.rms_norm_backward(tiled, x, 9)[0])
    assert same_bits(jax.vmap(of_x, (None, 0))(row, x), evenorm.rms_norm_backward(x, tiled, 9)[0])
    dw = jax.vmap(lambda x, w: jax.grad(lambda w: norm(x, weight=w).sum())(w), (0, None))
    assert dw(jnp.ones((0, 4, 9), "f"), jnp.ones(9, "f")).shape == (0, 9)


def test_vmap_makes_one_call_and_copies_no_weight():
    norm = jax.vmap(lambda x, w: evenorm.jax.layer_norm(x, 9, w), (0, None))
    text = jax.jit(norm).lower(jnp.ones((3, 4, 9), "f"), jnp.ones(9, "f")).as_text()
    assert text.count("custom_call @evenorm_jax_forward") == 1 and "<1x9xf32>" in text
    assert "while" not in text and "<3x9xf32>" not in text


# --- forward mode and higher derivatives


@pytest.mark.parametrize(
    "rms,axes,names", [(0, [-1], ["weight", "bias"]), (1, [-3, -1], ["weight"]), (0, [-2], ["bias"])]
)
def test_derivatives(rms, axes, names):
    x, *given = normal("f64", 2, 2, 3), *(weight("f64", *(2, 2, 3)[axes[0] :: 2]) for _ in names)
    function = functools.partial(getattr(evenorm.jax, NORMS[rms]), axis=axes, eps=0.5)
    norm = lambda x, *arrays: function(x, **dict(zip(names, arrays, strict=True)))  # noqa: E731
    check = functools.partial(check_grads, order=2, modes=("fwd", "rev"))
    check(norm, (x, *given))
    check(jax.jit(lambda last: norm(x, *given[:-1], last)), given[-1:])
    check(jax.jit(jax.vmap(norm, (0, *(None for _ in names)))), (np.stack([x, x * x]), *given))
    check(jax.vmap(jax.grad(lambda w: jnp.sin(norm(x, *[w] * len(names))).sum())), (np.stack([given[0]] * 2),))
    check(jax.jit(jax.hessian(lambda *a: jnp.sin(norm(*a)).sum(), (0, 1))), (x, *given), order=1)


@pytest.mark.parametrize("mean", [0, 1e6])
def test_derivatives_in_float32(mean):
    arrays = normal("f32", 8, 768) + np.float32(mean), normal("f32", 8, 768, seed=4)
    norm = lambda x: evenorm.jax.layer_norm(x, 768)  # noqa: E731
    gradient = jax.grad(lambda x: (norm(x) ** 3).sum())
    both = lambda x, v: [jax.jvp(f, [x], [v])[1] for f in (norm, gradient)]  # noqa: E731
    expected = jax.jit(both)(*(a.astype(np.float64) for a in arrays))
    with x64(False):
        for found, exact in zip(
            *(map(np.asarray, results) for results in (jax.jit(both)(*arrays), expected)), strict=True
        ):
            assert found.dtype == np.float32 and np.abs(found - exact).max() < 1e-6 * np.abs(exact).max()


def test_tangents_keep_nan_and_need_no_promotion():
    x, weight = jnp.array([[np.nan, 1, 2, 3], [1, 2, 3, np.inf], [1, 2, 3, 4]], "float32"), jnp.ones(4, "float32")
    with jax.numpy_dtype_promotion("strict"):
        tangents = jax.jvp(lambda x: evenorm.jax.rms_norm(x, 4, weight), [x], [jnp.ones_like(x)])[1]
    assert np.isnan(tangents).all(1).tolist() == [True, True, False] and np.isfinite(tangents[2]).all()


@pytest.mark.parametrize("name", MODULES)
def test_hessians_of_modules(name):
    x, options = normal("f64", 3, 4), {"param_dtype": np.float64, "use_fast_variance": False}
    loss = lambda norm: lambda *arrays: jnp.sum(jnp.sin(norm(*arrays)) ** 3)  # noqa: E731
    ours, theirs = (getattr(module, name)(**options) for module in (evenorm.jax.linen, linen))
    variables = randomized(theirs.init(jax.random.key(0), x))
    jax.tree.map(agree, *(jax.hessian(loss(module.apply), (0, 1))(variables, x) for module in (ours, theirs)))
    ours, theirs = (getattr(module, name)(4, rngs=nnx.Rngs(0), **options) for module in (evenorm.jax.nnx, nnx))
    agree(jax.hessian(loss(ours))(x), jax.hessian(loss(theirs))(x))


# --- other transformations


def test_bits_on_the_threads_of_xla():
    x, dy, w = normal("f32", 4096, 768), normal("f32", 4096, 768, seed=4), weight("f32", 768)
    norm = lambda x, w: evenorm.jax.layer_norm(x, 768, w)  # noqa: E731
    assert same_bits(jax.jit(norm)(x, w), evenorm.layer_norm(x, 768, w))
    found = jax.jit(functools.partial(gradients, norm))(dy, x, w)
    assert all_same_bits(found, evenorm.layer_norm_backward(dy, x, 768, w)[:2])


def test_checkpoint_and_scan():
    x, w = normal("f32", 3, 5, 8), weight("f32", 8)
    step = jax.checkpoint(lambda total, x: (total + evenorm.jax.rms_norm(x, 8, w).sum(), None))
    found = jax.grad(lambda x: jax.lax.scan(step, jnp.float32(0), x)[0])(x)
    assert same_bits(found, evenorm.rms_norm_backward(np.ones_like(x), x, 8, w)[0])


def test_without_x64_numbers_are_float32():
    with x64(False):
        x = normal("f64", 3, 8)
        assert same_bits(evenorm.jax.layer_norm(x, 8), evenorm.layer_norm(x.astype(np.float32), 8))
        assert same_bits(evenorm.jax.rms_norm(x, 8, dtype=np.float64), evenorm.rms_norm(x.astype(np.float32), 8))


SHARDED = """
    import functools, jax, jax.numpy as jnp, numpy as np
    import evenorm, evenorm.jax
    from jax.sharding import AxisType, PartitionSpec as P

    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
    x, dy, w, b = (np.random.default_rng(i).standard_normal(s).astype("f") for i, s in enumerate([(256, 768)] * 2 + [768] * 2))
    norm = lambda x, w, b: evenorm.jax.layer_norm(x, 768, w, b)
    rows, whole = P("i"), P()
    y = evenorm.layer_norm(x, 768, w, b)
    dx, dw, db = evenorm.layer_norm_backward(dy, x, 768, w)
    for checked in (True, False):
        sharded = jax.jit(jax.shard_map(norm, mesh=mesh, in_specs=(rows, whole, whole), out_specs=rows, check_vma=checked))
        assert np.array_equal(sharded(x, w, b), y)
        found = jax.vjp(sharded, x, w, b)[1](jnp.asarray(dy))
        assert np.array_equal(found[0], dx)
        for sums, expected in zip(found[1:], (dw, db)):
            assert np.abs(sums - expected).max() < 1e-4 and sums.shape == (768,)
    # Gradients inside: dx needs no communication, and a shared weight's gradient is the sum over the devices.
    gradients = lambda x, w, b, dy: jax.vjp(norm, x, w, b)[1](dy)
    inside = jax.shard_map(gradients, mesh=mesh, in_specs=(rows, whole, whole, rows), out_specs=(rows, whole, whole))
    found = jax.jit(inside)(x, w, b, dy)
    assert np.array_equal(found[0], dx) and np.abs(found[1] - dw).max() < 1e-4
    of_x = lambda x, w, b, dy: (norm(x, w, b), jax.vjp(lambda x: norm(x, w, b), x)[1](dy)[0])
    alone = jax.shard_map(of_x, mesh=mesh, in_specs=(rows, whole, whole, rows), out_specs=(rows, rows))
    text = jax.jit(alone).lower(x, w, b, dy).compile().as_text()
    assert "evenorm_jax_backward" in text
    assert not any(name in text for name in ("all-reduce", "all-gather", "all-to-all", "collective-permute"))
"""


OVER_TWO_AXES = """
    import jax, jax.numpy as jnp, numpy as np
    import evenorm, evenorm.jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((2, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
    x, dy, w, b = (np.random.default_rng(i).standard_normal(s).astype("f") for i, s in enumerate([(8, 4, 24)] * 2 + [24] * 2))
    norm = lambda x, w, b: evenorm.jax.layer_norm(x, 24, w, b)
    second = lambda f: jax.jit(lambda *a: jax.jvp(jax.grad(lambda *a: jnp.sum(f(*a) ** 2 * dy), (0, 1, 2)), a, a)[1])
    expected = evenorm.layer_norm(x, 24, w, b), *evenorm.layer_norm_backward(dy, x, 24, w), *second(norm)(x, w, b)
    cases = [(norm, P("i")), (norm, P(None, "i")), (norm, P("i", None, "j"))]  # without shard_map, no sum is split
    for axes, spec in [("i", P("i")), ("j", P(None, "j")), ("ij", P("i", "j"))]:
        for checked in (True, False):
            sharded = jax.shard_map(norm, mesh=mesh, in_specs=(spec, P(), P()), out_specs=spec, axis_names=set(axes),
                                    check_vma=checked)
            cases += [(sharded, P()), (sharded, P("i", None, "j"))]
    for function, spec in cases:
        arrays = jax.device_put(x, NamedSharding(mesh, spec)), w, b
        first = jax.jit(lambda dy, *a: jax.vjp(function, *a)[1](dy))(dy, *arrays)
        found = jax.jit(function)(*arrays), *first, *second(function)(*arrays)
        for i, (ours, right) in enumerate(zip(found, expected)):
            limit = 0 if i < (4 if function is norm else 2) else 1e-4
            assert ours.shape == right.shape and np.abs(ours - right).max() <= limit, (spec, i)
"""


def run_program(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code)], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program,devices", [(SHARDED, 2), (OVER_TWO_AXES, 4)])
def test_shard_map(program, devices):
    run_program(program, XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}", JAX_PLATFORMS="cpu")


def exported(function, *shapes):
    checks = [export.DisabledSafetyCheck.custom_call(f"evenorm_jax_{name}") for name in ("forward", "backward")]
    scope = export.SymbolicScope()
    arrays = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32) for shape in shapes]
    return export.export(jax.jit(function), disabled_checks=checks)(*arrays)


def test_export_for_open_sizes():
    norm = lambda x, w: evenorm.jax.layer_norm(x, x.shape[1:], w)  # noqa: E731
    both = lambda x, w: (norm(x, w), *gradients(norm, jnp.ones_like(x), x, w))  # noqa: E731
    forms = [exported(both, "b, 8", "8"), exported(both, "b, t", "t"), exported(both, "2 * b, b", "b")]
    for form, shape in [(0, (2, 8)), (0, (5, 8)), (1, (3, 7)), (2, (6, 3))]:
        x, w = normal("f32", *shape), weight("f32", shape[1])
        expected = evenorm.layer_norm(x, shape[1], w), *evenorm.layer_norm_backward(np.ones_like(x), x, shape[1], w)[:2]
        assert all_same_bits(forms[form].call(x, w), expected)
    for sizes in ((2, 8), (3, 8)):  # no number stands for an open size
        with pytest.raises(ValueError, match="^x has shape .*, but it should end in normalized_shape"):
            exported(lambda x, n=sizes: evenorm.jax.layer_norm(x, n), "b, 8")


def test_a_serialized_export_needs_evenorm(tmp_path):
    pytest.importorskip("flatbuffers", reason="JAX serializes by flatbuffers")
    path = tmp_path / "norm"
    path.write_bytes(exported(lambda x: evenorm.jax.rms_norm(x, 8), "b, 8").serialize())
    run_program(f"""
        import jax.export, numpy as np
        exported = jax.export.deserialize(bytearray(open({str(path)!r}, "rb").read()))
        x = np.ones((3, 8), np.float32)
        try:
            exported.call(x)
        except Exception as error:
            assert "No FFI handler registered for evenorm_jax_forward" in str(error), error
        import evenorm.jax
        assert np.array_equal(exported.call(x), evenorm.rms_norm(x, 8))
    """)


# --- errors, and what is imported

X = np.ones((2, 3), np.float32)
WRONG = [
    {"x": X.astype(np.int32), "normalized_shape": 3},
    {"x": None, "normalized_shape": 3},
    {"x": X},
    {"x": X, "normalized_shape": 3, "axis": 1},
    {"x": X, "normalized_shape": 4},
    {"x": X, "normalized_shape": "3"},
    {"x": X, "axis": 2},
    {"x": X[:, :0], "normalized_shape": 0},
    {"x": X, "normalized_shape": 3, "weight": X[:, :2]},
    {"x": X, "normalized_shape": 3, "bias": X[0, :2]},
    {"x": X, "normalized_shape": 3, "weight": X[0].astype(bool)},
    {"x": X, "normalized_shape": 3, "eps": -1},
    {"x": X, "normalized_shape": 3, "eps": float("nan")},
    {"x": X, "normalized_shape": 3, "eps": "small"},
    {"x": X, "normalized_shape": 3, "zero_centered": True},
]


def test_parameters_that_are_broadcast_are_refused():
    with pytest.raises(ValueError, match="weight or bias has an axis that is not normalised"):
        jax.jit(lambda x: evenorm.jax.layer_norm(x, 3, X))(X)


@pytest.mark.parametrize("arguments", WRONG)
def test_errors_are_those_of_numpy_when_a_call_is_traced(arguments):
    with pytest.raises((TypeError, ValueError)) as expected:
        evenorm.layer_norm(**arguments)
    with pytest.raises(expected.type) as found:
        jax.eval_shape(lambda: evenorm.jax.layer_norm(**arguments))
    assert str(found.value) == str(expected.value)


def test_errors_of_what_only_jax_has():
    with pytest.raises(TypeError, match="dtype is int32, but it should be float64, float32, float16 or bfloat16"):
        evenorm.jax.layer_norm(X, 3, dtype=np.int32)
    with pytest.raises(TypeError, match="eps is of type .*Tracer, but it should be a number"):
        jax.jit(lambda eps: evenorm.jax.layer_norm(X, 3, eps=eps))(1e-5)
    immutable = jnp.zeros((2, 3), "f")
    with pytest.raises(ValueError, match="^out is read-only$"):
        evenorm.layer_norm(X, 3, out=immutable)
    assert not immutable.any()


def test_imports():
    run_program("""
        import sys
        import evenorm
        assert not {"jax", "jaxlib", "flax"} & set(sys.modules)
        import evenorm.jax
        assert "flax" not in sys.modules
    """)
    run_program("""
        import sys
        sys.modules["jax"] = None
        try:
            import evenorm.jax
        except ImportError as error:
            assert str(error) == "evenorm.jax needs JAX, which is not installed: pip install 'jax>=0.6.2'", error
        else:
            raise AssertionError("imported")
    """)


def test_a_build_without_the_handlers(monkeypatch):
    monkeypatch.setattr("pathlib.Path.exists", lambda path: False)
    with pytest.raises(ImportError, match="this build of evenorm has no evenorm.jax"):
        importlib.reload(evenorm.jax._calls)
    monkeypatch.setattr(jax, "__version_info__", (0, 6, 1))
    with pytest.raises(ImportError, match="needs JAX 0.6.2 or later, but this is JAX"):
        importlib.reload(evenorm.jax._calls)


@pytest.mark.parametrize("module", ["evenorm.jax._norms", "evenorm.jax.linen", "evenorm.jax.nnx"])
def test_examples_of_the_documentation(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted >= 4 and result.failed == 0


# --- Flax


def tolerance(dtype):
    return {2: 0.04, 4: 3e-5, 8: 1e-13}[np.dtype(dtype).itemsize]


def agree(found, flax):
    assert found.dtype == flax.dtype and found.shape == flax.shape
    wide = [np.asarray(y).astype(np.complex128) for y in (found, flax)]
    np.testing.assert_allclose(*wide, atol=tolerance(found.dtype), rtol=tolerance(found.dtype))


def shapes(tree):
    return [
        (jax.tree_util.keystr(path), a.shape, a.dtype.name) for path, a in jax.tree_util.tree_leaves_with_path(tree)
    ]


def randomized(tree):
    return jax.tree.map(lambda array: jnp.asarray(weight("f32", *array.shape), array.dtype), tree)


# The types of x, y (None: Flax's choice) and the parameters; the axes.
FLAX_CASES = [
    ("f32", None, "f32", {}),
    ("bf16", None, "f32", {}),
    ("f16", "f32", "bf16", {}),
    ("f32", "bf16", "f32", {}),
    ("f64", None, "f32", {"reduction_axes": (1, -1), "feature_axes": (2, 1)}),
    ("f32", None, "f32", {"reduction_axes": 1, "feature_axes": 1}),
    ("f32", None, "f32", {"reduction_axes": (1, 2)}),
]


def flax_case(x, y, parameters, axes):
    """x of shape (3, 5, 6), the number of features, and the options of a module."""
    features = {"(2, 1)": 30, "1": 5}.get(str(axes.get("feature_axes")), 6)
    options = {"dtype": DTYPES.get(y), "param_dtype": DTYPES[parameters], "use_fast_variance": False, **axes}
    return normal(x, 3, 5, 6), features, options


def without_parameters(name):
    return {"use_scale": False} | ({"use_bias": False} if name == "LayerNorm" else {})


@pytest.mark.parametrize("case", FLAX_CASES)
@pytest.mark.parametrize("name", MODULES)
def test_linen(name, case):
    x, _, options = flax_case(*case)
    theirs, ours = (getattr(module, name)(**options) for module in (linen, evenorm.jax.linen))
    variables = theirs.init(jax.random.key(0), x)
    assert shapes(ours.init(jax.random.key(0), x)) == shapes(variables)
    variables = randomized(variables)
    agree(ours.apply(variables, x), theirs.apply(variables, x))
    bare = without_parameters(name)
    agree(ours.clone(**bare).apply({}, x), theirs.clone(**bare).apply({}, x))


@pytest.mark.parametrize("case", FLAX_CASES)
@pytest.mark.parametrize("name", MODULES)
def test_nnx(name, case):
    x, features, options = flax_case(*case)
    theirs, ours = (getattr(m, name)(features, rngs=nnx.Rngs(0), **options) for m in (nnx, evenorm.jax.nnx))
    assert shapes(nnx.state(ours)) == shapes(nnx.state(theirs)) != []
    nnx.update(theirs, randomized(nnx.state(theirs)))
    nnx.update(ours, nnx.state(theirs))
    agree(ours(x), theirs(x))
    options |= without_parameters(name)
    theirs, ours = (getattr(m, name)(features, rngs=nnx.Rngs(0), **options) for m in (nnx, evenorm.jax.nnx))
    agree(ours(x), theirs(x))


@pytest.mark.parametrize("name", MODULES)
def test_which_calls_evenorm_computes(name, monkeypatch):
    calls = []
    function = {"LayerNorm": "layer_norm", "RMSNorm": "rms_norm"}[name]
    for module in (evenorm.jax.linen, evenorm.jax.nnx):
        original = getattr(evenorm.jax, function)
        monkeypatch.setattr(module, function, lambda *a, f=original, **k: calls.append(1) or f(*a, **k))
    x, mask = normal("f32", 4, 6), np.arange(6) < 4
    plain = getattr(evenorm.jax.linen, name)()
    variables = plain.init(jax.random.key(0), x)
    calls.clear()
    plain.apply(variables, x)
    getattr(evenorm.jax.nnx, name)(6, rngs=nnx.Rngs(0))(x)
    assert len(calls) == 2
    for module, make in [(linen, lambda m, **k: functools.partial(getattr(m, name)(**k).apply, variables)),
                         (nnx, lambda m, **k: getattr(m, name)(6, rngs=nnx.Rngs(0), **k))]:  # fmt: skip
        ours, theirs = getattr(evenorm.jax, module.__name__.split(".")[-1]), module
        agree(make(ours)(x, mask=mask), make(theirs)(x, mask=mask))
        over_devices = [jax.vmap(make(m, axis_name="i"), axis_name="i")(x.reshape(2, 2, 6)) for m in (ours, theirs)]
        agree(*over_devices)
        agree(make(ours, reduction_axes=(0, 1))(x), make(theirs, reduction_axes=(0, 1))(x))
        agree(make(ours)(x.astype(np.complex64)), make(theirs)(x.astype(np.complex64)))
        agree(make(ours, epsilon=-1e-5)(x), make(theirs, epsilon=-1e-5)(x))
        agree(*(jax.jit(lambda e, m=m: make(m, epsilon=e)(x))(1e-3) for m in (ours, theirs)))  # noqa: B023
    assert len(calls) == 2


def train(loss, parameters):
    step = jax.jit(lambda values: jax.tree.map(lambda p, g: p - 0.1 * g, values, jax.grad(loss)(values)))
    for _ in range(200):
        parameters = step(parameters)
    return parameters


class Model(linen.Module):
    norms: object = evenorm.jax.linen

    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Dense(16)(self.norms.LayerNorm()(x)))
        return linen.Dense(1)(self.norms.RMSNorm()(x))


def test_a_linen_model_trains_and_loads_a_checkpoint():
    serialization = importlib.import_module("flax.serialization")
    x = normal("f32", 64, 8)
    y = np.tanh(x[:, :1] - x[:, 1:2])
    theirs, ours = Model(linen), Model()
    variables = theirs.init(jax.random.key(0), x)
    loaded = serialization.from_bytes(ours.init(jax.random.key(1), x), serialization.to_bytes(variables))
    loss = lambda model, variables: jnp.mean((model.apply(variables, x) - y) ** 2)  # noqa: E731
    np.testing.assert_allclose(loss(ours, loaded), loss(theirs, variables), rtol=1e-5)
    first = loss(ours, loaded)
    trained = [train(functools.partial(loss, model), loaded) for model in (ours, theirs)]
    losses = [loss(ours, variables) for variables in trained]
    assert losses[0] < 0.2 * first
    np.testing.assert_allclose(*losses, rtol=0.01)
    scales = [trained[0]["params"][name]["scale"] for name in ("LayerNorm_0", "RMSNorm_0")]
    assert all((np.abs(scale - 1) > 1e-3).any() for scale in scales)


@pytest.mark.parametrize("name, function", [("LayerNorm", evenorm.layer_norm), ("RMSNorm", evenorm.rms_norm)])
def test_zero_centered_modules_train_in_bfloat16(name, function):
    """Steps of 1e-3 are less than half of bfloat16's spacing below 1."""
    x = normal("bf16", 64, 9)
    for zero in (False, True):
        options = {"param_dtype": jnp.bfloat16, "zero_centered": zero, "epsilon": 1e-5}
        norm = getattr(evenorm.jax.linen, name)(**options)
        module = getattr(evenorm.jax.nnx, name)(9, rngs=nnx.Rngs(0), **options)
        p = norm.init(jax.random.key(0), x)["params"]
        assert (p["scale"] == (not zero)).all() and (module.scale[...] == p["scale"]).all()
        loss = jax.grad(lambda p, norm=norm: (norm.apply({"params": p}, x).astype("float32") ** 3).sum())
        for _ in range(5):
            p = jax.tree.map(lambda p, g: p - (1e-3 * jnp.sign(g)).astype(p.dtype), p, loss(p))
        assert (p["scale"] != (not zero)).any() == zero
        nnx.update(module, p)
        scale, shift = (None if key not in p else np.asarray(p[key]) for key in ("scale", "bias"))
        for y in (module(x), norm.apply({"params": p}, x)):
            assert same_bits(y, function(x, 9, scale, bias=shift, eps=1e-5, zero_centered=zero))
    with pytest.raises(ValueError, match="Flax, which has no zero_centered, computes masks"):
        module(x, mask=x > 0)


def test_an_nnx_model_trains():
    class Small(nnx.Module):
        def __init__(self, rngs):
            self.norm, self.linear = evenorm.jax.nnx.LayerNorm(8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, x):
            return self.linear(self.norm(x))

    x = normal("f32", 64, 8)
    y = x[:, :1] - x[:, 1:2]
    graph, state = nnx.split(Small(nnx.Rngs(0)))
    loss = lambda state: jnp.mean((nnx.merge(graph, state)(x) - y) ** 2)  # noqa: E731
    trained = train(loss, state)
    assert loss(trained) < 0.2 * loss(state)
    assert (np.abs(nnx.merge(graph, trained).norm.scale[...] - 1) > 1e-3).any()
