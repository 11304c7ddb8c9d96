# make demo    train a Transformer from nothing in five minutes and look inside it
# make test    everything that is checked quickly, in a fresh virtual environment
# make fast    the tests that start no process and train no demo: under three minutes on two cores
# make test-processors    tests of agreement, contract and learning with the instructions of older
#                         processors, too: each setting that this machine allows
# make one-answer    outputs of the native engine, bit by bit, against the kept hashes
# make wasm    engine and trainer in WebAssembly, for pages: the modules that git keeps, made again
# make wheels  the light wheel for Linux, Windows and macOS, in dist
# make npm     the npm package of the engine, in dist/npm
# make docs    the documentation as a site, in docs/_build
# make package    wheel and source distribution, in dist
# make mutants a hundred faults injected, one at a time, and the share that the tests see
# make test-long    the native engine under sanitizers, fuzzed, and on ARM under emulation; for the
#                   last: apt-get install g++-aarch64-linux-gnu qemu-user; and a real Whisper, if
#                   TRANSDUCE_MODELS and TRANSDUCE_DATA name the directories that hold it and its data
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)

.PHONY: one-answer wasm npm wheels demo test fast test-processors test-all test-long test-sanitized test-fuzz \
  test-requests test-arm test-real lint docs package clean

# Installed again whenever what is to be installed changes.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Less than for the tests: the package, its data, and PyTorch without CUDA where its index is reached.
CPU_TORCH := --index-url https://download.pytorch.org/whl/cpu --retries 1 --timeout 10
$(VENV)/demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	-$(BIN)/pip install --quiet --constraint constraints.txt $(CPU_TORCH) torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

demo: $(VENV)/demo
	$(BIN)/transduce demo

test: $(VENV)/ready lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile -m 'not slow'

fast: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile -m 'not slow and not system' \
	  tests/unit tests/agreement tests/contract tests/learning

test-processors: $(VENV)/ready
	$(BIN)/python tests/processors.py

test-all: $(VENV)/ready lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile

# Compiled first: the compiler itself need not run under the sanitizer.
SANITIZED := TRANSDUCE_ENGINE_FLAGS="-O1 -fsanitize=address,undefined -fno-sanitize-recover=all -g1"
test-long: test-sanitized test-fuzz test-requests test-arm test-real mutants

test-sanitized: $(VENV)/ready
	$(SANITIZED) $(BIN)/python -c "from transduce.engine import build; \
	  print(*map(build.library_path, build.available()), sep='\n')"
	$(SANITIZED) ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 \
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so)" \
	$(BIN)/pytest tests/agreement/test_native_*.py

# The engine's own drivers, without Python.  FUZZED: CPU-seconds.
DRIVERS := .engine
DRIVER  := -std=c++17 -pthread -fno-math-errno -fno-trapping-math -ffp-contract=off
FUZZED  := 600
test-fuzz:
	mkdir -p $(DRIVERS)
	c++ $(DRIVER) -march=native -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all \
	  tests/engine/fuzz.cpp -o $(DRIVERS)/fuzz
	for tiles in "" '-DPLAIN_TILES="plain_tiles.h"'; do \
	  c++ $(DRIVER) -march=native -mno-amx-tile -mno-amx-int8 -mno-amx-bf16 -O1 $$tiles -Itests/engine \
	    tests/engine/tiles.cpp -o $(DRIVERS)/tiles && $(DRIVERS)/tiles || exit 1; \
	done | uniq | wc -l | grep -qx 1
	ASAN_OPTIONS=abort_on_error=1 UBSAN_OPTIONS=abort_on_error=1 $(DRIVERS)/fuzz $(FUZZED)
	c++ $(DRIVER) -march=native -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all \
	  tests/engine/learning.cpp -o $(DRIVERS)/learning
	$(DRIVERS)/learning 60
	c++ $(DRIVER) -march=native -O1 -g1 -fsanitize=thread tests/engine/fuzz.cpp -o $(DRIVERS)/races
	$(DRIVERS)/races 60

# Hostile requests to a server on this machine, and doubled inputs of every parser.
test-requests: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/serving.py

test-arm:
	mkdir -p $(DRIVERS)
	for set in armv8-a armv8.2-a+dotprod; do \
	  aarch64-linux-gnu-g++ $(DRIVER) -O2 -static -march=$$set tests/engine/agreement.cpp \
	    -o $(DRIVERS)/$$set && qemu-aarch64 $(DRIVERS)/$$set > $(DRIVERS)/$$set.txt || exit 1; \
	  sha256sum < $(DRIVERS)/$$set.txt | diff - tests/golden/one_answer/agreement.sha256 || exit 1; \
	done

test-real: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -rs tests/agreement/test_real_whisper.py

# Faults that are hard to see, one at a time in a copy of the tree.
mutants: $(VENV)/ready
	$(BIN)/python tests/mutants/run.py --jobs 2

lint: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# With each instruction set of this processor.
one-answer: $(VENV)/ready
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m helpers.one_answer

wasm: $(VENV)/ready
	$(BIN)/python packaging/wasm.py

npm: $(VENV)/ready
	$(BIN)/python packaging/npm/build.py dist/npm

# The light wheel for each system of `WHEELS`, compiled by zig: some seven minutes.
wheels: $(VENV)/ready
	for tag in $$($(BIN)/python -c "from transduce.engine.build import WHEELS; \
	  print(*(wheel.tag for wheel in WHEELS))"); do \
	  (cd packaging/runtime && PATH="$(abspath $(BIN)):$$PATH" TRANSDUCE_WHEEL=$$tag \
	    $(abspath $(BIN))/python -m hatchling build -t wheel -d "$(CURDIR)/dist") || exit 1; \
	done
	ls -l dist/transduce_runtime-*.whl

docs: $(VENV)/ready
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --builder html docs docs/_build

package: $(VENV)/ready
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf dist docs/_build $(DRIVERS) $(VENV) .pytest_cache .mypy_cache .ruff_cache
