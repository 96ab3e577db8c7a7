.DEFAULT_GOAL := help
.PHONY: help run test check quick faults fuzz digests static format tables docs dist clean

PYTHON ?= python3
ifeq ($(OS),Windows_NT)
BIN := .venv/Scripts
else
BIN := .venv/bin
endif
VENV = $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
READY := .venv/.ready
READY_DEV := .venv/.ready-dev
PYTEST := $(BIN)/python -m pytest -n 2 -rs
N ?= 2000
SEED ?= 0

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */\1\t/'

run: $(READY)  ## train F07 on MNIST with the paper's settings, and compare with the paper's accuracy
	$(BIN)/ftnn train --function F07 --activation logistic --layers 1 --gamma 0

test: static  ## run everything: style, types, imports, all tests
	$(PYTEST)

check: $(READY_DEV)  ## run style, types of src, imports and a quick selection of all tests: under two minutes
	$(MAKE) --no-print-directory -j2 static TYPES=src quick

quick: $(READY_DEV)
	$(PYTEST) --quick

fuzz: $(READY_DEV)  ## check 2,000 random formulas against an independent oracle; N=… and SEED=… choose others
	$(BIN)/python -m tests.fuzz --count $(N) --seed $(SEED)

faults: $(READY_DEV)  ## plant faults in copies of the source, and check that the tests catch each
	$(BIN)/python -m tests.faults

digests: $(READY_DEV)  ## check that results are still the same, bit for bit; takes some minutes
	$(BIN)/python -m tests.digests

static: $(READY_DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright $(TYPES)
	$(BIN)/lint-imports

format: $(READY_DEV)  ## format the code with ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

tables: $(READY_DEV)  ## regenerate docs/reproduction-tables*.md from results/
	mkdir -p build && rm -f build/results.sqlite*
	$(BIN)/ftnn store import results/*.csv --store build/results.sqlite
	$(BIN)/ftnn report --store build/results.sqlite --out docs/reproduction-tables.md
	$(BIN)/ftnn report --store build/results.sqlite --out docs/reproduction-tables-60000.md --data mnist

docs: $(READY_DEV)  ## build the documentation site in build/site
	$(BIN)/mkdocs build

dist: $(READY_DEV)  ## build a wheel and a source distribution in dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

clean:  ## remove everything that make created, .venv included
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# torch is pinned without a local version, so that pip prefers 2.13.0+cpu wherever it can find one.
# `make run` needs only the library; everything else needs the development tools too.
$(READY): pyproject.toml constraints.txt
	$(VENV)
	$(PIP) -e .
	touch $@

$(READY_DEV): pyproject.toml constraints.txt
	$(VENV)
	$(PIP) -e '.[dev]'
	touch $(READY) $@
