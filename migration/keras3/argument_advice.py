"""What becomes of arguments that Keras 3 does not take: a table.

Of callables that take no further keywords, all parameters that are gone are refused, and those that
are not here are reported with the parameters of today. Of the others, what is here is refused or
ignored today: tests run it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Renamed:
    """It has another name: the value stays.

    Attributes:
        new: The name of today.
    """

    new: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """It goes, where the value is one of these, or any.

    Attributes:
        values: Texts of values; none: any value.
        otherwise: What to do where it is another.
    """

    values: tuple[str, ...] = ()
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class Valued:
    """Its values are written otherwise.

    Attributes:
        values: How the text of the value ends -> the text of today.
        new: The name of today, where it is another.
        otherwise: What to do where it is another value.
    """

    values: tuple[tuple[str, str], ...]
    new: str = ""
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A person decides.

    Attributes:
        what: What to do.
    """

    what: str


Action = Renamed | Dropped | Valued | Asked

_WORKERS = Asked(
    "give it to the constructor of your keras.utils.PyDataset (super().__init__(workers=...)), or "
    "drop it"
)
_INPUT = "put keras.Input(batch_shape=...) before the first layer of the Sequential model"
_BN = "drop it; keras_mp.compat.layers.BatchNormalization trains images as TensorFlow did"
_SUMMED = "Keras 3 always sums gradients over the replicas: do not sum them before"
_EVERY_STEP = "call reset_metrics() before, where the metrics should start again"

# Scope (a public name, a kind of object, or a kind and a method) -> argument -> what becomes of it.
# The first scope of a call that has the argument counts; None: it is taken, unlike by others.
ARGUMENTS: dict[str, dict[str, Action | None]] = {
    "optimizers.Optimizer": {
        "lr": Renamed("learning_rate"),
        "decay": Dropped(
            ("0", "0.", "0.0", "None"),
            "it is ignored: write learning_rate=keras.optimizers.schedules.InverseTimeDecay("
            "learning_rate, decay_steps=1, decay_rate=decay)",
        ),
        "gradient_aggregator": Dropped(("None",), "sum the gradients before apply_gradients"),
        "gradient_transformers": Dropped(("None", "[]"), "transform them before apply_gradients"),
        "jit_compile": Asked("give it to compile()"),
    },
    "optimizers.Optimizer.apply_gradients": {
        "name": Dropped(),
        "experimental_aggregate_gradients": Dropped(("True",), _SUMMED),
        "skip_gradients_aggregation": Dropped(("False",), _SUMMED),
    },
    "Input": {"type_spec": Dropped(("None",), "write shape, dtype, sparse, ragged")},
    "layers.InputLayer": {
        "batch_input_shape": None,
        "batch_size": None,
        "input_shape": None,
        "type_spec": Dropped(("None",), "write shape, dtype, sparse, ragged"),
    },
    "layers.BatchNormalization": {
        "fused": Dropped(("None",), _BN),
        "virtual_batch_size": Dropped(("None",), _BN),
        "adjustment": Dropped(("None",), _BN),
    },
    "layers.Embedding": {
        "sparse": Dropped(("False",), "drop it: gradients of embeddings are dense"),
        "weights": None,
    },
    "layers.RNN": {
        "time_major": Dropped(("False",), "transpose the inputs, and the outputs"),
    },
    "layers.Layer": {
        "dynamic": Dropped(("False",), "write compile(run_eagerly=True)"),
        "batch_input_shape": Asked(_INPUT),
        "batch_size": Asked(_INPUT),
        "weights": Asked("call set_weights() of the layer when it is built"),
    },
    "layers.Layer.add_loss": {"inputs": Dropped()},
    "layers.Layer.add_weight": {
        "use_resource": Dropped(),
        "partitioner": Dropped(("None",), "drop it; keras.distribution shards variables"),
        "synchronization": Dropped(
            ("tf.VariableSynchronization.AUTO",), "write aggregation only; it has no counterpart"
        ),
        "aggregation": Valued(
            (
                ("VariableAggregation.MEAN", '"mean"'),
                ("VariableAggregation.SUM", '"sum"'),
                ("VariableAggregation.NONE", '"none"'),
                ("VariableAggregation.ONLY_FIRST_REPLICA", '"only_first_replica"'),
            )
        ),
    },
    "metrics.Metric.add_weight": {
        "aggregation": Dropped(("tf.VariableAggregation.SUM",), "drop it: metrics are summed"),
        "synchronization": Dropped(("tf.VariableSynchronization.ON_READ",), "drop it"),
        "use_resource": Dropped(),
    },
    "regularizers.L1": {"l": Renamed("l1")},
    "regularizers.L2": {"l": Renamed("l2")},
    "activations.relu": {"alpha": Renamed("negative_slope")},
    "utils.to_categorical": {
        "y": Renamed("x"),
        "dtype": Asked("convert the result: .astype(dtype) where it is a NumPy array"),
    },
    "utils.load_img": {
        "grayscale": Valued(
            (("True", '"grayscale"'), ("False", '"rgb"')), "color_mode", "write color_mode"
        )
    },
    "preprocessing.text.one_hot": {"text": Renamed("input_text")},
    "preprocessing.text.text_to_word_sequence": {"text": Renamed("input_text")},
    "callbacks.LambdaCallback": {
        "on_batch_begin": Renamed("on_train_batch_begin"),
        "on_batch_end": Renamed("on_train_batch_end"),
    },
    "callbacks.ModelCheckpoint": {
        "period": Dropped(("1",), 'write save_freq="epoch", or the number of batches'),
        "load_weights_on_restart": Dropped(("False",), "write keras.callbacks.BackupAndRestore"),
        "options": Dropped(("None",), "drop it"),
    },
    "callbacks.TensorBoard": {
        "write_grads": Dropped(("False",), "drop it: gradients are not written"),
        "batch_size": Dropped(),
        "embeddings_layer_names": Dropped(("None",), "write embeddings_metadata"),
        "embeddings_data": Dropped(("None",), "drop it"),
    },
    "Model.compile": {
        "experimental_run_tf_function": Dropped(),
        "experimental_steps_per_execution": Renamed("steps_per_execution"),
        "sample_weight_mode": Dropped(
            ("None",), "drop it: sample weights have the shape of the loss of each sample or step"
        ),
        "target_tensors": Dropped(("None",), "give the targets to fit"),
        "distribute": Dropped(("None",), "build and compile in the scope of the strategy"),
        "pss_evaluation_shards": Asked("drop it: Keras 3 has no ParameterServerStrategy"),
    },
    **{
        f"Model.{method}": {
            "workers": _WORKERS,
            "use_multiprocessing": _WORKERS,
            "max_queue_size": _WORKERS,
        }
        for method in ("fit", "evaluate", "predict")
    },
    **{
        f"Model.{method}": {"reset_metrics": Asked(_EVERY_STEP)}
        for method in ("train_on_batch", "test_on_batch")
    },
    "Model.save": {
        "signatures": Dropped(("None",), "write model.export(folder), which has input_signature"),
        "options": Dropped(("None",), "write model.export(folder)"),
        "save_traces": Dropped(),
    },
    "models.save_model": {
        "signatures": Dropped(("None",), "write model.export(folder), which has input_signature"),
        "options": Dropped(("None",), "write model.export(folder)"),
        "save_traces": Dropped(),
    },
    "models.load_model": {"options": Dropped(("None",), "drop it")},
}

# Keywords that are taken besides those that a signature says, where it says that there are some.
TAKEN = {
    "Model.save": ("include_optimizer",),
    "models.save_model": ("include_optimizer",),
    "layers.Layer": ("name", "dtype", "trainable", "activity_regularizer"),
    "layers.Layer.add_weight": ("name", "shape", "regularizer"),
    "optimizers.Optimizer": ("name",),
}
