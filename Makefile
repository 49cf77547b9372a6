# On a fresh machine: `make demo` needs python3 >= 3.11 and make; `make test` also downloads TensorFlow and PyTorch.
PYTHON ?= python3
# Number of test processes that run at a time.
JOBS ?= 2
BACKENDS ?= jax tensorflow torch
# Container images often set it. Each process would recompile all imports of Keras: 5 to 10 s.
unexport PYTHONDONTWRITEBYTECODE
# uv uses pip's environment variables, too.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
UV = .venv/bin/uv pip install -q -c tests/constraints.txt
ENV = TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0 CUDA_VISIBLE_DEVICES=
# `make coverage` runs the tests with another program.
PYTHON_RUN = python
# torch's threads busy-wait for each other at every op, and take time from other processes.
PYTEST = OMP_NUM_THREADS=1 .venv/bin/$(PYTHON_RUN) -m pytest -q --durations=10

.PHONY: demo test test-once test-jax test-tensorflow test-torch coverage lint docs fuzz oldest matrix dist
.PHONY: test-all all-once all-jax all-tensorflow all-torch clean-environments licences audit bench clean
.PHONY: clients clients-jax clients-tensorflow clients-torch release-check next

# uv installs in a tenth of pip's time, and its environments share the files of their packages.
.venv/.uv: tests/constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -q --disable-pip-version-check -c tests/constraints.txt uv
	touch $@

.venv/.demo: .venv/.uv pyproject.toml tests/constraints.txt
	$(UV) -e '.[jax,demo]'
	touch $@

# For Linux, PyPI only has PyTorch with 5 GB of CUDA. To install it without CUDA, in a tenth of the time, set TORCH_INDEX
# to the address that pytorch.org/get-started gives for pip and CPU.
TORCH_INDEX ?=
.venv/.test: .venv/.demo
	$(UV) $(TORCH_INDEX:%=--index % --index-strategy unsafe-best-match) \
		-e '.[test]' tensorflow-cpu torch flax orbax-checkpoint
	touch $@

# Tests open written pages in the browser; without it they skip, with a reason.
.venv/.dev: .venv/.test
	$(UV) -e '.[dev,browser]'
	touch $@

demo: .venv/.demo
	.venv/bin/python -m keras_mp.demo

# Tests that never import keras run once; the others, and the docstrings' examples, once per backend.
# `test` leaves out slow tests (tests/durations.py), and runs tests that do not depend on the backend
# on one of them (tests/turns.py). `test-all` runs each test on one backend at least: slow tests
# of what Keras computes on one, and of artefacts a slice on the others. `release-check` runs all on each.
FAST = -m 'not slow' --in-turns
ALL = --in-slices
test: .venv/.test
	$(MAKE) -j$(JOBS) $(BACKENDS:%=test-%) test-once
test-all: .venv/.test
	$(MAKE) -j$(JOBS) -k -Otarget $(BACKENDS:%=all-%) all-once

test-once all-once: PATHS = tests/once tests/licences.py benchmarks/running.py benchmarks/cuda.py benchmarks/on_a_gpu \
	benchmarks/scaling.py
test-once: .venv/.test
	$(ENV) $(PYTEST) $(FAST) $(PATHS)
all-once: .venv/.test
	$(ENV) $(PYTEST) $(ALL) $(DURATIONS) $(ONCE) $(PATHS)

# XLA's older emitters at level 1 compile in three fifths of the time; at 0 they round otherwise.
# `all-jax` compiles as users do, except in CI.
FAST_XLA = XLA_FLAGS='--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1'
test-jax: ENV += $(FAST_XLA)
all-jax: ENV += $(XLA)
test-jax test-tensorflow test-torch: test-%: .venv/.test
	$(ENV) KERAS_BACKEND=$* $(PYTEST) $(FAST) tests/each keras_mp
all-jax all-tensorflow all-torch: all-%: .venv/.test
	$(ENV) KERAS_BACKEND=$* $(PYTEST) $(ALL) $(DURATIONS) tests/each keras_mp

# Other projects' tools, in a separate environment. CI runs a part: CLIENTS='-m quick'.
# `tensorflow`, which the last three require, is tensorflow-cpu here.
.venv-clients/.done: .venv/.test tests/constraints-clients.txt
	.venv/bin/uv venv -q --clear .venv-clients
	$(UV) --python .venv-clients -c tests/constraints-clients.txt -e '.[test]' jax tensorflow-cpu torch \
		absl-py flax kagglehub kagglesdk keras-rs keras-tuner mlflow orbax-checkpoint regex \
		sentencepiece tokenizers wandb
	$(UV) --python .venv-clients -c tests/constraints-clients.txt --no-deps \
		keras-hub keras-tcn tensorflow-text
	touch $@

clients: $(BACKENDS:%=clients-%)

clients-jax: ENV += $(XLA)
clients-jax clients-tensorflow clients-torch: clients-%: .venv-clients/.done
	$(ENV) KERAS_BACKEND=$* OMP_NUM_THREADS=1 .venv-clients/bin/python -m pytest -q --durations=10 \
		$(CLIENTS) tests/clients

# Statement and branch coverage of the tests, in 1.5 times their time; fails below LEAST percent.
# docs/explanation/coverage.md explains what is not covered. `make release-check` runs the tests that need
# no Keras (COVERED=), and measures the packages that only they cover.
COVERED ?= $(BACKENDS)
LEAST ?= 97
WITHOUT_KERAS = migration/code/*,migration/rules/*,compat/configs/*,compat/checkpoints/*,$\
	compat/code_objects/*,compat/file_formats/saved_models.py,compat/inspecting/*
MEASURED = $(if $(COVERED),,--include='$(WITHOUT_KERAS)')
coverage: export COVERAGE_FILE = $(CURDIR)/build/coverage/data
coverage: export COVERAGE_ROOT = $(CURDIR)
coverage: .venv/.dev
	rm -rf build/coverage
	mkdir -p build/coverage
	$(MAKE) test-all JOBS=1 BACKENDS='$(COVERED)' PYTHON_RUN='coverage run'
	.venv/bin/coverage combine -q
	.venv/bin/coverage html -q -d build/coverage/html $(MEASURED)
	.venv/bin/coverage report --skip-covered --fail-under=$(LEAST) $(MEASURED)

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	.venv/bin/python -m tests.unused

# The site reads docstrings as text: it needs no framework.
.venv-docs/.done: .venv/.uv pyproject.toml tests/constraints.txt
	.venv/bin/uv venv -q --clear .venv-docs
	$(UV) --python .venv-docs -r pyproject.toml --extra docs
	touch $@

# The site, in build/site; a warning or a broken link is an error.
docs: .venv-docs/.done
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet

# The property tests of files and sources, with FUZZ times as many examples, different each time; then
# steps of any optimizer, for at most FUZZ_SECONDS per backend (and 12 more examples), and 10,000 calls
# of `apply` with gradients of any kind.
FUZZ ?= 5
FUZZ_SECONDS ?= 300
fuzz: .venv/.test
	$(ENV) KERAS_MP_FUZZ=$(FUZZ) KERAS_BACKEND=jax .venv/bin/python -m pytest -q -m hypothesis \
		--timeout=1200 tests/once tests/each/compat/test_load_model_damaged.py
	for each in $(BACKENDS); do $(ENV) KERAS_MP_FUZZ=$(FUZZ) KERAS_MP_FUZZ_SECONDS=$(FUZZ_SECONDS) \
		KERAS_BACKEND=$$each OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q --timeout=0 \
		tests/each/optimizer/test_optimizer_fuzz.py tests/each/optimizer/test_gradient_fuzz.py || exit 1; done

# The published packages.
dist: .venv/.dev
	rm -rf dist build/lib build/bdist*
	.venv/bin/python -m build --installer uv --outdir dist . > /dev/null
	.venv/bin/twine check --strict dist/*

# Runs the README's commands in new environments with one backend each, and compares the output with docs/.
clean-environments: dist
	.venv/bin/python -m tests.clean_environments dist

# A few minutes of tests on other installed Pythons; `.venv/bin/tox` runs all tests on all of them.
MATRIX ?= py312-latest-jax py313-latest-jax
OTHERS = $(shell ls -d "$$(pyenv root 2>/dev/null)"/versions/*/bin 2>/dev/null | paste -sd:)
matrix: .venv/.dev
	@export PATH="$(OTHERS):$(PATH)"; for each in $(MATRIX); do \
		python=$$(echo $$each | sed 's/py\(3\)\([0-9]*\).*/python\1.\2/'); \
		if $$python -c ''; then .venv/bin/tox -q -e $$each -- $(QUICK) || exit 1; \
		else echo "$$each: there is no $$python here"; fi; done
QUICK = tests/each/optimizer/test_apply.py tests/each/scaling/test_scaler.py tests/each/optimizer/test_saved_state.py

# docs/reference/dependencies.md: packages that users install, and their licences; fails on an unknown one.
licences: .venv/.dev
	.venv/bin/python tests/licences.py

# Says so if the service cannot be reached.
audit: .venv/.dev
	.venv/bin/python tests/audit.py

# The oldest versions that pyproject.toml allows, with the fixtures of the repository only. The oldest
# PyTorch installs 5 GB of CUDA, so it is optional: `make oldest OLDEST=torch`.
OLDEST ?= jax tensorflow
oldest: .venv/.dev
	.venv/bin/tox -q --workdir .tox/oldest -e $(subst $(SPACE),$(COMMA),$(OLDEST:%=py311-oldest-%)) -- \
		-m '(not slow or hostile) and not processes' $(foreach each,$(HOOKED),tests/each/$(dir $(each))test_$(notdir $(each)).py)
# Keras' main branch: the contract tests of the private names that we use, and some of the core.
next: .venv/.test
	@test -d "$(KERAS)/keras" || { echo "make next KERAS=FOLDER: a checkout of keras"; exit 2; }
	for backend in $(BACKENDS); do PYTHONPATH="$(KERAS)" $(ENV) KERAS_BACKEND=$$backend $(PYTEST) \
		-m 'not slow and not processes' $(NEXT:%=tests/each/%.py) || exit 1; done
NEXT = core/test_keras_contract core/test_workarounds optimizer/test_apply scaling/test_scaler \
	policies/test_policy optimizer/test_saved_state state/test_state_protection
# Tests of our uses of private names of Keras and the backends, which may change; and of malicious
# files, which each version of Keras handles differently.
HOOKED = core/keras_contract optimizer/apply policies/auto_wrapping core/callbacks compat/loss_scale_optimizers compat/policies \
	optimizer/copies diagnosis/explaining diagnosis/overflow_search/search core/fit graph_rewrite/enabling \
	graph_rewrite/loops graph_rewrite/numerics optimizer/hyperparameters optimizer/inner_optimizers scaling/scaler compat/load_model \
	optimizer/keras_2_methods monitor/callback policies/policy state/state_protection compat/restore \
	optimizer/saved_state optimizer/shared_loss_scale statistics/step_statistics compat/dangerous_configs compat/hostile \
	compat/load_model_damaged compat/training_of_calls
COMMA := ,
SPACE := $(subst ,, )

# Checks that take minutes; CI skips those whose dependencies have not changed: tests/ci.py.
release-check: .venv/.dev
	.venv/bin/python -m tests.ci --release

# Time ratios; tests bound the corresponding counts. optax, flax, jmp and tf_keras are compared if
# installed: `.venv/bin/pip install optax flax jmp tf_keras`.
bench: .venv/.test
	$(ENV) .venv/bin/python benchmarks/step.py
	$(ENV) .venv/bin/python benchmarks/step.py --core 0 --backends jax --profiles many --modes jit --repeat 25
	$(ENV) .venv/bin/python benchmarks/step.py --dtype float16 --profiles many few
	$(ENV) .venv/bin/python benchmarks/first_step.py
	$(ENV) .venv/bin/python benchmarks/train_step.py
	$(ENV) .venv/bin/python benchmarks/scaling.py
	$(ENV) .venv/bin/python -m benchmarks.sixteen_bit --tasks --time
	$(ENV) .venv/bin/python benchmarks/start.py
	$(ENV) KERAS_BACKEND=jax .venv/bin/python benchmarks/conversion.py
	for backend in tensorflow torch; do $(ENV) KERAS_BACKEND=$$backend .venv/bin/python benchmarks/conversion.py loading; done
	$(ENV) .venv/bin/python benchmarks/saved_graphs.py
	$(ENV) .venv/bin/python benchmarks/find_overflow.py --blocks 2

clean:
	rm -rf .venv .venv-clients .venv-docs .tox build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
