"""What a serialized object is, and the function that converts it."""

from collections.abc import Mapping

from keras_mp.compat.configs import (
    addons,
    checks,
    layer_tables,
    models,
    optimizer_tables,
    policies,
    training_tables,
)
from keras_mp.compat.configs.models import convert_layer, convert_model
from keras_mp.compat.configs.optimizers import convert_optimizer
from keras_mp.compat.configs.policies import convert_policy
from keras_mp.compat.configs.report import Converted
from keras_mp.compat.configs.serialized import Config
from keras_mp.compat.configs.training import convert_loss, convert_metric, convert_training
from keras_mp.compat.errors import LegacyError

KINDS = ("model", "layer", "optimizer", "policy", "training", "loss", "metric")
_OPTIMIZERS = models.OPTIMIZERS | {
    *map(str.lower, (*optimizer_tables.V1, *addons.CLASSES, *addons.REFUSED))
}
_UNKNOWN = (
    "neither a model, a layer, an optimizer, a policy, a loss nor a metric of tf.keras; convert "
    "one of your own by its kind: convert_layer, or --as layer"
)


def convert(
    config: Config, *, tf_version: str | None = None, exact_training: bool = False
) -> Converted:
    """Returns today's form of anything that tf.keras serialized.

    Args:
        config: A model, layer, optimizer, dtype policy, loss, metric or training config.
            Never changed. One of today comes back as it is.
        tf_version: The TensorFlow that wrote it, such as "2.2"; decides what configs do not tell.
        exact_training: As of `convert_model`; for models and layers.

    Raises:
        LegacyError: Something in it has no faithful counterpart today, or it is nothing of these.

    >>> convert({"class_name": "Policy", "config": {"name": "mixed_float16"}}).config["class_name"]
    'DTypePolicy'
    """
    match kind_of(config):
        case "model":
            return convert_model(config, tf_version=tf_version, exact_training=exact_training)
        case "optimizer":
            return convert_optimizer(config, tf_version=tf_version)
        case "training":
            return convert_training(config, tf_version=tf_version)
        case "policy":
            return convert_policy(config)
        case "loss":
            return convert_loss(config)
        case "metric":
            return convert_metric(config)
    return convert_layer(config, tf_version=tf_version, exact_training=exact_training)


def kind_of(config: Config) -> str:
    """Returns what a config is of: one of KINDS.

    A name that losses and metrics share is a loss, unless its module says otherwise.

    Raises:
        LegacyError: It is nothing that Keras serializes.

    >>> kind_of({"class_name": "Dense", "config": {"units": 3}})
    'layer'
    >>> kind_of({"loss": "mse", "optimizer_config": {}})
    'training'
    """
    given = checks.mapping(config, "$")
    if "class_name" not in given:
        if given.keys() & {"inner_optimizer", "loss_scale"}:
            why = 'expected {"class_name": "LossScaleOptimizer", "config": ...} around it'
            raise LegacyError("$", "is the inside of an optimizer, its get_config()", why)
        if given.keys() & {"optimizer_config", "optimizer", "loss", "metrics"}:
            return "training"
        raise LegacyError("$.class_name", "is missing", _UNKNOWN)
    name, inside, module = given["class_name"], given.get("config"), given.get("module")
    bare = name.rpartition(">")[2] if isinstance(name, str) else ""
    config = inside if isinstance(inside, Mapping) else {}
    if bare in policies.LEGACY or "DTypePolicy" in bare:
        return "policy"
    if _is_model(bare, given, config):
        return "model"
    for kind in ("optimizer", "loss", "metric"):
        plural = "losses" if kind == "loss" else f"{kind}s"
        # A layer of one's own may stand beside losses; every layer wrote "trainable".
        if isinstance(module, str) and f".{plural}" in module and "trainable" not in config:
            return kind
    if bare.lower() in _OPTIMIZERS:
        return "optimizer"
    if "learning_rate" in config and "trainable" not in config:
        return "optimizer"  # of one's own, which is refused as such
    if bare in layer_tables.LAYERS or bare in layer_tables.REFUSED or "trainable" in config:
        return "layer"
    if bare in training_tables.LOSSES and "dtype" not in config:
        return "loss"
    if bare in training_tables.METRICS or bare in training_tables.METRICS_REFUSED:
        return "metric"
    if bare == "MeanMetricWrapper":
        return "metric"
    if isinstance(given.get("registered_name"), str):
        return "layer"  # of one's own, and so is whatever else: nothing of it is known
    raise LegacyError("$.class_name", checks.found(name), _UNKNOWN)


def _is_model(name: str, given: Config, config: Config) -> bool:
    return (
        name in models.MODELS
        or "keras_version" in given
        or "compile_config" in given
        or all(key in config for key in models.FUNCTIONAL)
    )
