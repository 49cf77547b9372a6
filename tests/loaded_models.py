"""Models loaded by `keras_mp.compat.load_model`, with the reports by name."""

from typing import Any, NamedTuple

from keras_mp.compat.restoring import models
from keras_mp.compat.restoring.plan import RestoreReport


class Loaded(NamedTuple):
    """What `load_model` returns with `return_report=True`."""

    model: Any
    report: RestoreReport


def load(*args: Any, **options: Any) -> Loaded:
    """Returns the model and the report; args and errors are those of `load_model`."""
    return Loaded(*models.load_model(*args, **options, return_report=True))
