# `make up` starts Duly, `make test` shows that it works; both set up all they need first.

PYTHON ?= python3
SEEDS ?= 300
PYTEST_ARGS ?=

bin := .venv/bin
# Tests wait for PostgreSQL, for real processes and for real time more than half of theirs, so five of them keep two cores busy.
at_once := 5
# Of these each file starts whole installations, which wait most of the time for somebody to die.
attacked := connections credentials_at_rest requests sandbox start
waiting := tests/end_to_end tests/bench $(attacked:%=tests/security/test_%.py)
# Each page of the documentation has a `duly up` of its own, and its tests are spread over the processes page by page.
page_blocks := tests/docs/test_blocks.py
# These have a browser open from test to test. By themselves: beside other tests it was lost now and then.
browsing := tests/dashboard tests/security/test_dashboard.py tests/security/test_canaries.py
waiting_at_once := 3
# These run tests of other files again: on the oldest PostgreSQL that we support, and through PgBouncer.
again := tests/store/test_oldest.py tests/store/test_servers.py
# These fill the machine by themselves, so they run after the others; the simulation last, for as long as the others have left.
storm := tests/end_to_end/test_storm.py
simulation := tests/simulation/test_simulation.py
alone := $(storm) $(simulation)
apart := $(waiting) $(page_blocks) $(browsing) $(alone)
# Pure rules, shapes and descriptions: no test of these folders but a few needs a server, and those are left out.
pure := tests/domain tests/triggers tests/wire tests/outbound tests/plugins
times := .venv/test-times
# Each process gets a stretch of files, so that what the tests of a file share is mostly made once, and takes from the others at
# its end. What fails beside others is asked once more, alone; a run of the simulation is not, it is the same each time.
second_look := $(bin)/python -m tests.plugins.second_look
beside_others = $(second_look) -n $(at_once) --dist worksteal $(apart:%=--ignore=%) $(PYTEST_ARGS)
pip := $(bin)/python -m pip --disable-pip-version-check
# The dashboard is built while Python's packages are installed.
beside := $(MAKE) --no-print-directory --silent --jobs 2
# Each stamp is younger than what it installed, so a second `make` installs nothing.
venv := .venv/stamp-venv
runtime := .venv/stamp-runtime
project := .venv/stamp-project
dev := .venv/stamp-dev
dashboard := .venv/stamp-dashboard
auditor := .venv/stamp-audit
site := .venv/stamp-docs
spectral := .venv/stamp-spectral
# What the dashboard is built from; the types come from the description of the API.
screens := $(shell find ui -type f -not -path '*/node_modules/*' -not -name types.gen.ts) docs/openapi.json

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-dev dashboard up quick check test lint format docs package release-check compare reference simulate mutants chaos proof audit lock clean

help:            ## Say what can be made.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 20

install: $(venv)    ## Create .venv and install Duly with its locked dependencies.
	@$(beside) $(project) $(dashboard)

install-dev: $(venv) ## The same, with what the tests and linters need.
	@$(beside) $(project) $(dev) $(dashboard)

dashboard: $(dashboard) ## Build the dashboard, with Node where there is one.

up: install         ## Start everything on the embedded PostgreSQL.
	@$(bin)/duly up $(ARGS)

# Where Python is told to keep no compiled code, each of the many processes that tests start would compile the engine anew.
quick check test: export PYTHONDONTWRITEBYTECODE :=

quick: lint         ## Lint, types and the tests that need no server: under a minute.
	$(bin)/pytest -q -n 2 --no-server $(pure) $(PYTEST_ARGS)

check: lint         ## All that starts no whole installation, on one version of PostgreSQL: about five minutes.
	$(beside_others) $(again:%=--ignore=%)

test: export TEST_TIMES := $(times)
test: install-dev $(auditor) $(site) $(spectral) ## Lint, then run the tests.
	@scripts/system-packages
	@$(MAKE) --no-print-directory lint
	@rm -f $(times)
	$(beside_others)
	$(second_look) -n $(waiting_at_once) --dist loadfile $(waiting) $(alone:%=--ignore=%) $(PYTEST_ARGS)
	$(second_look) -n $(waiting_at_once) --dist worksteal $(page_blocks) $(PYTEST_ARGS)
	$(second_look) -n $(waiting_at_once) --dist loadfile $(browsing) $(PYTEST_ARGS)
	$(bin)/pytest $(storm) $(PYTEST_ARGS)
	$(bin)/pytest $(simulation) $(PYTEST_ARGS)
	@$(bin)/python -m tests.plugins.budget $(times)

lint: install-dev   ## Style, types and layers.
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports --no-logo

format: install-dev ## Put the code into its canonical form.
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

docs: $(site)       ## Build the documentation site into build/site; a warning fails.
	@NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --strict

package: $(project) $(dashboard) ## Build wheel, sdist and bill of materials into dist, the same bytes each time.
	@scripts/package $(bin)/python

release-check: package ## Build once more, and compare; then check versions, changelog and everything below deploy.
	@scripts/package $(bin)/python build/again
	@diff -r dist build/again && rm -r build/again && echo "both builds are the same"
	$(bin)/pytest -q tests/deploy $(PYTEST_ARGS)

compare: $(project) ## Measure Duly beside its peers and bare SQL; ARGS="--scale 0.01" is quick.
	@$(bin)/python -m benchmarks.peers $(ARGS)

reference: install-dev  ## Write the generated pages of docs/reference anew.
	$(bin)/python -m scripts.reference
	$(bin)/python scripts/functions_page.py

simulate: install-dev   ## Run the whole system under SEEDS seeds, with faults.
	$(bin)/python -m tests.simulation --seeds $(SEEDS)

mutants: install-dev    ## Break the engine on purpose; a test must notice each time.
	$(bin)/python -m tests.mutants

chaos: install-dev  ## Take servers and processes away from whole installations, for a long time; prints the figures.
	@scripts/system-packages
	$(bin)/pytest -m chaos -s --timeout 0 $(PYTEST_ARGS)

proof: simulate mutants ## The long programmes.
	$(bin)/pytest -m proof --timeout 0 $(PYTEST_ARGS)

# Make itself ends with 2 on any failure; its last line says with what the script ended.
audit: $(auditor)   ## Ask for known vulnerabilities of every locked package: 0 none, 1 some, 2 not all could be asked about.
	@$(bin)/python scripts/audit.py .venv/audit/bin/pip-audit

lock: $(venv)       ## Resolve the dependencies anew.
	$(pip) install --quiet uv==0.13.7
	@scripts/lock $(bin)/uv

clean:              ## Remove the environment and all caches; the data in .duly stays.
	rm -rf ui/node_modules tests/api/spectral/node_modules src/duly/dashboard/static .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist

$(venv):
	@scripts/environment $(PYTHON)
	@touch $@

$(runtime): requirements.lock requirements-build.lock $(venv)
	@echo "installing the locked dependencies"
	@$(pip) install --quiet --require-hashes -r requirements.lock -r requirements-build.lock
	@touch $@

$(project): pyproject.toml $(runtime)
	@$(pip) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# After the project, because two installers in one environment could meet.
$(dev): requirements-dev.lock $(runtime) | $(project)
	@echo "installing what tests and linters need"
	@$(pip) install --quiet --require-hashes -r requirements-dev.lock
	@touch $@

# In an environment of its own, so that what it needs decides nothing about what Duly needs.
$(auditor): requirements-audit.lock $(venv)
	@$(bin)/python -m venv --clear .venv/audit
	@.venv/audit/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-audit.lock
	@touch $@

$(site): requirements-docs.lock $(venv)
	@$(bin)/python -m venv --clear .venv/docs
	@.venv/docs/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-docs.lock
	@touch $@

$(dashboard): $(screens) $(venv)
	@scripts/dashboard $@

# The linter of the API's description; without npm its test is skipped.
$(spectral): tests/api/spectral/package-lock.json $(venv)
	@! command -v npm >/dev/null || npm ci --silent --no-audit --no-fund --prefix tests/api/spectral
	@touch $@
