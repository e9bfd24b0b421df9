# Everything runs in .venv, which is made on first use. PYTHON chooses the interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SMALL := $(VENV)/.ready-small
RLLIB := .venv-rllib
RLLIB_READY := $(RLLIB)/.ready
.DEFAULT_GOAL := help
.PHONY: help setup setup-small demo test rllib lint docs bench clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

# What a setup takes was measured with the build of PyTorch for CPUs, and with pip downloading from nearby.
ALL := dmc,metaworld,minigrid,report,tensorboard,ray,sb3,skrl,torchrl,hub,docs,dev
FEW := minigrid,report

setup: $(READY) ## Make .venv with the vcse command and everything it can use: 3 GB, 1 to 5 minutes
$(READY): pyproject.toml constraints.txt
	@echo "installing everything into $(VENV): 2.9 GB on disk and 1 to 5 minutes with a CPU build of PyTorch; the build with"
	@echo "CUDA, which PyPI has for Linux, is some GB more (make setup-small is MiniGrid alone: 1.9 GB, 1 to 3 minutes)"
	@$(call install,'.[$(ALL)]' --editable ./policies)
	@# Images of MuJoCo need a library that draws; where this may install one, it does, and vcse doctor says what is there.
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! ldconfig -p | grep -q -e libOSMesa -e libEGL; then \
		apt-get update -qq >/dev/null 2>&1; \
		apt-get install -y -qq --no-install-recommends libosmesa6 >/dev/null 2>&1 || \
		apt-get install -y -qq --no-install-recommends libegl1 libgl1-mesa-dri >/dev/null 2>&1 || \
		echo "no library that draws could be installed: see vcse doctor"; fi
	@touch $@ $(SMALL)
	@echo "ready: source $(VENV)/bin/activate, and vcse --help lists the commands"

setup-small: $(SMALL) ## Make .venv with MiniGrid and the report alone, which is what the demo needs: 2 GB, 1 to 3 minutes
$(SMALL): pyproject.toml constraints.txt
	@echo "installing MiniGrid and the report into $(VENV): 1.9 GB on disk and 1 to 3 minutes with a CPU build of PyTorch; the"
	@echo "build with CUDA, which PyPI has for Linux, is some GB more"
	@$(call install,'.[$(FEW)]')
	@touch $@
	@echo "ready: source $(VENV)/bin/activate, and vcse --help lists the commands"

define install
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "vcse needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }; \
$(PYTHON) -m venv $(VENV) && \
$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable $(1)
endef

demo: $(SMALL) ## Train A2C with no bonus, SE and VCSE on LavaGapS7, 16 seeds each: out/demo/index.html
	$(BIN)/python examples/headline.py --out out/demo

test: lint docs ## Lint, check types and imports, build the site, run all tests
	@# RLlib's come first, so that pytest's last line is that of the main run.
	@if log=$$($(MAKE) --silent $(RLLIB_READY) 2>&1); then $(MAKE) --silent rllib; \
		else echo "skipped the tests of RLlib: $(RLLIB) could not be set up: $$(echo "$$log" | grep -m 1 -o 'ERROR: .*' || echo "$$log" | head -n 1)"; fi
	@# Tests that need the site, which is built here, fail without it; .ci/run requires what else CI has.
	VCSE_REQUIRE="site $$VCSE_REQUIRE" $(BIN)/python -m pytest --numprocesses 2

# RLlib pins another Gymnasium than constraints.txt, so it has an environment of its own.
$(RLLIB_READY): pyproject.toml constraints-rllib.txt
	$(PYTHON) -m venv $(RLLIB)
	$(RLLIB)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-rllib.txt --editable '.[rllib]' beartype hypothesis pytest
	@touch $@

rllib: $(RLLIB_READY) ## Run the tests of the RLlib adapter alone, in .venv-rllib
	$(RLLIB)/bin/python -m pytest tests/integrations/test_rllib.py

lint: $(READY) ## Lint, check the format, the types, and which way imports point
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY) ## Build the documentation, executing its tutorials: out/docs/index.html
	@rm -rf out/docs
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --jobs 2 --conf-dir docs --doctree-dir out/doctrees . out/docs
	@echo "built out/docs/index.html"

bench: $(READY) ## Measure time and memory against the plain formula
	$(BIN)/vcse bench estimator

clean: ## Remove build outputs
	rm -rf $(VENV) $(RLLIB) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
