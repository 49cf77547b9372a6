# On a fresh machine: `make demo` needs python3 >= 3.11 and make; `make test` also downloads TensorFlow and PyTorch.
PYTHON ?= python3
# How many of the tests' processes run at a time.
JOBS ?= 2
BACKENDS ?= jax tensorflow torch
# Images of containers often set it. Each process would compile all that Keras imports anew: 5 to 10 s.
unexport PYTHONDONTWRITEBYTECODE
# What pip is told by its environment, uv is told, too.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
UV = .venv/bin/uv pip install -q -c tests/constraints.txt
ENV = TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0 CUDA_VISIBLE_DEVICES=
# `make coverage` runs the tests by another program.
PYTHON_RUN = python
# torch's threads wait busily for each other at every op, which takes what other processes need.
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

# For Linux PyPI has PyTorch with 5 GB of CUDA only. Without it, and with a tenth of the time: TORCH_INDEX
# is the address that pytorch.org/get-started gives for pip and CPU.
TORCH_INDEX ?=
.venv/.test: .venv/.demo
	$(UV) $(TORCH_INDEX:%=--index % --index-strategy unsafe-best-match) \
		-e '.[test]' tensorflow-cpu torch orbax-checkpoint
	touch $@

# The browser opens the pages that are written; without it their tests say what they skip.
.venv/.dev: .venv/.test
	$(UV) -e '.[dev,browser]'
	touch $@

demo: .venv/.demo
	.venv/bin/python -m keras_mp.demo

# Tests that never import keras run once; the others, and the docstrings' examples, once a backend.
# `test` leaves out what takes long (tests/durations.py), and has what no backend changes on one of
# them (tests/turns.py); `test-all` has everything, of artefacts a slice on all backends but one.
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

# XLA's older emitters compile in two thirds of the time; `all-jax` has the newer ones but for CI.
test-jax: ENV += XLA_FLAGS=--xla_cpu_use_fusion_emitters=false
all-jax: ENV += $(XLA)
test-jax test-tensorflow test-torch: test-%: .venv/.test
	$(ENV) KERAS_BACKEND=$* $(PYTEST) $(FAST) tests/each keras_mp
all-jax all-tensorflow all-torch: all-%: .venv/.test
	$(ENV) KERAS_BACKEND=$* $(PYTEST) $(ALL) $(DURATIONS) tests/each keras_mp

# Other people's tools in an environment of their own. CI has a part: CLIENTS='-m quick'.
# `tensorflow`, which the last three ask for, is tensorflow-cpu here.
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

# Which statements and branches the tests take, at one and a half times their time; fails below LEAST
# percent. docs/explanation/coverage.md has what is left, and why. `make release-check` runs the tests that
# need no Keras (COVERED=), and measures the rooms that are theirs alone.
COVERED ?= $(BACKENDS)
LEAST ?= 99
WITHOUT_KERAS = migration/code/*,migration/rules/*,compat/configs/*,compat/checkpoints/*,$\
	compat/code_objects/*,compat/file_formats/saved_models.py,compat/inspecting/*
MEASURED = $(if $(COVERED),,--include='$(WITHOUT_KERAS)')
coverage: export COVERAGE_FILE = $(CURDIR)/build/coverage/data
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

# As a site, in build/site; a warning, or a link that leads nowhere, is an error.
docs: .venv-docs/.done
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet

# The property tests of files and sources again, with FUZZ times as many examples, others each time;
# then steps of any optimizer, for at most FUZZ_SECONDS a backend (and 12 examples more), and 10,000
# calls of `apply` with gradients of any kind.
FUZZ ?= 5
FUZZ_SECONDS ?= 300
fuzz: .venv/.test
	$(ENV) KERAS_MP_FUZZ=$(FUZZ) KERAS_BACKEND=jax .venv/bin/python -m pytest -q -m hypothesis \
		--timeout=1200 tests/once tests/each/compat/test_load_model_damaged.py
	for each in $(BACKENDS); do $(ENV) KERAS_MP_FUZZ=$(FUZZ) KERAS_MP_FUZZ_SECONDS=$(FUZZ_SECONDS) \
		KERAS_BACKEND=$$each OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q --timeout=0 \
		tests/each/core/test_optimizer_fuzz.py tests/each/core/test_gradient_fuzz.py || exit 1; done

# What is published.
dist: .venv/.dev
	rm -rf dist build/lib build/bdist*
	.venv/bin/python -m build --installer uv --outdir dist . > /dev/null
	.venv/bin/twine check --strict dist/*

# The README's commands in new environments of one backend each, compared with the page in docs/.
clean-environments: dist
	.venv/bin/python -m tests.clean_environments dist

# Some minutes of tests on other Pythons, where there are some; `.venv/bin/tox` runs all on all.
MATRIX ?= py312-latest-jax py313-latest-jax
OTHERS = $(shell ls -d "$$(pyenv root 2>/dev/null)"/versions/*/bin 2>/dev/null | paste -sd:)
matrix: .venv/.dev
	@export PATH="$(OTHERS):$(PATH)"; for each in $(MATRIX); do \
		python=$$(echo $$each | sed 's/py\(3\)\([0-9]*\).*/python\1.\2/'); \
		if $$python -c ''; then .venv/bin/tox -q -e $$each -- $(QUICK) || exit 1; \
		else echo "$$each: there is no $$python here"; fi; done
QUICK = tests/each/core/test_apply.py tests/each/core/test_scaler.py tests/each/core/test_saved_state.py

# docs/reference/dependencies.md: what is installed for users, under which licence; fails on one that is not known.
licences: .venv/.dev
	.venv/bin/python tests/licences.py

# Where its service cannot be reached nothing is known, and that is said.
audit: .venv/.dev
	.venv/bin/python tests/audit.py

# The lower bounds of what pyproject.toml promises, with the fixtures of the repository only. That of
# PyTorch brings 5 GB of CUDA along, so it is asked for: `make oldest OLDEST=torch`.
OLDEST ?= jax tensorflow
oldest: .venv/.dev
	.venv/bin/tox -q --workdir .tox/oldest -e $(subst $(SPACE),$(COMMA),$(OLDEST:%=py311-oldest-%)) -- \
		-m '(not slow or hostile) and not processes' $(foreach each,$(HOOKED),tests/each/$(dir $(each))test_$(notdir $(each)).py)
# The same on Keras' main branch: the contract tests of the private names that we use, and some of the core.
next: .venv/.test
	@test -d "$(KERAS)/keras" || { echo "make next KERAS=FOLDER: a checkout of keras"; exit 2; }
	for backend in $(BACKENDS); do PYTHONPATH="$(KERAS)" $(ENV) KERAS_BACKEND=$$backend $(PYTEST) \
		-m 'not slow and not processes' $(NEXT:%=tests/each/core/test_%.py) || exit 1; done
NEXT = keras_contract workarounds apply scaler policy saved_state state_protection
# Where we touch what Keras and the backends keep to themselves, and so may change; and files that
# are made to do harm, of which each Keras takes others.
HOOKED = core/keras_contract core/apply core/auto_wrapping core/callbacks compat/loss_scale_optimizers compat/policies \
	core/copies diagnosis/explaining overflow_search/search core/fit graph_rewrite/enabling \
	graph_rewrite/loops graph_rewrite/numerics core/hyperparameters core/inner_optimizers core/scaler compat/load_model \
	core/keras_2_methods monitor/callback core/policy core/state_protection compat/restore \
	core/saved_state core/shared_loss_scale core/step_statistics compat/dangerous_configs compat/hostile \
	compat/load_model_damaged compat/training_of_calls
COMMA := ,
SPACE := $(subst ,, )

# What takes minutes, and what CI leaves out where nothing that it depends on has changed: tests/ci.py.
release-check: .venv/.dev
	.venv/bin/python -m tests.ci --release

# Ratios side by side; counts of the same are held to bounds by tests. What is installed of optax,
# flax, jmp and tf_keras is compared, too: `.venv/bin/pip install optax flax jmp tf_keras` before.
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
	$(ENV) .venv/bin/python benchmarks/find_overflow.py --blocks 2

clean:
	rm -rf .venv .venv-clients .venv-docs .tox build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
