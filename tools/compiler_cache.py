"""One compiler's cache for the build trees that tools/ make: a source is compiled once, in whichever folder it lies."""
import os
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parent.parent


def environment(sources):
    """The environment in which CMake configures and builds a copy of the sources; without ccache: the caller's."""
    result = dict(os.environ)
    ccache = shutil.which("ccache")
    if ccache:
        result.setdefault("CCACHE_DIR", str(ROOT / "build" / "ccache"))
        result.update(CCACHE_BASEDIR=str(sources), CCACHE_NOHASHDIR="1", CMAKE_C_COMPILER_LAUNCHER=ccache,
                      CMAKE_CXX_COMPILER_LAUNCHER=ccache)
    return result
