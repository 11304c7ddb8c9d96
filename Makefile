# make demo    train a Transformer from nothing in five minutes and look inside it
# make test    everything that is checked quickly, in a fresh virtual environment
# make docs    the documentation as a site, in docs/_build
# make package    wheel and source distribution, in dist
# make test-long    the native engine under the sanitizers of addresses and undefined behaviour
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all test-long lint docs package clean

# Installed again whenever what is to be installed changes.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/ready
	$(BIN)/transduce demo

test: $(VENV)/ready lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadgroup -m 'not slow'

test-all: $(VENV)/ready lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadgroup

# Compiled first: the compiler itself need not run under the sanitizer.
SANITIZED := TRANSDUCE_ENGINE_FLAGS="-O1 -fsanitize=address,undefined -fno-sanitize-recover=all -g1"
test-long: $(VENV)/ready
	$(SANITIZED) $(BIN)/python -c "from transduce.engine import build, instructions; \
	  print(*map(build.library_path, instructions.available()), sep='\n')"
	$(SANITIZED) ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 \
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libubsan.so)" \
	$(BIN)/pytest tests/agreement/test_native_*.py

lint: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/ready
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --builder html docs docs/_build

package: $(VENV)/ready
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf dist docs/_build $(VENV) .pytest_cache .mypy_cache .ruff_cache
