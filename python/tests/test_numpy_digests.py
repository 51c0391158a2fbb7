"""The bits are those of the library's tables, tests/vectors/digests.json, which every target and front end gives."""

import json
import pathlib
import re

import numpy as np
import pytest

import evenorm
import numpy_inputs as inputs

TABLE = json.loads((pathlib.Path(__file__).parents[2] / "tests" / "vectors" / "digests.json").read_text())
FORWARD = re.compile(r"(layer|rms) (\w+?)(?:->(\w+))?(?: weight=(\w+)(\+1)?)?(?: bias=(\w+))? (\d+)")
GRADIENT = re.compile(FORWARD.pattern + r", dx=(\w+) dgamma=(\w+) dbeta=(\w+)( accumulated)?")


def test_the_table_is_of_this_revision():
    assert TABLE["numerics_revision"] == evenorm.numerics_revision()


def forward_digest(case):
    kind, x_kind, y_kind, weight, plus_one, bias, cols = FORWARD.fullmatch(case).groups()
    cols = int(cols)
    x = inputs.forward_rows(x_kind, cols)
    options = {
        "weight": None if weight is None else inputs.weight(weight, cols),
        "bias": None if bias is None else inputs.bias(bias, cols),
        "zero_centered": plus_one is not None,
        "out": np.empty(x.shape, inputs.DTYPES[y_kind or x_kind]),
        "return_stats": True,
        "eps": 1e-5,
    }
    function = evenorm.layer_norm if kind == "layer" else evenorm.rms_norm
    results = function(x, cols, **options)
    return inputs.joined([inputs.digest_of(*(result[r : r + 1] for result in results)) for r in range(len(x))])


# 65541 columns take a second each in Python: one of each kind is enough.
CASES = [case for case in TABLE["digests"] if not case.endswith(" 65541") or " f32 " in case]


@pytest.mark.parametrize("group", sorted({" ".join(case.split()[:2]) for case in CASES}))
def test_forward(group):
    cases = [case for case in CASES if case.startswith(group + " ")]
    assert {case: forward_digest(case) for case in cases} == {case: TABLE["digests"][case] for case in cases}


def gradients_digest(case):
    rows, case = case.split(" x ")
    kind, x_kind, dy_kind, weight, plus_one, _, cols, dx, dweight, dbias, accumulated = GRADIENT.fullmatch(
        case
    ).groups()
    rows, cols = int(rows), int(cols)
    x, dy = inputs.gradient_rows(x_kind, dy_kind or x_kind, rows, cols)
    out = (
        np.empty(x.shape, inputs.DTYPES[dx]),
        inputs.bias(dweight, cols, 4) if accumulated else np.empty(cols, inputs.DTYPES[dweight]),
        inputs.bias(dbias, cols, 5) if accumulated else np.empty(cols, inputs.DTYPES[dbias]),
    )
    options = {
        "weight": None if weight is None else inputs.weight(weight, cols),
        "eps": 0 if rows == 20 else 1e-5,  # the table's names do not tell it
        "zero_centered": plus_one is not None,
        "accumulate": accumulated is not None,
    }
    if kind == "rms":  # dbias has nothing to do with the kind of norm
        evenorm.layer_norm_backward(dy, x, cols, out=(out[0], out[1].copy(), out[2]), **options)
        evenorm.rms_norm_backward(dy, x, cols, out=out[:2], **options)
    else:
        evenorm.layer_norm_backward(dy, x, cols, out=out, **options)
    return inputs.joined([inputs.digest_of(gradient) for gradient in out])


@pytest.mark.parametrize("group", ["layer f64", "layer f32", "layer bf16", "layer f16", "rms f64", "rms f32",
                                   "rms bf16", "rms f16"])  # fmt: skip
def test_gradients(group):
    cases = [case for case in TABLE["gradients"] if re.match(rf"\d+ x {group}(->| )", case)]
    assert len(cases) > 12
    assert {case: gradients_digest(case) for case in cases} == {case: TABLE["gradients"][case] for case in cases}
