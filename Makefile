# evenorm's commands; `make help` lists them. All of them first install what is missing (as root on Debian), or say
# what to install. The build itself is CMake's: see CMakeLists.txt, CMakePresets.json.

WERROR ?= OFF
CMAKE_ARGS ?=

CACHED := tools/compiler_cache.py
CONFIGURE := $(CACHED) cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DEVENORM_WERROR=$(WERROR)
BENCH := tools/bench
STAGES := tools/stages $(if $(filter ON 1 on,$(WERROR)),--werror)

.PHONY: all setup-build setup-test setup-check setup-test-all demo test check test-all unit contracts cli whole aarch64
.PHONY: page sanitize thread fuzz package libtorch mpi lint
.PHONY: setup-python python wheel format mutants bench bench-quick study clean help
.NOTPARALLEL:

all: setup-build  ## build everything: build/evenorm, build/libevenorm.so, build/evenorm_tests
	@$(CONFIGURE) $(CMAKE_ARGS) >/dev/null
	@$(CACHED) cmake --build build

demo: setup-build  ## build, then normalise the activations of a real model and show how exact and how fast
	@$(CONFIGURE) $(CMAKE_ARGS) >/dev/null
	@$(CACHED) cmake --build build --target evenorm_cli minilm_demo
	@tools/demo.sh

test: setup-test  ## what every change passes: build, unit tests, contracts, command line, format; NumPy where .venv/ is
	@$(STAGES) test

check: setup-check  ## after `make test`: whole contracts, PyTorch, page, packages, lint, sanitizers, fuzzers, mutations, AArch64
	@$(STAGES) check

test-all: setup-test-all  ## after `make check`, hours: all on AArch64, all mutations, valgrind, long sweeps; AGAIN=1: anew
	@$(STAGES) $(if $(AGAIN),,--resume) test-all

unit contracts cli: setup-test  ## build, then one stage of the tests
	@$(STAGES) --verbose build $@

whole lint: setup-check  ## build, then the rest of the contracts; clang-format, clang-tidy, exported names
	@$(STAGES) --verbose build $@

mpi: setup-build  ## norms over MPI processes, in build-mpi/; installs Open MPI
	@$(STAGES) --verbose $@

page: setup-build  ## build, then what `evenorm explain --html` writes, opened in Chromium; fetches what that needs
	@$(STAGES) --verbose build $@

package libtorch aarch64 sanitize thread: setup-check  ## one stage of `make check`, in build trees of its own
	@$(STAGES) --verbose $@

fuzz: setup-check  ## every fuzzer for SECONDS (60), under sanitizers
	@tools/fuzz --seconds $(or $(SECONDS),60) $(NAMES)

python: setup-python  ## .venv/ with the Python package, PyTorch, the test tools, and the command `evenorm`
	@tools/python

wheel: setup-python  ## dist/evenorm-*.whl
	@tools/python wheel

format: setup-test  ## format all sources, and the table of mutations, in place
	@tools/lint --fix

mutants: setup-check  ## apply the mutations one by one (or those in NAMES) and expect red
	@tools/mutants $(NAMES)

bench: python  ## measure evenorm beside its rivals, all that there is; ARGS goes to bench/run.py (--help)
	@$(BENCH) $(ARGS)

bench-quick: python  ## the points that matter, in three minutes; status 1 where one is below bench/floors.json
	@$(BENCH) --quick $(ARGS)

study: python  ## claims about layer norm measured: tables, plots, JSON in build/study/; ARGS=--help lists the options
	@PYTHONPATH=learn .venv/bin/python -m study $(ARGS)

setup-python:
	@tools/setup.sh python

setup-build:
	@tools/setup.sh build

setup-test:
	@tools/setup.sh test

setup-check:
	@tools/setup.sh check

setup-test-all:
	@tools/setup.sh test-all

clean:  ## remove build/ and the Python package's build trees
	@cmake -E rm -rf build build-*

help:  ## this list
	@sed -n 's/^\([a-z0-9 -]*\):[^#]*##  *\(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-32s %s\n", $$1, $$2 }'
