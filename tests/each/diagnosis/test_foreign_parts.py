"""Parts of modules of torch and flax are named in `explain`, `find_overflow`, `range_report`."""

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp.backends.common import foreign_parts
from tests import foreign_modules
from tests.foreign_modules import BACKEND, images

# Names of the parts, in the order of the call.
if BACKEND == "torch":
    PARTS = {"body.0": "Conv2d", "body.1": "BatchNorm2d", "head.out": "Linear"}
    FIRST, LAST = "body.0.weight", "head.out.weight"
else:
    PARTS = {"Conv_0": "Conv", "BatchNorm_0": "BatchNorm", "head.out": "Dense"}
    FIRST, LAST = "Conv_0.kernel", "head.out.kernel"
SEEN = pytest.mark.skipif(
    BACKEND == "tensorflow", reason="modules of flax run translated on TensorFlow"
)


@pytest.fixture(autouse=True)
def policies():
    yield
    keras_mp.set_global_policy(None)


def compiled(policy="mixed_float16", **options):
    keras.utils.set_random_seed(0)
    keras_mp.set_global_policy(policy)
    model = foreign_modules.model()
    model(images(2)[0])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0)
    model.compile(optimizer, loss)
    return model


def variable(model, name):
    layer = model.layers[-1]
    names = foreign_parts.named_variables(layer)
    return next(v for v in model.variables if names.get(id(v)) == name)


def test_explain_lists_them():
    found = keras_mp.explain(compiled())
    rows = {row.path: row for row in found.rows}
    assert set(rows) == {"wrapped", *(f"wrapped/{name}" for name in PARTS)}
    for name, kind in PARTS.items():
        row = rows[f"wrapped/{name}"]
        assert row.kind == (kind if BACKEND == "torch" else "Module")
        assert (row.compute_dtype, row.variable_dtype) == ("float16", "float32")
        assert row.inside == "wrapped"
    assert "wrapped/head.out" in str(found)


def test_explain_names_no_parts_of_other_layers():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    assert [row.path for row in keras_mp.explain(model).rows] == ["out"]


@SEEN
def test_find_overflow_names_the_part():
    model = compiled()
    weight = variable(model, LAST)
    weight.assign(np.full(weight.shape, 6e4))
    x, y = images(4)
    found = keras_mp.find_overflow(model, x + 100.0, y)
    assert (found.first.layer, found.first.layer_class) == (
        "wrapped/head.out",
        PARTS["head.out"],
    )
    if BACKEND == "torch":  # flax has no weights outside of the call, to compute it in float32
        assert found.first.largest > 65504
    assert found.float32_layers is not None
    assert [*found.float32_layers.layers, *found.float32_layers.by_hand] == ["wrapped"]
    assert found.then is None


@SEEN
def test_find_overflow_names_the_parameter_of_a_gradient():
    model = compiled()
    x, y = images(4)
    found = keras_mp.find_overflow(model, x, y, loss_scale=2.0**24)
    assert found.first.where == "backward"
    told = {each.tensor for each in found.findings if each.where == "backward"}
    names = foreign_parts.named_variables(model.layers[-1]).values()
    assert told & {f"gradient of wrapped/{name}" for name in names}


def test_range_report_names_them():
    model = compiled()
    found = keras_mp.range_report(model, images(8), loss_scale=1.0)
    rows = {(row["path"], row["kind"]) for row in found.rows}
    assert {(f"wrapped/{FIRST}", "weight"), (f"wrapped/{LAST}", "weight gradient")} <= rows
    if BACKEND != "tensorflow":
        activations = {
            row["path"]: row["class"] for row in found.rows if row["kind"] == "activation"
        }
        for name, kind in PARTS.items():
            assert activations[f"wrapped/{name}"] == kind
        assert (
            "wrapped/body.0" if BACKEND == "torch" else "wrapped/Conv_0",
            "activation gradient",
        ) in rows


@SEEN
def test_range_report_advises_the_layer_around():
    model = compiled()
    weight = variable(model, LAST)
    weight.assign(np.full(weight.shape, 6e4))
    x, y = images(8)
    found = keras_mp.range_report(model, (x + 100.0, y), loss_scale=1.0)
    assert "wrapped/head.out" in " ".join(found.advice["text"])
    layers = found.float32_layers
    assert [*layers.layers, *layers.by_hand] == ["wrapped"]


@SEEN
def test_the_module_is_as_before():
    model = compiled()
    layer = model.layers[-1]
    before = [np.array(keras.ops.convert_to_numpy(v)) for v in model.variables]
    x, y = images(4)
    expected = keras.ops.convert_to_numpy(keras.ops.cast(model(x), "float32"))
    keras_mp.find_overflow(model, x, y)
    keras_mp.range_report(model, (x, y))
    for old, new in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, keras.ops.convert_to_numpy(new))
    if BACKEND == "torch":
        assert all("forward" not in vars(module) for module in layer.module.modules())
    again = keras.ops.convert_to_numpy(keras.ops.cast(model(x), "float32"))
    np.testing.assert_array_equal(again, expected)
