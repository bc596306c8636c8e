# Everything that a developer runs; `make` alone lists it. Nothing outside this folder is changed: tools live in
# .venv, built from the locks in requirements/, and pip takes its index and proxies from the user's own settings.

PYTHON ?= python3
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
PROTOS := src/devplug/wire/protos
SCHEMA := src/devplug/daemon/grammar/config.schema.json
PAGES := docs/checks.md=devplug.conformance.reports.page docs/metrics.md=devplug.metrics.page \
	docs/cli.md=devplug.cli.page docs/keys.md=devplug.daemon.grammar.page
LOCK := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --quiet \
	--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

# ── environments ─────────────────────────────────────────────────────────────────────────────────

# The user's pip, told to work in the environment $(1); where there is none, the environment's own. The first
# way needs no ensurepip, which Debian leaves out of python3 (it is in python3-venv).
pip = $$($(PYTHON) -m pip --python $(1)/bin/python --version >/dev/null 2>&1 \
	&& echo $(PYTHON) -m pip --python $(1)/bin/python || echo $(1)/bin/python -m pip) \
	--disable-pip-version-check --quiet

# $(1): folder of the environment, $(2): the lock that it holds exactly.
define environment
@echo "building $(1) from $(2)"
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "devplug needs Python 3.11 or newer")'
@rm -rf $(1)
@$(PYTHON) -m pip --version >/dev/null 2>&1 \
	&& $(PYTHON) -m venv --without-pip $(1) || $(PYTHON) -m venv $(1)
@$(call pip,$(1)) install --require-hashes -r $(2)
@touch $(1)/.locked
endef

.venv/.locked: requirements/dev.lock
	$(call environment,.venv,requirements/dev.lock)

.venv/.ready: .venv/.locked pyproject.toml
	@$(call pip,.venv) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv-wheel/.locked: requirements/test.lock
	$(call environment,.venv-wheel,requirements/test.lock)

# ── what people run ──────────────────────────────────────────────────────────────────────────────

.PHONY: help demo test test-source test-wheel golden verify-mutants hardware check bench protos schema pages picture deploy lock dist clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/.ready ## show this machine's devices in pods: no cluster, no root
	@$(BIN)/devplug demo

test: test-source test-wheel ## run all tests on the source, and on the wheel those that a package can break

test-source: .venv/.ready ## run all tests on the source; a part: make test-source ARGS=tests/wire
	$(BIN)/python -m pytest $(ARGS)

# What is about the repository, judges other programs, or is rules alone, is the same on the wheel.
NOT_ON_WHEEL := $(addprefix --ignore=tests/,conformance deploy docs golden kubelet test_promises.py \
	$(addprefix daemon/,cdi grammar health importing inspecting preference sources) \
	$(addprefix sandbox/,api controllers nodes openapi scheduling server))

test-wheel: .venv-wheel/.locked dist ## run what a package can break on the wheel, from the unpacked sdist without src
	@$(call pip,.venv-wheel) install --no-deps --force-reinstall dist/*.whl
	@rm -rf build/sdist && mkdir -p build/sdist
	@tar -xzf dist/*.tar.gz -C build/sdist --strip-components=1
	@rm -r build/sdist/src
	cd build/sdist && ../../.venv-wheel/bin/python -m pytest -m "not slow" --hypothesis-profile brief $(NOT_ON_WHEEL) $(ARGS)

GOLDEN := tests/golden/data

golden: .venv/.ready ## play recordings of a real kubelet against ours: make golden GOLDEN=FOLDER
	@$(BIN)/python -m tests.golden $(GOLDEN)

verify-mutants: .venv/.ready ## every deliberately wrong plugin against every check, as a matrix without a hole
	@$(BIN)/python -m tests.conformance $(ARGS)

hardware: .venv/.ready ## plug real kernel devices into a QEMU guest with the daemon; root on Debian installs it
	@$(BIN)/python -m lab $(ARGS)

check: .venv/.ready ## judge form, types, layers and promises, without running the other tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m devplug.daemon.grammar.schema | diff --unified $(SCHEMA) - # else: make schema
	@for pair in $(PAGES); do $(BIN)/python -m $${pair#*=} | diff --unified $${pair%%=*} -; done # else: make pages
	$(BIN)/python -m pytest -q tests/test_{public_face,promises,protos,readme}.py

bench: .venv/.ready ## measure our daemon; beside another plugin: make bench CMD='./plugin --dir {dir}'
	@$(BIN)/python -m bench $(ARGS) $(if $(CMD),-- $(CMD))

# ── what is generated, and committed ─────────────────────────────────────────────────────────────

protos: .venv/.ready ## compile the .proto texts into descriptors.binpb
	$(BIN)/python -m grpc_tools.protoc -I $(PROTOS) --descriptor_set_out=$(PROTOS)/descriptors.binpb $(PROTOS)/*.proto

schema: .venv/.ready ## write the JSON Schema of the configuration file
	$(BIN)/python -m devplug.daemon.grammar.schema > $(SCHEMA).new && mv $(SCHEMA).new $(SCHEMA)

pages: .venv/.ready ## write the reference pages that are made from the code
	@for pair in $(PAGES); do $(BIN)/python -m $${pair#*=} > $${pair%%=*}.new && mv $${pair%%=*}.new $${pair%%=*}; done

picture: .venv/.ready ## record the demo and draw it for the README
	$(BIN)/python -m tests.docs.picture --record

deploy: .venv/.ready ## write alerts, dashboard, chart and kustomize base, and the table of the chart's values
	$(BIN)/python -m devplug.deploy.monitoringfiles deploy
	$(BIN)/python -m devplug.deploy deploy

lock: .venv/.locked ## choose the newest versions again and write requirements/*.lock
	$(LOCK) --upgrade --group dev --output-file requirements/dev.lock
	$(LOCK) --constraint requirements/dev.lock --group test --output-file requirements/test.lock
	$(LOCK) --constraint requirements/dev.lock --output-file requirements/runtime.lock
	$(LOCK) --constraint requirements/dev.lock --extra k8s --extra nvidia --output-file requirements/image.lock

dist: .venv/.ready ## build the sdist, and the wheel from it
	@rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## remove all that these targets make
	rm -rf .venv .venv-wheel build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
