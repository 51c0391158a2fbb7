"""Results that NumPy computes here pass verify(); the same results with an error of a few units do not."""

import numpy as np
import pytest
from points import Point
from problem import EPS, UNIT, Inputs, Outputs, narrow, widen
from verify import Wrong, verify

FORMS = ["forward", "residual", "int8", "channels-first", "backward", "backward-anew"]


def point_of(form, kind="layer", dtype="f32", data="normal"):
    pixels = 6 if form == "channels-first" else 0
    return Point(form, kind, dtype, 12, 96, pixels, data)


def matrix(inputs, values):
    return np.stack([inputs.row(values, i) for i in range(inputs.point.rows)])


def put(inputs, array, values):
    point = inputs.point
    if point.pixels:
        values = values.reshape(-1, point.pixels, point.cols).transpose(0, 2, 1)
    array[:] = np.ascontiguousarray(values).ravel()


def solved(point, off=0.0):
    """Inputs, and right outputs with an error of `off` units in the last place."""
    inputs = Inputs(point, 1)
    outputs = Outputs(point, inputs.parameters)
    x = widen(matrix(inputs, inputs.x), point.dtype)
    if point.form == "residual":
        outputs.sum[:] = narrow((x + widen(matrix(inputs, inputs.residual), point.dtype)).ravel(), point.dtype)
        x = widen(matrix(inputs, outputs.sum), point.dtype)
    mean = x.mean(axis=1, keepdims=True) if point.kind == "layer" else 0
    rstd = 1 / np.sqrt(np.square(x - mean).mean(axis=1, keepdims=True) + EPS)
    xhat, gamma = (x - mean) * rstd, widen(inputs.weight, inputs.parameters)
    error = off * UNIT[point.dtype]
    if point.gradients:
        dy = widen(matrix(inputs, inputs.dy), point.dtype)
        g = dy * gamma
        k1 = g.mean(axis=1, keepdims=True) if point.kind == "layer" else 0
        dx = rstd * (g - k1 - xhat * (g * xhat).mean(axis=1, keepdims=True))
        put(inputs, outputs.dx, narrow(dx + error * rstd, point.dtype))
        outputs.dweight[:] = (dy * xhat).sum(axis=0) + error * np.abs(dy * xhat).sum(axis=0)
        if outputs.dbias is not None:
            outputs.dbias[:] = dy.sum(axis=0)
        return inputs, outputs
    y = xhat * gamma + (0 if inputs.bias is None else widen(inputs.bias, inputs.parameters))
    if point.form == "int8":
        largest = np.abs(y).max(axis=1, keepdims=True)
        outputs.scale[:] = largest.ravel() / 127
        put(inputs, outputs.y, (np.rint(y * 127 / largest) + (off > 0)).clip(-127, 127))
        return inputs, outputs
    scale = np.abs(gamma) * np.abs(xhat).max(axis=1, keepdims=True)
    put(inputs, outputs.y, narrow(y + error * scale, point.dtype))
    return inputs, outputs


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
@pytest.mark.parametrize("form", FORMS)
def test_right_results_pass(form, dtype):
    verify("evenorm", *solved(point_of(form, dtype=dtype)))


@pytest.mark.parametrize("form", FORMS)
def test_an_error_of_a_few_units_fails(form):
    with pytest.raises(Wrong, match=f"evenorm, {form} layer f32"):
        verify("evenorm", *solved(point_of(form), off=12.0))


@pytest.mark.parametrize("form", ["forward", "backward"])
def test_other_libraries_have_wider_limits(form):
    verify("onednn", *solved(point_of(form), off=4.0))
    with pytest.raises(Wrong):
        verify("onednn", *solved(point_of(form), off=400.0))


@pytest.mark.parametrize("data", ["far3", "far1e6"])
def test_evenorm_must_keep_its_contract_with_a_large_mean(data):
    verify("evenorm", *solved(point_of("forward", data=data)))
    with pytest.raises(Wrong):
        verify("evenorm", *solved(point_of("forward", data=data), off=12.0))


def test_rms_norm():
    verify("evenorm", *solved(point_of("forward", kind="rms")))
    verify("evenorm", *solved(point_of("backward", kind="rms")))
    with pytest.raises(Wrong):
        verify("evenorm", *solved(point_of("forward", kind="rms"), off=12.0))


def test_a_nan_fails():
    inputs, outputs = solved(point_of("forward"))
    outputs.y[0] = np.nan
    with pytest.raises(Wrong):
        verify("onednn", inputs, outputs)


@pytest.mark.parametrize("name", ["dweight", "dbias"])
def test_sums_over_rows_are_checked(name):
    inputs, outputs = solved(point_of("backward"))
    getattr(outputs, name)[7] *= 1.001
    with pytest.raises(Wrong, match=name):
        verify("onednn", inputs, outputs)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("data", ["normal", "far3", "far1e6"])
def test_zeros_wrong_factors_and_wrong_shifts_fail_for_all_data(dtype, data):
    if (dtype, data) == ("bf16", "far1e6"):
        pytest.skip("all elements of a row are equal in bf16")
    for spoil in (lambda y: y * 0, lambda y: y * 1.1, lambda y: y + 0.5):
        inputs, outputs = solved(point_of("forward", dtype=dtype, data=data))
        outputs.y[:] = narrow(spoil(widen(outputs.y, dtype)), dtype)
        with pytest.raises(Wrong):
            verify("onednn", inputs, outputs)


@pytest.mark.parametrize("name", ["dweight", "dbias"])
@pytest.mark.parametrize("factor", [0.0, -1.0, 0.5])
def test_sums_of_16_bit_gradients_are_checked(name, factor):
    inputs, outputs = solved(point_of("backward", dtype="bf16"))
    getattr(outputs, name)[:] *= factor
    for rival in ("onednn", "torch"):
        with pytest.raises(Wrong, match=name):
            verify(rival, inputs, outputs)


def test_scales_of_int8_are_checked():
    inputs, outputs = solved(point_of("int8"))
    outputs.scale[0] = np.nan
    with pytest.raises(Wrong, match="scale"):
        verify("evenorm", inputs, outputs)
