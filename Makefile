# `make test` creates .venv, then runs every check and test; a second run reuses .venv.
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
BIN := .venv/bin
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
INSTALLED := .venv/installed-$(VERSION)

# The tests start hundreds of programs; without the bytecode cache each would compile all of memfiles again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test sweeps stores check format bench tools clean

# Three workers for two processors, as the tests spend much of their time waiting for processes and time-outs. Their folders
# are in memory where that has 4 GB and may hold programs: a disk takes a fifth more processor time, and makes them wait.
# Tests of power cuts bring their own disks, and `pytest` alone uses that of temporary files. The folders of a run that
# fails are kept for two hours.
MEMORY := $(shell test -w /dev/shm && test "$$(df -Pk /dev/shm | awk 'NR == 2 {print $$4}')" -gt 4000000 && \
  ! grep -q ' /dev/shm [^ ]* [^ ]*noexec' /proc/mounts && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
test: tools check  ## Everything CI runs: format, lint, types, import contracts, tests.
	find "$(MEMORY)" -maxdepth 1 -name 'memfiles-tests-*' -user "$$(id -u)" -mmin +120 -exec rm -rf {} +
	folder=$$(mktemp -d "$(MEMORY)/memfiles-tests-XXXXXX") && echo "the folders of the tests are in $$folder" && \
	  $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --basetemp="$$folder/all" && rm -rf "$$folder"

check: $(INSTALLED)  ## Everything but the tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)  ## Format the code and fix what the linter can fix.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The 20,100 scripts of the model, 2,010 with faults of the mirror, 500 with kills and 5,000 in turn take about 40 minutes.
sweeps: $(INSTALLED) tools  ## Kills, power cuts and faults at every system call, and thousands of programs; takes many minutes.
	MEMFILES_EVERY_CALL=1 MEMFILES_POWER_SECONDS=60 $(BIN)/pytest tests/durability tests/sync/test_kill_sweep.py \
	  tests/entries/test_processes.py
	MEMFILES_SCRIPTS=6700 MEMFILES_KILLED_SCRIPTS=500 MEMFILES_SERIAL_SCRIPTS=5000 $(BIN)/pytest tests/model
	MEMFILES_SHARED_SCRIPTS=2000 MEMFILES_TROUBLED_SCRIPTS=200 MEMFILES_SHARED_LINES=4000 $(BIN)/pytest \
	  tests/model/test_shared.py
	MEMFILES_EVERY_CALL=1 $(BIN)/pytest tests/storage/test_postgres_store.py
	MEMFILES_WORLDS=5000 $(BIN)/pytest tests/surfaces/test_noninterference.py
	MEMFILES_ROUNDS=1000 MEMFILES_KILLS=600 $(BIN)/pytest tests/storage/test_store.py tests/storage/test_record_store.py

# Tests that look at the files of a memory directory say so, and are skipped.
stores: $(INSTALLED)  ## The tests of everything that works on any store, on PostgreSQL; takes some ten minutes.
	MEMFILES_TEST_STORE=postgresql $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/files \
	  tests/entries tests/tools tests/surfaces tests/adapters tests/server tests/inspector

# 100,000 entries and the images of file systems take minutes and some GB. MEMFILES_BENCH_ENTRIES=1000,10000 and
# MEMFILES_BENCH_ROUNDS=40 make it shorter.
bench: $(INSTALLED) tools  ## Print the figures of tests/benchmarks, write docs/measurements; they need a quiet machine.
	$(BIN)/python -m pip install --quiet --group bench || echo "not installed, so not measured: the group bench"
	MEMFILES_BENCH_PAGES=1 $(BIN)/pytest -s -o python_files='bench_*.py' tests/benchmarks

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # the first that knows --group
	$(BIN)/python -m pip install --quiet --editable . --group dev
	$(BIN)/python -m compileall -q memfiles mirrors  # as pip does with a wheel, also with PYTHONDONTWRITEBYTECODE
	touch $@

# The benchmarks count flushes with strace, the power cuts mount ext4 and xfs images, and Chromium looks at the pages of
# the inspector. Tests whose tools cannot be installed say so and are skipped; with CI=true they fail.
tools:  ## Install strace, mkfs.ext4, mkfs.xfs and chromium where this machine allows it.
	@export PATH="$$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive; \
	lacking() { for tool in strace mount mkfs.ext4 mkfs.xfs chromium; do command -v $$tool >/dev/null || printf ' %s' $$tool; done; }; \
	if [ -n "$$(lacking)" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends strace mount e2fsprogs xfsprogs \
	    chromium fonts-dejavu-core >/dev/null || true; \
	fi; \
	if [ -n "$$(lacking)" ]; then echo "not installed, so their tests cannot run:$$(lacking)"; fi

clean:  ## Remove what the other targets created.
	rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
