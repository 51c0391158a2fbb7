"""The code blocks of README.md run and give the results that they state; those of docs/cpp.md compile."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "libevenorm.so"
built = pytest.mark.skipif(not LIBRARY.exists(), reason="build/libevenorm.so is missing: run make")
COMPILERS = {"c": ["cc", "-std=c11"], "cpp": ["c++", "-std=c++20"]}
EXAMPLE = [0.0991, -1.0690, 0.1682, 0.5, 0, -0.5]  # the results of README's C and C++ blocks
PRINT = 'for (int i = 0; i < 6; ++i) printf("%.4f ", (double)y[i]);'
NAMES = {  # declarations that the blocks of docs/cpp.md need, by a word that only one block has
    "384": "std::vector<float> x, y, gamma;",
    "rowStride": "struct { float* (*data)(); long (*rows)(), (*cols)(), (*rowStride)(), (*colStride)(); } x{}, y{};",
    "dgamma": "std::vector<float> x, gamma;",
    "zero_grad": "evenorm::ConstTensor x, dy; evenorm::Tensor y, dx;",
    "residual": "std::vector<float> x, y, r, scale; std::vector<std::int8_t> q; const std::int64_t tokens = 2;",
}


def blocks(document, language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / document).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{document} has no block of {language}"
    return found


def compile_block(language, block, folder, *, link):
    """Compiles the block as the body of main, after its includes."""
    includes = [line for line in block.splitlines() if line.startswith("#include")]
    body = "\n".join(line for line in block.splitlines() if line not in includes)
    source = folder / f"block.{language}"
    source.write_text("\n".join([*includes, "#include <stdio.h>", "int main(void) {", body, "}", ""]))
    linked = [LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}", "-o", folder / "block"] if link else ["-fsyntax-only"]
    command = [*COMPILERS[language], "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", source, *linked]
    subprocess.run(command, check=True, timeout=120)


@pytest.mark.parametrize("block", blocks("README.md", "python"))
def test_readme_python(block):
    names = {}
    if "torch" in block:
        torch = pytest.importorskip("torch")
        names = {"x": torch.ones(2, 768), "model": torch.nn.Sequential(torch.nn.LayerNorm(768))}
    else:
        if "jax" in block:
            pytest.importorskip("jax")
        names = {name: np.ones((2, 768), np.float32) for name in ("x", "dy")}
        names |= {name: np.ones(768, np.float32) for name in ("weight", "bias")}
    exec(compile(block, "README.md", "exec"), names)
    assert names["y"].shape == (2, 768)


def test_readme_command_line(tmp_path):
    for name, shape in {"x": (2, 768), "w": 768, "b": 768}.items():
        np.save(tmp_path / f"{name}.npy", np.ones(shape, np.float32))
    for line in blocks("README.md", "sh")[0].splitlines():
        program, *arguments = shlex.split(line)
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60, stdout=subprocess.DEVNULL)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.ones((2, 768)))


@built
@pytest.mark.parametrize("language", COMPILERS)
def test_readme_compiled(language, tmp_path):
    compile_block(language, blocks("README.md", language)[0] + PRINT, tmp_path, link=True)
    printed = subprocess.run([tmp_path / "block"], check=True, timeout=60, capture_output=True, text=True).stdout
    assert [float(word) for word in printed.split()] == EXAMPLE


@built
@pytest.mark.parametrize("block", blocks("docs/cpp.md", "cpp"))
def test_cpp_document(block, tmp_path):
    names = next(names for word, names in NAMES.items() if word in block)
    include = "#include <evenorm/modules.hpp>\n#include <vector>\n"
    compile_block("cpp", f"{include}{names}\n{block}", tmp_path, link=False)
