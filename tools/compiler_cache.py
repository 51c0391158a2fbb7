#!/usr/bin/env python3
"""One compiler's cache for all build trees: a source is compiled once, in whichever folder it lies.

usage: tools/compiler_cache.py COMMAND...      runs it with the cache, on the sources themselves
"""
import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def environment(sources):
    """The environment in which CMake configures and builds a copy of the sources; without ccache: the caller's.

    An object is the same with -Werror and without. Warnings are kept with it and shown again, but stop no build then:
    who wants them to (tools/stages) has to look for them.
    """
    result = dict(os.environ)
    ccache = shutil.which("ccache")
    if ccache:
        result.setdefault("CCACHE_DIR", str(ROOT / "build" / "ccache"))
        result.update(CCACHE_BASEDIR=str(sources), CCACHE_NOHASHDIR="1", CCACHE_IGNOREOPTIONS="-Werror",
                      CCACHE_SLOPPINESS="pch_defines,time_macros",  # what it needs to know precompiled headers
                      CMAKE_C_COMPILER_LAUNCHER=ccache, CMAKE_CXX_COMPILER_LAUNCHER=ccache)
    return result


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    os.execvpe(sys.argv[1], sys.argv[1:], environment(ROOT))
