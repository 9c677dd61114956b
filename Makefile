# `make test` sets up everything it needs in .venv and checks everything; a second run only checks.
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
BIN := .venv/bin
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
INSTALLED := .venv/installed-$(VERSION)

# The tests start some hundred programs: without it each would compile all of memfiles anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test sweeps check format bench tools clean

# Three workers for two processors: a good part of the tests' time goes by in waiting, for disks and for time-outs.
test: tools check  ## Everything CI runs: format, lint, types, import contracts, tests.
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

check: $(INSTALLED)  ## All of it but the tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)  ## Put the code into the house format and mend what the linter can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sweeps: $(INSTALLED) tools  ## Kills, power cuts and faults alone, at every single call and with every error; many minutes.
	MEMFILES_EVERY_CALL=1 MEMFILES_POWER_SECONDS=60 $(BIN)/pytest tests/durability tests/sync/test_kill_sweep.py \
	  tests/entries/test_processes.py

bench: $(INSTALLED)  ## The figures in tests/benchmarks, printed; they need a quiet machine.
	$(BIN)/pytest -s -o python_files='bench_*.py' tests/benchmarks

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # the first that knows --group
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

# The benchmarks count flushes with strace, the power cuts mount ext4 and xfs images. Where these cannot be
# installed, what needs them says so and is skipped (with CI=true the tests fail).
tools:  ## strace, mkfs.ext4 and mkfs.xfs, installed where this machine allows it.
	@export PATH="$$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive; \
	lacking() { for tool in strace mount mkfs.ext4 mkfs.xfs; do command -v $$tool >/dev/null || printf ' %s' $$tool; done; }; \
	if [ -n "$$(lacking)" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends strace mount e2fsprogs xfsprogs >/dev/null || true; \
	fi; \
	if [ -n "$$(lacking)" ]; then echo "not installed, so their tests cannot run:$$(lacking)"; fi

clean:  ## Remove what the targets above made.
	rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
