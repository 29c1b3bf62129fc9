# `make help` lists the targets. Everything runs in a virtual environment of its own, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
RUNTIME := $(VENV)/installed-runtime

# Tests run in two processes of one thread each: that uses two cores best, and one thread makes sums repeatable.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-browser lint types unit docs tables evidence fuzz mutants bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

install: $(STAMP)  ## make the environment and install the package into it

# What a user has: no tools of the developer.
$(RUNTIME): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

demo: export OMP_NUM_THREADS := $(shell nproc)
demo: $(RUNTIME)  ## MaskGIT and Token-Critic side by side, in pictures, to out/demo
	$(BIN)/token-critic demo

test: lint types unit  ## lint, type-check and test

lint: $(STAMP)  ## ruff, and what people read: line lengths, phrases, links, commands
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/check_prose.py

types: $(STAMP)  ## basedpyright
	$(BIN)/basedpyright

unit: $(STAMP)  ## the tests alone; ARGS="tests/test_masking.py -x" to choose
	$(BIN)/pytest -n 2 $(ARGS)

test-browser: $(STAMP)  ## the studio in a real browser; needs root where Debian's chromium is not installed yet
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -qq -y chromium; }
	$(BIN)/pytest tests/studio/test_browser_*.py $(ARGS)

docs: $(STAMP)  ## API pages from the docstrings, to out/api
	$(BIN)/python scripts/api_docs.py

tables: $(STAMP)  ## the numbers of the pages from docs/results/fashion_mnist/*.json; lists what is still typed
	$(BIN)/python scripts/tables.py

evidence: export OMP_NUM_THREADS := $(shell nproc)
evidence: $(STAMP)  ## measure again that the critic is ahead: half an hour
	$(BIN)/pytest -m evidence -rs tests/test_evidence.py $(ARGS)

fuzz: $(STAMP)  ## each reader on spoilt files, 20 s each
	FUZZ_SECONDS=20 $(BIN)/pytest tests/fuzz $(ARGS)

mutants: $(STAMP)  ## break the code in each known way and see that a test notices
	$(BIN)/python tests/mutants.py

bench: export OMP_NUM_THREADS := $(shell nproc)
bench: $(STAMP)  ## the benchmarks, one after the other
	set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file; done

clean:  ## remove the environment and what tests left behind
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis out dist
