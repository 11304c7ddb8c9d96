# make demo    train a Transformer from nothing in five minutes and look inside it
# make test    everything that is checked quickly, in a fresh virtual environment
# make docs    the documentation as a site, in docs/_build
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all lint docs clean

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

lint: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/ready
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --builder html docs docs/_build

clean:
	rm -rf docs/_build $(VENV) .pytest_cache .mypy_cache .ruff_cache
