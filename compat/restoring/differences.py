"""What a report says of a built model: where it computes or trains otherwise than in tf.keras.

A config tells neither shapes nor masks; what it tells is in `configs`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras

from keras_mp.backends import keras_hooks
from keras_mp.compat.configs import Change
from keras_mp.compat.configs.layers import BATCH_NORM, RENAMED
from keras_mp.compat.configs.report import Kind
from keras_mp.compat.configs.training_tables import snake_case
from keras_mp.compat.configs.versions import parse_version
from keras_mp.compat.layers import MultiHeadAttention, merging
from keras_mp.compat.layers.normalization import LayerNormalization
from keras_mp.compat.restoring.keras_layers import is_masked, mask_of

OTHER_AXES = (
    "keras_mp.compat.layers.LayerNormalization, which normalizes over any axes on every backend: "
    "loading needs import keras_mp"
)
OTHER_MASKS = (
    "keras_mp.compat.layers has this layer with the mask of tf.keras: a step is masked where an "
    "input masks it, in Keras 3 where all inputs do: loading needs import keras_mp"
)
NO_MASKS = (
    "keras_mp.compat.layers.MultiHeadAttention, which ignores the masks of its inputs, as up to TF "
    "2.9; that of Keras 3 uses them: loading needs import keras_mp"
)
MASKED = (
    "BatchNormalization of masked steps: up to TF 2.11 they counted in the statistics of a batch, "
    "Keras 3 leaves them out; predictions are the same; exact_training=True keeps the layer of "
    "tf.keras, keras_mp.compat.layers.BatchNormalization"
)
MASKED_RELU = (
    "ReLU: that of TF 2.4 dropped the mask, that of Keras 3 passes it on, so layers behind it that "
    "use masks predict differently. To drop it, build the model in code, and set "
    "supports_masking = False on this layer before it is called"
)
ATTENTION = (
    "MultiHeadAttention of masked steps: PyTorch computes a wrong gradient of its values where all "
    "keys of a query are masked and that query's output counts in the loss; predictions are right. "
    "Train on JAX or TensorFlow, or leave masked steps out of the loss"
)
MASKED_LOSS = (
    "the loss of masked outputs: up to TF 2.9 the sum over the unmasked steps was divided by the "
    "number of all steps, Keras 3 divides it by the number of the unmasked ones: the loss and its "
    "gradients are greater"
)
MASKED_METRICS = (
    "{} of masked outputs: tf.keras left masked steps out, Keras 3 counts them in every metric "
    "that is no mean of a function. To leave them out, compile it as one of weighted_metrics, and "
    "pass a sample_weight that is 0 there"
)


class Difference(NamedTuple):
    """A row of LAYERS.

    Attributes:
        kind: "rewritten" where loading makes a layer of ours, "differs" where it stays Keras' own.
        what: What the report says.
        fits: Whether it is a layer that this is said of; the layer is built.
        before: The first TensorFlow that computed as Keras 3 does. Files of unknown age count as
            older. None: no version did.
        on: The only backend where Keras 3 differs; None: each does.
        is_said_once: Of the first such layer alone.
    """

    kind: Kind
    what: str
    fits: Callable[[Any], bool]
    before: tuple[int, int] | None = None
    on: str | None = None
    is_said_once: bool = False


def _masked(kind: type) -> Callable[[Any], bool]:
    return lambda layer: type(layer) is kind and is_masked(layer)


def _was_fused(layer: Any) -> bool:
    """Whether TensorFlow had one kernel for a BatchNormalization: of 5 axes, from 2.6 on."""
    if type(layer) is not keras.layers.BatchNormalization or not layer.built:
        return False
    rank = len(layer.get_build_config().get("input_shape") or ())
    return rank in (4, 5) and layer.axis % rank in (1, rank - 1)


# What differs by the config alone is in `configs.layers`.
LAYERS = (
    Difference("rewritten", OTHER_AXES, lambda layer: isinstance(layer, LayerNormalization)),
    Difference("rewritten", OTHER_MASKS, lambda layer: isinstance(layer, merging.LAYERS)),
    Difference("rewritten", NO_MASKS, lambda layer: isinstance(layer, MultiHeadAttention)),
    Difference("differs", BATCH_NORM, _was_fused, is_said_once=True),
    Difference(
        "differs",
        MASKED,
        _masked(keras.layers.BatchNormalization),
        before=(2, 12),
        is_said_once=True,
    ),
    Difference("differs", MASKED_RELU, _masked(keras.layers.ReLU), before=(2, 5)),
    Difference("differs", ATTENTION, _masked(keras.layers.MultiHeadAttention), on="torch"),
)


def changes(model: Any, told: Iterable[Change], tf_version: str | None) -> list[Change]:
    """Returns what shows only in a built model: the rows of LAYERS that are true of it.

    Args:
        model: The model.
        told: What its config has told.
        tf_version: The TensorFlow that wrote it; None where nobody knows.
    """
    said = {change.what for change in told}
    # Those that shared statistics among replicas had no such kernel.
    if any(RENAMED["SyncBatchNormalization"] in what for what in said):
        said.add(BATCH_NORM)
    # Few files are that old: one of unknown age is not taken for one of them.
    if tf_version is None:
        said.add(MASKED_RELU)
    layers = keras_hooks.all_layers(model)
    found = []
    for row in LAYERS:
        is_here = row.on in (None, keras.backend.backend())
        is_older = row.before is None or _is_before(row.before, tf_version)
        if is_here and is_older and row.what not in said:
            fitting = [layer for layer in layers if row.fits(layer)]
            for layer in fitting[:1] if row.is_said_once else fitting:
                found.append(Change(f"$: {layer.path}", row.kind, row.what, matters=True))
    return found


def changes_of_compiled(
    model: Any, config: Mapping[str, Any], tf_version: str | None
) -> list[Change]:
    """Returns what shows only in a compiled model.

    Args:
        model: The model.
        config: What it was compiled with.
        tf_version: As of `changes`.
    """
    outputs = getattr(model, "outputs", None) or ()
    if all(mask_of(tensor) is None for tensor in outputs):
        return []
    found = []
    if _is_before((2, 10), tf_version):
        found.append(Change("$.loss", "differs", MASKED_LOSS, matters=True))
    for key in ("metrics", "weighted_metrics"):
        names = sorted(set(_counting_all(config.get(key))))
        if names:
            what = MASKED_METRICS.format(", ".join(names))
            found.append(Change(f"$.{key}", "differs", what, matters=True))
    return found


def _counting_all(value: object) -> Iterator[str]:
    """Yields the classes of serialized metrics that do not look at masks."""
    if isinstance(value, list) or (isinstance(value, Mapping) and "class_name" not in value):
        for one in value if isinstance(value, list) else value.values():
            yield from _counting_all(one)
        return
    name = str(value.get("class_name")) if isinstance(value, Mapping) else str(value)
    kind = _METRICS.get(name)
    if value is None or name == "function" or (kind is None and isinstance(value, str)):
        return
    if kind is None or not issubclass(kind, keras.metrics.MeanMetricWrapper):
        yield name


_METRICS = {
    name: kind
    for public, kind in vars(keras.metrics).items()
    if isinstance(kind, type)
    for name in (public, snake_case(public))
}


def _is_before(version: tuple[int, int], tf_version: str | None) -> bool:
    return tf_version is None or parse_version(tf_version) < version
