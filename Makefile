# make demo, make test: all that a newcomer needs. Both set up a virtual environment in .venv by themselves.
PYTHON ?= python3.11
BIN := .venv/bin
CPUS := $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')

.PHONY: demo test check speed gpu clean

.venv/base: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: install Python 3.11, or name a later one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/test: .venv/base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

demo: .venv/base  ## run the whole benchmark on the built-in collection
	$(BIN)/python -m benchmarks.run --corpus demo --retriever bm25

check: .venv/test  ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## everything
	$(BIN)/python -m pytest -n $(CPUS) --dist worksteal

gpu: .venv/test  ## the tests that need a GPU, then the rates of encoding and judging on it
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python tests/speed/encoding.py
	$(BIN)/python tests/speed/judge_gpu.py

speed: .venv/test  ## measure against peers, in one run
	@for script in tests/speed/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf .venv *.egg-info .mypy_cache .ruff_cache .pytest_cache
