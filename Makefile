# Everything runs from .venv, which the first target that needs it makes from plain python3.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes
UV := $(BIN)/uv pip install --system-certs --quiet --python $(BIN)/python
# More words for the command behind a target: make test ARGS="-k chain", make up ARGS="--no-demo".
ARGS ?=
# Each worker has engines of its own, runs whole files, and ends the run if it dies.
WORKERS ?= 2

.PHONY: help up test check chaos chaos-smoke soak bench fuzz fmt lock docs clean

help:  ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

up: $(STAMP)  ## Start Tocsin with embedded engines and fire a demo job
	@exec $(BIN)/tocsin up $(ARGS)

test: $(STAMP)  ## Run the whole test suite
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0 $(ARGS)

# How many seeds are played, or the first and the last.
SEEDS ?= 200
.PHONY: simulate
simulate: $(STAMP)  ## Play seeds of the simulation: make simulate SEEDS=200, SEEDS=7-7
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

.PHONY: mutants
mutants: $(STAMP)  ## Put each seeded bug in, play until it is caught, write docs/mutants.md
	@$(BIN)/python -m tests.simulation.mutants $(ARGS)

check: $(STAMP)  ## Lint, format, types, import rules, architecture tests
	@failed=""; \
	$(BIN)/ruff check . || failed+=" ruff"; \
	$(BIN)/ruff format --check --quiet . || failed+=" format"; \
	$(BIN)/mypy || failed+=" mypy"; \
	$(BIN)/lint-imports --no-logo || failed+=" imports"; \
	$(BIN)/python -m pytest tests/architecture -q || failed+=" architecture"; \
	test -z "$$failed" || { echo "make check failed:$$failed" >&2; exit 1; }

chaos: $(STAMP)  ## Faults on the real processes, every scenario once
	@$(BIN)/python -u -m tests.chaos $(ARGS)

chaos-smoke: $(STAMP)  ## The short run of chaos
	@$(BIN)/python -u -m tests.chaos --smoke $(ARGS)

soak: $(STAMP)  ## Random faults for so long: make soak HOURS=8
	@$(BIN)/python -u -m tests.chaos --hours $(or $(HOURS),1) $(ARGS)

bench: $(STAMP)  ## Measure: rates, lateness, CPU per fire
	@$(BIN)/tocsin bench $(ARGS)

fuzz: $(STAMP)  ## Fuzz parsers: make fuzz ARGS="url -max_total_time=600" (Linux)
	@$(BIN)/python -m tests.fuzz.run $(ARGS)

fmt: $(STAMP)  ## Format, and fix what can be fixed
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

lock: $(STAMP)  ## Resolve pyproject.toml anew into requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --all-extras --generate-hashes --universal \
	    --python-version 3.11 --no-annotate --no-header --no-emit-index-url --upgrade \
	    --quiet --output-file requirements.lock

docs: $(STAMP)  ## Write the generated pages of docs/
	@$(BIN)/python -m docs.render

clean:  ## Remove .venv and caches; data of `make up` stays
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# pip brings uv, with its hash, and uv the rest, five times as fast; from where is what pip is told.
# The build tools come from the lock too, hence no build isolation: nothing is fetched unhashed.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Tocsin needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." >&2; \
	    echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	    rm -rf $(VENV); \
	    echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu install python3-venv." >&2; exit 1; }
	@echo "Installing into $(VENV) (once, less than a minute)..." >&2
	@awk '/^uv==/ { found = 1 } found { print } found && !/\\$$/ { exit }' requirements.lock \
	    | $(PIP) -r /dev/stdin
	@export UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || true)}}"; \
	test -n "$$UV_DEFAULT_INDEX" || unset UV_DEFAULT_INDEX; \
	$(UV) --require-hashes -r requirements.lock || { \
	    echo "uv could not install it; pip tries, which takes longer" >&2; \
	    $(PIP) -r requirements.lock; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
