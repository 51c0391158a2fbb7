"""Runs tests again with the operators registered in Python, as with a PyTorch that the extension was not built for."""

import os
import pathlib
import subprocess
import sys

import pytest
from torch_cases import EXTENSION

HERE = pathlib.Path(__file__).parent
NAMES = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm", "layer_norm_backward", "rms_norm_backward")


def run_program(code, operators):
    environment = {**os.environ, "EVENORM_TORCH_OPERATORS": operators}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


@pytest.mark.skipif(not EXTENSION, reason="these operators are already in use")
@pytest.mark.parametrize("name", ["derivatives", pytest.param("operators", marks=pytest.mark.slow), "samples"])
def test_without_the_extension(name):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / f"test_torch_{name}.py")]
    environment = {**os.environ, "EVENORM_TORCH_OPERATORS": "python"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:]


def test_the_schemas_are_the_same():
    code = f"import torch, evenorm.torch; print(*[getattr(torch.ops.evenorm, n).default._schema for n in {NAMES}])"
    found, expected = (run_program(code, operators).stdout for operators in ("python", ""))
    assert found == expected and found.count("->") == len(NAMES)


def test_a_wrong_choice_is_reported():
    done = run_program("import evenorm.torch", "rust")
    assert done.returncode != 0
    assert "EVENORM_TORCH_OPERATORS is 'rust', but it should be 'c++' or 'python'" in done.stderr


def test_another_pytorch_is_reported():
    code = "import torch; torch.__version__ = '2.14.0'; import evenorm.torch; print(evenorm.torch.info()['reason'])"
    done = run_program(code, "")
    assert "was built for PyTorch 2.13" in done.stdout and "this is PyTorch 2.14.0" in done.stdout, done.stderr
