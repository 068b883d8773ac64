# Everything a reader of the README can call. `make demo` and `make test` work from a clean clone.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin

.PHONY: setup demo test lint bench bench-ope clean

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evarl needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[brax,dev,minari]'
	@touch $@

demo: setup
	rm -rf runs/demo
	$(RUN)/evarl train navigation --beta 0.05 --seeds 3 --updates 600 --out runs/demo
	$(RUN)/evarl assess runs/demo
	$(RUN)/evarl evaluate runs/demo
	@echo "results in runs/demo: metrics.parquet, evaluation.json, evaluation.png and more"

test: setup
	$(RUN)/python -m pytest --numprocesses 2 --dist loadfile

lint: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

bench: setup
	$(RUN)/python -m benchmarks

# d3rlpy lives apart from evarl. PyTorch's CPU build must be where pip looks (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS); with
# TORCH=torch pip takes what the default index has, which on Linux includes several GB of CUDA.
D3RLPY := .venv-d3rlpy
TORCH ?= torch==2.13.0+cpu

bench-ope: setup $(D3RLPY)/installed
	$(RUN)/python -m benchmarks.ope --d3rlpy $(D3RLPY)/bin/python

$(D3RLPY)/installed:
	$(PYTHON) -m venv $(D3RLPY)
	$(D3RLPY)/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' d3rlpy==2.8.1
	@touch $@

clean:
	rm -rf $(VENV) $(D3RLPY) runs build .pytest_cache .mypy_cache .ruff_cache .hypothesis
