"""Gradients that are no tensors of floats of the variable's shape: as plain Keras takes them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer, MasterWeights
from tests.compiled_steps import compiled_step

BACKEND = keras.backend.backend()
SCALE = 1024.0
o = keras.optimizers
INNER = {
    "Adam": lambda: o.Adam(0.1),
    "momentum": lambda: o.SGD(0.5, momentum=0.9),
    "clipnorm": lambda: o.Adam(0.1, clipnorm=10.0),
}


def step(inner, gradient, dtype="float32", fused=False, scaled=True):
    """Returns the weights, shape (2, 3), after a step of ours."""
    variable = keras.Variable(np.ones((2, 3)), dtype=dtype, name="weight")
    optimizer = LossScaleOptimizer(inner, initial_scale=SCALE, fused=fused)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
    optimizer.apply_gradients([(gradient, variable)], gradients_scaled=scaled)
    return numbers(variable)


def plain(inner, gradient, dtype="float32"):
    variable = keras.Variable(np.ones((2, 3)), dtype=dtype)
    inner.apply([gradient], [variable])
    return numbers(variable)


def numbers(variable):
    return np.asarray(ops.convert_to_numpy(ops.cast(variable, "float32")))


def fusable(name):
    return [False] if name == "clipnorm" else [False, True]


# -- what is no tensor of floats -------------------------------------------------------------------

FORMS = {
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(map(tuple, x.tolist())),
    "array": lambda x: x,
    "float64": lambda x: x.astype("float64"),
    "integers": lambda x: x.astype("int64").tolist(),
    "number of NumPy": lambda x: np.float32(x[0, 0]),
    "number": lambda x: float(x[0, 0]),
    "whole number": lambda x: int(x[0, 0]),
    "int32": lambda x: ops.convert_to_tensor(x.astype("int32")),
    "int16": lambda x: ops.convert_to_tensor(x.astype("int16")),
    "uint16": lambda x: ops.convert_to_tensor(x.astype("uint16")),
    "variable": lambda x: keras.Variable(x),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", INNER)
def test_any_form_is_taken(name, form):
    for fused in fusable(name):
        for size in (1.0, SCALE):
            given = FORMS[form](np.full((2, 3), 2 * size, "float32"))
            found = step(INNER[name](), given, fused=fused, scaled=size > 1)
            expected = plain(INNER[name](), ops.full((2, 3), 2.0))
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def compiled(count=1):
    """Returns variables, and a compiled step of them that traces what it is given."""
    variables = [keras.Variable(np.ones(3, "float32")) for _ in range(count)]
    optimizer = LossScaleOptimizer(o.SGD(0.5), initial_scale=SCALE)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return variables, tf.function(lambda given: optimizer.apply(given, variables))
    return variables, compiled_step(optimizer, variables)


@pytest.mark.skipif(BACKEND == "torch", reason="PyTorch traces lists of numbers as constants")
def test_a_list_in_a_compiled_step():
    (variable,), step = compiled()
    step([[2 * SCALE, 0.0, -2 * SCALE]])
    assert numbers(variable).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="about variables of TensorFlow")
def test_a_variable_in_a_compiled_step():
    """Beside a tensor: what reduces over replicas wants both to be of one graph."""
    import tensorflow as tf

    variables, step = compiled(2)
    given = [2 * SCALE, 0.0, -2 * SCALE]
    step([tf.constant(given), tf.Variable(given)])
    assert [numbers(variable).tolist() for variable in variables] == [[0.0, 1.0, 2.0]] * 2


def test_bools():
    found = step(o.SGD(0.5), ops.convert_to_tensor(np.eye(2, 3, dtype="bool")), scaled=False)
    np.testing.assert_array_equal(found, 1 - np.eye(2, 3) / 2)


not_on_jax = pytest.mark.skipif(BACKEND == "jax", reason="JAX has no float64 unless it is told")


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", pytest.param("float64", marks=not_on_jax)]
)
def test_integers_of_other_variables(dtype):
    """Divided by the scale before they are cast: 65,536 is none of float16."""
    given = ops.full((2, 3), int(64 * SCALE), "int32")
    np.testing.assert_array_equal(step(o.SGD(1 / 128), given, dtype), np.full((2, 3), 0.5))


def test_integers_of_which_one_is_not_finite():
    variables = [keras.Variable([1.0]), keras.Variable([1.0])]
    optimizer = LossScaleOptimizer(o.SGD(0.5), initial_scale=SCALE)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    optimizer.apply([ops.array([1024]), [float("inf")]], variables)
    assert [numbers(variable).tolist() for variable in variables] == [[1.0], [1.0]]
    assert int(optimizer.nonfinite_kind) == 1


def test_unscaled_by_the_caller():
    optimizer = LossScaleOptimizer(o.SGD(0.5), initial_scale=8.0)
    found = optimizer.get_unscaled_gradients([ops.array([8, 16]), [8.0], 4, None])
    assert [None if each is None else numbers(each).tolist() for each in found] == [
        [1.0, 2.0],
        [1.0],
        0.5,
        None,
    ]
    assert bool(optimizer.check_finite([1, [2.0], None]))
    assert not bool(optimizer.check_finite([1, [float("nan")]]))


def test_master_weights():
    variable = keras.Variable(np.ones(2), dtype="float16")
    MasterWeights(o.SGD(0.5)).apply([[1, 2]], [variable])
    assert numbers(variable).tolist() == [0.5, 0.0]


@pytest.mark.parametrize("gradient", ["abc", {"a": 1}, [[1.0], [1.0, 2.0]], object()])
def test_what_is_none_is_refused(gradient):
    with pytest.raises(TypeError, match="but the gradient of weight is of the class"):
        step(o.SGD(0.5), gradient)


# -- shapes ----------------------------------------------------------------------------------------

NARROWER = [(1,), (3,), (1, 3), (2, 1), (1, 1), ()]
OTHERS = [(3, 2), (6,), (2,), (4,), (0,), (5, 2, 3), (2, 3, 1), (0, 3)]


@pytest.mark.parametrize("shape", NARROWER, ids=str)
@pytest.mark.parametrize("name", INNER)
def test_what_plain_keras_broadcasts(name, shape):
    expected = plain(INNER[name](), ops.full(shape, 2.0))
    for fused in fusable(name):
        found = step(INNER[name](), ops.full(shape, 2.0 * SCALE), fused=fused)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_plain_keras_does_not_broadcast_is_an_error():
    """TensorFlow's plain SGD subtracts nothing of another shape."""
    given, variable = ops.full((3,), 2.0), keras.Variable(np.ones((2, 3)))
    try:
        o.SGD(0.5).apply([given], [variable])
    except Exception as error:  # noqa: BLE001
        for fused in (False, True):
            with pytest.raises(type(error)):
                step(o.SGD(0.5), given, fused=fused)
    else:
        for fused in (False, True):
            assert np.all(step(o.SGD(0.5), given, fused=fused, scaled=False) == 0)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("shape", OTHERS, ids=str)
def test_others_are_refused_before_anything_is_changed(shape, fused, state):
    variables = [
        keras.Variable(np.ones(s, "float32"), name=f"v{i}") for i, s in enumerate([3, (2, 3)])
    ]
    optimizer = LossScaleOptimizer(o.Adam(0.1), initial_scale=SCALE, fused=fused)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    before = state([*variables, *optimizer.variables])
    text = r"gradient of v1 has the shape {}, which cannot be broadcast to .* \(2, 3\)\."
    with pytest.raises(
        ValueError, match=text.format(str(shape).replace("(", r"\(").replace(")", r"\)"))
    ):
        optimizer.apply([ops.ones(3), ops.ones(shape)], variables)
    assert state([*variables, *optimizer.variables]) == before


@pytest.mark.skipif(BACKEND != "tensorflow", reason="others know shapes when they trace")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("known", [(None,), (2, None), None])
def test_shapes_that_are_not_known_yet(known, fused):
    import tensorflow as tf

    variable = keras.Variable(np.ones((2, 3), "float32"))
    optimizer = LossScaleOptimizer(o.Adam(0.1), initial_scale=SCALE, fused=fused)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
    spec = [tf.TensorSpec(known, "float32")]
    run = tf.function(lambda g: optimizer.apply([g], [variable]), spec, autograph=False)
    run(tf.fill({1: (3,), 2: (2, 3)}[len(known or (1, 1))], 2 * SCALE))
    np.testing.assert_allclose(numbers(variable), 0.9, rtol=1e-5)


# -- PyTorch ---------------------------------------------------------------------------------------

on_torch = pytest.mark.skipif(BACKEND != "torch", reason="about PyTorch's layouts and devices")


@on_torch
@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc", "coo"])
@pytest.mark.parametrize("name", INNER)
def test_sparse_layouts(name, layout):
    import torch

    dense = torch.eye(2, 3) * SCALE
    block = {"blocksize": (1, 1)} if layout.startswith("b") else {}
    sparse = getattr(dense, f"to_sparse_{layout}")(**block)
    expected = plain(INNER[name](), torch.eye(2, 3))
    for fused in fusable(name):
        found = step(INNER[name](), sparse, fused=fused)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    optimizer = LossScaleOptimizer(o.SGD(0.5), initial_scale=SCALE)
    (unscaled,) = optimizer.get_unscaled_gradients([sparse])
    assert torch.equal(unscaled.to_dense(), torch.eye(2, 3))


@on_torch
@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_without_numbers_is_refused(fused):
    """Plain Keras does nothing, or takes what lies in memory."""
    with pytest.raises(ValueError, match="gradient of weight is on the meta device and has no num"):
        step(o.SGD(0.5), ops.ones((2, 3)).to("meta"), fused=fused)


# -- JAX -------------------------------------------------------------------------------------------


@pytest.mark.skipif(BACKEND != "jax", reason="about JAX's sparse arrays")
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", ["Adam", "momentum"])
def test_sparse_arrays_in_a_compiled_step(name, dtype):
    """Their indices are known to be unique, which nothing finds out there."""
    from jax.experimental import sparse

    variable = keras.Variable(np.ones((2, 3), "float32"))
    optimizer = LossScaleOptimizer(INNER[name](), initial_scale=SCALE)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
    gradient = sparse.BCOO.fromdense(ops.cast(SCALE * np.eye(2, 3), dtype))
    compiled_step(optimizer, [variable])([gradient])
    expected = plain(INNER[name](), ops.eye(2, 3))
    np.testing.assert_allclose(numbers(variable), expected, rtol=1e-6)
