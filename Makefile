PYTHON ?= python3
BIN := .venv/bin

.PHONY: fit test check clean

fit: .venv/ready  ## a graph, a table and pictures on the embedded default federation
	$(BIN)/scool fit --baseline --out runs/demo --overwrite

test: .venv/ready-test  ## the tests
	$(BIN)/python -m pytest -n 2 -q

check: .venv/ready-dev  ## what CI runs: lint, format, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -q

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/ready: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/ready-test: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@ .venv/ready

.venv/ready-dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,dev]'
	touch $@ .venv/ready-test .venv/ready

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache
