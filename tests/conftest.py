"""One process, one backend: `KERAS_BACKEND` is read when keras is imported."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
