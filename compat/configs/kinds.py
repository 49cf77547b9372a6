"""`convert`: finds what a serialized object is, and converts it by its kind."""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

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

Kind = Literal["model", "layer", "optimizer", "policy", "training", "loss", "metric"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_OPTIMIZERS = models.OPTIMIZERS | {
    *map(str.lower, (*optimizer_tables.V1, *addons.CLASSES, *addons.REFUSED))
}
_UNKNOWN = (
    "neither a model, a layer, an optimizer, a policy, a loss nor a metric of tf.keras; convert "
    "one of your own by its kind: kind='layer', or --as layer"
)


def convert(
    config: Config | str,
    *,
    kind: Kind | None = None,
    tf_version: str | None = None,
    exact_training: bool = False,
    sparse_variables: Iterable[str] = (),
) -> Converted:
    """Converts a config of tf.keras to one that Keras 3 deserializes.

    | kind        | written by tf.keras                           | what takes the result        |
    | ----------- | --------------------------------------------- | ---------------------------- |
    | "model"     | `to_json()`, `model_config`, `config.json`    | `models.model_from_json`     |
    | "layer"     | `layers.serialize(...)`; may be a model       | `layers.deserialize`         |
    | "optimizer" | `optimizers.serialize(...)`; may be a wrapper | `optimizers.deserialize`     |
    | "policy"    | the "dtype" of a layer: an object or a name   | `dtype_policies.deserialize` |
    | "training"  | `training_config`, `compile_config`           | `model.compile_from_config`  |
    | "loss"      | `losses.serialize(...)`                       | `losses.deserialize`         |
    | "metric"    | `metrics.serialize(...)`                      | `metrics.deserialize`        |

    Args:
        config: The JSON, as Python objects. Never changed. One of today comes back as it is.
        kind: What it is. None: what `kind_of` finds. Objects of your own classes need it, and
            so does the name of a policy.
        tf_version: The TensorFlow that wrote it, such as "2.2", where configs do not say: up to
            2.2, a skipped step did not count as an iteration, and a loss scale made sparse
            gradients dense.
        exact_training: Whether layers that Keras 3 trains differently become those of
            `keras_mp.compat.layers`, which train as before. For models and layers. Loading
            them needs `import keras_mp`.
        sparse_variables: For optimizers: regular expressions for `variable.path`, of variables
            whose gradients were sparse (those of Embedding layers, which a config does not
            say). Used where the old rule for them differs from that of Keras 3, see
            `keras_mp.compat.keras2.optimizer_options`.

    Raises:
        LegacyError: Something in it has no faithful counterpart today, or it is of no kind.
        ValueError: `kind` or `tf_version` is unknown, or `sparse_variables` is given for
            something other than an optimizer.

    >>> done = convert({"class_name": "PolicyV1", "config": {"name": "mixed_float16"}})
    >>> done.config["class_name"], done.config["config"]
    ('DTypePolicy', {'name': 'mixed_float16'})
    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.05, "decay": 0.0}}
    >>> convert(sgd, kind="optimizer").config["config"]
    {'learning_rate': 0.05}
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind is {kind!r}: expected one of {', '.join(KINDS)}")
    actual = kind or kind_of(checks.mapping(config, "$"))
    if sparse_variables and actual != "optimizer":
        raise ValueError(f"sparse_variables is for optimizers, but this is a {actual} config")
    if actual == "policy":
        return convert_policy(config)
    given = checks.mapping(config, "$")
    match actual:
        case "model":
            return convert_model(given, tf_version=tf_version, exact_training=exact_training)
        case "optimizer":
            return convert_optimizer(
                given, tf_version=tf_version, sparse_variables=sparse_variables
            )
        case "training":
            return convert_training(given, tf_version=tf_version)
        case "loss":
            return convert_loss(given)
        case "metric":
            return convert_metric(given)
    return convert_layer(given, tf_version=tf_version, exact_training=exact_training)


def kind_of(config: Config) -> Kind:
    """Returns the kind of a config: one of KINDS.

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
    raise LegacyError("$.class_name", checks.describe(name), _UNKNOWN)


def _is_model(name: str, given: Config, config: Config) -> bool:
    return (
        name in models.MODELS
        or "keras_version" in given
        or "compile_config" in given
        or all(key in config for key in models.FUNCTIONAL)
    )
