# make qualify   set everything up and qualify the emulator at level premerge; the report is in ipu-report
# make test      set everything up and pass the project's own tests and the linters
# make versions  run the smoke cases with other versions of Python and the frameworks: docs/versions.md
# make attack    attack every reader and loader with damaged files: make attack SECONDS=1200
#
# Both need a Python from 3.9 on and pip, nothing else. A second run installs nothing.
# Extra arguments go into ARGS: make qualify ARGS="--level smoke", make test ARGS="-k oracle"

SHELL := /bin/bash
ARGS ?=
SECONDS ?= 300
BIN := .venv/bin
# Every worker would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: qualify test lint attack versions environment wheel clean

qualify: environment
	@[[ "$(ARGS)" == *--resume* ]] || rm -rf ipu-report
	$(BIN)/ipu-conformance qualify --target emulator --level premerge -n 4 --out ipu-report $(ARGS)

test: environment
	@.ci/test $(ARGS)

lint: environment
	@.ci/lint

attack: environment
	$(BIN)/python -m tests.unit.attack --seconds $(SECONDS) $(ARGS)

versions: environment
	$(BIN)/python -m benchmarks.versions $(ARGS)

environment:
	@.ci/environment

wheel: environment
	$(BIN)/python -m build --wheel --no-isolation

clean:
	rm -rf .venv build dist *.egg-info ipu-report
