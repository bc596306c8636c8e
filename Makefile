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
# Tests start hundreds of programs: without compiled files each one compiles devplug again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PROTOS := src/devplug/wire/protos
SCHEMA := src/devplug/daemon/config/config.schema.json
PAGES := docs/checks.md=devplug.conformance.page docs/metrics.md=devplug.metrics.catalogue \
	docs/cli.md=devplug.cli.page docs/keys.md=devplug.daemon.config.page docs/performance.md=bench.page \
	docs/reliability.md=torture.page docs/architecture.md=tests.docs.transitions docs/sdk.md=tests.docs.sdk
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --quiet \
	--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

# ── environments ─────────────────────────────────────────────────────────────────────────────────

# The user's pip, told to work in the environment $(1); where there is none, the environment's own. The first
# way needs no ensurepip, which Debian leaves out of python3 (it is in python3-venv).
pip = $$($(PYTHON) -m pip --python $(1)/bin/python --version >/dev/null 2>&1 \
	&& echo $(PYTHON) -m pip --python $(1)/bin/python || echo $(1)/bin/python -m pip) \
	--disable-pip-version-check $(2)

# $(1): folder of the environment, $(2): the lock that it holds exactly. Of pip's output the names of packages are
# shown. Python compiles the modules that are used; compiling all of them takes a third of pip's time.
define environment
@echo "building $(1) from $(2)"
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "devplug needs Python 3.11 or newer")'
@rm -rf $(1)
@$(PYTHON) -m pip --version >/dev/null 2>&1 \
	&& $(PYTHON) -m venv --without-pip $(1) || $(PYTHON) -m venv $(1)
@$(call pip,$(1)) install --no-compile --progress-bar off --require-hashes -r $(2) | sed --unbuffered --quiet 's/ (from .*//; /^Coll/p; /^Inst/p'
@touch $(1)/.locked
endef

.venv/.locked: requirements/dev.lock
	$(call environment,.venv,requirements/dev.lock)

.venv/.ready: .venv/.locked pyproject.toml
	@$(call pip,.venv,--quiet) install --no-deps --no-build-isolation --editable .
	@touch $@

# What devplug needs to run, with a link to this source tree: a build of the wheel would double the time.
define launcher
#!/bin/sh
exec '$(CURDIR)/.venv-demo/bin/python' -P -c 'import sys; sys.argv[0] = "devplug"; from devplug.cli import main; main()' "$$@"
endef

.venv-demo/.locked: requirements/runtime.lock
	$(call environment,.venv-demo,requirements/runtime.lock)

.venv-demo/.ready: export LAUNCHER = $(launcher)
.venv-demo/.ready: .venv-demo/.locked
	@echo "$(CURDIR)/src" > "$$(.venv-demo/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/devplug.pth"
	@printenv LAUNCHER > .venv-demo/bin/devplug && chmod +x .venv-demo/bin/devplug
	@touch $@

.venv-wheel/.locked: requirements/test.lock
	$(call environment,.venv-wheel,requirements/test.lock)

# ── what people run ──────────────────────────────────────────────────────────────────────────────

.PHONY: help quick test test-source test-wheel test-all steady demo golden verify-mutants calibrate torture mutants hardware check check-types check-rest bench sbom audit protos schema pages picture deploy lock dist clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

demo: .venv-demo/.ready ## show this machine's devices in pods: no cluster, no root
	@.venv-demo/bin/devplug demo
	@printf '%s\n' '' 'To run devplug yourself:' '  source .venv-demo/bin/activate' '  devplug discover' \
		'  devplug sandbox up --detach' 'Tutorials: docs/README.md'

# One more than there are processors, because many tests wait for programs and for the kernel; two more take longer.
PYTEST := python -m pytest --numprocesses $(shell echo $$(($$(nproc) + 1))) --dist loadfile

# What is decided without input or output, and told by values alone.
PURE := $(addprefix tests/,test_backoff.py test_devices.py test_errors.py cdi daemon/cdi daemon/config daemon/importers daemon/inspection dra metrics \
	$(addprefix daemon/test_,container_response.py health_rules.py placement.py preference.py device_links.py) \
	k8s sandbox/api sandbox/authorization sandbox/openapi sandbox/scheduler wire/http2 wire/test_messages.py wire/test_protobuf.py \
	$(addprefix holds/test_,decide.py ledger.py any_history.py) \
	$(addprefix kubelet/test_,allocation.py hints.py predicates.py topology.py) \
	$(addprefix plugin/test_,socket_registration.py slices.py snapshot.py takeover.py watcher_registration.py))

quick: .venv/.ready ## at each save: form, lint, types and the tests of the pure parts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/$(PYTEST) --quiet -m "not nightly" --hypothesis-profile brief $(PURE) $(ARGS)

# BESIDE: what else to run beside the tests of the wheel, which leave a processor idle.
test: test-source ## run all that a change can break, on the source, and a smoke of the wheel
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target test-wheel $(BESIDE)

test-source: .venv/.ready ## run the tests on the source; a part: make test-source ARGS=tests/wire
	$(BIN)/$(PYTEST) -m "not nightly" --durations 20 $(ARGS)

# One test for each thing that a package can leave out: modules, commands, templates, static files, plugins.
ON_WHEEL := $(addprefix tests/,test_public_face.py test_protos.py cli/test_main.py cli/test_new.py cli/test_run_small.py \
	deploy/test_printing.py monitor/page/test_pages.py scaffold/test_project.py testing/test_entry_point.py)

# From the unpacked sdist without src. In full: without what is about the repository, judges other programs, or is rules alone.
ALL_ON_WHEEL := tests $(addprefix --ignore=tests/,bench conformance deploy docs golden kubelet security/test_supply.py torture \
	test_promises.py $(addprefix daemon/,cdi config importers inspection sources) \
	$(addprefix sandbox/,api authorization controllers nodes openapi scheduler server))

define on_wheel
@$(call pip,.venv-wheel,--quiet) install --no-deps --force-reinstall dist/*.whl
@rm -rf build/sdist && mkdir -p build/sdist
@tar -xzf dist/*.tar.gz -C build/sdist --strip-components=1
@rm -r build/sdist/src
cd build/sdist && ../../.venv-wheel/bin/$(PYTEST) $(1)
endef

test-wheel: .venv-wheel/.locked dist ## run on the wheel what a package can leave out
	$(call on_wheel,-m "not nightly" --hypothesis-profile brief $(ON_WHEEL))

test-all: .venv/.ready .venv-wheel/.locked dist ## for the night: also long proofs, deep random tests, the wheel in full
	$(BIN)/$(PYTEST) --hypothesis-profile deep --durations 20 $(ARGS)
	$(call on_wheel,-m "not nightly" --hypothesis-profile brief $(ALL_ON_WHEEL))

steady: .venv/.ready ## the tests three times in random order on a busy machine; one a hundred times: ARGS=ID
	@$(BIN)/python -m tests.steady $(ARGS)

GOLDEN := tests/golden/data tests/golden/data/dra

golden: .venv/.ready ## play recordings of a real kubelet against ours: make golden GOLDEN=FOLDER
	@$(BIN)/python -m tests.golden $(GOLDEN)

verify-mutants: .venv/.ready ## every deliberately wrong plugin against every check, as a matrix without a hole
	@$(BIN)/python -m tests.conformance $(ARGS)

calibrate: .venv/.ready ## judge a program five times, and print what differs: make calibrate PROGRAM='./plugin {dir}'
	@$(BIN)/python -m tests.conformance.calibrate $(ARGS) -- $(PROGRAM)

torture: .venv/.ready ## every fault of the catalogue, under 30 minutes; again: make torture ARGS="--seed N --only CASE"
	@$(BIN)/python -m torture $(ARGS)

mutants: .venv/.ready ## take each guard of the invariants away in turn, and show what notices that
	@$(BIN)/python -m torture.mutants $(ARGS)

hardware: .venv/.ready ## plug real kernel devices into a QEMU guest with the daemon; root on Debian installs it
	@$(BIN)/python -m lab $(or $(LAB_ARGS),$(ARGS))

check: .venv/.ready ## judge form, types, layers and promises, without running the other tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-rest

check-types: # on one processor, which takes as long as all the rest
	$(BIN)/mypy

check-rest:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m devplug.daemon.config.schema | diff --unified $(SCHEMA) - # else: make schema
	@for pair in $(PAGES); do $(BIN)/python -m $${pair#*=} | diff --unified $${pair%%=*} -; done # else: make pages
	$(BIN)/python -m pytest -q tests/test_{public_face,promises,protos,readme}.py tests/torture/test_guards.py

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
	$(BIN)/python -m devplug.daemon.config.schema > $(SCHEMA).new && mv $(SCHEMA).new $(SCHEMA)

pages: .venv/.ready ## write the reference pages that are made from the code
	@for pair in $(PAGES); do $(BIN)/python -m $${pair#*=} > $${pair%%=*}.new && mv $${pair%%=*}.new $${pair%%=*}; done

picture: .venv/.ready ## record the demo and draw it for the README
	$(BIN)/python -m tests.docs.picture --record

deploy: .venv/.ready ## write alerts, dashboard, kustomize base, and the table of the chart's values
	$(BIN)/python -m deploy

lock: .venv/.locked ## choose the newest versions again and write requirements/*.lock
	$(LOCK) pyproject.toml --upgrade --group dev --output-file requirements/dev.lock
	$(LOCK) --constraint requirements/dev.lock pyproject.toml --group test --output-file requirements/test.lock
	$(LOCK) --constraint requirements/dev.lock pyproject.toml --output-file requirements/runtime.lock
	$(LOCK) --constraint requirements/dev.lock pyproject.toml --extra nvidia --output-file requirements/image.lock
	$(LOCK) --constraint requirements/dev.lock --group audit --output-file requirements/audit.lock

dist: .venv/.ready ## build the sdist, and the wheel from it
	@rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## remove all that these targets make
	rm -rf .venv .venv-demo .venv-wheel .venv-audit build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
