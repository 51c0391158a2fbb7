#!/bin/sh
# Fetches the rivals that the benchmarks measure evenorm against, into .bench/ (nothing outside it is touched):
#   .bench/onednn/{include,lib}   oneDNN 3.2, headers and library, from its PyPI wheels
#   .bench/venv                   a Python environment with numpy and torch (large: over 1 GB; --no-torch leaves it out)
# Does nothing when they are there. Remove .bench/ to start again.
set -eu
cd "$(dirname "$0")/.."
onednn_version=2023.2.0
torch_version=2.13.0

with_torch=yes
for argument in "$@"; do
  case $argument in
    --no-torch) with_torch=no ;;
    *) echo "usage: tools/setup_bench.sh [--no-torch]" >&2; exit 1 ;;
  esac
done

mkdir -p .bench
if [ ! -x .bench/venv/bin/pip ]; then
  rm -rf .bench/venv
  if ! python3 -m venv .bench/venv 2>.bench/venv.log; then
    rm -rf .bench/venv
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
      export DEBIAN_FRONTEND=noninteractive
      apt-get install --yes --no-install-recommends python3-venv >.bench/venv.log 2>&1 ||
        { apt-get update >.bench/venv.log 2>&1 &&
          apt-get install --yes --no-install-recommends python3-venv >.bench/venv.log 2>&1; } ||
        { cat .bench/venv.log >&2; exit 1; }
      python3 -m venv .bench/venv
    else
      echo "Missing: python3-venv. As root, run:" >&2
      echo "apt-get install --yes --no-install-recommends python3-venv"
      exit 2
    fi
  fi
fi
pip() { .bench/venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

if [ ! -e .bench/onednn/done ]; then
  rm -rf .bench/onednn .bench/wheels
  # Without their dependencies: the wheels also ask for a compiler's run time library, and GCC's serves.
  pip download --no-deps --dest .bench/wheels \
    "onednn-devel-cpu-gomp==$onednn_version" "onednn-cpu-gomp==$onednn_version"
  .bench/venv/bin/python - .bench/wheels .bench/onednn <<'PYTHON'
import pathlib, sys, zipfile
wheels, target = map(pathlib.Path, sys.argv[1:])
for wheel in wheels.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            data, _, inner = name.partition(".data/data/")
            if inner.startswith(("include/", "lib/")) and not inner.endswith("/"):
                path = target / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
PYTHON
  # A wheel holds no links: the library lies there once under each of its names.
  ln -sf libdnnl.so.3 .bench/onednn/lib/libdnnl.so
  rm -rf .bench/wheels
  touch .bench/onednn/done
fi

if [ "$with_torch" = yes ] && [ ! -e .bench/venv/torch-done ]; then
  pip install numpy "torch==$torch_version"
  touch .bench/venv/torch-done
fi
