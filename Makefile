# `make demo`, `make test` and `make bench` are the whole set-up: each makes the virtual
# environment it needs, installs the project into it, and runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test browser nodes faults lies restarts flood coverage mutants fuzz timing audit flower lint docs \
  dependencies package bench bench-compare costs peers data clean

$(VENV)/.%-installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "xclp needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing xclp[$*] into $(VENV), which may take some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

demo: $(VENV)/.demo-installed
	$(BIN)/xclp demo

# Two processes of one thread each: more threads than cores wait for each other. Each has half of
# the files, which share their fixtures, and takes tests from the other when it has no more.
WORKERS ?= 2
test: $(VENV)/.test-installed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal

# Reports in a real browser: the Chromium that is there, or Debian's, which only root can install.
browser: $(VENV)/.browser-installed
	@test -n "$(CHROMIUM)" || command -v chromium >/dev/null || \
	  { apt-get -qq update && apt-get -qq install --no-install-recommends chromium >/dev/null; } || \
	  { echo "Install Chromium, or run: make browser CHROMIUM=/path/to/it"; exit 1; }
	$(BIN)/python -m pytest tests/browser

faults: $(VENV)/.test-installed
	$(BIN)/python -m tests.faults.run --schedules 10000

# Each with another seed runs others: make lies SEED=2 COUNT=20000
SEED ?= 1
COUNT ?= 4000
lies: $(VENV)/.test-installed
	$(BIN)/python -m tests.attackers.lies --count $(COUNT) --seed $(SEED)

restarts: $(VENV)/.test-installed
	$(BIN)/python -m tests.faults.restarts --schedules 100

flood: $(VENV)/.test-installed
	PYTHONPATH=tests/helpers $(BIN)/python tests/faults/flood.py

# A million inputs for each decoder; RUNS=20000 for less, FUZZ="--only point share" for some.
RUNS ?= 1000000
fuzz: $(VENV)/.test-installed $(VENV)/.fuzz-installed
	$(BIN)/python -m tests.fuzz.run --runs $(RUNS) $(FUZZ)

# Whether times tell secrets apart, where constant time is claimed; best on a machine that is idle.
timing: $(VENV)/.test-installed
	$(BIN)/python bench/timing.py

# Known weaknesses of what is installed here; asks PyPI, so it needs network.
audit: $(VENV)/.test-installed $(VENV)/.audit-installed
	$(BIN)/pip-audit --skip-editable

# The shares of lines and branches of xclp_crypto that its own tests run; which test runs what.
coverage .coverage: $(VENV)/.dev-installed
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -p tests.mutation.contexts \
	  --test-seconds .coverage-seconds.json tests/crypto
	$(BIN)/coverage combine --quiet
	$(BIN)/python -m tests.mutation.rates

# Small changes to the code, each of which a test ought to notice. All of them take hours:
# make mutants SAMPLE=200 takes that many of each package.
mutants: .coverage
	$(BIN)/python -m tests.mutation.mutate $(if $(SAMPLE),--sample $(SAMPLE))

# The Flower app, in an environment of its own: Flower holds Typer, Rich and others back at older
# versions than people without it get, and importing it warns.
NODES := .venv-flower
FLOWER := $(NODES)/bin/python -m pytest -W "ignore:'click.utils:DeprecationWarning"

$(NODES)/.installed: pyproject.toml
	@test -x $(NODES)/bin/python || $(PYTHON) -m venv $(NODES)
	@echo "Installing xclp[flower] into $(NODES), which may take some minutes"
	$(NODES)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[flower]' pytest hypothesis
	@touch $@

# In one process, and with a SuperLink and three SuperNodes.
nodes: $(NODES)/.installed
	$(FLOWER) tests/flower/pieces.py tests/flower/in_process.py tests/flower/means.py tests/flower/small.py

# Real SuperLinks and SuperNodes on this machine, minutes each.
flower: $(NODES)/.installed
	$(FLOWER) -s tests/flower/federations.py tests/flower/large.py

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/helpers/page_programs.py build/pages && $(BIN)/mypy --strict build/pages

# The site, in site/; without network. With --quiet, warnings would be no errors. The variable
# silences an advertisement.
docs: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dependencies: $(VENV)/.dev-installed $(VENV)/.docs-installed $(VENV)/.flower-installed $(VENV)/.fuzz-installed $(VENV)/.audit-installed
	$(BIN)/python docs/dependencies.py

# Both archives, the wheel installed without extras into a new environment, and what importing takes.
package: $(VENV)/.dev-installed
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv dist/clean
	dist/clean/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd dist && clean/bin/xclp --version && clean/bin/xclp bench hamming --n 20 --m 20 --bits 256
	cd dist && for i in 1 2 3 4 5; do \
	  clean/bin/python -X importtime -c "import xclp_crypto" 2>&1 | tail -1; done

# Ends with a table of seconds, bytes, rounds and messages. CPU seconds where other programs run:
# make bench TIMER=time.process_time
BENCH ?= bench
TIMER ?= time.perf_counter
SPEED = $(CURDIR)/$(BIN)/python -m pytest $(BENCH) --benchmark-only --benchmark-timer=$(TIMER) -m "not long"

bench: $(VENV)/.test-installed
	mkdir -p .benchmarks
	$(SPEED) --benchmark-json=.benchmarks/last.json

# Fails where a median is more than SLOWER longer than that of BASE, measured right before on the
# same machine: make bench-compare BASE=main BENCH=bench/bench_ot.py
BASE ?= HEAD
SLOWER ?= 25%
bench-compare: $(VENV)/.test-installed
	@test -e $(BENCH) || { echo "there is no $(BENCH)"; exit 1; }
	@git cat-file -e $(BASE):$(BENCH) || { echo "there is no $(BENCH) in $(BASE)"; exit 1; }
	rm -rf .benchmarks/base && git worktree prune
	git worktree add --quiet --detach .benchmarks/base $(BASE)
	cd .benchmarks/base && $(SPEED) --benchmark-json=$(CURDIR)/.benchmarks/base.json
	git worktree remove --force .benchmarks/base
	$(SPEED) --benchmark-json=.benchmarks/now.json
	@$(BIN)/python bench/compare.py .benchmarks/base.json .benchmarks/now.json $(SLOWER)

# The points of what everything costs over n, L and p, anew: some minutes, best on a quiet machine.
costs: $(VENV)/.test-installed
	$(BIN)/python bench/cost_points.py bench/cost_points.json
	$(BIN)/python bench/cost_curves.py bench/cost_points.json docs/images

peers: $(VENV)/.test-installed
	$(BIN)/python bench/peers/run.py

# Fashion-MNIST and Vowel, from Debian's packages, into .data; needs apt-get but no root.
data:
	mkdir -p .data
	cd .data && apt-get download dataset-fashion-mnist r-cran-mlbench && \
	  for package in *.deb; do dpkg-deb --extract $$package . || exit 1; done && rm *.deb

clean:
	rm -rf $(VENV) $(NODES) site .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .coverage*
