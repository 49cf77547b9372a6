"""What to write instead of what Keras 3 has not: tables, by the names below `tf.keras`.

A test holds that all that is gone has advice, and that what is named here is there today.
"""

# Gone name -> where it is. Below a module, as much as is there.
MOVED = {
    "callbacks.experimental": "callbacks",
    "experimental.CosineDecay": "optimizers.schedules.CosineDecay",
    "experimental.CosineDecayRestarts": "optimizers.schedules.CosineDecayRestarts",
    "initializers.normal": "initializers.RandomNormal",
    "initializers.uniform": "initializers.RandomUniform",
    "layers.experimental.EinsumDense": "layers.EinsumDense",
    "layers.experimental.preprocessing": "layers",
    "losses.cosine": "losses.cosine_similarity",
    "losses.cosine_proximity": "losses.cosine_similarity",
    "optimizers.experimental": "optimizers",
    "saving.load_model": "models.load_model",
    "saving.save_model": "models.save_model",
    "saving": "utils",
}

# Functions of losses and metrics that `tf.keras` and `keras` of today have by different names.
_IN_TF_KERAS = {
    "mean_squared_error": "mse",
    "mean_absolute_error": "mae",
    "mean_absolute_percentage_error": "mape",
    "mean_squared_logarithmic_error": "msle",
    "kl_divergence": "kld",
    "log_cosh": "logcosh",
}
_IN_KERAS = {
    **{short: long for long, short in _IN_TF_KERAS.items()},
    **{short.upper(): long for long, short in _IN_TF_KERAS.items() if short != "logcosh"},
    "kullback_leibler_divergence": "kl_divergence",
}
_SPACES = ("losses", "metrics")
MOVED_IN = {
    "tf.keras": {f"{of}.{a}": f"{of}.{b}" for of in _SPACES for a, b in _IN_TF_KERAS.items()},
    "keras": {f"{of}.{a}": f"{of}.{b}" for of in _SPACES for a, b in _IN_KERAS.items()},
}

_TRAINING = "pass training=True or training=False to the calls of the model or the layer"
_NO_SESSION = "Keras 3 has no sessions: drop it"
_OWN_LAYER = "write a custom layer with keras.ops"
_HUB = "KerasHub has models of this family"
_DTENSOR = "write keras.distribution.DeviceMesh, LayoutMap and ModelParallel"
_PY_DATASET = "fit, evaluate and predict take generators and keras.utils.PyDataset themselves"
_SK = "write keras.wrappers.SKLearnClassifier or SKLearnRegressor, or use scikeras"
_FEATURES = "write keras.utils.FeatureSpace, or the preprocessing layers of keras.layers"
_ESTIMATORS = "there are no estimators since TF 2.16: train the Keras model with fit"
_TOKENIZE = "write keras.layers.TextVectorization"
_AUGMENT = (
    "write keras.utils.image_dataset_from_directory and the random layers of keras.layers; with "
    "TensorFlow, tf.keras.preprocessing.image still has it"
)
_SAM = "write both steps in train_step of a custom model"
_SEED = "Keras 3 draws with seeds of its own: call keras.utils.set_random_seed(seed)"
_CUDNN = "write {}, which takes cuDNN by itself; what stands second by position is activation"

# Gone name, or the module it is in -> what to write. The longest that fits is taken.
ADVICE = {
    "applications": _HUB,
    "backend.batch_dot": "write keras.ops.matmul or keras.ops.einsum",
    "backend.batch_get_value": "write keras.ops.convert_to_numpy of each",
    "backend.batch_set_value": "write variable.assign(value) of each",
    "backend.bias_add": "write +",
    "backend.cast_to_floatx": "write keras.ops.cast(x, keras.config.floatx())",
    "backend.count_params": "write keras.ops.size",
    "backend.ctc_batch_cost": "write keras.ops.ctc_loss",
    "backend.dtype": "write x.dtype",
    "backend.eval": "write keras.ops.convert_to_numpy",
    "backend.experimental": _SEED,
    "backend.function": "write keras.Model(inputs, outputs) and call it, or keras.Function",
    "backend.get_session": _NO_SESSION,
    "backend.get_value": "write keras.ops.convert_to_numpy",
    "backend.gradients": "write tf.GradientTape, jax.grad or torch.autograd.grad",
    "backend.in_test_phase": _TRAINING,
    "backend.in_train_phase": _TRAINING,
    "backend.learning_phase": _TRAINING,
    "backend.learning_phase_scope": _TRAINING,
    "backend.local_conv1d": _OWN_LAYER,
    "backend.local_conv2d": _OWN_LAYER,
    "backend.manual_variable_initialization": _NO_SESSION,
    "backend.normalize_batch_in_training": (
        "write keras.ops.moments and keras.ops.batch_normalization"
    ),
    "backend.placeholder": "write keras.Input",
    "backend.print_tensor": "write tf.print, or keras.ops.convert_to_numpy and print",
    "backend.random_bernoulli": "write keras.random.binomial(shape, counts=1, probabilities=p)",
    "backend.random_binomial": "write keras.random.binomial",
    "backend.random_normal": "write keras.random.normal",
    "backend.random_normal_variable": "write keras.Variable(keras.random.normal(...))",
    "backend.random_uniform": "write keras.random.uniform",
    "backend.random_uniform_variable": "write keras.Variable(keras.random.uniform(...))",
    "backend.reset_uids": "write keras.utils.clear_session()",
    "backend.set_learning_phase": _TRAINING,
    "backend.set_session": _NO_SESSION,
    "backend.set_value": "write variable.assign(value)",
    "backend.update": "write variable.assign(value)",
    "backend.update_add": "write variable.assign_add(value)",
    "backend.update_sub": "write variable.assign_sub(value)",
    "backend.variable": "write keras.Variable",
    "callbacks.BaseLogger": "drop it: Keras averages the metrics of an epoch itself",
    "callbacks.SidecarEvaluatorModelExport": "Keras 3 has no sidecar evaluator: evaluate the files "
    "that ModelCheckpoint writes in a separate program",
    "callbacks.experimental": "see keras.callbacks",
    "constraints.RadialConstraint": "write a custom keras.constraints.Constraint",
    "constraints.radial_constraint": "write a custom keras.constraints.Constraint",
    "dtensor": _DTENSOR,
    "estimator": _ESTIMATORS,
    "experimental": "it was experimental, and nothing took its place",
    "experimental.LinearCosineDecay": "write keras.optimizers.schedules.CosineDecay, or a "
    "custom LearningRateSchedule",
    "experimental.LinearModel": "write a keras.layers.Dense(units) in a model",
    "experimental.NoisyLinearCosineDecay": "write a custom LearningRateSchedule",
    "experimental.PeepholeLSTMCell": "write a custom cell for keras.layers.RNN",
    "experimental.SequenceFeatures": _FEATURES,
    "experimental.SidecarEvaluator": "evaluate the files that ModelCheckpoint writes in a separate "
    "program",
    "experimental.WideDeepModel": "write a functional model that adds the two outputs",
    "experimental.export_saved_model": "write model.export(folder)",
    "experimental.load_from_saved_model": 'write keras.layers.TFSMLayer(folder, "serving_default")',
    "experimental.terminate_keras_multiprocessing_pools": "drop it",
    "layers.AbstractRNNCell": "derive from keras.Layer, with state_size, output_size and "
    "get_initial_state(batch_size)",
    "layers.CuDNNGRU": _CUDNN.format("keras.layers.GRU"),
    "layers.CuDNNLSTM": _CUDNN.format("keras.layers.LSTM"),
    "layers.DenseFeatures": _FEATURES,
    "layers.LocallyConnected1D": _OWN_LAYER,
    "layers.LocallyConnected2D": _OWN_LAYER,
    "layers.RandomHeight": "write keras.layers.RandomZoom, or a custom layer",
    "layers.RandomWidth": "write keras.layers.RandomZoom, or a custom layer",
    "layers.ThresholdedReLU": "write keras.ops.threshold in a custom layer",
    "layers.experimental": "see keras.layers",
    "layers.experimental.RandomFourierFeatures": _OWN_LAYER,
    "layers.experimental.SyncBatchNormalization": (
        "write keras.layers.BatchNormalization(synchronized=True)"
    ),
    "layers.experimental.preprocessing.CategoryCrossing": "write keras.layers.HashedCrossing",
    "layers.experimental.preprocessing.PreprocessingLayer": "derive from keras.Layer",
    "losses.Reduction": 'write the strings: reduction="sum_over_batch_size", "sum" or "none"',
    "metrics.MeanRelativeError": "write a custom keras.metrics.Metric",
    "metrics.MeanTensor": "write a custom keras.metrics.Metric",
    "metrics.cosine": "write keras.losses.cosine_similarity, whose sign is the same",
    "metrics.cosine_proximity": "write keras.losses.cosine_similarity, whose sign is the same",
    "metrics.experimental": "derive from keras.metrics.Metric",
    "models.experimental": _SAM,
    "models.model_from_config": "write keras.saving.deserialize_keras_object(config)",
    "models.model_from_yaml": "write keras.models.model_from_json: old YAML is read by "
    "`keras-mp migrate model.yaml`",
    "optimizers.experimental": "see keras.optimizers",
    "optimizers.legacy": "it raises an error: write keras.optimizers, or "
    "keras_mp.compat.optimizers with the update rules of Keras 2",
    "preprocessing.image": _AUGMENT,
    "preprocessing.sequence": "write keras.utils.timeseries_dataset_from_array, or NumPy; with "
    "TensorFlow, tf.keras.preprocessing.sequence still has it",
    "preprocessing.text": f"{_TOKENIZE}; with TensorFlow, tf.keras.preprocessing.text still has it",
    "saving": "import it: `from tensorflow.keras import saving`",
    "utils.GeneratorEnqueuer": _PY_DATASET,
    "utils.HDF5Matrix": "read it with h5py: fit takes h5py.Dataset",
    "utils.OrderedEnqueuer": _PY_DATASET,
    "utils.SequenceEnqueuer": _PY_DATASET,
    "utils.SidecarEvaluator": "evaluate the files that ModelCheckpoint writes in a separate "
    "program",
    "utils.StepsPerExecutionTuner": 'write compile(steps_per_execution="auto")',
    "utils.TimedThread": "write threading.Timer in a callback",
    "utils.convert_all_kernels_in_model": "it was for models of Theano: drop it",
    "utils.experimental": "write tf.data.Dataset; fit takes no DatasetCreator",
    "utils.multi_gpu_model": "build and compile the model in the scope of a "
    "tf.distribute.MirroredStrategy, or with keras.distribution.DataParallel",
    "utils.to_ordinal": "write (keras.ops.arange(num_classes - 1) < y[..., None])",
    "utils.warmstart_embedding_matrix": "copy the rows of the words that both vocabularies have",
    "wrappers.scikit_learn": _SK,
}

# Functions of tf.keras.backend that keras.ops has by another name. Others have the same.
OPS = {
    "batch_flatten": "reshape",
    "constant": "convert_to_tensor",
    "flatten": "ravel",
    "foldl": "scan",
    "foldr": "scan",
    "gather": "take",
    "int_shape": "shape",
    "l2_normalize": "normalize",
    "map_fn": "map",
    "permute_dimensions": "transpose",
    "pow": "power",
    "resize_images": "image.resize",
    "reverse": "flip",
    "spatial_2d_padding": "pad",
    "switch": "cond",
    "temporal_padding": "pad",
}
