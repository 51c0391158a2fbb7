"""Wheels in a clean environment: built from a clean tree with PyTorch, and from an sdist without it."""

import importlib.util
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SYSTEM = re.compile(r"(linux-vdso|/lib.*/ld-linux.*|ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so.*")
SOME_NORM = """
    import sys
    import numpy as np, evenorm
    y = evenorm.layer_norm(np.float32([[4, 2, 8], [1, 1, 1]]), 3, [1.5, 1, 0.5], [0.5, 0, -0.5])
    assert np.abs(y - [[0.0991, -1.0690, 0.1682], [0.5, 0, -0.5]]).max() < 1e-4
    assert evenorm.__file__.startswith(sys.prefix)
    evenorm.set_num_threads(2)
    x = np.ones((4000, 768), np.float32)
    assert (evenorm.layer_norm(x, 768) == 0).all()
"""
SOME_TORCH = """
    import torch, evenorm.torch
    x = torch.randn(5, 8)
    assert torch.allclose(evenorm.torch.LayerNorm(8)(x), torch.nn.LayerNorm(8)(x), atol=1e-6)
"""


def run(*command, path=None, cwd=None):
    environment = dict(os.environ) if path is None else {"PATH": str(path)}
    done = subprocess.run([str(part) for part in command], env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder, *packages):
    venv.create(folder, with_pip=True)
    if packages:
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages)
    return folder / "bin"


def clean_tree(folder):
    for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(tree, folder, python):
    os.environ.update(CCACHE_BASEDIR=str(tree), CC="cc", CXX="c++")
    run(python, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, tree)
    (wheel,) = folder.glob("evenorm-*.whl")
    return wheel


def from_sdist(tree, folder, python):
    code = f"import scikit_build_core.build as backend; backend.build_sdist({str(folder)!r})"
    run(python, "-c", code, cwd=tree)
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module", params=["with PyTorch", "without PyTorch"])
def wheel(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    python = sys.executable
    tree = clean_tree(folder / "tree")
    if request.param == "without PyTorch":
        python = environment(folder / "builder", "scikit-build-core", "nanobind", "numpy") / "python"
        tree = from_sdist(tree, folder / "sdist", python)
    return build(tree, folder / "dist", python)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The bin folder of an environment that has only the wheel and NumPy. PATH has no compiler."""
    folder = tmp_path_factory.mktemp("user")
    programs = environment(folder)
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel, path=programs)
    return programs


def installed_package(programs):
    (package,) = programs.parent.glob("lib/python3*/site-packages/evenorm")
    return package


@pytest.mark.slow
def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in [
        "__init__.py",
        "py.typed",
        "_core.pyi",
        "bin/evenorm",
        "lib/libevenorm.so",
        "lib/libevenorm_onnxruntime.so",
    ]:
        assert f"evenorm/{name}" in names
    licences = [name for name in names if name.startswith("evenorm/licenses/LICENSE.")]
    bundled = [name for name in names if name.startswith("evenorm/lib/") and "libevenorm" not in name]
    assert len(licences) >= len(bundled)
    assert all(name.startswith(("evenorm/", "evenorm-")) for name in names)


@pytest.mark.slow
def test_it_works(installed):
    assert "Usage: evenorm" in run(installed / "evenorm", "--help", path=installed)
    run(installed / "python", "-c", inspect.cleandoc(SOME_NORM), path=installed)


@pytest.mark.slow
def test_it_works_beside_pytorch(installed):
    torch = importlib.util.find_spec("torch")
    site = installed_package(installed).parent
    (site / "others.pth").write_text(f"{pathlib.Path(torch.origin).parents[1]}\n")
    code = inspect.cleandoc(SOME_NORM)
    if (site / "evenorm" / "torch").is_dir():
        code += "\n" + inspect.cleandoc(SOME_TORCH)
    try:
        run(installed / "python", "-c", code, path=installed)
    finally:
        (site / "others.pth").unlink()


@pytest.mark.slow
def test_libraries_are_bundled_or_the_system_s(installed):
    package = installed_package(installed)
    natives = [package / "bin" / "evenorm", *package.glob("_core*.so"), *package.glob("jax/*.so")]
    natives += (package / "lib").iterdir()
    assert len(natives) >= 5
    for native in natives:
        for line in run("ldd", native).splitlines():
            name, _, place = line.strip().partition(" => ")
            assert "not found" not in line, line
            assert SYSTEM.match(name) or str(package) in str(pathlib.Path(place.split(" (")[0]).resolve())
