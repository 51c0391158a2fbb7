"""Converts ONNX's own tests of norms, and compares the results with those of the tests."""

import re
import warnings

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

onnxruntime = pytest.importorskip("onnxruntime")
import evenorm.onnx  # noqa: E402

NORMS = re.compile("test_(layer_normalization|rms_normalization|group_normalization|instancenorm|mvn)")
with warnings.catch_warnings(action="ignore"):
    CASES = {case.name: case for case in collect_testcases(None) if NORMS.match(case.name)}


@pytest.mark.parametrize("name", CASES)
def test_node_test(name):
    case = CASES[name]
    conversion = evenorm.onnx.convert(case.model)
    onnx.checker.check_model(conversion.model, full_check=True)
    assert "expanded" in name or len(conversion.replaced) == 1, conversion
    sessions = [
        onnxruntime.InferenceSession(conversion.model.SerializeToString(), providers=["CPUExecutionProvider"]),
        evenorm.onnx.session(conversion.model),
    ]
    for inputs, outputs in case.data_sets:
        names = [one.name for one in case.model.graph.input]
        for session in sessions:
            for got, want in zip(session.run(None, dict(zip(names, inputs, strict=True))), outputs, strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
