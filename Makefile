# `make demo` and `make test` each work as the first command on a bare machine with python3 and make.
PYTHON ?= python3
RUN := .venv/bin/python
# test files are rewritten once, not by each worker, whatever the shell says of bytecode
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -q
# tests/conftest.py sorts: files with slow tests first
BY_FILE := --dist loadfile --no-loadscope-reorder
BY_TEST := --dist load --maxschedchunk 1
FAST := "not slow and not docker and not vllm and not browser and not trackers"
QUICK := quick-pipeline quick-rest
PARTS := test-core test-sandbox test-browser test-trackers test-docker test-vllm
# parts that run at the same time are each printed at their end, by a make that can (4 and later)
OUTPUT := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: install languages docker browser trackers demo test test-others $(PARTS) check $(QUICK) style lint docs mutation peers clean

install:
	@PYTHON=$(PYTHON) sh requirements/install.sh

languages:
	@sh requirements/languages.sh

demo: install  ## the whole recipe, from nothing to a distilled student, on a CPU
	$(RUN) -m veriloop.stages.cli r1 tiny/r1 --output outputs/demo --resume

check: install  ## the fast subset: style and quick tests; `make lint` also checks types
	@$(MAKE) --no-print-directory -j 3 style $(QUICK)

# Two processes that each collect their own files: workers would collect all files twice.
quick-pipeline: install
	$(PYTEST) -m $(FAST) tests/pipeline tests/data

quick-rest: install
	$(PYTEST) -m $(FAST) tests --ignore=tests/pipeline --ignore=tests/data --ignore=tests/sandbox

docker:  ## a Docker daemon, where we are root and can have one; says so where not
	@sh requirements/docker.sh

browser:  ## a Chromium to open reports in, where we are root and can have one
	@sh requirements/browser.sh

trackers: install  ## wandb, mlflow and trackio beside .venv, to test their mirrors; says so where not
	@sh requirements/trackers.sh

test: install languages docker browser trackers  ## everything; each part runs though another failed
	@$(MAKE) --no-print-directory --keep-going test-core test-others

test-others:  # two at a time, since many of their tests wait
	@$(MAKE) --no-print-directory --keep-going -j 2 $(OUTPUT) lint $(filter-out test-core,$(PARTS))

test-core:  # three processes on two cores, since tests of deadlines and of processes wait
	VERILOOP_EXERCISE=ranks,ray $(PYTEST) -n 3 $(BY_FILE) -m "not vllm and not docker and not browser and not trackers" --ignore=tests/sandbox

test-browser:
	VERILOOP_EXERCISE=browser $(PYTEST) -n 2 $(BY_FILE) -m browser tests/pipeline tests/docs

test-trackers:
	VERILOOP_EXERCISE=trackers PYTHONPATH=outputs/cache/trackers $(PYTEST) -m trackers tests/stages

test-sandbox:
	VERILOOP_EXERCISE=namespaces,languages $(PYTEST) -n 6 $(BY_TEST) -m "not docker" tests/sandbox

test-docker:
	VERILOOP_EXERCISE=docker $(PYTEST) -n 5 $(BY_TEST) -m docker tests/sandbox

test-vllm:
	VERILOOP_EXERCISE=vllm $(PYTEST) -n 2 $(BY_FILE) -m vllm tests/pipeline

style: install
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

lint: style
	$(RUN) -m basedpyright

docs: install  ## the pages of docs/ as a site, outputs/site/index.html; warnings end it
	$(RUN) -m mkdocs build

mutation: install  ## mutate losses, packing, assembly, update, what judges and checkpoints: every mutant must die
	$(RUN) benchmarks/mutation.py

peers: install  ## verifiers and checkpoints inside TRL, verl, OpenRLHF, prime verifiers, transformers, vLLM
	$(RUN) benchmarks/peers.py

clean:
	rm -rf .venv outputs build *.egg-info
