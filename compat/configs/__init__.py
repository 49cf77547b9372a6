"""Configs of TF 1.15 to 2.15, rewritten as today's: pure functions from JSON to JSON.

They import neither keras, a framework nor numpy. What the old programs wrote is in the tables
beside; whatever they did not write is refused by its JSON path. Nothing is dropped silently:
`Converted.changes` lists all that is not as it was.
"""

from keras_mp.compat.configs.kinds import convert, kind_of
from keras_mp.compat.configs.models import convert_layer, convert_model
from keras_mp.compat.configs.optimizers import (
    convert_loss_scale_config,
    convert_optimizer,
    is_legacy,
    parse_version,
)
from keras_mp.compat.configs.policies import convert_policy
from keras_mp.compat.configs.report import Change, Converted
from keras_mp.compat.configs.training import convert_loss, convert_metric, convert_training

__all__ = [
    "Change",
    "Converted",
    "convert",
    "convert_layer",
    "convert_loss",
    "convert_loss_scale_config",
    "convert_metric",
    "convert_model",
    "convert_optimizer",
    "convert_policy",
    "convert_training",
    "is_legacy",
    "kind_of",
    "parse_version",
]
