PYTHON ?= python3
BIN := .venv/bin

# Four processes and their children import what one of them has compiled, also where the environment says that nobody keeps bytecode.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test aioboto3 chaos soak mutants lint bench floors dist docs diagrams clean

demo: .venv/ready  ## the main job on embedded stand-ins; with WEB=1 on a page
	cd examples && ../$(BIN)/python -m demo $(if $(WEB),--web)

# Tests wait for servers much of the time, so there are more processes than a small machine has cores. Each starts servers of its own. A room
# takes less time than so many processes take to start.
PYTEST := -m pytest -n $(if $(ROOM),auto,4) --dist worksteal

# With SLOW=1 the slow tests too, of which some read what `make docs` has built. With CI=true all of these, a missing engine or site fails, and
# coverage is measured. ROOM=contract runs that folder of tests alone.
test: .venv/ready  ## the tests, without the slow ones, and with a sample of what they multiply
	$(BIN)/python $(PYTEST) $(if $(ROOM),tests/$(ROOM)) $(if $(SLOW),--slow) $(if $(CI),--cov --cov-fail-under=97)

aioboto3:  ## the tests of its tables, in an environment of its own, because it holds boto3 back
	$(PYTHON) -m venv --clear .venv-aioboto3
	.venv-aioboto3/bin/python -m pip install --quiet uv # pip would try hundreds of versions of boto3
	.venv-aioboto3/bin/uv pip install --quiet --python .venv-aioboto3/bin/python --editable ".[all]" --group test --group aioboto3
	.venv-aioboto3/bin/python $(PYTEST) --slow tests/contract tests/testing/test_explorer_any_client.py -k "aioboto3 or (async and table)"

MINUTES ?= 10

chaos: .venv/ready  ## breaks workers, servers and connections for so long, and counts what came of it
	$(BIN)/python -m tests.chaos --minutes $(MINUTES)
	ONEWRITE_MODEL=large $(BIN)/python -m pytest --slow tests/properties tests/gallery/test_paying.py tests/gallery/test_publishing.py

soak: .venv/ready  ## runs workers and relays for so long, and fails if their memory, files, or threads grow
	$(BIN)/python -m tests.chaos.soak --minutes $(MINUTES)

mutants: .venv/ready  ## changes the core one thing at a time, and prints what no test of its room notices
	$(BIN)/python -m tests.mutants

lint: .venv/ready-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml

bench: .venv/ready  ## ratios of two things in one run, on real engines
	$(BIN)/python -m tests.benchmarks

floors:  ## the quick tests of users' dependencies, with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv --clear .venv-floors
	.venv-floors/bin/python -m pip install --quiet uv
	.venv-floors/bin/uv pip compile --quiet --extra all --extra testing --resolution lowest-direct --output-file .venv-floors/lowest.txt pyproject.toml
	.venv-floors/bin/uv pip install --quiet --python .venv-floors/bin/python --editable ".[all]" --group test --constraint .venv-floors/lowest.txt
	.venv-floors/bin/python $(PYTEST) tests/core tests/dynamodb tests/mongodb tests/outbox tests/batch tests/sqs tests/aws_lambda tests/identity tests/lean tests/testing tests/operate tests/docs tests/contract examples

dist: .venv-dist/ready  ## the wheel and the sdist in dist/, tried in environments that hold nothing else
	PATH="$(CURDIR)/.venv-dist/bin:$$PATH" .venv-dist/bin/python tests/release.py

docs: .venv-docs/ready  ## the documentation as a site in .site/, to be read from there; a link that leads nowhere fails
	rm -rf .site
	.venv-docs/bin/python docs/site/collect.py
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs --quiet build --config-file docs/site/mkdocs.yml
	rm .site/404.html # its links need a server, and this site is read from the disk

diagrams:  ## draws the pictures of the documentation anew; needs Graphviz
	$(PYTHON) docs/diagrams/draw.py

# An environment of its own: what the site is built with has no part in what is tested.
.venv-docs/ready: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet "pip>=25.1"
	.venv-docs/bin/python -m pip install --quiet --group docs
	touch $@

.venv-dist/ready: pyproject.toml
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet "pip>=25.1"
	.venv-dist/bin/python -m pip install --quiet --group dist
	touch $@

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group test
	touch $@

.venv/ready-lint: .venv/ready
	$(BIN)/python -m pip install --quiet --group lint
	touch $@

clean:
	rm -rf .venv .venv-aioboto3 .venv-docs .venv-dist .venv-floors .site .site-pages .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
