# `make run` and `make test` are all that a new machine needs: they make the environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
args ?=

# The tests start Python some hundred times: none of them is to compile again what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run test check docs bench bench-gpu test-gpu test-external test-browser lock clean

help: ## say what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

$(READY): pyproject.toml constraints.txt tests/job-server.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/job-server --requirement tests/job-server.txt
	touch $@

install: $(READY) ## make the environment and install into it, with the pinned versions

run: $(READY) ## sweep and rank on the accelerators here, else on the CPU (args='conf=h100 space.tp=8')
	$(BIN)/python -m orchestrator $(args)

test: $(READY) ## run the tests (no GPU needed; args='-k space')
	$(BIN)/python -m pytest -m 'not gpu and not external and not browser' -n 2 --dist loadfile --no-loadscope-reorder $(args)

check: $(READY) ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY) ## write the generated tables of docs/ again
	$(BIN)/python -m benchmarks.references
	$(BIN)/python -m benchmarks.check_table

bench: $(READY) ## benchmarks that need no GPU
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.fleet
	$(BIN)/python -m benchmarks.dispatch
	$(BIN)/python -m benchmarks.dispatch --answers=built

bench-gpu: ## benchmarks on the GPUs of this machine, with the python on the PATH (python=…)
	$(or $(python),$(PYTHON)) -m benchmarks.gpu $(args)

test-gpu: ## the tests that need a GPU, with the python on the PATH (python=…)
	CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES:-0} $(or $(python),$(PYTHON)) -m pytest -m gpu $(args)

# The tools that read exports have an environment of their own: what they need is not what this project pins.
$(VENV)/external/.ready: tests/external.txt
	$(PYTHON) -m venv $(VENV)/external
	$(VENV)/external/bin/python -m pip install --quiet --no-deps --requirement tests/external.txt
	touch $@

test-external: $(READY) $(VENV)/external/.ready ## the tests in which aiconfigurator and llm-analysis read our exports
	EXTERNAL_PYTHON=$(VENV)/external/bin/python $(BIN)/python -m pytest -m external $(args)

$(VENV)/browser/.ready: $(READY) tests/browser.txt
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/browser --requirement tests/browser.txt
	touch $@

test-browser: $(READY) $(VENV)/browser/.ready ## the tests in which Chromium opens reports (Debian's is installed where it is absent)
	command -v chromium >/dev/null && command -v chromedriver >/dev/null || apt-get install --yes chromium chromium-driver
	PYTHONPATH=$(VENV)/browser $(BIN)/python -m pytest -m browser $(args)

lock: $(READY) ## write the versions that are installed here into constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | sed -E 's/\+(cpu|cu[0-9]+)$$//' > constraints.txt

clean: ## remove the environment and what tools leave behind; results/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
