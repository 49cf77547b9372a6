"""Layers train as they did in TensorFlow: recorded steps, replayed in Keras 3."""

import contextlib
import functools
import inspect
import json
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat import layers
from keras_mp.compat.configs import convert
from keras_mp.compat.configs.layers import BATCH_NORM, DROPOUT, FLIP, TIME_DISTRIBUTED
from keras_mp.compat.restoring.differences import (
    MASKED,
    MASKED_LOSS,
    MASKED_RELU,
    OTHER_AXES,
)
from tests.loaded_models import load

# JAX has no float64 unless asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")

DATA = Path(__file__).parents[2] / "data/training_steps"
RECORDED = {
    version: np.load(DATA / f"recorded_tf{version.replace('.', '')}.npz")
    for version in ("2.3", "2.10")
}
CASES = [
    (version, name)
    for version, arrays in RECORDED.items()
    for name in sorted({key.partition("/")[0] for key in arrays.files if "/" in key})
]
# Rounding decides there, also between the kernels of one TensorFlow: see the last tests.
ILL_CONDITIONED = [(version, name) for version, name in CASES if name.endswith("far_mean")]
IS_DIVIDED = tuple(map(int, keras.__version__.split(".")[:2])) >= (3, 14)
divides = pytest.mark.skipif(
    not IS_DIVIDED, reason="Keras divides an activity_regularizer by the batch size from 3.14 on"
)
WELL_CONDITIONED = [case for case in CASES if case not in ILL_CONDITIONED]
STEPS = 2
FLOAT32, FLOAT16 = 1e-6, 2.0**-10


def loaded(version: str, name: str, *, exact_training: bool) -> tuple[Any, list[Any]]:
    """Returns a recorded layer with its weights, and these in TensorFlow's order."""
    arrays = RECORDED[version]
    old = json.loads(str(arrays[f"{name}/config"]))
    done = convert(old, kind="layer", tf_version=version, exact_training=exact_training)
    layer = keras.saving.deserialize_keras_object(done.config)
    layer(arrays[f"{name}/x"][0])
    kept = [v for v in layer.non_trainable_variables if "seed" not in v.path]
    variables = [*layer.trainable_variables, *kept]
    for i, variable in enumerate(variables):
        variable.assign(arrays[f"{name}/weight/{i}"])
    assert f"{name}/weight/{len(variables)}" not in arrays
    return layer, kept


def training_step(layer: Any, x: Any, weighting: Any) -> tuple[Any, Any, list[Any]]:
    """Returns the output, the regularization and the gradients, the input's last."""
    step = {"jax": jax_step, "tensorflow": tensorflow_step, "torch": torch_step}
    result: tuple[Any, Any, list[Any]] = step[keras.backend.backend()](layer, x, weighting)
    return result


def call_of(layer: Any) -> Any:
    options = {"training": True} if "training" in inspect.signature(layer.call).parameters else {}
    return functools.partial(layer, **options)


@functools.lru_cache(maxsize=1)
def differentiated(layer: Any, *, with_input: bool) -> Any:
    """Returns a function that is compiled once for the steps of a layer."""
    import jax

    kept = layer.non_trainable_variables

    def loss(trainable: Any, x: Any, state: Any, weighting: Any) -> Any:
        values = [*zip([*layer.trainable_variables, *kept], [*trainable, *state], strict=True)]
        with keras.StatelessScope(values, collect_losses=True) as scope:
            y = call_of(layer)(x)
            extra = sum(layer.losses)
        new = [scope.get_current_value(v) for v in kept]
        total = (y * weighting.astype(y.dtype)).astype("float32").sum() + extra
        return total, (y, extra, new)

    return jax.jit(jax.grad(loss, (0, 1) if with_input else (0,), has_aux=True))


def jax_step(layer: Any, x: Any, weighting: Any) -> tuple[Any, Any, list[Any]]:
    kept = layer.non_trainable_variables
    differentiate = differentiated(layer, with_input=np.issubdtype(x.dtype, np.floating))
    trainable, state = ([v.value for v in group] for group in (layer.trainable_variables, kept))
    (gradients, *of_x), (y, extra, new) = differentiate(trainable, x, state, weighting)
    for variable, value in zip(kept, new, strict=True):
        variable.assign(value)
    return y, extra, [*gradients, *of_x]


def tensorflow_step(layer: Any, x: Any, weighting: Any) -> tuple[Any, Any, list[Any]]:
    import tensorflow as tf

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        if x.dtype.is_floating:
            tape.watch(x)
        y = call_of(layer)(x)
        extra = sum(layer.losses)
        total = tf.reduce_sum(tf.cast(y * tf.cast(weighting, y.dtype), "float32")) + extra
    sources = [v.value for v in layer.trainable_variables]
    gradients = tape.gradient(total, [*sources, *([x] if x.dtype.is_floating else [])])
    return y, extra, [tf.convert_to_tensor(gradient) for gradient in gradients]


def torch_step(layer: Any, x: Any, weighting: Any) -> tuple[Any, Any, list[Any]]:
    import torch

    is_float = np.issubdtype(x.dtype, np.floating)
    x = torch.tensor(x, requires_grad=is_float)
    y = call_of(layer)(x)
    extra = sum(layer.losses)
    total = (y * torch.tensor(weighting).to(y.dtype)).float().sum() + extra
    sources = [v.value for v in layer.trainable_variables]
    gradients = torch.autograd.grad(total, [*sources, *([x] if is_float else [])])
    return y.detach(), extra.detach() if extra else extra, list(gradients)


def array(value: Any) -> Any:
    return np.asarray(ops.convert_to_numpy(value), "float64")


def difference(found: Any, recorded: Any, size: float | None = None) -> float:
    """Returns the largest difference, as a part of `size` or of the largest recorded number."""
    found, recorded = array(found), np.asarray(recorded, "float64")
    assert found.shape == recorded.shape
    if not found.size:
        return 0.0
    return float(np.abs(found - recorded).max() / (size or np.abs(recorded).max() or 1.0))


def differences(version: str, name: str, *, exact_training: bool) -> dict[str, float]:
    """Returns, by what it is of, the largest difference in all recorded steps."""
    arrays = RECORDED[version]
    layer, kept = loaded(version, name, exact_training=exact_training)
    found: dict[str, list[float]] = {"y": [], "regularization": [], "gradients": [], "state": []}
    for step in range(STEPS):
        x = arrays[f"{name}/x"][step]
        y, extra, gradients = training_step(layer, x, arrays[f"{name}/weighting"])
        count = len(layer.trainable_variables)
        keys = [*map(str, range(count)), "input"][: len(gradients)]
        recorded = [arrays[f"{name}/{step}/gradient/{key}"] for key in keys]
        # That of an input is a small difference of large numbers where a layer normalizes.
        size = max((float(np.abs(gradient).max()) for gradient in recorded), default=1.0)
        found["y"].append(difference(y, arrays[f"{name}/{step}/y"]))
        recorded_extra = arrays[f"{name}/{step}/regularization"]
        found["regularization"].append(difference(extra, recorded_extra))
        for gradient, expected in zip(gradients, recorded, strict=True):
            found["gradients"].append(difference(gradient, expected, size))
        for i, variable in enumerate(kept):
            found["state"].append(difference(variable, arrays[f"{name}/{step}/state/{i}"]))
    found["predicted"] = [
        difference(layer(arrays[f"{name}/x"][0], training=False), arrays[f"{name}/predicted"])
        if "training" in inspect.signature(layer.call).parameters
        else 0.0
    ]
    return {key: max(values, default=0.0) for key, values in found.items()}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        pytest.param(*case, marks=divides if case[1] in ("activity", "dense") else ())
        for case in WELL_CONDITIONED
    ],
)
def test_trains_as_then(version: str, name: str) -> None:
    found = differences(version, name, exact_training=True)
    of_float16 = ("y", "gradients", "predicted") if name.endswith("float16") else ()
    for key, value in found.items():
        assert value < (FLOAT16 if key in of_float16 else FLOAT32), found


OTHERWISE = [
    ("2.3", "bn_4d", "state", 1e-4),
    ("2.3", "bn_4d_momentum", "state", 5e-3),
    ("2.3", "bn_4d_channels_first", "state", 1e-2),
    ("2.3", "bn_4d_two", "state", 0.4),
    ("2.3", "bn_4d_float16", "state", 5e-3),
    ("2.3", "bn_4d_tiny_epsilon", "y", 1.0),
    ("2.3", "bn_3d_mask", "state", 0.1),
    ("2.3", "time_distributed", "y", 0.5),
    ("2.10", "bn_5d", "state", 1e-3),
]


@pytest.mark.parametrize(("version", "name", "what", "least"), OTHERWISE)
def test_keras_trains_otherwise(version: str, name: str, what: str, least: float) -> None:
    assert differences(version, name, exact_training=False)[what] > least


@pytest.mark.parametrize(("version", "name"), ILL_CONDITIONED)
def test_numbers_far_from_zero(version: str, name: str) -> None:
    """No further from the exact output than TensorFlow was, or than the input's rounding is."""
    arrays = RECORDED[version]
    found = differences(version, name, exact_training=True)
    assert found["state"] < FLOAT32
    axes = -1 if name.startswith("layer") else tuple(range(arrays[f"{name}/x"].ndim - 2))
    x = arrays[f"{name}/x"][0].astype("float64")
    gamma, beta = (arrays[f"{name}/weight/{i}"].astype("float64") for i in (0, 1))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    exact = (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta
    layer, _ = loaded(version, name, exact_training=True)
    y, _, _ = training_step(layer, arrays[f"{name}/x"][0], arrays[f"{name}/weighting"])
    rounding = 2.0**-24 * np.abs(x).max() / np.sqrt(variance.min())
    theirs = difference(arrays[f"{name}/0/y"], exact)
    assert difference(y, exact) < max(theirs, 4 * rounding)


def test_float16_keeps_float32_statistics() -> None:
    layer = layers.BatchNormalization(dtype="float16")
    layer.build((None, 3))
    assert {v.dtype for v in layer.variables} == {"float32"}
    y = layer(np.ones((2, 3), "float16"), training=True)
    assert keras.backend.standardize_dtype(y.dtype) == "float16"
    plain = keras.layers.BatchNormalization(dtype="float16")
    plain.build((None, 3))
    assert {v.dtype for v in plain.variables} == {"float16"}  # what the layer is for


def test_masks_count_from_tf_2_12_on() -> None:
    x = np.asarray([[[1.0, 0.0], [3.0, 1.0], [50.0, 5.0]], [[2.0, 2.0]] * 3], "float32")
    mask = np.asarray([[True, True, False], [False, False, True]])
    means = {}
    for version in ("2.11", "2.12"):
        layer = layers.BatchNormalization(momentum=0.0, tf_version=version)
        plain = keras.layers.BatchNormalization(momentum=0.0)
        layer(x, training=True, mask=mask)
        plain(x, training=True, mask=mask)
        means[version] = array(layer.moving_mean)[0]
        if version == "2.12":
            assert array(layer.moving_variance) == pytest.approx(array(plain.moving_variance))
    assert means == {"2.11": pytest.approx(10.0), "2.12": pytest.approx(2.0)}


@pytest.mark.parametrize("option", ["renorm", "synchronized"])
def test_options_of_keras_alone(option: str) -> None:
    with pytest.raises(ValueError, match=rf"{option}=True: use keras\.layers\.BatchNormalization"):
        layers.BatchNormalization(**{option: True})


def test_frozen_layers_keep_their_statistics() -> None:
    layer = layers.BatchNormalization()
    layer.build((None, 2, 2, 3))
    layer.trainable = False
    before = [array(v) for v in layer.variables]
    x = np.random.RandomState(0).rand(2, 2, 2, 3)
    assert difference(layer(x, training=True), array(layer(x, training=False))) == 0.0
    assert all(np.array_equal(a, array(v)) for a, v in zip(before, layer.variables, strict=True))


def dropped(layer: Any) -> Any:
    """Returns which inputs of (batch, time, features) did not count."""
    x = np.ones((2, 6, 4), "float32")
    layer.build(x.shape)
    y_shape = layer.compute_output_shape(x.shape)
    _, _, gradients = training_step(layer, x, np.ones(y_shape, "float32"))
    return array(gradients[-1]) == 0.0


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_dropout_of_the_fused_kernels(name: str) -> None:
    zeros = dropped(getattr(layers, name)(3, dropout=0.5))
    assert 0.2 < zeros.mean() < 0.8
    assert len({step.tobytes() for step in zeros.transpose(1, 0, 2)}) > 3
    plain = dropped(getattr(keras.layers, name)(3, dropout=0.5))
    assert (plain == plain[:, :1]).all()  # what the layer is for


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers_predict_as_those_of_keras(name: str) -> None:
    ours = getattr(layers, name)(3, dropout=0.5)
    plain = getattr(keras.layers, name)(3, dropout=0.5)
    x = np.random.RandomState(0).rand(2, 6, 4).astype("float32")
    for layer in (ours, plain):
        layer.build(x.shape)
    for a, b in zip(ours.trainable_variables, plain.trainable_variables, strict=True):
        a.assign(b)
    assert difference(ours(x), array(plain(x))) < FLOAT32
    assert type(ours).from_config(ours.get_config()).dropout == 0.5
    with pytest.raises(ValueError, match=rf"recurrent_dropout=0\.5: .*keras\.layers\.{name} does"):
        getattr(layers, name)(3, recurrent_dropout=0.5)


@divides
def test_a_regularizer_inside_time_distributed_counts() -> None:
    inside = keras.layers.Activation("linear", activity_regularizer=keras.regularizers.L1(1.0))
    layer = layers.TimeDistributed(inside)
    layer(np.full((2, 3, 4), 0.5, "float32"), training=True)
    assert float(sum(layer.losses)) == pytest.approx(2.0)  # 4 * 0.5 a row; TF 2.3.4, too


@pytest.mark.parametrize("is_static", [True, False])
def test_time_distributed_in_models(is_static: bool) -> None:
    x = inputs = keras.Input((5 if is_static else None, 4))
    x = layers.TimeDistributed(keras.layers.Dense(3))(x)
    x = layers.TimeDistributed(keras.layers.Dropout(0.5))(x)
    model = keras.Model(inputs, x)
    given = np.random.RandomState(0).rand(2, 5, 4).astype("float32")
    dense = model.layers[1].layer
    expected = given @ array(dense.kernel) + array(dense.bias)
    assert difference(model.predict(given, verbose=0), expected) < FLOAT32


@pytest.mark.parametrize("stateful", [False, True])
def test_time_distributed_hands_the_mask_on(stateful: bool) -> None:
    class Kept(keras.layers.Layer):
        supports_masking = True

        def call(self, inputs: Any, mask: Any) -> Any:
            return inputs * ops.cast(mask, inputs.dtype)

    inside = Kept()
    inside.stateful = stateful  # then step by step, as Keras does it
    mask = np.array([[[True, False], [True, True], [False, False]]])
    given = np.ones((1, 3, 2), "float32")
    assert (array(layers.TimeDistributed(inside)(given, mask=mask)) == mask).all()


BN = {"class_name": "BatchNormalization", "config": {"name": "bn", "axis": [3], "dtype": "float32"}}
SYNC = {
    "class_name": "SyncBatchNormalization",
    "config": {"name": "bn", "axis": [3], "dtype": "float32"},
}


def of_lstm(**options: Any) -> dict[str, Any]:
    config = {
        "name": "lstm",
        "trainable": True,
        "dtype": "float32",
        "units": 3,
        "use_bias": True,
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "unroll": False,
        "dropout": 0.5,
        "recurrent_dropout": 0.0,
    }
    return {"class_name": "LSTM", "config": config | options}


def distributed(layer: dict[str, Any]) -> dict[str, Any]:
    config = {"name": "each", "dtype": "float32", "layer": layer}
    return {"class_name": "TimeDistributed", "config": config}


DENSE = {"class_name": "Dense", "config": {"name": "d", "dtype": "float32", "units": 2}}


@pytest.mark.parametrize(
    ("old", "name", "note"),
    [
        pytest.param(BN, "BatchNormalization", BATCH_NORM, id="bn"),
        pytest.param(of_lstm(), "LSTM", DROPOUT, id="lstm"),
        pytest.param(distributed(BN), "TimeDistributed", TIME_DISTRIBUTED, id="each bn"),
        pytest.param(distributed(DENSE), "TimeDistributed", None, id="each dense"),
    ],
)
def test_conversion_says_so_or_keeps_the_layer(old: Any, name: str, note: str | None) -> None:
    plain = convert(old, kind="layer")
    assert plain.config["module"] == "keras.layers"
    kinds = {change.what: change.kind for change in plain.changes if change.matters}
    assert kinds.get(note, "differs") == "differs"
    assert (note in kinds) == (note is not None)
    exact = convert(old, kind="layer", exact_training=True)
    assert exact.config["registered_name"] == f"keras_mp>{name}"
    assert not {BATCH_NORM, DROPOUT, TIME_DISTRIBUTED} & set(exact.notes)
    assert any("which trains as then" in what for what in exact.notes)
    assert not convert(exact.config, kind="layer").changed
    layer = keras.saving.deserialize_keras_object(exact.config)
    assert type(layer) is getattr(layers, name)
    again = keras.saving.serialize_keras_object(layer)
    assert not convert(again, kind="layer", exact_training=True).changed


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(SYNC, id="sync"),
        pytest.param(of_lstm(dropout=0.0), id="no dropout"),
        pytest.param(of_lstm(recurrent_activation="hard_sigmoid"), id="not fused"),
        pytest.param(of_lstm(recurrent_dropout=0.1), id="recurrent dropout"),
        pytest.param(of_lstm(unroll=True), id="unrolled"),
    ],
)
def test_layers_that_train_alike_are_those_of_keras(old: Any) -> None:
    done = convert(old, kind="layer", exact_training=True)
    assert done.config["module"] == "keras.layers"
    assert not {BATCH_NORM, DROPOUT} & set(convert(old, kind="layer").notes)


def test_tf_1_dropped_the_same_at_each_step() -> None:
    done = convert(of_lstm(), kind="layer", exact_training=True, tf_version="1.15")
    assert done.config["module"] == "keras.layers"


@pytest.mark.parametrize(("told", "noted"), [("1.15", False), ("2.3", True), (None, True)])
def test_dropout_is_noted_where_it_differs(told: str | None, noted: bool) -> None:
    start = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 4, 3], "name": "i"}}
    inside = {"class_name": "Sequential", "config": {"name": "in", "layers": [start, of_lstm()]}}
    old = {"class_name": "Sequential", "config": {"name": "net", "layers": [inside]}}
    for done in (
        convert(of_lstm(), kind="layer", tf_version=told),
        convert(old, kind="model", tf_version=told),
    ):
        assert (DROPOUT in done.notes) == noted


@pytest.mark.parametrize(
    ("told", "written", "expected"),
    [
        ("2.3", "2.4.0", "2.3"),
        (None, "2.11.0", "2.11"),
        (None, "2.3.0-tf", "2.3"),
        (None, 3, "2.5"),
        (None, "2.12345.0", "2.5"),
    ],
)
def test_a_converted_model_trains_on(
    tmp_path: Path, told: Any, written: Any, expected: str
) -> None:
    inside = [
        {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 4, 4, 3], "name": "i"}},
        BN,
        {"class_name": "GlobalAveragePooling2D", "config": {"name": "p", "dtype": "float32"}},
        DENSE,
    ]
    old = {"class_name": "Sequential", "config": {"name": "net", "layers": inside}}
    old |= {"keras_version": written}
    done = convert(old, kind="model", tf_version=told, exact_training=True)
    model = keras.models.model_from_json(json.dumps(done.config))
    assert model.layers[0].tf_version == expected
    random = np.random.RandomState(0)
    x, y = random.rand(8, 4, 4, 3), random.rand(8, 2)
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=4, epochs=1, shuffle=False, verbose=0)
    kept, halves = np.ones(3), x.reshape(2, 4 * 4 * 4, 3)
    for half in halves:
        kept = 0.99 * kept + 0.01 * half.var(0, ddof=1)
    assert difference(model.layers[0].moving_variance, kept) < FLOAT32
    model.save(tmp_path / "net.keras")
    again = keras.saving.load_model(tmp_path / "net.keras")
    assert type(again.layers[0]) is layers.BatchNormalization
    assert again.layers[0].tf_version == expected
    assert difference(again.predict(x, verbose=0), model.predict(x, verbose=0)) == 0.0


def test_flags_that_are_numbers():
    """As TensorFlow took any truth value."""
    norm = {"name": "norm", "axis": [1], "scale": 1, "center": 0}
    old = {"class_name": "BatchNormalization", "config": norm}
    made = keras.saving.deserialize_keras_object(convert(old, kind="layer").config)
    assert (made.scale, made.center) == (True, False)


@pytest.mark.parametrize("stddev", [0.5, 2.5, -2.5])
def test_noise_of_any_size(stddev, tmp_path):
    old = {"class_name": "GaussianNoise", "config": {"name": "noise", "stddev": stddev}}
    made = keras.saving.deserialize_keras_object(convert(old, kind="layer").config)
    noise = ops.convert_to_numpy(made(ops.zeros((10_000,)), training=True))
    assert np.isclose(noise.std(), abs(stddev), rtol=0.1)
    keras.Sequential([keras.Input((4,)), made]).save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").layers[0].stddev == abs(stddev)


def test_random_crop_in_training():
    """Anywhere, the border included; the whole image where it fits exactly."""
    images = ops.reshape(ops.arange(2 * 3 * 4), (2, 3, 4, 1))
    crop = layers.RandomCrop(2, 4, seed=1)
    starts = {
        tuple(int(start) for start in crop.get_random_transformation(images)) for _ in range(40)
    }
    assert starts == {(0, 0), (1, 0)}
    cropped = crop.transform_images(images, (1, 0))
    assert np.array_equal(ops.convert_to_numpy(cropped), ops.convert_to_numpy(images)[:, 1:3])
    whole = layers.RandomCrop(3, 4)(images, training=True)
    assert np.array_equal(ops.convert_to_numpy(whole), ops.convert_to_numpy(images))
    assert crop.get_random_transformation(images, training=False) is None


def test_each_axis_is_flipped_by_its_own_chance():
    image = np.arange(6.0).reshape(2, 3, 1)
    both = [image, image[::-1], image[:, ::-1], image[::-1, ::-1]]
    layer = layers.RandomFlip("horizontal_and_vertical", seed=1)
    images = ops.convert_to_numpy(layer(np.stack([image] * 200), training=True))
    counts = [sum(np.array_equal(each, one) for each in images) for one in both]
    assert sum(counts) == 200
    assert min(counts) > 25
    same = ops.convert_to_numpy(layer(np.stack([image] * 9), training=False))
    assert all(np.array_equal(each, image) for each in same)
    ways = {}
    for mode, other in (("horizontal", image[:, ::-1]), ("vertical", image[::-1])):
        images = ops.convert_to_numpy(
            layers.RandomFlip(mode)(np.stack([image] * 99), training=True)
        )
        ways[mode] = {"same" if np.array_equal(each, image) else "flipped" for each in images}
        assert all(np.array_equal(each, image) or np.array_equal(each, other) for each in images)
    assert all(way == {"same", "flipped"} for way in ways.values())


def loaded_layers(folder, shape, *layers):
    """Returns what is loaded of a Sequential of (class name, config) of then, without weights."""
    rows = [{"class_name": name, "config": config} for name, config in layers]
    first = {"class_name": "InputLayer", "config": {"batch_input_shape": shape, "name": "i"}}
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": [first, *rows]}}
    with h5py.File(folder / "m.h5", "w") as file:
        file.attrs["keras_version"] = "2.4.0"
        file.attrs["model_config"] = json.dumps(config)
        file.create_group("model_weights").attrs["layer_names"] = []
    return load(folder / "m.h5", strict=False)


@pytest.mark.parametrize(
    ("shape", "axis", "differs"),
    [
        ([None, 3, 4, 5], [3], True),
        ([None, 3, 4, 5], [1], True),
        ([None, 3, 4, 5], -1, True),
        ([None, 3, 4, 5], [2], False),
        ([None, 2, 3, 4, 5], [4], True),
        ([None, 2, 3, 4, 5], [1], True),
        ([None, 3], [1], False),
        ([None, 3], -1, False),
        ([None, 3, 4], [2], False),
    ],
)
def test_normalization_of_images_is_told_whatever_the_axis(shape, axis, differs, tmp_path):
    loaded = loaded_layers(tmp_path, shape, ("BatchNormalization", {"name": "a", "axis": axis}))
    told = [change for change in loaded.report.changes if change.what == BATCH_NORM]
    assert len(told) == differs


@pytest.mark.parametrize(
    ("version", "norm", "loss"),
    [
        ("2.4.0", True, True),
        ("2.9.0", True, True),
        ("2.10.0", True, False),
        ("2.13.1", False, False),
    ],
)
@pytest.mark.parametrize("masked", [True, False])
def test_what_masks_train_otherwise_is_told(version, norm, loss, masked, tmp_path):
    embedding = {"name": "e", "input_dim": 5, "output_dim": 2, "mask_zero": masked}
    normalized = ("BatchNormalization", {"name": "n", "axis": -1})
    path = tmp_path / "m.h5"
    loaded_layers(tmp_path, [None, 4], ("Embedding", embedding), normalized)
    with h5py.File(path, "r+") as file:
        file.attrs["keras_version"] = version
        optimizer = {"class_name": "SGD", "config": {"learning_rate": 0.1}}
        training = {"loss": "mse", "metrics": None, "optimizer_config": optimizer}
        file.attrs["training_config"] = json.dumps(training)
    told = [change.what for change in load(path, strict=False).report.changes]
    assert (MASKED in told) == (masked and norm)
    assert (MASKED_LOSS in told) == (masked and loss)


@pytest.mark.parametrize(("version", "differs"), [("2.4.0", True), ("2.6.0", False)])
def test_masks_that_relu_passes_on_are_told(version, differs, tmp_path):
    embedding = {"name": "e", "input_dim": 5, "output_dim": 2, "mask_zero": True}
    loaded_layers(tmp_path, [None, 4], ("Embedding", embedding), ("ReLU", {"name": "r"}))
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        file.attrs["keras_version"] = version
    loaded = load(tmp_path / "m.h5", strict=False)
    assert (MASKED_RELU in [change.what for change in loaded.report.changes]) == differs


def test_statistics_that_replicas_shared_were_those_of_keras(tmp_path):
    given = ("SyncBatchNormalization", {"name": "a", "axis": [3]})
    loaded = loaded_layers(tmp_path, [None, 3, 4, 5], given)
    assert BATCH_NORM not in [change.what for change in loaded.report.changes]


def test_normalization_of_any_axes_is_told(tmp_path):
    given = (("a", [1, 2]), ("b", [3]), ("c", [2, 3]))
    rows = [("LayerNormalization", {"name": name, "axis": axis}) for name, axis in given]
    loaded = loaded_layers(tmp_path, [None, 3, 4, 5], *rows)
    ours = [type(layer) is layers.LayerNormalization for layer in loaded.model.layers]
    assert ours == [True, False, False]
    told = [change.path for change in loaded.report.changes if change.what == OTHER_AXES]
    assert told == ["$: " + loaded.model.layers[0].path]
    x = np.random.default_rng(0).random((2, 3, 4, 5)).astype("float32")
    found = loaded.model.layers[0](x)
    centred = x - x.mean((1, 2), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((1, 2), keepdims=True) + 1e-3)
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, atol=1e-5)


def test_flips_of_both_axes_are_told_or_kept():
    old = {"class_name": "RandomFlip", "config": {"name": "f", "mode": "horizontal_and_vertical"}}
    done = convert(old, kind="layer")
    assert (done.config["module"], done.notes) == ("keras.layers", (FLIP,))
    exact = convert(old, kind="layer", exact_training=True).config
    assert exact["registered_name"] == "keras_mp>RandomFlip"
    one = {"class_name": "RandomFlip", "config": {"name": "f", "mode": "horizontal"}}
    assert convert(one, kind="layer", exact_training=True).config["module"] == "keras.layers"


def convolved(x, weight_of, sizes, padding, filters, strides):
    """Returns what a locally connected layer makes of an image, channels last; by its definition.

    Args:
        x: Of any number of spatial axes, then the channels.
        weight_of: Returns the weight of (place of the output, its filter, place of the input, its
            channel).
    """
    sides = x.shape[:-1]
    lacks = [k - 1 if padding == "valid" else 0 for k in sizes]
    out = [-(-(n - lack) // s) for n, lack, s in zip(sides, lacks, strides, strict=True)]
    found = np.zeros((*out, filters))
    for place in np.ndindex(*out):
        starts = [
            at * s - (0 if padding == "valid" else k // 2)
            for at, s, k in zip(place, strides, sizes, strict=True)
        ]
        for offset in np.ndindex(*sizes):
            other = tuple(a + b for a, b in zip(starts, offset, strict=True))
            if all(0 <= at < n for at, n in zip(other, sides, strict=True)):
                for c in range(x.shape[-1]):
                    for f in range(filters):
                        found[(*place, f)] += x[(*other, c)] * weight_of(place, f, other, c)
    return found


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("implementation", "padding"), [(2, "valid"), (2, "same"), (3, "same")])
@pytest.mark.parametrize("rank", [1, 2])
def test_locally_connected(rank, implementation, padding, data_format, tmp_path):
    """How the kernel lies there; that of `implementation=1` is in the recordings."""
    sides, sizes, strides = (5, 4)[:rank], (3, 2)[:rank], (2, 1)[:rank]
    make = layers.LocallyConnected1D if rank == 1 else layers.LocallyConnected2D
    layer = make(
        2,
        sizes,
        strides,
        padding,
        data_format,
        implementation=implementation,
        bias_initializer="ones",
    )
    first = data_format == "channels_first"
    x = np.random.default_rng(0).standard_normal((1, *sides, 3)).astype("float32")
    given = np.moveaxis(x, -1, 1) if first else x
    model = keras.Sequential([keras.Input(given.shape[1:]), layer])
    weights = np.random.default_rng(1).standard_normal(layer.kernel.shape).astype("float32")
    layer.kernel.assign(weights)
    outs = layer.compute_output_shape(given.shape)[1:]

    def flat(channel, place, shape):
        index = (channel, *place) if first else (*place, channel)
        return int(np.ravel_multi_index(index, shape))

    if implementation == 3:
        pairs = set()
        convolved(
            x[0],
            lambda o, f, i, c: pairs.add((flat(f, o, outs), flat(c, i, given.shape[1:]))) or 0,
            *(sizes, padding, 2, strides),
        )
        places = {pair: weights[i] for i, pair in enumerate(sorted(pairs))}
    whole = weights.reshape(int(np.prod(given.shape)), -1) if implementation == 2 else None

    def weight_of(out, f, into, c):
        pair = flat(f, out, outs), flat(c, into, given.shape[1:])
        return places[pair] if implementation == 3 else whole[pair[1], pair[0]]

    expected = convolved(x[0], weight_of, sizes, padding, 2, strides) + 1
    found = model.predict(given, verbose=0)[0]
    np.testing.assert_allclose(np.moveaxis(found, 0, -1) if first else found, expected, atol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(given, verbose=0)[0], found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"implementation": 4}, "must be 1, 2 or 3"),
        ({"padding": "same"}, "'same' where implementation is 2 or 3"),
        ({"strides": (1, 2)}, "expected 1 numbers"),
    ],
)
def test_locally_connected_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        layers.LocallyConnected1D(1, 2, **options)


def test_locally_connected_needs_its_size():
    with pytest.raises(ValueError, match="must be known"):
        layers.LocallyConnected1D(1, 2).build((None, None, 3))
    with pytest.raises(ValueError, match="larger than its input"):
        layers.LocallyConnected1D(1, 4).build((None, 3, 3))
    with pytest.raises(ValueError, match="has up to 30000000000 connections"):
        layers.LocallyConnected1D(1, 3, implementation=3).build((None, 10**10 + 2, 1))


@pytest.mark.parametrize("name", ["RandomHeight", "RandomWidth"])
def test_random_sizes(name, tmp_path):
    axis = 1 if name == "RandomHeight" else 2
    layer = getattr(layers, name)((-0.5, 0.5), seed=3)
    images = np.random.default_rng(0).random((2, 8, 12, 3)).astype("float32")
    shapes = [tuple(layer(images, training=True).shape) for _ in range(40)]
    sizes = {shape[axis] for shape in shapes}
    old = images.shape[axis]
    assert {shape[:axis] + shape[axis + 1 :] for shape in shapes} == {
        images.shape[:axis] + images.shape[axis + 1 :]
    }
    assert old // 2 <= min(sizes) < old < max(sizes) < old * 1.5 + 1
    model = keras.Sequential([keras.Input((8, 12, 3)), layer, keras.layers.GlobalMaxPooling2D()])
    assert model.layers[0].output.shape[axis] is None
    np.testing.assert_array_equal(model.predict(images, verbose=0), images.max((1, 2)))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert type(again) is type(layer)
    assert (tuple(again.factor), again.seed) == ((-0.5, 0.5), 3)
    model = keras.Sequential([*model.layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    on_jax = pytest.warns(UserWarning, match="so they keep theirs")
    with on_jax if keras.backend.backend() == "jax" else contextlib.nullcontext():
        model.fit(images, np.ones((2, 1)), verbose=0)


@pytest.mark.parametrize("factor", [(0.3, -0.3), (-2.0, 1.0), -0.5])
def test_random_sizes_refuse(factor):
    with pytest.raises(ValueError, match="factor must be a number above 0"):
        layers.RandomHeight(factor)
