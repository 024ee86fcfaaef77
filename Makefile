PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench clean

demo: .venv/ready  ## the main job on embedded stand-ins
	$(BIN)/onewrite demo

test: .venv/ready  ## every test; with CI set, a missing engine fails and coverage is measured
	$(BIN)/python -m pytest -n 2 --dist loadfile $(if $(CI),--cov --cov-fail-under=100)

lint: .venv/ready-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: .venv/ready  ## ratios of two things in one run, on real engines
	$(BIN)/python -m tests.benchmarks

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group test
	touch $@

.venv/ready-lint: .venv/ready
	$(BIN)/python -m pip install --quiet --group lint
	touch $@

clean:
	rm -rf .venv .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
