# Every target says what it does: `make help`. `make test` and `make demo` set up what they need by themselves.

VENV   := .venv
PYTHON := $(VENV)/bin/python
STAMP  := $(VENV)/.ready
CACHE  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vlm-operator
KIND   := go run sigs.k8s.io/kind@v0.33.0

PYTEST_ARGS ?=
BENCHMARKS ?=

.DEFAULT_GOAL := help
.PHONY: help setup check-tools control-plane test lint generate lock bench accuracy ci \
        demo demo-up demo-down kind-up kind-down clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) control-plane ## install what is needed into .venv and build the control plane (first time: minutes)

# The stamp makes this instant until a lock file or pyproject.toml changes.
$(STAMP): requirements/dev.txt pyproject.toml
	@tools/check_tools.sh
	@echo "[setup] installing the locked packages into $(VENV)"
	@test -x $(PYTHON) || "$$(tools/check_tools.sh --python)" -m venv $(VENV)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

check-tools: ## say which tools are missing and how to get them
	@tools/check_tools.sh

control-plane: $(STAMP)
	@$(PYTHON) -m tests.support.controlplane build > /dev/null

test: setup ## run every test, those against a real API server included (PYTEST_ARGS="-k name")
	$(PYTHON) -m pytest $(PYTEST_ARGS)

lint: $(STAMP) ## check style, types, import floors, catalogue, generated files and chart
	@! test -e operator/__init__.py || { echo "operator/__init__.py hides the standard library's operator"; exit 1; }
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) -m vlm_operator.catalogue.load
	$(PYTHON) tools/generate.py --check
	$(PYTHON) tools/generate_install.py --check
	$(PYTHON) -m tests.support.helm lint

generate: $(STAMP) ## write all generated files anew
	$(PYTHON) tools/generate.py
	$(PYTHON) tools/generate_install.py

lock: ## choose package versions anew after a change of pyproject.toml
	@"$$(tools/check_tools.sh --python)" tools/lock_requirements.py

bench: $(STAMP) ## measure how fast the product answers
	$(PYTHON) -m tests.bench

accuracy: $(STAMP) ## compare predictions with published figures (BENCHMARKS=FILE, SILICON=FILE, MODELS=FILE for other rows, OUTPUT=json)
	@$(PYTHON) -m tests.accuracy $(if $(BENCHMARKS),--benchmarks "$(BENCHMARKS)") $(if $(SILICON),--silicon "$(SILICON)") \
		$(if $(MODELS),--models "$(MODELS)") $(if $(OUTPUT),--output $(OUTPUT))

ci: lint test ## exactly what CI runs

demo: setup ## show the operator at work on a simulated GPU cluster, then clean up
	@$(PYTHON) -m tests.support.demo

demo-up: setup ## start the demo cluster with the operator and leave it running
	@$(PYTHON) -m tests.support.demo up

demo-down: $(STAMP) ## end what demo-up started
	@$(PYTHON) -m tests.support.demo down

kind-up: ## create a kind cluster for the tests (needs a container engine; your kubectl context is not touched)
	@mkdir -p $(CACHE)/kind
	$(KIND) create cluster --name vlm-operator --config kind/cluster.yaml --kubeconfig $(CACHE)/kind/kubeconfig

kind-down: ## delete the kind cluster
	$(KIND) delete cluster --name vlm-operator --kubeconfig $(CACHE)/kind/kubeconfig
	@rm -f $(CACHE)/kind/kubeconfig

clean: ## remove .venv and tool caches (the built control plane stays in the user's cache)
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find operator tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
