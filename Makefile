PYTHON ?= python3
BIN := .venv/bin

FLOWER := .venv-flower/bin
FLOWER_TESTS := tests/far/flower tests/cli/test_flower.py tests/workbench/test_silos.py

.PHONY: fit test test-flower test-nightly check docs browser bench bench-quick clean

BENCHMARKS := startup estep look pairs training rounds byhand many adapters far

fit: .venv/ready  ## a graph, a table and pictures on the embedded default federation
	$(BIN)/scool fit --baseline --out runs/demo --overwrite

test: .venv/ready-test  ## the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-flower: .venv-flower/ready  ## what needs Flower, in an environment of its own: Flower wants older libraries
	$(FLOWER)/python -m pytest -n 2 -q $(FLOWER_TESTS)

test-nightly: .venv-flower/ready-nightly  ## what takes minutes: docs/silos.md with its servers, a simulation, docs/torchrun.md, runs of many processes
	$(FLOWER)/python -m pytest -q -m nightly

check: .venv/ready-dev  ## lint, format, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

docs: .venv/ready-docs  ## the documentation as a site, in build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean --config-file docs/site/mkdocs.yml

browser:  ## chromium, with which reports are tested, by apt where that is possible (root on Debian or Ubuntu)
	@if command -v chromedriver >/dev/null; then echo "browser: it is here"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; then echo "browser: installed"; \
	else echo "browser: cannot be installed here; install chromium and chromedriver, or tests of reports are skipped"; exit 1; fi

bench: .venv/ready-test  ## all benchmarks, minutes on a quiet machine; rewrites experiments/benchmarks/*.json and RESULTS.md
	for name in $(BENCHMARKS); do $(BIN)/python experiments/benchmarks/$$name.py || exit 1; done
	$(BIN)/python experiments/benchmarks/tables.py

bench-quick: .venv/ready-test  ## the same on small sizes, under two minutes; prints, and writes nothing
	for name in $(BENCHMARKS); do $(BIN)/python experiments/benchmarks/$$name.py --quick || exit 1; done

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

.venv/ready-docs: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@ .venv/ready

# What .venv has need not be installed twice; what Flower wants in other versions comes first.
.venv-flower/bin/python: .venv/ready-test
	$(PYTHON) -m venv .venv-flower
	$(FLOWER)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > .venv-flower/own
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" > "$$(cat .venv-flower/own)/beside.pth"

.venv-flower/ready: .venv-flower/bin/python pyproject.toml
	$(FLOWER)/python -m pip install --quiet --disable-pip-version-check --editable '.[flower]'
	touch $@

.venv-flower/ready-nightly: .venv-flower/bin/python pyproject.toml
	$(FLOWER)/python -m pip install --quiet --disable-pip-version-check --editable '.[flower-simulation]'
	touch $@ .venv-flower/ready

clean:
	rm -rf .venv .venv-flower build dist .mypy_cache .pytest_cache .ruff_cache
