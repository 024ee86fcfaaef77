PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test chaos lint bench floors clean

demo: .venv/ready  ## the main job on embedded stand-ins
	$(BIN)/onewrite demo

# Each process starts servers of its own, so there are four of them at most.
PYTEST := -m pytest -n logical --maxprocesses 4 --dist worksteal

# With SLOW=1 the slow tests too. With CI=true all of these, a missing engine fails, and coverage is measured.
test: .venv/ready  ## the tests, without the slow ones
	$(BIN)/python $(PYTEST) $(if $(SLOW),--slow) $(if $(CI),--cov --cov-fail-under=100)

MINUTES ?= 10

chaos: .venv/ready  ## breaks workers, servers and connections for so long, and counts what came of it
	$(BIN)/python -m tests.chaos --minutes $(MINUTES)
	ONEWRITE_MODEL=large $(BIN)/python -m pytest tests/properties/test_outbox_model.py tests/properties/test_step_model.py tests/gallery/test_publishing.py

lint: .venv/ready-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: .venv/ready  ## ratios of two things in one run, on real engines
	$(BIN)/python -m tests.benchmarks

floors:  ## the tests without servers of their own, with the lowest versions that pyproject.toml allows users to install
	$(PYTHON) -m venv --clear .venv-floors
	.venv-floors/bin/python -m pip install --quiet uv
	.venv-floors/bin/uv pip compile --quiet --extra all --resolution lowest-direct --output-file .venv-floors/lowest.txt pyproject.toml
	.venv-floors/bin/uv pip install --quiet --python .venv-floors/bin/python --editable ".[all]" --group test --constraint .venv-floors/lowest.txt
	.venv-floors/bin/python $(PYTEST) --slow tests/unit tests/contract examples

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group test
	touch $@

.venv/ready-lint: .venv/ready
	$(BIN)/python -m pip install --quiet --group lint
	touch $@

clean:
	rm -rf .venv .venv-floors .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
