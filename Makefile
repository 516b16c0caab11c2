# Everything a checkout needs: python3 (3.11 or newer, with venv and pip) and make.
#   make test PYTEST_ARGS="-n 2 -k locks"     pass other arguments to pytest (no coverage)
#   make test PYTHON=python3.12               another interpreter (only when .venv is made)
#   make lock LOCK_ARGS=--upgrade             the newest versions instead of the fewest changes

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist worksteal --cov --cov-report=term:skip-covered
LOCK_ARGS ?=

# Python keeps what it compiles: pytest would rewrite all tests in each process of each run.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup test test-integration test-slow test-paper test-cuda mutation lint paper docs bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## make .venv and install the package with its locked dependencies

test: $(INSTALLED) ## run the fast tests and check how much of the code they cover
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-integration: $(INSTALLED) ## run whole programs: the docs, the examples, kills, a cluster, a browser
	$(BIN)/python -m pytest -m integration -n 2

test-slow: $(INSTALLED) ## run the statistical tests, which take minutes
	$(BIN)/python -m pytest -m slow -n 2

test-paper: $(INSTALLED) ## run the tests at the paper's scale
	$(BIN)/python -m pytest -m paper -n 2

test-cuda: $(INSTALLED) ## run the tests that need an NVIDIA GPU and the extra blockmdp[cuda]
	$(BIN)/python -m pytest -m cuda -n 0

mutation: $(INSTALLED) ## change the code in 240 places, one at a time, and count which the fast tests catch
	$(BIN)/python tests/mutation.py

lint: $(INSTALLED) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

paper: $(INSTALLED) ## run the paper's experiments and draw its figures
	$(BIN)/blockmdp reproduce

docs: $(INSTALLED) ## build the documentation into site/
	@rm -rf docs/reference/generated  # pages of names that are no longer public
	$(BIN)/python -m sphinx -q -W --keep-going -j auto -d docs/_build docs site
	@echo "Open site/index.html"

bench: $(INSTALLED) ## measure speed against the naive baseline
	$(BIN)/python -m benchmarks

lock: | $(BIN)/python ## refresh requirements.lock from pyproject.toml
	@echo "Resolving dependencies into requirements.lock"
	@$(PIP) install -q uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes \
		--no-header --no-annotate -q -o requirements.lock $(LOCK_ARGS)

clean: ## remove caches and built files, but neither .venv nor results
	rm -rf build dist site .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -rf docs/_build docs/auto_examples docs/reference/backreferences docs/reference/generated
	find . \( -path ./.venv -o -path ./.git -o -path ./results \) -prune -o \
		\( -name __pycache__ -o -name '*.egg-info' \) -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing blockmdp and its locked dependencies into .venv"
	@$(PIP) install -q --no-deps --require-hashes -r requirements.lock  # it lists all of them
	@$(PIP) install -q --no-deps -e .
	@touch $@

$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "No '$(PYTHON)' found: install Python 3.11 or newer, or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) -V 2>&1): 3.11 or newer is needed, say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments: install its venv module (often a package python3-venv)" >&2; exit 1; }
	@echo "Making .venv with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv .venv
