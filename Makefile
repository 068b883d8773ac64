# Everything a reader of the README can call. `make demo` and `make test` work from a clean clone.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin

.PHONY: setup demo test lint bench clean

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

clean:
	rm -rf $(VENV) runs build .pytest_cache .mypy_cache .ruff_cache .hypothesis
