# `make reproduce` makes tables and figures from a fresh clone, and `make test` runs the tests. `make help` lists all targets.
#
# without VENV     uses .venv, which is made from requirements.lock, and again when the lock changes
# VENV=folder      uses this environment and installs nothing
# VENV=            uses the active environment (e.g. conda) and installs nothing. It is the only way on Colab and
#                  Kaggle; first run `python -m speclab hosted install --reproduce`
PYTHON ?= python3
PROFILE ?= smollm
WORKERS ?= 2
OUT ?= .
VENV ?= .venv
# the most that oneDNN and torch may use of the processor in `make test-numeric`
ISA ?= AVX2
VECTORS ?= default
# they go to Python as they are written, a $ too
override SET := $(value SET)
override PARAMETERS := $(value PARAMETERS)
export SET PARAMETERS
ifdef STYLE
override SPECLAB_STYLE := $(value STYLE)
export SPECLAB_STYLE
endif
# the .py or .ipynb files of NOTEBOOKS, or of all notebooks
named = $(if $(NOTEBOOKS),$(NOTEBOOKS:%=notebooks/%*.$(1)),notebooks/[0-9]*.$(1))

ifeq ($(origin VENV),file)
PY := .venv/bin/python
BASE := $(PYTHON)
READY := check-host .venv/.installed
else ifeq ($(strip $(VENV)),)
PY := $(PYTHON)
BASE := $(PY)
READY := check-python
else
# environments on Windows have Scripts instead of bin
PY := $(or $(wildcard $(VENV)/Scripts/python.exe),$(VENV)/bin/python)
BASE := $(PY)
READY := check-python
endif

.DEFAULT_GOAL := help
.PHONY: help env reproduce test test-numeric golden test-lowest test-full bench bench-shapes gpu-check pair tiny-pair author-records doctor lab notebooks sources picture readme lint clean clean-all check-host check-python

help: ## list the targets
	@echo "make TARGET [PROFILE=$(PROFILE)] [VENV=folder, or VENV= for the active environment] [PYTHON=$(PYTHON)]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

env: $(READY) ## make the environment .venv from requirements.lock

reproduce: $(READY) ## run the notebooks whose results may have changed; PROFILE=name NOTEBOOKS="02 05" SET="prompts_per_domain=10 seed=1" PARAMETERS="'name=a value with spaces'" OUT=folder WORKERS=2 STYLE=paper.mplstyle
	@exec "$(PY)" -m speclab reproduce --fetch --profile "$(PROFILE)" --out "$(OUT)" --workers "$(WORKERS)" $(NOTEBOOKS:%=--notebook '%') --SET "$$SET" --PARAMETERS "$$PARAMETERS"

pair: $(READY) ## download, and convert if needed, the models of PROFILE (smollm: 93 MB, qwen-coder: 1.1 GB; once)
	@"$(PY)" -m speclab pair --profile "$(PROFILE)"

test: export OMP_NUM_THREADS = 1
test: $(READY) ## run all tests except the slow ones; WORKERS=2 ARGS="-k tree"
	@"$(PY)" -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-numeric: export OMP_NUM_THREADS = 1
test-numeric: $(READY) ## run the tests that depend on the processor as on another: 4-bit products as with AMX, and vectors of ISA=AVX2 VECTORS=default
	@ONEDNN_MAX_CPU_ISA=$(ISA) ATEN_CPU_CAPABILITY=$(VECTORS) "$(PY)" -m pytest -n $(WORKERS) --dist worksteal -m "numeric and not slow" --as-amx $(ARGS)

test-lowest: export OMP_NUM_THREADS = 1
test-lowest: $(READY) ## run the tests with the lowest versions that pyproject.toml allows, in .venv-lowest (7 GB with CUDA); ARGS="-k tree" INDEX="--index URL" for torch
	@"$(PY)" -m pip install --quiet --disable-pip-version-check uv
	@"$(PY)" -m uv venv --quiet --clear --seed --python "$(PY)" .venv-lowest
	@"$(PY)" -m uv pip install --quiet --python .venv-lowest --resolution lowest-direct -e ".[models,reproduce,test]" $(INDEX)
	@"$(PY)" -m uv pip install --quiet --python .venv-lowest --no-deps -r pyproject.toml --extra gptq $(INDEX)
	@.venv-lowest/bin/python -m speclab hosted install --heads
	@.venv-lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-full: export OMP_NUM_THREADS = 1
test-full: $(READY) ## run all tests, with the slow ones
	@"$(PY)" -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

golden: export OMP_NUM_THREADS = 1
golden: $(READY) ## write the tables of tests/golden again, from every notebook on tiny; ARGS="-k 02_gamma"
	@GOLDEN=write "$(PY)" -m pytest -n $(WORKERS) --dist worksteal tests/test_end_to_end.py -k tables_are_the_committed $(ARGS)

bench: $(READY) ## measure the recorder and the decoder on this machine, as ratios
	@PYTHONPATH=.:tests "$(PY)" tests/tools/bench.py

bench-shapes: $(READY) ## measure seconds and memory of recording with the paper's model shapes and random weights
	@PYTHONPATH=.:tests "$(PY)" tests/tools/gpu_check.py --device cpu --only shapes $(ARGS)

gpu-check: $(READY) ## check equality, memory and time on a CUDA device (with VENV=); ARGS="--device cuda:1 --only text"
	@PYTHONPATH=.:tests "$(PY)" tests/tools/gpu_check.py $(ARGS)

doctor: $(READY) ## check what this machine lacks for PROFILE: packages, models, vocabularies, memory, disk
	@"$(PY)" -m speclab doctor --profile "$(PROFILE)" $(ARGS)

lab: $(READY) ## open JupyterLab on the notebooks; ARGS="--no-browser --port=8890"
	@"$(PY)" -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(ARGS)

author-records: $(READY) ## download the node records of the paper's authors into data/runs/author-records, and check their git ids
	@"$(PY)" -m speclab fetch author-records $(ARGS)

tiny-pair: $(READY) ## train the tiny pair again from DATA=folder of training text (one to two hours; continues after a stop)
	@test -n "$(DATA)" || { echo "make tiny-pair needs the training text: DATA=folder"; exit 2; }
	@"$(PY)" -m data.pairs.tiny.prepare --data "$(DATA)" $(ARGS)

notebooks: $(READY) ## write the .ipynb twins of the notebooks' .py files, without outputs; NOTEBOOKS="02 05"
	@"$(PY)" -m jupytext --quiet --to ipynb --update $(call named,py)
	@"$(PY)" -m nbconvert --log-level WARN --clear-output --inplace $(call named,ipynb)

sources: $(READY) ## write the .py of notebooks that were edited in Jupyter; NOTEBOOKS="02 05"
	@test -n "$(NOTEBOOKS)" || { echo 'make sources needs the notebooks that were edited in Jupyter: NOTEBOOKS="02 05"'; exit 2; }
	@"$(PY)" -m jupytext --quiet --to py:percent --opt notebook_metadata_filter=-jupytext $(call named,ipynb)

picture: $(READY) ## draw figures/smollm/explore.png, the picture in README.md, from explore.html (needs chromium)
	@$(PY) -m tests.tools.picture

readme: $(READY) ## write the numbers of README.md and the guides from the last `make reproduce` and `make bench`
	@"$(PY)" -m tests.tools.readme $(ARGS)

lint: $(READY) ## check style, format, types (strict in the core) and unused dependencies
	@"$(PY)" -m ruff check .
	@"$(PY)" -m ruff format --check speclab tests data notebooks/*.py
	@"$(PY)" -m mypy
	@"$(PY)" -m deptry .

clean: ## remove what make wrote, except the environment, recorded runs and training checkpoints (build/tiny-pair)
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis logs
	test ! -d build || find build -mindepth 1 -maxdepth 1 ! -name tiny-pair -exec rm -rf {} +
	find speclab tests notebooks -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean ## remove these too
	rm -rf .venv .venv-lowest build data/runs speclab.egg-info

check-host:
	@test -z "$$COLAB_RELEASE_TAG$$KAGGLE_KERNEL_RUN_TYPE" || { echo "On Colab and Kaggle this would install another torch; use the host's with \`make reproduce VENV=\`" >&2; exit 2; }

check-python:
	@command -v "$(BASE)" >/dev/null || { echo "'$(BASE)' does not exist; check VENV=$(VENV) or PYTHON=$(PYTHON)"; exit 1; }
	@$(BASE) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "speclab needs Python 3.11, 3.12 or 3.13, and '$(BASE)' is `$(BASE) --version 2>&1`. Use another one: make PYTHON=python3.11 ..."; exit 1; }

.venv/.installed: requirements.lock pyproject.toml | check-python
	@echo "Making .venv from requirements.lock (a few minutes, about 2 GB, once) ..."
	@$(PYTHON) -m venv .venv
	@"$(PY)" -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@"$(PY)" -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@"$(PY)" -m speclab hosted install --heads
	@touch $@
