# Every target builds what it needs by itself. `make` explains them.
#
#   PYTHON=python3.13 VENV=.venv-3.13   another interpreter, in an environment of its own
#   TESTS=tests/queue                   which tests, for test-fast
#   MINUTES=5 SEED=7                    how long the machine of `make soak` breaks things, and which
#   MUTATION=no_renewal                 a guard of the package that is taken away meanwhile: the machine must see it
#   KEEP=1                              leave the demo's shop open, until Ctrl-C
#   ARGS="-k lease -x"                  passed on to pytest, the demo, the benchmarks and the map

PYTHON ?= python3
VENV ?= .venv
# More than two cores: tests wait for events. The fast ones hardly do, and each worker has to begin.
WORKERS ?= $(if $(filter test-fast,$(MAKECMDGOALS)),4,6)
TESTS ?= tests
ARGS ?=
KEEP ?=
SEED ?= 1
MUTATION ?=
COVER ?=

# Many tests start processes: what those import is compiled once.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
DEV := $(VENV)/.dev-installed
DEMO := $(VENV)/.demo-installed
# Neighbours stay on one worker, because they share what is built once for a file.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
FAST := not slow and not faults and not soak
# Left out of test-fast, unless TESTS names it: what is seldom touched, and what repeats promises from the outside.
SELDOM := architecture/test_layers.py bench docs faults metrics models schema contract relay rights pgbouncer \
	broker/conformance broker/forwarding broker/topics cli dashboard deploy doctor health \
	memory/promises publish/promises sql/promises wakeup/promises \
	log/promises/test_event_loops.py log/promises/test_hints.py overview
QUICK ?= $(if $(filter tests,$(TESTS)),$(SELDOM:%=--ignore=tests/%))
# What may differ on another server: tables, statements and their plans.
OF_THE_SERVER := tests/schema tests/sql tests/connections tests/doctor
# What may differ with Python, SQLAlchemy and the drivers: what is sent, what is made of the answers, event loops,
# cancellation, FastStream's signatures. Every module of the engines runs there, and those of their promises that are
# about these things, or about what a server calls visible; the others are about schedules.
OF_THE_DRIVERS := bounds cancelling corners_of_loops drivers duplicates event_loops gaps handler_timeout hostile_rows \
	isolation names outage panics settle_within stop two_phase
PROMISES := $(wildcard tests/queue/promises/test_*.py tests/log/promises/test_*.py)
OF_SCHEDULES := $(filter-out $(OF_THE_DRIVERS:%=tests/queue/promises/test_%.py) $(OF_THE_DRIVERS:%=tests/log/promises/test_%.py),$(PROMISES))
OF_THE_OLDEST := tests/publish tests/queue tests/log tests/wakeup tests/broker tests/testing tests/pgbouncer \
	--ignore=tests/broker/topics --ignore=tests/broker/conformance \
	$(OF_SCHEDULES:%=--ignore=%)
# The oldest server that is supported comes from Debian, where that has it: the core of both engines.
OF_THE_CORE := tests/sql/test_statements_sql.py tests/schema/test_check.py tests/schema/test_tables.py \
	tests/schema/test_log_tables.py \
	tests/publish/promises/test_contract.py tests/queue/test_worker.py tests/queue/test_keys.py \
	tests/log/test_append.py tests/log/test_worker_consumer.py
# What may differ with the event loop: sockets, cancellation, the end of a loop. All else of the engines, the broker and
# the faults passes there too: ARGS="-p tests.under_uvloop".
OF_LOOPS := cancelling corners_of_loops drivers event_loops handler_timeout outage panics settle_within stop
OF_THE_LOOP := tests/connections tests/wakeup \
	$(wildcard $(OF_LOOPS:%=tests/queue/promises/test_%.py) $(OF_LOOPS:%=tests/log/promises/test_%.py))
# What each run of `make test` has skipped; the last lines have the sums.
SKIPS := $(VENV)/.skips
VENV_313 := .venv-3.13
VENV_OLDEST := .venv-oldest
OLDEST ?=

# A pyenv shim is found on PATH even when it leads nowhere, hence the trial run.
FIND_313 = for python in python3.13 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.13.*/bin/python3.13; do \
	"$$python" -c '' 2>/dev/null && echo "$$python" && break; done

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-fast test-bare test-pg15 test-pg16 test-oldest test-313 test-all lint format types bench soak docs map

help: ## this list
	@sed -n 's/^\([a-z0-9.-]*\):.*## /\1\t/p' Makefile | awk -F '\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

demo: $(if $(wildcard $(DEV)),$(DEV),$(DEMO)) ## see it work: a private PostgreSQL, a shop, and workers of which one is killed
	$(BIN)/python -m examples.demo $(if $(KEEP),--keep) $(ARGS)

test: lint types ## everything but the soak tests, with Python 3.13 where there is one; what CI runs
	@rm -f $(SKIPS)
	@status=0; OUTBOX_TEST_SKIPS=$(abspath $(SKIPS)) \
		$(MAKE) --no-print-directory test-bare test-pg16 test-pg15 test-313 || status=$$?; \
	$(BIN)/python -m tests.skips $(SKIPS); exit $$status

test-313:
	@python=$$($(FIND_313)); \
	if [ -z "$$python" ]; then echo "no Python 3.13 here: how much of the code is tested is not measured"; fi; \
	$(MAKE) --no-print-directory test-all $${python:+PYTHON="$$python" VENV=$(VENV_313) COVER="--cov --cov-report=term"}

test-all: $(DEV) ## the same with this Python, without anything else
	$(PYTEST) -p tests.under_uvloop -m "$(FAST)" $(OF_THE_LOOP) $(ARGS)
	$(PYTEST) -m "not soak" $(COVER) $(ARGS)

test-fast: $(DEV) ## the tests that take a minute and a half together
	$(PYTEST) -m "$(FAST)" $(QUICK) $(TESTS) $(ARGS)

test-bare: $(DEV) ## what comes by other programs, as on a machine that has none: it is skipped and says what to install
	$(BIN)/python -m tests.bare -n 2 --dist worksteal

test-pg15: $(DEV) ## the core of the engines, on Debian's PostgreSQL 15, where it is installed
	OUTBOX_TEST_PG=15 $(PYTEST) -m "$(FAST)" $(OF_THE_CORE) $(ARGS)

test-pg16: ## what depends on the server, the language, SQLAlchemy or a driver, on PostgreSQL 16 and with the oldest
	@$(MAKE) --no-print-directory test-oldest VENV=$(VENV_OLDEST) OLDEST=1

# Plans are looked at in tables of a million rows, which are made once for a file.
test-oldest: $(DEV)
	OUTBOX_TEST_PG=16 $(PYTEST) --dist loadfile -m "not soak" $(OF_THE_SERVER) $(ARGS)
	OUTBOX_TEST_PG=16 $(PYTEST) -m "$(FAST)" $(OF_THE_OLDEST) $(ARGS)

lint: $(DEV) ## style, formatting, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: $(DEV) ## rewrite the code as lint wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DEV) ## mypy and basedpyright, at the same time; and every public name has a type that both know
	@$(BIN)/mypy & mypy=$$!; $(BIN)/basedpyright --pythonpath $(BIN)/python; status=$$?; wait $$mypy && exit $$status
	@said=$$(PATH="$(abspath $(BIN)):$$PATH" $(BIN)/basedpyright --verifytypes faststream_outbox --ignoreexternal) || \
		{ echo "$$said"; exit 1; }; echo "$$said" | grep 'completeness score'

bench: $(DEV) ## costs per message, against the baseline
	$(BIN)/python -m bench $(ARGS)

soak: $(DEV) ## the tests that run for minutes; with MINUTES=5 SEED=7 the machine that breaks everything instead
ifdef MINUTES
	$(if $(MUTATION),OUTBOX_MUTATION=$(MUTATION) )$(BIN)/python -m tests.faults.machine \
		--minutes $(MINUTES) --seed $(SEED) --report machine-$(SEED) $(ARGS)
else
	$(BIN)/python -m pytest -m soak --timeout=1800 $(ARGS)
endif

docs: $(DEV) ## the documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

map: $(DEV) ## the shape of the package in numbers, and its pictures drawn again; ARGS=--json for a program
	@$(BIN)/python -m docs.pictures.draw
	@$(BIN)/python -m docs.map $(ARGS)

$(DEV): pyproject.toml constraints.txt constraints-oldest.txt | $(BIN)/python
	@echo "installing the development environment into $(VENV) (once, about two minutes)"
	@cp constraints.txt $(VENV)/constraints.txt
	@if [ -n "$(OLDEST)" ]; then \
		sed 's/==.*//; /^#/d; s/^/^/; s/$$/==/' constraints-oldest.txt | grep -vif - constraints.txt >$(VENV)/constraints.txt; \
		cat constraints-oldest.txt >>$(VENV)/constraints.txt; fi
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[dev]'
	@touch $@

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the demo into $(VENV) (once, less than a minute)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[demo]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV)
