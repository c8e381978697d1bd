# `make demo` and `make test` each work as the first command on a bare machine with python3 and make.
PYTHON ?= python3
RUN := .venv/bin/python
QUIET_THREADS := OMP_NUM_THREADS=1

.PHONY: install demo test check lint mutation clean

install:
	@PYTHON=$(PYTHON) sh requirements/install.sh

demo: install  ## base model and R1-Zero, from nothing, on a CPU
	$(RUN) -m stages.command zero tiny/zero --output outputs/demo --resume

check: install lint  ## the fast subset: lint and quick tests
	$(QUIET_THREADS) $(RUN) -m pytest -q -n 2 --dist loadfile -m "not slow"

test: install lint  ## everything, inference engine included
	$(QUIET_THREADS) $(RUN) -m pytest -q -n 2 --dist loadfile

lint: install
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m basedpyright

mutation: install  ## mutate losses, advantages, assembly and update: every mutant must die
	$(RUN) benchmarks/mutation.py

clean:
	rm -rf .venv outputs build *.egg-info
