# Everything a reader of the README can call. `make demo` and `make test` work from a clean clone.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
SB3 := .venv-sb3

.PHONY: setup demo results test test-portable test-slow test-sb3 lint browser bench bench-host bench-ope bench-peers-setup bench-scaling roofline bench-page coverage fuzz kill-test certificates variance ope-coverage ope-compare docs docs-pages docs-serve docs-check notebooks figures assessments clean

# Modules are compiled when they are first imported, most of them never, which halves the time that this takes. That must be
# kept: dozens of processes import them.
unexport PYTHONDONTWRITEBYTECODE

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evarl needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[brax,dev,minari,ray,video]'
	@touch $@

# An ordinary and an evaluation-aware policy, tested on two sites whose bridges hold with different, hidden probabilities.
demo: setup
	rm -rf runs/demo runs/demo-passive runs/demo.gif
	$(RUN)/evarl train crossing --beta 0 --evaluator-mode colearned --seeds 1 --updates 800 --out runs/demo-passive
	$(RUN)/evarl train crossing --beta 1 --seeds 1 --updates 800 --out runs/demo
	for run in runs/demo-passive runs/demo; do for site in bridge=0.15 bridge=0.9; do \
		$(RUN)/evarl assess $$run --context $$site || exit 1; done; done
	$(RUN)/evarl certify runs/demo --threshold -9
	$(RUN)/evarl verify runs/demo/certificates/mean-return-seed-0-*[0-9a-f].json
	$(RUN)/evarl animate runs/demo --passive runs/demo-passive --out runs/demo.gif

# Reports, and the tables of README.md, docs/reproduce.md, docs/studies.md and docs/findings.md, from the job files in results/reproduce. Jobs that are missing
# are run, but for games and robots, which take days at the scale `full`: their reports say what is missing, and are of the scale that is there.
RESULTS := $(RUN)/evarl reproduce --out results/reproduce

results: setup
	for study in tabular mismatch; do $(RESULTS) $$study --scale paper || exit 1; done
	for study in families gradients held-out targets choices; do $(RESULTS) $$study || exit 1; done
	for study in tradeoff ope-on-eva pipelines continuous curves scenarios; do \
		$(RESULTS) $$study --scale $$($(RUN)/python -m evarl.studies.documents $$study) --report-only || exit 1; done
	$(RUN)/python -m evarl.studies.documents

test: setup
	OPENBLAS_NUM_THREADS=1 $(RUN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# The numerical tests as on another processor, so that no tolerance is that of one machine: OpenBLAS with the kernel of the
# Pentium 4, NumPy without AVX, and XLA, whose unoptimised programs in `make test` neither fuse nor vectorise, with AVX2 and
# fused multiply-adds. Instruction sets are only lowered, so that any processor can do it.
NUMERICAL := tests/known_answers tests/theory tests/bounds tests/stats tests/ope
# Coverage by simulation says nothing about a processor, and takes longest; nor do files, refusals, what can be registered and
# the number of programs that are compiled. Of networks that are trained, those of test_estimate.py stand for the others.
SIMULATED := $(addprefix --ignore tests/,bounds/test_coverage.py bounds/test_statements.py bounds/test_refusals.py \
		$(addprefix ope/test_,$(addsuffix .py,registry files intervals fqe traces dualdice support policy outside compare))) \
	$(addprefix --deselect tests/,bounds/test_sites.py::test_simulated_coverage \
		bounds/test_bands.py::test_coverage bounds/test_bands.py::test_coverage_of_grids \
		ope/test_guarantees.py::test_coverage ope/test_returns.py::test_coverage_of_bands \
		ope/test_uncertainty.py::test_coverage_of_the_intervals_that_are_given \
		ope/test_warnings.py::test_intervals_hold_or_are_warned_of_with_log_normal_weights \
		ope/test_shapes.py::test_cross_fitting_needs_no_other_program_than_a_fit \
		ope/test_shapes.py::test_another_size_needs_no_other_program \
		stats/test_bootstrap.py::test_coverage_over_many_tasks_is_the_nominal_one \
		stats/test_comparison.py::test_coverage_of_the_probability_of_improvement \
		stats/test_selection.py::test_the_best_is_seldom_named_where_there_is_none \
		theory/test_tabular_study.py::test_noise_alone_is_seldom_called_a_rise)
ifeq ($(shell uname -m),x86_64)
LOWERED := OPENBLAS_CORETYPE=Prescott NPY_DISABLE_CPU_FEATURES='X86_V3 X86_V4 AVX512_ICL AVX512_SPR' \
	XLA_FLAGS='--xla_backend_optimization_level=1 --xla_cpu_max_isa=AVX2'
else
LOWERED := OPENBLAS_CORETYPE=ARMV8 XLA_FLAGS=--xla_backend_optimization_level=1
endif

test-portable: setup
	$(LOWERED) EVARL_CHECK_SHAPES=no JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.cache/compiled-portable \
		$(RUN)/python -m pytest -W ignore::ImportWarning --numprocesses 3 --dist loadfile $(NUMERICAL) $(SIMULATED)

# More worlds, algorithms, interruptions and simulations of what `make test` tries on one.
test-slow: setup test-sb3
	$(RUN)/python -m pytest --numprocesses 2 --dist loadfile -m slow tests

# Policies of Stable-Baselines3 itself, in its own environment beside the packages of this one.
test-sb3: setup $(SB3)/installed
	PYTHONPATH=src:$$($(RUN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		$(SB3)/bin/python -m pytest -m slow tests/policies/test_stable_baselines3.py

# What the tests of the report need; without it they are skipped.
browser:
	@if [ -x /usr/bin/chromium ] && [ -x /usr/bin/chromedriver ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "the tests of the report need Chromium: install chromium and chromium-driver (Debian's names)"; exit 1; fi; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null

lint: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# The site in build/site, without any network once its environment is there: pages of docs/, reference from docstrings. MkDocs has
# an environment of its own, which needs neither JAX nor evarl: docstrings are read, not imported.
DOCS := .venv-docs
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs

docs: $(DOCS)/installed
	$(MKDOCS) build --strict --quiet
	@echo "the site is in build/site: open build/site/index.html, or make docs-serve, which has a search as well"

docs-serve: $(DOCS)/installed
	$(MKDOCS) serve --livereload

$(DOCS)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(PYTHON) -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"]))' > $(DOCS)/packages.txt
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement $(DOCS)/packages.txt
	@touch $@

# Pages that are made from the code. The tests fail where these are out of date.
docs-pages: setup
	$(RUN)/python -m tools.command_line

# The built site in a browser: broken links, messages of the console, requests to anywhere else, pages that are wider than a phone.
docs-check: setup docs browser
	$(RUN)/python -m tools.site_check

# Notebooks from the scripts in examples/, without outputs.
notebooks: setup
	$(RUN)/python -m tools.notebooks

# Standard start states of assessments where there are none for the default settings of a world (tools/standard_assessments.py).
assessments: setup
	$(RUN)/python -m tools.standard_assessments

# The pictures of README.md and docs/ (tools/figures.py tells what each is made of).
figures: setup
	$(RUN)/python -m tools.figures $(ARGS)

# ARGS are handed on: make bench ARGS='--worlds navigation --no-peers'; ARGS=--help tells what there is.
bench: setup
	$(RUN)/python -m benchmarks $(ARGS)

# Gymnasium's environments beside Stable-Baselines3, into runs/bench-host.
bench-host: setup
	$(RUN)/python -m benchmarks.host $(ARGS)

bench-scaling: setup
	$(RUN)/python -m benchmarks.scaling $(ARGS)

# What an update computes, moves and starts, beside what this machine can, into runs/roofline.
roofline: setup
	$(RUN)/python -m benchmarks.roofline $(ARGS)

# Puts the tables in results/benchmarks into docs/performance.md.
bench-page: setup
	$(RUN)/python -m benchmarks.page

# How often each claim of evarl.bounds is true, into docs/certification.md.
coverage: setup
	$(RUN)/python -m benchmarks.coverage $(ARGS)

# Damaged copies of every kind of file through its loader: an error of one line or the same as before, nothing else.
fuzz: setup
	$(RUN)/python -m benchmarks.fuzz $(ARGS)

# Training killed at random moments and resumed: the same bytes as in one piece. ARGS='--kills 100' is the default.
kill-test: setup
	$(RUN)/python -m benchmarks.kills $(ARGS)

# Certificates for 100 policies with a known J, and how many of them are false, into docs/certification.md.
certificates: setup
	$(RUN)/python -m benchmarks.certificates $(ARGS)

# What the evaluator and the critic take off the variance of Monte Carlo in navigation, into docs/certification.md.
variance: setup
	$(RUN)/python -m benchmarks.variance $(ARGS)

# How often the intervals of off-policy estimates contain the exact value, into docs/ope.md; goes on where it was stopped.
ope-coverage: setup
	$(RUN)/python -m benchmarks.ope_coverage $(ARGS)

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

SCOPE := .venv-scope

# evarl, SCOPE-RL and d3rlpy on the same logs, into docs/ope-comparison.md.
ope-compare: setup $(D3RLPY)/installed $(SCOPE)/installed
	$(RUN)/python -m benchmarks.ope_compare --d3rlpy $(D3RLPY)/bin/python --scope $(SCOPE)/bin/python $(ARGS)

$(SCOPE)/installed:
	$(PYTHON) -m venv $(SCOPE)
	$(SCOPE)/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' scope-rl==0.2.1
	@touch $@

# What `make bench` can be compared with: Rejax and Brax beside the same JAX and Gymnax as here, and Stable-Baselines3.
PEERS := .venv-peers

bench-peers-setup: $(PEERS)/installed $(SB3)/installed

$(PEERS)/installed: constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		rejax==0.1.3 distrax==0.1.9 chex==0.1.92 tfp-nightly==0.26.0.dev20261027 \
		gymnax==1.0.1 brax==0.14.2 jax==0.10.2 flax==0.12.8 optax==0.2.8 six==1.17.0
	@touch $@

$(SB3)/installed:
	$(PYTHON) -m venv $(SB3)
	$(SB3)/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' stable-baselines3==2.9.2 'gymnasium[mujoco]==1.3.0'
	@touch $@

clean:
	rm -rf $(VENV) $(DOCS) $(D3RLPY) $(SCOPE) $(PEERS) $(SB3) runs build .pytest_cache .mypy_cache .ruff_cache .hypothesis
