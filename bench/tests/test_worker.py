"""A rival with wrong results stops the run before it is timed."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest
from points import ROOT, Point

BUILT = ROOT / "build" / "bench"
RIVAL = r"""
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include "rival.h"
const char* bench_version(void) { return "a test's own"; }
void* bench_make(const struct bench_problem* problem) {
  void* copy = malloc(sizeof *problem);
  return memcpy(copy, problem, sizeof *problem);
}
void bench_run(void* made) {
  const struct bench_problem* p = (const struct bench_problem*)made;
  if (WRONG == 2) return;
  const float *x = (const float*)p->x, *gamma = (const float*)p->weight, *beta = (const float*)p->bias;
  for (long r = 0; r < p->rows; ++r) {
    double mean = 0, squares = 0;
    for (long c = 0; c < p->cols; ++c) mean += x[r * p->cols + c] / (double)p->cols;
    for (long c = 0; c < p->cols; ++c) squares += pow(x[r * p->cols + c] - mean, 2) / (double)(p->cols - WRONG);
    for (long c = 0; c < p->cols; ++c)
      ((float*)p->y)[r * p->cols + c] = (float)((x[r * p->cols + c] - mean) / sqrt(squares + p->eps) * gamma[c] + beta[c]);
  }
}
void bench_fetch(void* made) { (void)made; }
void bench_free(void* made) { free(made); }
"""


def rival(folder: pathlib.Path, wrong: int) -> str:
    source, library = folder / f"rival{wrong}.c", folder / f"rival{wrong}.so"
    source.write_text(RIVAL)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", f"-DWRONG={wrong}", f"-I{ROOT / 'bench'}", source, "-o", library, "-lm"],
        check=True,
    )
    return str(library)


def answers(libraries: dict[str, str]):
    settings = {
        "threads": 1, "seconds": 0.01, "host": str(BUILT / "libevenorm_bench_host.so"), "onnxruntime": False,
        "copies": str(BUILT / "rival_copies.so"), "libraries": libraries,
        "points": [dataclasses.asdict(Point("forward", "layer", "f32", 16, 96))] * 2,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "worker.py"],
        input=json.dumps(settings) + "\n",
        capture_output=True,
        text=True,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not (BUILT / "rival_evenorm.so").exists(), reason="the benchmarks are not built")
def test_a_wrong_rival_stops_the_run(tmp_path):
    evenorm = str(BUILT / "rival_evenorm.so")
    status, lines = answers({"evenorm": evenorm, "other": rival(tmp_path, 0)})
    assert status == 0 and len(lines) == 3
    assert lines[0]["versions"]["other"] == "a test's own"
    assert {"evenorm", "other", "copy"} == set(lines[1]["rivals"])
    assert lines[1]["ratios"]["other"][1] > 1
    status, lines = answers({"evenorm": evenorm, "other": rival(tmp_path, 1)})
    assert status == 1 and len(lines) == 2
    assert lines[1]["wrong"].startswith("other, forward layer f32 16x96: row 0 of y is")


@pytest.mark.skipif(not (BUILT / "rival_evenorm.so").exists(), reason="the benchmarks are not built")
def test_a_rival_that_writes_nothing_fails(tmp_path):
    status, lines = answers({"evenorm": str(BUILT / "rival_evenorm.so"), "other": rival(tmp_path, 2)})
    assert status == 1
    assert lines[1]["wrong"].startswith("other, forward layer f32 16x96: not all of y is a number")
