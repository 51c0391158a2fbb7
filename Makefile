# evenorm's commands; `make help` lists them. Each command first installs what is missing (as root on Debian) or prints
# what to install. CMake builds: see CMakeLists.txt and CMakePresets.json.

WERROR ?= OFF
CMAKE_ARGS ?=

CONFIGURE := cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DEVENORM_WERROR=$(WERROR)
STAGES := tools/stages $(if $(filter ON 1 on,$(WERROR)),--werror)

.PHONY: all demo test check test-all whole lint page package libtorch clang aarch64 sanitize thread mpi fuzz
.PHONY: python wheels dist format mutants bench bench-quick bench-cuda cuda study clean help
.NOTPARALLEL:

all:  ## build everything: build/evenorm, build/libevenorm.so, build/evenorm_tests
	@tools/setup.sh build
	@$(CONFIGURE) $(CMAKE_ARGS) >/dev/null
	@cmake --build build

demo:  ## build, then normalise a real model's activations and print errors and speed
	@tools/setup.sh build
	@$(CONFIGURE) $(CMAKE_ARGS) >/dev/null
	@cmake --build build --target evenorm_cli minilm_demo
	@tools/demo.sh

test:  ## for every change: build, tests, clang-format
	@tools/setup.sh test
	@$(STAGES) test

check:  ## after `make test`: slower tests, PyTorch, GPU, page, packages, lint, clang, sanitizers, fuzzers, mutations, AArch64
	@tools/setup.sh check
	@$(STAGES) check

test-all:  ## after `make check`, for hours: long sweeps, valgrind, all mutations, all tests under sanitizers and on AArch64
	@tools/setup.sh test-all
	@$(STAGES) test-all

whole lint page:  ## build, then one stage of `make check`
	@tools/setup.sh check
	@$(STAGES) --verbose build $@

package libtorch clang aarch64 sanitize thread:  ## one stage of `make check`, in build trees of its own
	@tools/setup.sh check
	@$(STAGES) --verbose $@

mpi:  ## norms over MPI processes, in build-mpi/; installs Open MPI
	@tools/setup.sh build
	@$(STAGES) --verbose $@

cuda:  ## build for a GPU in build-cuda/, and run its tests if there is one; installs nvcc if it is missing
	@tools/setup.sh test
	@tools/cuda

bench-cuda:  ## measure on a GPU, beside PyTorch and Triton; ARGS goes to bench/gpu.py (--help)
	@tools/setup.sh test
	@tools/cuda bench $(ARGS)

fuzz:  ## run every fuzzer, or those in NAMES, for SECONDS (60)
	@tools/setup.sh check
	@tools/fuzz --seconds $(or $(SECONDS),60) $(NAMES)

python:  ## install the Python package, PyTorch, the test tools and the command `evenorm` in .venv/
	@tools/setup.sh python
	@tools/python

wheels:  ## write a release to dist/: wheels for the PYTHONS (python3) and every PyTorch, and an sdist
	@tools/setup.sh python
	@tools/wheels $(PYTHONS)

dist:  ## write dist/evenorm-*.tar.gz for x86-64 and AArch64 Linux, and dist/evenorm_*.deb
	@tools/setup.sh dist
	@tools/dist

format:  ## format all sources in place
	@tools/setup.sh test
	@tools/lint --fix

mutants:  ## apply all mutations, or those in NAMES, one by one and expect a red test for each
	@tools/setup.sh test
	@tools/mutants $(NAMES)

bench:  ## measure evenorm beside its rivals; ARGS goes to bench/run.py (--help)
	@tools/setup.sh python
	@tools/bench $(ARGS)

bench-quick:  ## measure the main points in three minutes; status 1 if a ratio is below bench/floors.json
	@tools/setup.sh python
	@tools/bench --quick $(ARGS)

study: python  ## measure claims about layer norm: tables, plots, JSON in build/study/; ARGS=--help lists the options
	@PYTHONPATH=learn .venv/bin/python -m study $(ARGS)

clean:  ## remove all build trees
	@cmake -E rm -rf build build-*

help:  ## print this list
	@sed -n 's/^\([a-z0-9 -]*\):[^#]*##  *\(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-50s %s\n", $$1, $$2 }'
