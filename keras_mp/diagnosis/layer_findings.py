"""Likely problems in layers, losses and metrics of a mixed-precision model: one rule for each.

A rule reads `Facts` and yields findings. Numbers in the texts were measured on JAX, TensorFlow and
PyTorch. Not a problem is what Keras itself computes in float32: losses, LayerNormalization, the
batch statistics of BatchNormalization.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.diagnosis.explanation import Finding, Level
from keras_mp.diagnosis.facts import Facts, LayerRule, float16_outputs, updated_in
from keras_mp.float_formats import FLOAT16
from keras_mp.graph_rewrite.tensors import dtype_of
from keras_mp.state.state_protection import is_protected, self_assigned_weights

# -- the variables -----------------------------------------------------------------------------


no_master_copy = LayerRule(
    "no_master_copy",
    "error",
    lambda facts, one: updated_in(facts, one, "float16"),
    "trained variables in float16, without a float32 copy",
    "updates below half a unit in the last place vanish: 100 steps of 1e-4 leave a weight at "
    "exactly 1",
    "policy mixed_float16: variables in float32, computation in float16. A layer that is built "
    "keeps its variables: make a new one. Or, for 16-bit weights, "
    "keras_mp.LossScaleOptimizer(keras_mp.MasterWeights(optimizer))",
)


bfloat16_updates = LayerRule(
    "bfloat16_updates",
    "error",
    lambda facts, one: updated_in(facts, one, "bfloat16"),
    "trained variables in bfloat16, without a float32 copy",
    "updates below 0.2 % of a weight vanish: 100 steps of 1e-3 leave a weight at exactly 1",
    "keras_mp.MasterWeights(optimizer), or keras_mp.StochasticRounding(optimizer), which needs no "
    "copy; or policy mixed_bfloat16, with variables in float32",
)


float16_statistics = LayerRule(
    "float16_statistics",
    "error",
    lambda _, one: (
        isinstance(one.layer, keras.layers.BatchNormalization)
        and any(dtype_of(v) == "float16" and "moving" in v.name for v in one.variables)
    ),
    "moving statistics in float16",
    "they stop moving: the moving mean of data around 5 stays at 4.8125, and a variance above "
    "65504 is inf",
    "policy mixed_float16, or dtype='float32' for this layer",
)


def assigned_weights(facts: Facts) -> Iterator[Finding]:
    """Weights that a forward pass writes, before the optimizer can skip the step."""
    if facts.loss_scale.kind != "keras_mp.LossScaleOptimizer" or is_protected(facts.model):
        return
    # `fit` on JAX drops values assigned to weights, unless they are frozen.
    dropped = keras.backend.backend() == "jax"
    for one in facts.layers:
        weights = [v for v in self_assigned_weights(one.layer) if not (dropped and v.trainable)]
        if weights:
            names = ", ".join(dict.fromkeys(variable.name for variable in weights))
            yield Finding(
                "assigned_weights",
                "note",
                one.path,
                f"training may assign to weights in the forward pass: {names}",
                "a step whose gradients are not finite is skipped only after that, so it changes "
                "them",
                "keras_mp.protect_state(model), or protect_state_scope in your own loop, restores "
                "them",
            )


# -- calls -------------------------------------------------------------------------------------


def overridden_training(facts: Facts) -> Iterator[Finding]:
    """Calls in a functional model whose `training` Keras overrides."""
    models = [facts.model, *(one.layer for one in facts.layers if one.is_graph)]
    for model in models:
        if getattr(model, "keeps_training_of_calls", False):
            continue
        for operation in getattr(model, "operations", ()):
            said = _training_of_calls(operation)
            if said:
                yield Finding(
                    "overridden_training",
                    "warning",
                    facts.path_of(operation, operation.name),
                    f"is called with training={', '.join(map(str, said))}, which has no effect",
                    "fit and predict of a functional model of Keras 3 pass their own training to "
                    "every call: predict drops nothing, and fit updates moving statistics",
                    "keras_mp.compat.layers.Functional(inputs, outputs) instead of keras.Model, "
                    "with training=None in the calls that do not set it",
                )


def _training_of_calls(operation: Any) -> list[Any]:
    """Returns the `training` of calls, without a layer's default, which Keras records by itself."""
    parameter = inspect.signature(operation.call).parameters.get("training")
    if parameter is None:
        return []
    calls = [node.arguments.kwargs.get("training") for node in keras_hooks.calls_of(operation)]
    said = [each for each in calls if isinstance(each, bool) and each is not parameter.default]
    return list(dict.fromkeys(said))


# -- numbers that float16 does not hold --------------------------------------------------------


def float16_softmax(facts: Facts) -> Iterator[Finding]:
    """A softmax for a loss, in float16."""
    for one in facts.layers:
        if one.output is False or not one.float16 or not _activates(one.layer, "softmax"):
            continue
        direct = one.output or "/" not in one.path
        yield Finding(
            "float16_softmax",
            "warning" if direct else "note",
            one.path,
            "softmax in float16" if direct else "softmax in float16, perhaps for a loss",
            "the gradient of a crossentropy is 1/p, times the loss scale, and overflows for "
            "confident mistakes: with logits 12 apart the scale falls from 32768 to 8 and nothing "
            "is learned for 12 steps; 17 apart p is 0, and so is the gradient, forever",
            "no activation here, and keras.layers.Activation('softmax', dtype='float32') after it; "
            "or a loss with from_logits=True and an output in float32",
        )


float16_sigmoid = LayerRule(
    "float16_sigmoid",
    "warning",
    lambda _, one: bool(one.output and one.float16 and _activates(one.layer, "sigmoid")),
    "sigmoid in float16",
    "above a logit of 8 to 9 it is exactly 1: with a binary crossentropy, confident mistakes have "
    "gradient 0 and are never unlearned",
    "no activation here, and keras.layers.Activation('sigmoid', dtype='float32') after it; or a "
    "loss with from_logits=True and an output in float32",
)


def float16_output(facts: Facts) -> Iterator[Finding]:
    """Outputs in float16."""
    for name, operation, dtype in float16_outputs(facts):
        yield Finding(
            "float16_output",
            "warning",
            facts.path_of(operation, name),
            f"the model returns {dtype}",
            "Keras computes the loss in float32, but from predictions that were rounded to 11 bits "
            "and are inf above 65504; predict() also returns float16",
            "dtype='float32' for the last layer"
            if isinstance(operation, keras.layers.Layer)
            else "keras.layers.Activation('linear', dtype='float32') after it",
        )


def float16_loss(facts: Facts) -> Iterator[Finding]:
    """A loss that is computed in float16."""
    losses = [one for one in keras.tree.flatten(getattr(facts.model, "loss", None)) if one]
    floatx = keras.config.floatx()
    low = [one for one in losses if getattr(one, "dtype", floatx) == "float16"]
    if not low:
        return
    what, remedy = f"{_name(low[0])} computes in float16", "remove dtype='float16' from the loss"
    if floatx == "float16":
        what = "keras.config.floatx() is float16, and therefore the losses"
        remedy = "keras.config.set_floatx('float32') and policy mixed_float16"
    why = "an error of 300, squared, is inf"
    yield Finding("float16_loss", "error", "loss", what, why, remedy)


# With predictions and labels 300 apart, or for KLDivergence probabilities of 1e-5.
_METRICS = {
    "meansquarederror": "an error of 300, squared, is inf",
    "mse": "an error of 300, squared, is inf",
    "squaredhinge": "a margin of 300, squared, is inf",
    "cosinesimilarity": "it is 0 for predictions of 300, whose squares are inf",
    "kldivergence": "it is inf for probabilities that float16 rounds to 0",
    "kld": "it is inf for probabilities that float16 rounds to 0",
}


def float16_metrics(facts: Facts) -> Iterator[Finding]:
    """Metrics that overflow on float16 predictions."""
    if not any(True for _ in float16_outputs(facts)):
        return
    compiled = keras_hooks.compiled_metrics(facts.model)
    given = [getattr(compiled, f"_user_{kind}", None) for kind in ("metrics", "weighted_metrics")]
    for one in keras.tree.flatten(given):
        name = _name(one)
        why = _METRICS.get(name.lower().replace("_", ""))
        if why is not None:
            yield Finding(
                "float16_metric",
                "warning",
                "metrics",
                f"{name} is computed in the dtype of the predictions, float16",
                f"{why}. Losses are safe: Keras casts their predictions to float32",
                "dtype='float32' for the last layer",
            )


float16_activity_regularizer = LayerRule(
    "float16_regularizer",
    "warning",
    lambda _, one: one.float16 and getattr(one.layer, "activity_regularizer", None) is not None,
    "an activity regularizer of float16 outputs",
    "it sums over the whole batch in float16: 512 outputs of 128, squared, are inf, and the loss "
    "with them",
    "dtype='float32' for a keras.layers.ActivityRegularization after this layer",
)
float16_regularizer = LayerRule(
    "float16_regularizer",
    "warning",
    lambda _, one: any(
        dtype_of(v) == "float16" and getattr(v, "regularizer", None) for v in one.variables
    ),
    "a regularizer of float16 variables",
    "it sums in float16: 4096 weights of 20, squared, are inf, and the loss with them",
    "policy mixed_float16, whose variables are float32",
)


_LARGE_WINDOW = 256


def float16_sums(facts: Facts) -> Iterator[Finding]:
    """Layers that internally sum in float16."""
    for one in facts.layers:
        if one.float16 and (found := _sum_in_float16(one.layer)) is not None:
            level, what, why = found
            yield Finding(
                "float16_sum", level, one.path, what, why, "dtype='float32' for this layer"
            )


def _sum_in_float16(layer: Any) -> tuple[Level, str, str] | None:
    layers = keras.layers
    if isinstance(layer, layers.UnitNormalization):
        return (
            "warning",
            "UnitNormalization takes the norm in float16",
            "a norm above 256 gives 0, one below 1.7e-4 inf, and an input of zeros nan",
        )
    if isinstance(layer, layers.Dot) and layer.normalize:
        return (
            "warning",
            "Dot(normalize=True) takes norms in float16",
            "a norm above 256 gives 0",
        )
    if isinstance(
        layer, layers.AveragePooling1D | layers.AveragePooling2D | layers.AveragePooling3D
    ):
        window = 1
        for size in layer.pool_size:
            window *= size
        # PyTorch sums in float32.
        if window < _LARGE_WINDOW or keras.backend.backend() == "torch":
            return None
        return (
            "warning",
            f"{type(layer).__name__} sums {window} values in float16",
            f"where their mean exceeds {FLOAT16.largest / window:.3g}, the result is inf; global "
            "pooling layers do not have this",
        )
    product = isinstance(layer, layers.Attention) and layer.score_mode == "dot"
    if product and not isinstance(layer, layers.AdditiveAttention):
        return (
            "note",
            "Attention takes plain products q·k in float16",
            "one above 65504 gives nan: 64 features of 40 are enough",
        )
    rms = getattr(layers, "RMSNormalization", None)
    if rms and isinstance(layer, rms) and keras.__version__.startswith("3.10."):
        return (
            "warning",
            "RMSNormalization of Keras 3.10 squares in float16",
            "inputs above 256 give 0; Keras 3.11 computes it in float32",
        )
    return None


def rewritten(facts: Facts) -> Iterator[Finding]:
    """Ops that the graph rewrite computes in 16 bits, which no policy shows."""
    for dtype in sorted(facts.rewritten):
        yield Finding(
            "graph_rewrite",
            "note",
            facts.model.name,
            f"the graph rewrite computes in {dtype}, op by op",
            "layers and variables are float32, and so are the tensors between layers",
            "keras_mp.graph_rewrite.report(model) lists the ops; there is nothing to do",
        )


# -- what is unknown ---------------------------------------------------------------------------


unbuilt = LayerRule(
    "unbuilt",
    "note",
    lambda _, one: one.may_hide_layers,
    "not built yet: layers that its build creates are unknown",
    "they may be of any dtype",
    "call explain again after calling the model on data",
)


def quantized(facts: Facts) -> Iterator[Finding]:
    """Layers that were quantized."""
    for one, row in zip(facts.layers, facts.rows, strict=True):
        if row.quantization in (None, "float8") or one.is_graph:
            continue
        yield Finding(
            "quantized",
            "note",
            one.path,
            f"quantized to {row.quantization}",
            "its kernel is fixed: training changes only its bias, and other layers",
            "train first, then quantize",
        )


def _activates(layer: Any, name: str) -> bool:
    if type(layer).__name__.lower() == name:
        return True
    return getattr(getattr(layer, "activation", None), "__name__", None) == name


def _name(given: Any) -> str:
    if isinstance(given, str):
        return given
    return str(getattr(given, "__name__", type(given).__name__))


RULES = (
    no_master_copy,
    bfloat16_updates,
    float16_statistics,
    assigned_weights,
    overridden_training,
    float16_softmax,
    float16_sigmoid,
    float16_output,
    float16_loss,
    float16_metrics,
    float16_activity_regularizer,
    float16_regularizer,
    float16_sums,
    rewritten,
    unbuilt,
    quantized,
)
