# Everything that a developer runs; `make` alone lists it. Nothing outside this folder is changed: tools live in
# .venv, built from the locks in requirements/, and pip takes its index and proxies from the user's own settings.

PYTHON ?= python3
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# With the environment activated, python3 would be the one that is about to be built again.
export PATH := $(subst $(CURDIR)/.venv/bin:,,$(PATH))

BIN := .venv/bin
PROTOS := src/devplug/wire/protos
SCHEMA := src/devplug/daemon/grammar/config.schema.json
PAGES := docs/checks.md=devplug.conformance.reports.page docs/metrics.md=devplug.metrics.page \
	docs/cli.md=devplug.cli.page docs/keys.md=devplug.daemon.grammar.page docs/performance.md=bench.page \
	docs/reliability.md=torture.page
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --quiet \
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

.PHONY: help demo test test-source test-wheel golden verify-mutants torture mutants hardware check bench sbom audit protos schema pages picture deploy lock dist clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/.ready ## show this machine's devices in pods: no cluster, no root
	@$(BIN)/devplug demo

test: test-source test-wheel ## run all tests on the source, and on the wheel those that a package can break

test-source: .venv/.ready ## run all tests on the source; a part: make test-source ARGS=tests/wire
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

# What is about the repository, judges other programs, or is rules alone, is the same on the wheel.
NOT_ON_WHEEL := $(addprefix --ignore=tests/,conformance deploy docs golden kubelet security/test_supply.py torture test_promises.py \
	$(addprefix daemon/,cdi grammar health importing inspecting preference sources) \
	$(addprefix sandbox/,api controllers nodes openapi scheduling server))

test-wheel: .venv-wheel/.locked dist ## run what a package can break on the wheel, from the unpacked sdist without src
	@$(call pip,.venv-wheel) install --no-deps --force-reinstall dist/*.whl
	@rm -rf build/sdist && mkdir -p build/sdist
	@tar -xzf dist/*.tar.gz -C build/sdist --strip-components=1
	@rm -r build/sdist/src
	cd build/sdist && ../../.venv-wheel/bin/python -m pytest -n auto --dist loadfile -m "not slow" --hypothesis-profile brief $(NOT_ON_WHEEL) $(ARGS)

GOLDEN := tests/golden/data

golden: .venv/.ready ## play recordings of a real kubelet against ours: make golden GOLDEN=FOLDER
	@$(BIN)/python -m tests.golden $(GOLDEN)

verify-mutants: .venv/.ready ## every deliberately wrong plugin against every check, as a matrix without a hole
	@$(BIN)/python -m tests.conformance $(ARGS)

torture: .venv/.ready ## every fault of the catalogue, under 30 minutes; again: make torture ARGS="--seed N --only CASE"
	@$(BIN)/python -m torture $(ARGS)

mutants: .venv/.ready ## take each guard of the invariants away in turn, and show what notices that
	@$(BIN)/python -m torture.mutants $(ARGS)

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

sbom: .venv/.ready ## write what is shipped as CycloneDX into build/sbom, the same bytes each time
	@$(BIN)/python -m supply.sbom build/sbom

.venv-audit/.locked: requirements/audit.lock
	$(call environment,.venv-audit,requirements/audit.lock)

# All locks, because what builds and tests a release can spoil it too. Strict: without the database it fails.
audit: .venv-audit/.locked ## hold every locked package against the known vulnerabilities (asks pypi.org)
	@for lock in image test dev audit; do echo "$$lock.lock"; .venv-audit/bin/pip-audit --strict --disable-pip \
		--require-hashes --progress-spinner off --requirement requirements/$$lock.lock $(ARGS); done

# ── what is generated, and committed ─────────────────────────────────────────────────────────────

protos: .venv/.ready ## compile the .proto texts for the tests that hold our codec against protobuf
	$(BIN)/python -m grpc_tools.protoc -I $(PROTOS) --descriptor_set_out=tests/wire/descriptors.binpb $(PROTOS)/*.proto

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
	$(LOCK) pyproject.toml --upgrade --group dev --output-file requirements/dev.lock
	$(LOCK) --constraint requirements/dev.lock pyproject.toml --group test --output-file requirements/test.lock
	$(LOCK) --constraint requirements/dev.lock pyproject.toml --output-file requirements/runtime.lock
	$(LOCK) --constraint requirements/dev.lock pyproject.toml --extra k8s --extra nvidia --output-file requirements/image.lock
	$(LOCK) --constraint requirements/dev.lock --group audit --output-file requirements/audit.lock

dist: .venv/.ready ## build the sdist, and the wheel from it
	@rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## remove all that these targets make
	rm -rf .venv .venv-wheel .venv-audit build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
