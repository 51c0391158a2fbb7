"""tools/python, with programs in the places of pip and of the Python that is first in PATH."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Answers for pip, and is this Python otherwise.
OWN = """case "$*" in
  "-m pip index versions torch") echo "Available versions: $VERSIONS" ;;
  "-m pip "*) ;;
  *) exec {python} "$@" ;;
esac
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>"$CALLS"\n{text}')
    path.chmod(0o755)


@pytest.fixture
def install(tmp_path):
    """Runs tools/python beside a .venv/ whose Python is the given text. Returns what ran, and the calls of both."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "python", tmp_path / "tools")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program(tmp_path / "first" / "python3", "exit 1\n")

    def install(own, versions=""):
        program(tmp_path / ".venv" / "bin" / "python", own)
        (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /opt/gone\n")
        calls = tmp_path / "calls"
        environment = {**os.environ, "CALLS": str(calls), "VERSIONS": versions}
        environment["PATH"] = f"{tmp_path / 'first'}:{os.environ['PATH']}"
        done = subprocess.run(
            [tmp_path / "tools" / "python", "zentorch"], env=environment, capture_output=True, text=True
        )
        return done, calls.read_text()

    return install


@pytest.mark.parametrize("versions, is_large", [("2.13.0+cpu, 2.13.0", False), ("2.13.0, 2.12.0", True), ("", False)])
def test_an_environment_is_filled_by_its_own_python(install, tmp_path, versions, is_large):
    done, calls = install(OWN.format(python=sys.executable), versions)
    assert done.returncode == 0 and "python3" not in calls and calls.count(" install ") == 3, done.stderr
    assert calls.count("--quiet") == 3  # this is no terminal
    assert ("https://download.pytorch.org/whl/cpu" in done.stdout) == is_large
    assert ("torch==2.13.0+cpu" in (tmp_path / ".venv" / "wanted.txt").read_text().split()) == ("+cpu" in versions)
    assert len(list((tmp_path / ".venv").glob(f"installed-{sys.implementation.cache_tag}-*"))) == 2


def test_an_environment_whose_python_does_not_run_is_left(install):
    done, calls = install("exit 127\n")
    assert done.returncode == 1 and "python3" not in calls and "pip" not in calls.replace("import pip", "")
    assert "/opt/gone" in done.stderr and "Remove .venv/" in done.stderr
