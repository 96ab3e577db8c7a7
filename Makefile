.DEFAULT_GOAL := help
.PHONY: help run test check fuzz digests static format tables docs dist clean

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/pytest -n 2 -rs
N ?= 2000
SEED ?= 0

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */\1\t/'

run: $(READY)  ## train F07 on MNIST as the paper does, and show its accuracy beside ours
	$(BIN)/ftnn train --function F07 --activation logistic --layers 1 --gamma 0

test: static  ## everything: style, types, imports, all tests
	$(PYTEST)

check: static  ## the daily subset, under two minutes: without the tests of kernels, training and estimators
	$(PYTEST) -m "not slow" tests/data tests/formula tests/nn tests/cli/test_app.py tests/test_errors.py tests/test_project.py

fuzz: $(READY)  ## 2,000 random formulas against an independent oracle; N=… SEED=… for more, or others
	$(BIN)/python -m tests.fuzz --count $(N) --seed $(SEED)

digests: $(READY)  ## whether results have the bits that they had before; takes some minutes
	$(BIN)/python -m tests.digests

static: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: $(READY)  ## rewrite the code as ruff wants it
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

tables: $(READY)  ## docs/reproduction-tables.md, anew from results/
	mkdir -p build && rm -f build/results.sqlite*
	$(BIN)/ftnn store import results/*.csv --store build/results.sqlite
	$(BIN)/ftnn report --store build/results.sqlite --out docs/reproduction-tables.md

docs: $(READY)  ## the documentation site, in build/site
	$(BIN)/mkdocs build

dist: $(READY)  ## a wheel and a source distribution, in dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

clean:  ## remove all that make has made, .venv too
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# torch is pinned without a local version, so that pip prefers 2.13.0+cpu wherever it can find one.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
