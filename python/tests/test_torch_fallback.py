"""The operators registered in Python, as for a PyTorch that the extension was not built for: the same tests again."""

import os
import pathlib
import subprocess
import sys

import pytest
from torch_cases import EXTENSION

HERE = pathlib.Path(__file__).parent


@pytest.mark.skipif(not EXTENSION, reason="they are in use already")
@pytest.mark.parametrize("name", ["derivatives", pytest.param("operators", marks=pytest.mark.slow), "samples"])
def test_without_the_extension(name):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / f"test_torch_{name}.py")]
    environment = {**os.environ, "EVENORM_TORCH_OPERATORS": "python"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:]


def test_a_wrong_choice_is_told():
    environment = {**os.environ, "EVENORM_TORCH_OPERATORS": "rust"}
    done = subprocess.run(
        [sys.executable, "-c", "import evenorm.torch"], env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "EVENORM_TORCH_OPERATORS is 'rust', but it should be 'c++' or 'python'" in done.stderr


def test_another_pytorch_is_told():
    code = "import torch; torch.__version__ = '2.14.0'; import evenorm.torch; print(evenorm.torch.info()['reason'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "was built for PyTorch 2.13" in done.stdout and "this is PyTorch 2.14.0" in done.stdout
