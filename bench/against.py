"""Builds another commit of evenorm as a rival, in the same way as this tree's evenorm."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

from points import ROOT

KEPT = ROOT / ".bench" / "against"


def run(*command: object, tree: pathlib.Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=tree, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(str(part) for part in command)}")
    return done.stdout.strip()


def build(tree: pathlib.Path) -> pathlib.Path:
    """Builds the rival of a source tree: this tree's rivals/evenorm.cpp with the headers and objects of that tree."""
    folder = tree / "build"
    if not (folder / "build.ninja").exists():
        run("cmake", "-S", ".", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", tree=tree)
    run("cmake", "--build", folder, "--target", "evenorm_internal", tree=tree)
    rival = folder / "rival_against.so"
    pool = ["-lpthreadpool"] if (tree / "cmake" / "FindPthreadpool.cmake").exists() else []  # older commits
    run(
        "c++", "-std=c++20", "-O3", "-fPIC", "-shared", f"-I{tree}/include", f"-I{ROOT}",
        ROOT / "bench" / "rivals" / "evenorm.cpp", folder / "libevenorm_internal.a", "-lhwy", *pool, "-pthread",
        f"-Wl,--version-script={ROOT}/bench/rivals/exports.map", "-Wl,-z,nodelete", "-o", rival, tree=tree,
    )  # fmt: skip
    return rival


def build_of(reference: str) -> pathlib.Path:
    """Builds the rival of a commit, in a copy of its sources that is kept."""
    commit = run("git", "rev-parse", "--verify", f"{reference}^{{commit}}", tree=ROOT)
    tree = KEPT / commit[:12]
    if not tree.exists():
        unpacked = tree.with_suffix(".part")
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir(parents=True)
        run("git", "archive", "--output", unpacked / "sources.tar", commit, tree=ROOT)
        shutil.unpack_archive(unpacked / "sources.tar", unpacked)
        unpacked.rename(tree)
    print(f"building {commit[:12]} in {tree.relative_to(ROOT)}", file=sys.stderr, flush=True)
    return build(tree)
