"""One process, one backend: `KERAS_BACKEND` is read when keras is imported."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

# The first re-exports: the examples are run where they are written. The other is recordings.
collect_ignore = ["keras_mp/__init__.py", "tests/data"]
