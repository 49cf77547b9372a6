"""Policies with weights in 16 bits, and what a training keeps in memory."""

import json

import keras
import numpy as np
import pytest

from keras_mp import (
    LossScaleOptimizer,
    MasterWeights,
    StochasticRounding,
    memory_report,
    sixteen_bit_policy,
)


def made(**names):
    inputs = keras.Input((8,))
    x = keras.layers.Dense(64, activation="relu")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Dense(64)(x)
    x = keras.layers.LayerNormalization(**names)(x)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax", name="out")(x))


def under(policy, **names):
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    try:
        return made(**names)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_normalization_stays_in_float32(dtype):
    model = under(sixteen_bit_policy(dtype))
    dtypes = {v.path: str(v.dtype) for v in model.variables}
    assert {d for path, d in dtypes.items() if "normalization" in path} == {"float32"}
    assert {d for path, d in dtypes.items() if "dense" in path} == {dtype}
    assert model.layers[2].compute_dtype == dtype


def test_layers_are_known_by_their_classes():
    model = under(sixteen_bit_policy("bfloat16", under("float32", name="ln")), name="ln")
    assert {str(v.dtype) for v in model.get_layer("ln").variables} == {"float32"}
    assert model.get_layer("out").compute_dtype == "float32"
    assert str(model.get_layer("dense").kernel.dtype) == "bfloat16"
    model.compile(MasterWeights(keras.optimizers.Adam(0.01)), "sparse_categorical_crossentropy")
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    losses = model.fit(x, y, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


def test_other_dtypes_and_models_are_refused():
    with pytest.raises(ValueError, match="must be 'bfloat16' or 'float16', but got 'int8'"):
        sixteen_bit_policy("int8")
    with pytest.raises(TypeError, match=r"model must be a keras\.Model or None, but got str"):
        sixteen_bit_policy("bfloat16", "model")


CHOICES = {
    "mixed policy": ("mixed_bfloat16", lambda adam: adam, 16),
    "MasterWeights": ("bfloat16", MasterWeights, 16),
    "MasterWeights, split": ("bfloat16", lambda adam: MasterWeights(adam, "split"), 14),
    "StochasticRounding": ("bfloat16", StochasticRounding, 12),
    "MasterWeights, split, slots in bfloat16": (
        "bfloat16",
        lambda adam: MasterWeights(adam, "split", slots="bfloat16"),
        10,
    ),
    "StochasticRounding, slots in bfloat16": (
        "bfloat16",
        lambda adam: StochasticRounding(adam, slots="bfloat16"),
        8,
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_bytes_a_parameter(name):
    policy, wrap, expected = CHOICES[name]
    model = keras.Sequential([keras.layers.Dense(256, dtype=policy) for _ in range(2)])
    model.build((None, 256))
    optimizer = LossScaleOptimizer(wrap(keras.optimizers.Adam()))
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    report = memory_report(model)
    assert report.now.a_parameter() == pytest.approx(expected, abs=1e-3)
    assert sum(each.total for each in report.layers) == pytest.approx(report.now.total, rel=1e-3)
    row = next(each for each in report.others if each.name == name)
    assert row.a_parameter() == pytest.approx(expected, abs=1e-3)
    assert f"{expected:.2f}" in str(report)
    plain = report.to_dict()
    assert plain["now"]["parameters"] == 2 * (256 * 256 + 256)
    assert json.loads(json.dumps(plain)) == plain
    assert repr(report) == str(report)
    assert f">{expected:.2f}</td>" in report._repr_html_()


# XLA on a CPU has no loop with two results, so it keeps copies of what is read by more than one and
# written over: of both halves, and of 16-bit slots. What is in float32 is one weight's or two's.
COPIES = {
    "MasterWeights, split": 4,
    "MasterWeights, split, slots in bfloat16": 7,
    "StochasticRounding, slots in bfloat16": 4,
}


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="asks XLA")
@pytest.mark.parametrize("name", [name for name in CHOICES if name != "mixed policy"])
def test_the_compiled_step_has_no_more(name):
    """`memory_analysis`: what is handed over, and what is needed besides during the step."""
    import jax

    _, wrap, expected = CHOICES[name]
    variables = [keras.Variable(np.ones((256, 256)), dtype="bfloat16") for _ in range(12)]
    optimizer = wrap(keras.optimizers.Adam())
    optimizer.build(variables)
    of_optimizer, weights = ([v.value for v in vs] for vs in (optimizer.variables, variables))
    step = jax.jit(optimizer.stateless_apply, donate_argnums=(0, 2))
    analysis = step.lower(of_optimizer, weights, weights).compile().memory_analysis()
    parameters = 12 * 256 * 256
    assert analysis.argument_size_in_bytes / parameters == pytest.approx(expected, abs=1e-3)
    assert analysis.output_size_in_bytes == pytest.approx(analysis.alias_size_in_bytes, abs=1e3)
    besides = analysis.temp_size_in_bytes / parameters
    assert besides <= COPIES.get(name, 0) + 2 * 4 / 12 + 0.01


def test_needs_what_is_built():
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="needs a built model and an optimizer"):
        memory_report(model)
    model.build((None, 1))
    with pytest.raises(ValueError, match="The optimizer is not built yet"):
        memory_report(model, keras.optimizers.SGD())
