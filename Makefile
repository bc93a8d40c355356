# Two commands matter to a newcomer: `make demo` and `make test`. Both make the virtual environment first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.[ch]' -o -name '*.map' -o -name CMakeLists.txt 2>/dev/null)
# The others compare with published data that does not come with the project; see docs/placement.md and docs/cpn-*.md.
BENCHMARKS := placement_throughput interceptor_hot_path agent nri gangs neuroplugin rtos
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadgroup

.PHONY: help demo test nightly lint format bench bench-agent bench-interceptor bench-rtos fuzz gpu-check mutants .venv native clean

help: ## List the targets
	@grep -hE '^[a-z.]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv ## Start a sandbox with emulated cards and tell the story in five scenes
	$(BIN)/hcs demo

test: .venv ## Run the tests: random tests at small counts, everything on this machine
	$(PYTEST) -m 'not nightly'

nightly: .venv ## Run everything at full counts
	HYPOTHESIS_PROFILE=nightly $(PYTEST)

lint: .venv ## Style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv ## Bring the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv ## Print one JSON line per benchmark
	@for benchmark in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$benchmark || exit 1; done

bench-interceptor: .venv ## What the interceptor adds to a call: one and 16 threads, four processes, kernel launches
	$(BIN)/python benchmarks/interceptor_hot_path.py

gpu-check: .venv ## On a machine with an NVIDIA card: PyTorch, JAX and CuPy under a quota, against the real driver
	$(BIN)/python -m benchmarks.gpu.check

fuzz: .venv ## Mutate quota files for a minute and have the parser read them, under sanitizers
	PATH="$$PWD/$(BIN):$$PATH" $(BIN)/cmake -S . -B build/fuzz -DHCS_SANITIZE=ON >/dev/null
	$(BIN)/cmake --build build/fuzz --target quota_fuzz
	mkdir -p build/fuzz/seeds
	sed -n '/^hcs-quota 1$$/,/^end /p' docs/quota-file.md > build/fuzz/seeds/good
	build/fuzz/fuzz/quota_fuzz $$RANDOM 5000000 build/fuzz/seeds/good build/fuzz/seeds/good

bench-agent: .venv ## Print what the node agent costs, one JSON line a figure
	$(BIN)/python benchmarks/agent.py
	$(BIN)/python benchmarks/nri.py

bench-rtos: .venv ## Measure the planner of RTOS guests, and one guest's life under hcs-rtos
	@$(BIN)/python -m benchmarks.rtos

mutants: .venv ## Break the code on purpose, one place at a time; a named test must turn red each time
	$(BIN)/python tests/mutants/run.py

.venv: $(VENV)/.installed ## Make the virtual environment with all extras and hcs in it

$(VENV)/.installed: requirements.lock pyproject.toml CMakeLists.txt $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than 3.11" >&2; echo "  try:  make PYTHON=python3.12 demo" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	PATH="$$PWD/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-build-isolation --no-deps --editable .
	touch $@

native: .venv ## Build the C libraries again
	PATH="$$PWD/$(BIN):$$PATH" $(BIN)/cmake -S . -B build/native -DCMAKE_BUILD_TYPE=Release >/dev/null
	$(BIN)/cmake --build build/native

clean: ## Remove everything that was made
	rm -rf $(VENV) build dist src/hcs/native/lib .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
