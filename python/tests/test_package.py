"""The installed package: its contents, documentation and types. The NumPy functions need no PyTorch."""

import doctest
import importlib
import importlib.metadata
import inspect
import pathlib
import subprocess
import sys

import pytest
import torch

import evenorm
import evenorm.torch
from numpy_inputs import run_program

PROGRAM = pathlib.Path(sys.executable).parent / "evenorm"
NUMPY_FUNCTIONS = [name for name in evenorm.__all__ if "norm" in name]


@pytest.mark.parametrize("module", ["evenorm._norms", "evenorm._fused", "evenorm._info"])
def test_examples_of_the_documentation(module):
    result = doctest.testmod(importlib.import_module(module))
    functions = [f for f in vars(importlib.import_module(module)).values() if inspect.isfunction(f)]
    assert all(">>> " in inspect.getdoc(function) for function in functions)
    assert result.attempted >= len(functions) and result.failed == 0


@pytest.mark.parametrize("name", evenorm.torch.__all__)
def test_examples_of_torch(name):
    item = getattr(evenorm.torch, name)
    if evenorm.torch.info()["operators"] != "C++" and "grad_fn" in inspect.getdoc(item):
        pytest.skip("only the C++ operators have these node names")
    examples = doctest.DocTestFinder(recurse=False).find(item, name, globs={**vars(evenorm.torch), "torch": torch})
    assert name in ("Conversion", "Inspection") or sum(len(test.examples) for test in examples) >= 1
    assert not any(doctest.DocTestRunner().run(test).failed for test in examples)


@pytest.mark.parametrize("name", NUMPY_FUNCTIONS)
def test_each_function_is_documented(name):
    function = getattr(evenorm, name)
    text = inspect.getdoc(function)
    assert all(part in text for part in ["Args:", "Returns:", ">>> "])
    arguments = text[text.index("Args:") : text.index("Returns:")]
    assert [name for name in inspect.signature(function).parameters if name not in arguments] == []


def test_without_torch_and_ml_dtypes():
    run_program("""
        import sys
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("torch", "ml_dtypes", "onnx"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Absent())
        import evenorm, numpy as np
        y = evenorm.layer_norm(np.float32([[1, 3]]), 2, eps=0)
        assert y.tolist() == [[-1, 1]] and "torch" not in sys.modules
        import evenorm.onnx
        assert evenorm.onnx.library().endswith("onnxruntime.so")
        for name, text in ("torch", "pip install 'torch>=2.10'"), ("onnx.convert", "pip install onnx onnx-ir"):
            try:
                exec(f"import evenorm.{name}" if name == "torch" else f"evenorm.{name}")
            except ImportError as error:
                assert text in str(error), error
            else:
                raise AssertionError(name)
    """)


def test_a_bfloat16_result_needs_ml_dtypes():
    run_program("""
        import sys
        sys.modules["ml_dtypes"] = None
        import evenorm, torch
        x = torch.ones(2, 4, dtype=torch.bfloat16)
        try:
            evenorm.layer_norm(x, 4)
        except TypeError as error:
            assert str(error) == "a result of type bfloat16 needs the package ml_dtypes; or pass out", error
        else:
            raise AssertionError("not refused")
        assert (evenorm.layer_norm(x, 4, out=x) == 0).all()
    """)


def test_command_and_version():
    assert importlib.metadata.version("evenorm") == evenorm.__version__
    done = subprocess.run([PROGRAM, "info"], check=True, capture_output=True, text=True)
    assert f"version             {evenorm.__version__}" in done.stdout
    assert f"target in use       {evenorm.target()}" in done.stdout


def test_forced_target():
    code = "import evenorm; print(evenorm.target())"
    for name, status in [("portable", 0), ("bogus", 1)]:
        done = subprocess.run(
            [sys.executable, "-c", code], env={"EVENORM_TARGET": name}, capture_output=True, text=True
        )
        assert done.returncode == status and name in done.stdout + done.stderr


def test_types(tmp_path):
    user = tmp_path / "user.py"
    user.write_text(
        inspect.cleandoc("""
            import numpy as np
            import evenorm

            x = np.ones((2, 3), np.float32)
            evenorm.layer_norm(x, 3, eps=1e-5, out=x)
            y, mean, rstd = evenorm.layer_norm(x, axis=(0, -1), return_stats=True)
            dx, dweight, dbias = evenorm.layer_norm_backward(x, x, (3,), param_dtype=np.float64)
            evenorm.rms_norm(x, axis="last")  # wrong
            evenorm.set_num_threads("2")  # wrong
            threads: str = evenorm.get_num_threads()  # wrong
        """)
    )
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", "--no-error-summary"]
    checked = subprocess.run([*command, user], capture_output=True, text=True, cwd=tmp_path)
    lines = [line.split(":")[1] for line in checked.stdout.splitlines() if ": error:" in line]
    assert lines == ["8", "9", "10"], checked.stdout + checked.stderr
    modules = ["evenorm", "evenorm._norms", "evenorm._fused", "evenorm._info", "evenorm._command", "evenorm._core"]
    options = [part for module in modules for part in ("-m", module)]
    checked = subprocess.run([*command, *options], capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
