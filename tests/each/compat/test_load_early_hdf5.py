"""HDF5 files as Keras without TensorFlow's wrote them: slots without names, CuDNN's layout."""

import json
from concurrent.futures import ThreadPoolExecutor

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.values import Value
from keras_mp.compat.restoring import building, hdf5, limits
from keras_mp.compat.restoring.cudnn_weights import note_layouts
from keras_mp.compat.restoring.models import load_weights
from keras_mp.compat.restoring.optimizer_state import OptimizerState
from keras_mp.compat.restoring.plan import Plan
from tests.loaded_models import load


def layer(kind, name, **config):
    return {"class_name": kind, "config": {"name": name, "trainable": True, **config}}


DENSE = [
    layer("Dense", "b", units=3, batch_input_shape=[None, 2], dtype="float32"),
    layer("Dense", "a", units=1),
]
SHAPES = {"b/kernel": (2, 3), "b/bias": (3,), "a/kernel": (3, 1), "a/bias": (1,)}


def array(random, shape):
    return random.standard_normal(shape).astype("float32")


def written(tmp_path, version, optimizer, names, shapes):
    """Writes model.h5 and returns (path, {name in the file: array})."""
    random, arrays, path = np.random.default_rng(0), {}, tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = version
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": DENSE})
        training = {"loss": "mse", "metrics": [], "optimizer_config": optimizer}
        file.attrs["training_config"] = json.dumps(training)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [b"b", b"a"]
        for name in ("b", "a"):
            inside = group.create_group(name)
            inside.attrs["weight_names"] = [f"{name}/kernel:0", f"{name}/bias:0"]
            for end in ("kernel", "bias"):
                arrays[f"{name}/{end}"] = array(random, SHAPES[f"{name}/{end}"])
                inside[f"{name}/{end}:0"] = arrays[f"{name}/{end}"]
        group = file.create_group("optimizer_weights")
        group.attrs["weight_names"] = names
        for name, shape in zip(names, shapes, strict=True):
            is_count = "iterations" in name
            arrays[name] = np.asarray(7, "int64") if is_count else array(random, shape)
            group[name] = arrays[name]
    return path, arrays


ADAM = {"class_name": "Adam", "config": {"lr": 0.01, "beta_1": 0.9, "beta_2": 0.999, "decay": 0.0}}
RMSPROP = {"class_name": "RMSprop", "config": {"lr": 0.01, "rho": 0.9, "decay": 0.0}}
SGD = {"class_name": "SGD", "config": {"lr": 0.1, "momentum": 0.0, "decay": 0.0, "nesterov": False}}
IN_ORDER = list(SHAPES)
BY_NAME = ["a/bias", "a/kernel", "b/bias", "b/kernel"]


def slots(optimizer, attribute, model):
    """Returns {weight: slot} of a loaded model."""
    variables = {f"{v.path.split('/')[-2]}/{v.name}": v for v in model.trainable_variables}
    found = getattr(optimizer, attribute)
    return {n: found[optimizer._get_variable_index(v)] for n, v in variables.items()}


@pytest.mark.parametrize(
    ("version", "order", "stand_ins"),
    [
        pytest.param("2.0.5", BY_NAME, 0, id="by their names"),
        pytest.param("2.0.9", IN_ORDER, 0, id="by the layers"),
        pytest.param("2.2.0", IN_ORDER, 4, id="with stand-ins for amsgrad"),
    ],
)
def test_slots_without_names_are_found_by_their_places(tmp_path, version, order, stand_ins):
    count = 8 + stand_ins
    names = ["training/Adam/iterations_1:0"]
    names += [f"training/Adam/Variable_{i}:0" for i in range(count)]
    shapes = [(), *(SHAPES[n] for n in order * 2), *[(1,)] * stand_ins]
    path, arrays = written(tmp_path, version, ADAM, names, shapes)
    found = load(path)
    optimizer = found.model.optimizer
    assert int(optimizer.iterations) == 7
    for number, attribute in ((0, "_momentums"), (4, "_velocities")):
        ours = slots(optimizer, attribute, found.model)
        for place, name in enumerate(order):
            stored = arrays[f"training/Adam/Variable_{number + place}:0"]
            assert np.array_equal(ops.convert_to_numpy(ours[name]), stored), name
    assert found.report.lost == ()


def test_rmsprop_without_a_step_count(tmp_path):
    names = [f"training/RMSprop/Variable_{i}:0" for i in range(4)]
    path, arrays = written(tmp_path, "2.2.0", RMSPROP, names, SHAPES.values())
    found = load(path)
    ours = slots(found.model.optimizer, "_velocities", found.model)
    for name, stored in zip(IN_ORDER, names, strict=True):
        assert np.array_equal(ops.convert_to_numpy(ours[name]), arrays[stored])
    assert found.report.lost == (hdf5.NO_STEPS,)
    assert int(found.model.optimizer.iterations) == 0


def test_sgd_had_slots_without_momentum(tmp_path):
    names = ["SGD/iterations:0", *(f"training/SGD/Variable_{i}:0" for i in range(4))]
    path, _ = written(tmp_path, "2.2.0", SGD, names, [(), *SHAPES.values()])
    found = load(path)
    assert int(found.model.optimizer.iterations) == 7
    assert "slots of SGD without momentum" in found.report.notes[0]


def test_slots_of_adam_are_nothing_to_sgd(tmp_path):
    """Not even those of amsgrad, of which SGD knows nothing."""
    names = ["Adam/iterations:0", *(f"training/Adam/{n}/vhat:0" for n in IN_ORDER)]
    path, _ = written(tmp_path, "2.2.0", ADAM, names, [(), *SHAPES.values()])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    report = load_weights(path, model, keras.optimizers.SGD(), strict=False)
    assert [name for name in report.unused if "vhat" in name]


@pytest.mark.parametrize(("beta", "steps"), [(1.0, 2**62), (0.9999999, 2**62), (0.9, 3)])
def test_the_product_of_nadam_takes_no_time(beta, steps):
    nadam, plan = keras.optimizers.Nadam(beta_1=beta), Plan("file")
    state = OptimizerState(iterations=Value.of("iter", np.asarray(steps)))
    hdf5.nadam_product(plan, nadam, state, 1)
    factors = beta * (1 - 0.5 * 0.96 ** np.arange(1, min(steps, 1000) + 1))
    expected = np.prod(factors) * beta ** max(0, steps - 1000)
    assert float(state.product.array) == pytest.approx(expected, rel=1e-4)


def test_files_of_keras_1_are_called_so(tmp_path):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "1.2.2"
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": []})
    with pytest.raises(Unreadable, match=r"written by Keras 1, .*with Keras 2\.0 to 2\.3"):
        load(path)


def to_cudnn(kernel, recurrent_kernel, bias, gates):
    """Keras' own inverse: of LSTM or GRU to CuDNN's layout (hdf5_format.py, from_cudnn=False)."""
    kernel = np.hstack([k.T.reshape(k.shape, order="C") for k in np.hsplit(kernel, gates)])
    recurrent_kernel = np.hstack([k.T for k in np.hsplit(recurrent_kernel, gates)])
    return [kernel, recurrent_kernel, np.tile(0.5 * bias, 2) if gates == 4 else bias.reshape(-1)]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("both_ways", [False, True])
def test_weights_of_cudnn_are_turned(kind, both_ways):
    made = getattr(keras.layers, kind)(3)
    if both_ways:
        made = keras.layers.Bidirectional(made)
    made.build((None, 5, 2))
    gates = {"LSTM": 4, "GRU": 3}[kind]
    random = np.random.default_rng(0)
    weights = [array(random, variable.shape) for variable in made.weights]
    stored = []
    for start in range(0, len(weights), 3):
        stored += to_cudnn(*weights[start : start + 3], gates)
    plan = Plan("weights.h5")
    note_layouts(plan, made, made.weights, [value.shape for value in stored])
    for variable, value, expected in zip(made.weights, stored, weights, strict=True):
        assert plan.stored_shape(variable) == value.shape
        found = plan.laid_out(Value.of("weight", value), variable).array
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("kernel", [(3, 7), (2,), (2, 13)])
def test_a_kernel_of_another_shape_is_not_of_cudnn(kernel):
    made = keras.layers.LSTM(3)
    made.build((None, 5, 2))
    plan = Plan("weights.h5")
    note_layouts(plan, made, made.weights, [kernel, (3, 12), (24,)])
    assert plan.layouts == {}


def of_weights(tmp_path, group, arrays):
    """Writes weights.h5 of one layer."""
    path = tmp_path / "weights.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [group]
        file.create_group(group).attrs["weight_names"] = list(arrays)
        for name, stored in arrays.items():
            file[group][name] = stored
    return path


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_a_file_with_weights_of_cudnn(tmp_path, kind, gates):
    model = keras.Sequential([keras.Input((5, 2)), getattr(keras.layers, kind)(3, name="r")])
    random = np.random.default_rng(0)
    weights = [array(random, variable.shape) for variable in model.weights]
    names = ("kernel:0", "recurrent_kernel:0", "bias:0")
    stored = dict(zip(names, to_cudnn(*weights, gates), strict=True))
    report = load_weights(of_weights(tmp_path, "r", stored), model)
    assert {row.source for row in report.rows} == {f"r/{name}" for name in names}
    for found, expected in zip(model.get_weights(), weights, strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_slots_of_cudnn_are_turned_as_the_weights(tmp_path, kind, gates):
    """Also in a model inside, beside layers that are none."""
    inside = [
        layer(f"CuDNN{kind}", "r", units=3, batch_input_shape=[None, 5, 2], dtype="float32"),
        layer("Dense", "d", units=1),
    ]
    inner = {"class_name": "Sequential", "config": {"name": "inner", "layers": inside}}
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": [inner]}}
    made = getattr(keras.layers, kind)(3)
    made.build((None, 5, 2))
    random = np.random.default_rng(0)
    weights, means, squares = (
        [array(random, v.shape) for v in made.weights] + [array(random, s) for s in ((3, 1), (1,))]
        for _ in range(3)
    )
    names = [*(f"r/{name}:0" for name in ("kernel", "recurrent_kernel", "bias"))]
    names += ["d/kernel:0", "d/bias:0"]

    def stored(arrays):
        return dict(zip(names, [*to_cudnn(*arrays[:3], gates), *arrays[3:]], strict=True))

    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.2.4"
        file.attrs["model_config"] = json.dumps(config)
        adam = {"class_name": "Adam", "config": {"lr": 0.1}}
        file.attrs["training_config"] = json.dumps({"loss": "mse", "optimizer_config": adam})
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = ["inner"]
        group.create_group("inner").attrs["weight_names"] = names
        for name, value in stored(weights).items():
            group["inner"][name] = value
        state = {"Adam/iterations:0": np.asarray(7)}
        for slot, arrays in (("m", means), ("v", squares)):
            state |= {f"Adam/{name[:-2]}/{slot}:0": value for name, value in stored(arrays).items()}
        optimizer = file.create_group("optimizer_weights")
        optimizer.attrs["weight_names"] = list(state)
        for name, value in state.items():
            optimizer[name] = value
    model = load(path).model
    inner = model.optimizer
    for found, expected in (
        (model.get_weights(), weights),
        ([keras.ops.convert_to_numpy(m) for m in inner._momentums], means),
        ([keras.ops.convert_to_numpy(v) for v in inner._velocities], squares),
    ):
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a, b)


def test_a_layer_that_goes_both_ways_as_it_is(tmp_path):
    both = keras.layers.Bidirectional(keras.layers.LSTM(3), name="r")
    model = keras.Sequential([keras.Input((5, 2)), both])
    random = np.random.default_rng(0)
    stored = {f"{i}:0": array(random, v.shape) for i, v in enumerate(model.weights)}
    load_weights(of_weights(tmp_path, "r", stored), model)
    for found, expected in zip(model.get_weights(), stored.values(), strict=True):
        assert np.array_equal(found, expected)


class Weighing(keras.Model):
    """Has a layer, and two weights of one name."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, use_bias=False, name="r")
        self.own = [self.add_weight(shape=(), name="w") for _ in range(2)]

    def call(self, x):
        return self.dense(x) * self.own[0] + self.own[1]


def test_weights_of_the_model_itself_are_lost_and_said_once(tmp_path):
    model = Weighing()
    model(np.zeros((1, 2)))
    path = of_weights(tmp_path, "r", {"kernel:0": np.ones((2, 1), "float32")})
    assert load_weights(path, model).lost == (hdf5.NO_OWN + model.own[0].path,)


STATISTICS = {"mean:0": [1.0, 1.0], "variance:0": [4.0, 4.0], "count:0": 7}


def test_statistics_are_computed_with(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Normalization(name="n")])
    stored = {name: np.asarray(value, "float32") for name, value in STATISTICS.items()}
    load_weights(of_weights(tmp_path, "n", stored), model)
    assert int(ops.convert_to_numpy(model.layers[0].count)) == 7
    np.testing.assert_allclose(ops.convert_to_numpy(model(np.full((1, 2), 5.0))), [[2, 2]])


def test_statistics_of_a_file_without_names(tmp_path):
    """That of TF 2.12 and later, whose layers are called by their classes."""
    path = tmp_path / "x.weights.h5"
    with h5py.File(path, "w") as file:
        file.create_group("vars")
        for i, value in enumerate(STATISTICS.values()):
            file[f"layers/normalization/vars/{i}"] = np.asarray(value, "float32")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Normalization()])
    load_weights(path, model)
    assert int(ops.convert_to_numpy(model.layers[0].count)) == 7
    np.testing.assert_allclose(ops.convert_to_numpy(model(np.full((1, 2), 5.0))), [[2, 2]])


class Listing(keras.Model):
    """Has a list of layers and of something else."""

    def __init__(self, first):
        super().__init__()
        self.parts = [first, "text", keras.layers.Dense(1)]

    def call(self, x):
        return self.parts[2](self.parts[0](x))


def test_a_list_of_more_than_layers(tmp_path):
    """And a layer that is frozen by now has its weights all the same."""
    path = tmp_path / "x.weights.h5"
    with h5py.File(path, "w") as file:
        file.create_group("vars")
        for i, shape in enumerate([(2, 3), (3,), (3, 1), (1,)]):
            where = f"parts/dense{'_1' if i > 1 else ''}/vars/{i % 2}"
            file[where] = np.full(shape, i, "float32")
    model = Listing(keras.layers.Dense(3, trainable=False))
    model(np.zeros((1, 2)))
    load_weights(path, model)
    found = [w.max() for layer in model.layers for w in layer.get_weights()]
    assert found == [0, 1, 2, 3]


def test_a_block_that_is_frozen_by_now(tmp_path):
    """Its weights come in the order of its layers, trainable or not."""
    block = keras.Sequential([keras.layers.BatchNormalization(), keras.layers.Dense(1)], name="b")
    model = keras.Sequential([keras.Input((2,)), block])
    block.trainable = False
    ends = [*("gamma", "beta", "moving_mean", "moving_variance"), "kernel", "bias"]
    arrays = {f"{i}:0": np.full(v.shape, i, "float32") for i, v in enumerate(model.weights)}
    load_weights(of_weights(tmp_path, "b", arrays), model)
    found = {v.name: float(ops.max(v)) for v in model.weights}
    assert found == {end: i for i, end in enumerate(ends)}


@pytest.mark.parametrize(
    ("optimizer", "shapes"),
    [
        pytest.param(keras.optimizers.Adafactor, [*SHAPES.values()] * 2, id="of no class of then"),
        pytest.param(keras.optimizers.Adam, [*SHAPES.values()] * 4, id="more than there were"),
        pytest.param(keras.optimizers.Adam, [(3,)], id="fewer than variables"),
        pytest.param(keras.optimizers.Adam, [(9,)] * 8, id="of other shapes"),
        pytest.param(keras.optimizers.RMSprop, [*SHAPES.values()] * 2, id="more than RMSprop has"),
    ],
)
def test_slots_that_fit_no_optimizer_are_named(tmp_path, optimizer, shapes):
    names = ["SGD/iterations:0", *(f"training/Variable_{i}:0" for i in range(len(shapes)))]
    path, _ = written(tmp_path, "2.2.0", SGD, names, [(), *shapes])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    report = load_weights(path, model, optimizer(), strict=False)
    assert report.unused == tuple(f"optimizer_weights/{name}" for name in names[1:])


def test_a_slot_under_two_names(tmp_path):
    names = ["SGD/iterations:0", "SGD/a/bias/momentum:0", "SGD/a/bias/momentum"]
    path, _ = written(tmp_path, "2.4.0", SGD, names, [(), (1,), (1,)])
    inner = [keras.layers.Dense(3, name="b"), keras.layers.Dense(1, name="a")]
    model = keras.Sequential([keras.Input((2,)), *inner])
    report = load_weights(path, model, keras.optimizers.SGD(momentum=0.9), strict=False)
    assert report.unused == tuple(f"optimizer_weights/{name}" for name in names[1:])


class Own(keras.optimizers.Optimizer):
    pass


@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(keras.optimizers.Adafactor, id="of another class"),
        pytest.param(Own, id="of no known class"),
    ],
)
def test_slots_of_a_new_optimizer_that_fit_none_are_named(tmp_path, cls):
    names = ["iteration:0", "m:0"]
    path, _ = written(tmp_path, "2.12.0", SGD, names, [(), (3,)])
    with h5py.File(path, "r+") as file:
        del file["optimizer_weights/iteration:0"]
        file["optimizer_weights/iteration:0"] = np.asarray(7)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = cls(learning_rate=0.1)
    report = load_weights(path, model, optimizer, strict=False)
    assert report.unused == ("optimizer_weights/m:0",)
    assert int(optimizer.iterations) == 7


def test_a_loss_scaler_of_tf_2_1_is_known_by_its_version():
    scaled = {"class_name": "LossScaleOptimizer", "config": {"optimizer": {}, "loss_scale": {}}}
    assert building.version_of("2.2.4-tf", scaled) == "2.1"
    assert building.version_of("2.2.4-tf", ADAM) is None


def test_layers_of_another_thread_are_not_limited(tmp_path):
    """And a shape that is none is left for Keras to refuse."""
    (tmp_path / "small").write_bytes(b"")
    large, layer = (limits.SMALL + 1,), keras.layers.Layer()
    with limits.limit_weights(str(tmp_path / "small")), ThreadPoolExecutor(1) as pool:
        pool.submit(keras.layers.Layer().add_weight, large, initializer="zeros").result()
        with pytest.raises(Unreadable, match="asks for a weight of shape"):
            layer.add_weight(large)
        with pytest.raises((TypeError, ValueError)) as error:
            layer.add_weight(("x",))
        assert not isinstance(error.value, Unreadable)


def test_layers_of_other_names_are_taken_one_after_another(tmp_path):
    """A model built anew has other names; one layer too few is said."""
    path, arrays = written(tmp_path, "2.2.0", ADAM, [], [])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    load_weights(path, model)
    assert np.array_equal(model.layers[1].get_weights()[0], arrays["a/kernel"])
