"""What does not fit is named, on either side, and changes nothing."""

import json
import shutil

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.restoring.checkpoints import restore
from keras_mp.compat.restoring.models import load_weights
from keras_mp.compat.restoring.optimizer_state import UNTRAINED
from keras_mp.compat.restoring.plan import RestoreError
from keras_mp.compat.restoring.v1_saver import NO_MOMENTUM
from tests import bundles
from tests.fixtures import FIXTURES
from tests.legacy_cases import Case

pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")

PLAIN = FIXTURES / "tf23" / "mlp_rmsprop_plain"
SUBCLASSED = FIXTURES / "tf24" / "subclassed_adam"


@pytest.fixture
def case():
    return Case(PLAIN)


def everything(model, optimizer):
    return [ops.convert_to_numpy(v).tobytes() for v in (*model.weights, *optimizer.variables)]


def test_damage_in_the_last_tensor_changes_nothing(case, tmp_path):
    for file in PLAIN.glob("ckpt.*"):
        shutil.copy(file, tmp_path)
    data = tmp_path / "ckpt.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    model, optimizer = case.model(), case.optimizer()
    optimizer.build(model.trainable_variables)
    before = everything(model, optimizer)
    with pytest.raises(Unreadable, match="checksum"):
        restore(tmp_path / "ckpt", model, optimizer)
    assert everything(model, optimizer) == before


def test_another_shape(case):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    before = everything(model, keras.optimizers.SGD())
    with pytest.raises(RestoreError, match=r"of shape \(6, 8\), but .*kernel is of shape \(6, 4\)"):
        restore(PLAIN / "ckpt", model)
    assert everything(model, keras.optimizers.SGD())[: len(model.weights)] == before[:2]


def test_a_larger_and_a_smaller_model(case):
    layers = [keras.layers.Dense(n, name=f"d{n}") for n in (8, 5, 3)]
    larger = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(2, name="more")])
    with pytest.raises(RestoreError) as error:
        restore(PLAIN / "ckpt", larger)
    missing = {path.removeprefix(f"{larger.name}/") for path in error.value.missing}
    assert {"more/kernel", "more/bias"} <= missing
    smaller = keras.Sequential([keras.Input((6,)), *layers[:2]])
    with pytest.raises(RestoreError) as error:
        restore(PLAIN / "ckpt", smaller)
    prefix = "model/layer_with_weights-2/"
    assert {key.split("/.")[0] for key in error.value.unused} >= {
        prefix + "kernel",
        prefix + "bias",
    }
    report = restore(PLAIN / "ckpt", smaller, strict=False)
    assert {w.path for w in smaller.weights} == {row.target for row in report.rows}
    assert len(report.unused) == len(error.value.unused)


def test_another_optimizer(case):
    model = case.model()
    with pytest.raises(RestoreError) as error:
        restore(PLAIN / "ckpt", model, keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    assert any("/rms/" in key for key in error.value.unused)
    with pytest.raises(RestoreError, match=r"is not a keras_mp\.LossScaleOptimizer"):
        restore(PLAIN / "ckpt", model, case.optimizer().inner_optimizer)
    fixed = keras_mp.LossScaleOptimizer(
        case.optimizer().inner_optimizer, dynamic=False, initial_scale=8
    )
    with pytest.raises(RestoreError, match=r"that of the optimizer is fixed at 8\.0"):
        restore(PLAIN / "ckpt", model, fixed)


def test_what_is_beside_the_model_is_named():
    case = Case(SUBCLASSED)
    with pytest.raises(RestoreError, match="meta/best/") as error:
        restore(SUBCLASSED / "ckpt_net", case.model(), case.optimizer())
    assert error.value.missing == []
    assert not any("step" in name for name in error.value.unused)
    assert "strict=False" in str(error.value)


def test_paths_can_be_said():
    case = Case(SUBCLASSED)
    model, optimizer = case.model(), case.optimizer()
    restore(
        SUBCLASSED / "ckpt_net",
        model,
        optimizer,
        model_path="net",
        optimizer_path="opt",
    )
    case.assert_weights(model)
    with pytest.raises(ValueError, match="no object called 'model': pass model_path=, one of"):
        restore(SUBCLASSED / "ckpt_net", model, optimizer, model_path="model")
    with pytest.raises(ValueError, match="no optimizer called 'step'"):
        restore(SUBCLASSED / "ckpt_net", model, optimizer, optimizer_path="step")


def test_a_model_without_weights():
    with pytest.raises(ValueError, match="build it, or call it once"):
        restore(PLAIN / "ckpt", keras.Sequential([keras.layers.Dense(3)]))


def test_names_are_for_files_of_names(case):
    with pytest.raises(ValueError, match=r"files of tf\.compat\.v1\.train\.Saver"):
        restore(PLAIN / "ckpt", case.model(), names={"a": "b"})
    folder = FIXTURES / "tf115" / "graph_momentum_partitioned"
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, name="fc0")])
    with pytest.raises(ValueError, match="'nothing', which is not in"):
        restore(folder, model, names={"nothing": "fc0/kernel"})
    with pytest.raises(ValueError, match="'fc9/kernel', but the weights of the model are"):
        restore(folder, model, names={"fc0/w": "fc9/kernel"})


def test_the_report(case):
    model, optimizer = case.model(), case.optimizer()
    report = restore(PLAIN / "ckpt", model, optimizer)
    as_json = json.loads(json.dumps(report.to_dict()))
    assert as_json["unused"] == as_json["missing"] == []
    rows = {row["from"].split("/.ATTRIBUTES")[0]: row for row in as_json["restored"]}
    kernel = rows["model/layer_with_weights-0/kernel"]
    assert (kernel["to"], kernel["shape"], kernel["dtype"]) == ("dense/kernel", [6, 8], "float32")
    assert len({row["sha256"] for row in rows.values()}) > 5
    for row in rows:
        assert row in str(report)


def test_hyperparameters_come_along():
    """Those of the file are taken, as tf.keras took them, and the report says so."""
    case = Case(PLAIN)
    config = case.optimizer().inner_optimizer.get_config()
    inner = type(case.optimizer().inner_optimizer).from_config(
        {**config, "rho": 0.5, "learning_rate": 9.0}
    )
    report = restore(PLAIN / "ckpt", case.model(), keras_mp.LossScaleOptimizer(inner))
    assert np.float32(inner.rho) == np.float32(0.9)
    assert np.isclose(float(inner.learning_rate), 0.01)
    assert any(note.startswith("rho of the optimizer was 0.5") for note in report.notes)


def test_the_decay_of_nadam_is_that_of_its_momentum():
    """Keras 2 called it decay, as it called the decay of the learning rate elsewhere."""
    folder = FIXTURES / "tf23" / "mlp_nadam"
    case = Case(folder)
    model, optimizer = case.model(), case.optimizer()
    before = optimizer.inner_optimizer.get_config()
    report = restore(folder / "ckpt", model, optimizer)
    assert (before["decay"], round(before["schedule_decay"], 6)) == (0.0, 0.004)
    after = optimizer.inner_optimizer.get_config()
    assert {k: after[k] for k in ("decay", "schedule_decay")} == {
        k: before[k] for k in ("decay", "schedule_decay")
    }
    assert not [note for note in report.notes if "decay" in note]
    plain = keras_mp.LossScaleOptimizer(keras.optimizers.Nadam(0.01))
    with pytest.raises(RestoreError, match=r"compat\.optimizers, which has schedule_decay"):
        restore(folder / "ckpt", case.model(), plain)


def test_what_fits_of_an_optimizer_is_restored_if_that_is_enough(case):
    """Slots of variables that the model does not have are named, and nothing else is lost."""
    layers = [keras.layers.Dense(8, name="a"), keras.layers.Dense(5, name="b")]
    smaller = keras.Sequential([keras.Input((6,)), *layers])
    optimizer = case.optimizer()
    with pytest.raises(RestoreError, match=r"layer_with_weights-2/kernel/.OPTIMIZER_SLOT"):
        restore(PLAIN / "ckpt", smaller, optimizer)
    report = restore(PLAIN / "ckpt", smaller, optimizer, strict=False)
    assert report.missing == ()
    assert {key.split("/.")[0] for key in report.unused} == {
        "model/layer_with_weights-2/kernel",
        "model/layer_with_weights-2/bias",
    }
    assert int(optimizer.iterations) == case.saved["iterations"]
    assert float(optimizer.loss_scale) == case.loss_scale()[0]


def test_momentum_of_tf_1_takes_the_rate_of_the_step_that_is_restored():
    folder = FIXTURES / "tf115" / "graph_momentum_partitioned"
    names = {f"fc{i}/{old}": f"fc{i}/{new}" for i in range(3) for old, new in KERNEL_AND_BIAS}
    momenta = []
    for rate in (0.05, keras.optimizers.schedules.PiecewiseConstantDecay([2], [1.0, 0.05])):
        model = keras.Sequential([keras.Input((6,))])
        for i, units in enumerate((8, 5, 3)):
            model.add(keras.layers.Dense(units, name=f"fc{i}"))
        paths = {w.path.removeprefix(f"{model.name}/"): w.path for w in model.weights}
        inner = keras.optimizers.SGD(rate, momentum=0.9)
        restore(
            folder,
            model,
            keras_mp.LossScaleOptimizer(inner),
            names={old: paths[new] for old, new in names.items()},
        )
        momenta.append(ops.convert_to_numpy(inner.momentums[0]))
    np.testing.assert_array_equal(momenta[0], momenta[1])
    assert np.abs(momenta[0]).max() > 0


KERNEL_AND_BIAS = (("w", "kernel"), ("b", "bias"))


def test_the_report_is_the_same_twice_and_its_checksums_are_of_numbers():
    """Where count_skipped_steps follows the writer, too: that is a note, no value of the file."""
    folder = FIXTURES / "tf22" / "mlp_sgd_dynamic"
    case = Case(folder)
    reports = []
    for _ in range(2):
        optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.05))
        reports.append(restore(folder / "ckpt", case.model(), optimizer))
        assert optimizer.get_config()["count_skipped_steps"] is False
    assert "_settings" not in str(reports[0])
    assert any(note.startswith("count_skipped_steps is set to False") for note in reports[0].notes)
    sums = [[row.sha256 for row in report.rows] for report in reports]
    assert sums[0] == sums[1]


def test_slots_of_a_layer_that_is_frozen_by_now(case):
    """Fine-tuning goes on with a part of what was trained."""
    model, optimizer = case.model(), case.optimizer()
    model.get_layer("dense").trainable = False
    with pytest.raises(RestoreError, match=r"rms/.*: dense/kernel is not trained") as error:
        restore(PLAIN / "ckpt", model, optimizer)
    assert (len(error.value.unused), error.value.missing) == (2, [])
    restore(PLAIN / "ckpt", model, optimizer, strict=False)
    case.assert_weights(model)
    assert int(optimizer.iterations) == case.saved["iterations"]
    slots = {row["var"]: case.arrays[row["npz"]] for row in case.saved["slots"]}
    for variable in model.trainable_variables:
        found = optimizer.inner_optimizer._velocities[optimizer._get_variable_index(variable)]
        assert np.array_equal(ops.convert_to_numpy(found), slots[f"{variable.path}:0"])


def test_slots_by_position_are_of_as_many_variables(tmp_path):
    """Two kernels of one shape, and the first is frozen by now: its slot is not the second's."""
    kernels, moments = ([np.full((3, 3), n, "float32") for n in ns] for ns in ((1, 2), (3, 4)))
    adam = {"_iterations": np.asarray(5), "_m": {str(i): m for i, m in enumerate(moments)}}
    bundles.write_objects(
        tmp_path / "ckpt", {"net": {str(i): k for i, k in enumerate(kernels)}, "adam": adam}
    )
    ours = [keras.Variable(np.zeros((3, 3), "float32"), name=n) for n in "ab"]
    optimizer = keras.optimizers.Adamax()
    optimizer.build(ours[1:])
    ours[0].trainable = False
    report = restore(tmp_path / "ckpt", ours, optimizer, strict=False)
    assert np.all(ops.convert_to_numpy(optimizer._m[0]) == 0)
    assert [name.split("/.")[0] for name in report.unused] == ["adam/_m/0", "adam/_m/1"]


def dense():
    layer = keras.layers.Dense(2, name="out")
    layer.build((None, 3))
    return layer


NET = {"kernel": np.ones((3, 2), "float32"), "bias": np.ones(2, "float32")}
COUNT = np.asarray(7)


def test_of_two_optimizers_none_is_wanted(tmp_path):
    root = {"net": NET, "one": {"iter": COUNT}, "other": {"iter": COUNT}}
    bundles.write_objects(tmp_path / "ckpt", root)
    layer = dense()
    report = restore(tmp_path / "ckpt", layer, strict=False)
    assert [name.split("/.")[0] for name in report.unused] == ["one/iter", "other/iter"]
    assert np.all(ops.convert_to_numpy(layer.kernel) == 1)
    with pytest.raises(ValueError, match="pass optimizer_path=, one of one, other"):
        restore(tmp_path / "ckpt", layer, keras.optimizers.SGD())


class Counting(keras.layers.Layer):
    def build(self, shape):
        self.step = self.add_weight(shape=(), dtype="int64", trainable=False, name="step")
        self.kernel = self.add_weight(shape=(3, 2), name="kernel")


def test_the_model_is_where_most_of_it_is(tmp_path):
    """And not the root, where something beside it has the name of one of its weights."""
    net = {"step": np.asarray(3), "kernel": NET["kernel"]}
    bundles.write_objects(tmp_path / "ckpt", {"step": COUNT, "net": net})
    layer = Counting()
    layer.build((None, 3))
    report = restore(tmp_path / "ckpt", layer)
    assert (report.missing, report.unused) == ((), ())
    assert "not asked for, and left out: step" in report.notes
    assert int(ops.convert_to_numpy(layer.step)) == 3


def test_a_layer_that_says_nothing_of_its_weights(tmp_path):
    """Objects without a value; and an optimizer, of which the file has none."""
    bundles.write_objects(tmp_path / "ckpt", {"net": {"kernel": {}, "bias": NET["bias"]}})
    with pytest.raises(RestoreError) as error:
        restore(tmp_path / "ckpt", dense(), keras.optimizers.SGD(name="mine"), model_path="net")
    assert error.value.missing == [
        "out/kernel",
        "the state of mine: the file holds no optimizer",
    ]


def test_what_fits_nowhere_is_taken_for_the_root(tmp_path):
    bundles.write_objects(tmp_path / "ckpt", {"net": {"other": NET["bias"]}})
    with pytest.raises(RestoreError) as error:
        restore(tmp_path / "ckpt", dense())
    assert error.value.missing == ["out/kernel", "out/bias"]


def test_of_two_models_one_must_be_said(tmp_path):
    bundles.write_objects(tmp_path / "ckpt", {"one": NET, "other": NET})
    with pytest.raises(
        ValueError, match="several models that fit: pass model_path=, one of one, o"
    ):
        restore(tmp_path / "ckpt", dense())


GAN = {"generator": NET, "discriminator": {"kernel": np.ones((5, 1), "float32")}, "step": COUNT}


@pytest.mark.parametrize("strict", [True, False])
def test_one_of_several_objects(tmp_path, strict):
    bundles.write_objects(tmp_path / "ckpt", GAN)
    layer = dense()
    report = restore(tmp_path / "ckpt", layer, model_path="generator", strict=strict)
    np.testing.assert_array_equal(ops.convert_to_numpy(layer.kernel), NET["kernel"])
    assert report.unused == report.missing == ()
    assert "not asked for, and left out: discriminator, step" in report.notes


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("held", "unused", "missing"),
    [
        ({"kernel": np.ones((3, 9), "float32"), "bias": NET["bias"]}, "kernel", None),
        ({"bias": NET["bias"]}, None, "out/kernel"),
        (NET | {"second": NET["bias"]}, "second", None),
    ],
)
def test_the_part_that_was_asked_for_fits(tmp_path, strict, held, unused, missing):
    """Whatever strict says, which is about what lies beside it."""
    bundles.write_objects(tmp_path / "ckpt", {**GAN, "generator": held})
    layer = dense()
    before = [ops.convert_to_numpy(weight) for weight in layer.weights]
    with pytest.raises(RestoreError, match=r"nothing was restored\.") as error:
        restore(tmp_path / "ckpt", layer, model_path="generator", strict=strict)
    assert [unused in name for name in error.value.unused] == [True] * bool(unused)
    assert (missing in error.value.missing) == bool(missing)
    for weight, value in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(weight), value)


def test_a_list_is_not_longer_than_it_was(tmp_path):
    bundles.write_objects(tmp_path / "ckpt", {"net": [NET["bias"]]})
    ours = [keras.Variable(np.zeros(2, "float32"), name=name) for name in "ab"]
    with pytest.raises(RestoreError) as error:
        restore(tmp_path / "ckpt", ours)
    assert error.value.missing == ["b"]


def test_one_variable_is_not_two(tmp_path):
    """Unless what has it twice is beside the model."""
    shared = {"kernel": NET["kernel"], "bias": "net/kernel"}
    bundles.write_objects(tmp_path / "ckpt", {"net": shared})
    with pytest.raises(RestoreError, match=r"of shape \(3, 2\), but out/bias is of shape \(2,\)"):
        restore(tmp_path / "ckpt", dense(), model_path="net")
    shared["bias"] = "beside/kernel"
    bundles.write_objects(tmp_path / "ckpt", {"beside": shared, "net": NET})
    layer = dense()
    restore(tmp_path / "ckpt", layer, strict=False)
    assert np.all(ops.convert_to_numpy(layer.kernel) == 1)


@pytest.mark.parametrize("name", ["model", None])
def test_layers_that_were_shared_are_two(name, tmp_path):
    """As those of an encoder whose inner tensors the loss of its autoencoder reads."""
    encoder = {"layer_with_weights-0": NET}
    net = {"layer_with_weights-0": encoder, "layer_with_weights-1": "encoder"}
    path = "layer_with_weights-0/layer_with_weights-0"
    net["layer_with_weights-1"] = f"{name}/{path}" if name else path
    bundles.write_objects(tmp_path / "ckpt", {name: net} if name else net)
    inside = keras.Sequential([keras.Input((3,)), dense()], name="encoder")
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [inside(inputs), dense()(inputs)])
    report = restore(tmp_path / "ckpt", model)
    for layer in (inside.layers[0], model.layers[-1]):
        np.testing.assert_array_equal(ops.convert_to_numpy(layer.kernel), NET["kernel"])
    (note,) = [note for note in report.notes if "begin equal and are trained apart" in note]
    assert "out/kernel" in note


def test_one_variable_under_two_names_of_the_file(tmp_path):
    """One of its values is taken; and what is one object in both is gone through once."""
    root = {"a": NET, "b": "a", "x": NET["bias"], "y": 2 * NET["bias"]}
    bundles.write_objects(tmp_path / "ckpt", root)
    layer, variable = dense(), keras.Variable(np.zeros(2, "float32"), name="v")
    ours = {"a": layer, "b": layer, "x": variable, "y": variable}
    report = restore(tmp_path / "ckpt", ours)
    assert sorted(row.target for row in report.rows) == ["out/bias", "out/kernel", "v"]
    assert ops.convert_to_numpy(variable)[0] in (1, 2)


def test_statistics_of_normalization(tmp_path):
    """Which Keras 3 calls otherwise, and computes with after they were taken."""
    stored = {"mean": np.ones(2, "float32"), "variance": np.full(2, 4, "float32")}
    bundles.write_objects(tmp_path / "ckpt", {"layer_with_weights-0": stored | {"count": COUNT}})
    model = keras.Sequential([keras.Input((2,)), keras.layers.Normalization()])
    load_weights(tmp_path / "ckpt", model)
    np.testing.assert_allclose(ops.convert_to_numpy(model(np.full((1, 2), 5.0))), [[2, 2]])


def test_a_schedule_stays(tmp_path):
    rate = np.asarray(0.5, "float32")
    bundles.write_objects(
        tmp_path / "ckpt", {"net": NET, "sgd": {"iter": COUNT, "learning_rate": rate}}
    )
    sgd = keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5))
    report = restore(tmp_path / "ckpt", dense(), sgd)
    assert report.notes[0].endswith("is not used: the optimizer has a learning rate schedule")
    assert int(sgd.iterations) == 7


def test_an_optimizer_that_had_taken_no_step(tmp_path):
    bundles.write_objects(tmp_path / "ckpt", {"net": NET, "adam": {"iter": np.asarray(0)}})
    report = restore(tmp_path / "ckpt", dense(), keras.optimizers.Adam())
    assert UNTRAINED in report.notes


def test_a_loss_scale_without_a_counter(tmp_path):
    scale = {"current_loss_scale": np.asarray(8.0, "float32")}
    bundles.write_objects(
        tmp_path / "ckpt", {"net": NET, "sgd": {"iter": COUNT, "loss_scale": scale}}
    )
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD())
    restore(tmp_path / "ckpt", dense(), optimizer)
    assert (float(optimizer.loss_scale), int(optimizer.dynamic_counter)) == (8.0, 0)


def test_a_hyperparameter_of_nothing_is_nothing(tmp_path):
    """And the momenta of Nadam are none of SGD's."""
    state = {"iter": COUNT, "rho": np.asarray(0.0, "float32")}
    bundles.write_objects(tmp_path / "ckpt", {"net": NET, "sgd": state})
    restore(tmp_path / "ckpt", dense(), keras.optimizers.SGD())
    state["momentum_cache"] = np.asarray(0.5, "float32")
    bundles.write_objects(tmp_path / "ckpt", {"net": NET, "sgd": state})
    with pytest.raises(RestoreError) as error:
        restore(tmp_path / "ckpt", dense(), keras.optimizers.SGD())
    assert [key.split("/.")[0] for key in error.value.unused] == ["sgd/momentum_cache"]


@pytest.mark.parametrize(
    ("dtype", "digits"),
    [("float32", "loses digits as float32"), ("bfloat16", "loses digits as bfloat16")],
)
def test_digits_that_a_variable_does_not_have(tmp_path, dtype, digits):
    value = np.asarray([1 + 2**-20, 2**24 + 1], "float64" if dtype == "float32" else "float32")
    bundles.write_objects(tmp_path / "ckpt", {"w": value})
    variable = keras.Variable(np.zeros(2), dtype=dtype)
    report = restore(tmp_path / "ckpt", {"w": variable})
    assert digits in report.notes[0]
    found = ops.convert_to_numpy(ops.cast(variable, "float32"))
    assert found[1] == 2**24


@pytest.mark.parametrize(
    ("value", "lost"), [([1e300], "becomes inf as"), ([1e300, 1.0], "in part")]
)
def test_what_a_variable_has_no_room_for(value, lost, tmp_path):
    bundles.write_objects(tmp_path / "ckpt", {"w": np.asarray(value)})
    variable = keras.Variable(np.zeros(len(value)), dtype="float32")
    report = restore(tmp_path / "ckpt", {"w": variable})
    assert lost in report.notes[0]
    assert np.isinf(ops.convert_to_numpy(variable)[0])


TWO = np.zeros(2, "float32")
ODD = {
    "a step count of two numbers": ({"iter": np.zeros(2, "int64")}, "iter"),
    "no number": ({"iter": COUNT, "decay": np.asarray(np.nan, "float32")}, "decay"),
    "a hyperparameter of two": ({"iter": COUNT, "momentum": TWO}, "momentum"),
    "a rate of two": ({"iter": COUNT, "learning_rate": TWO}, "learning_rate"),
    "a place that is no number": (
        {"_iterations": COUNT, "momentums": {"\u00b2": TWO}},
        "momentums",
    ),
}


@pytest.mark.parametrize(("state", "where"), ODD.values(), ids=ODD)
def test_state_that_is_none(tmp_path, state, where):
    bundles.write_objects(tmp_path / "ckpt", {"net": NET, "sgd": state})
    with pytest.raises(RestoreError, match=rf"sgd/{where}"):
        restore(tmp_path / "ckpt", dense(), keras.optimizers.SGD())
    restore(tmp_path / "ckpt", dense(), keras.optimizers.SGD(), strict=False)


def test_text_where_numbers_belong(tmp_path):
    tensors = {"out/kernel": b"no", "out/bias": NET["bias"]}
    bundles.write(tmp_path / "ckpt", tensors)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="out")
    names = dict(zip(tensors, (weight.path for weight in model.weights), strict=True))
    with pytest.raises(RestoreError, match=r"out/kernel: is text, but .*kernel holds numbers"):
        restore(tmp_path / "ckpt", model, names=names)


def test_a_power_of_beta_tells_the_step(tmp_path):
    power = np.asarray(0.9**4, "float32")
    bundles.write(tmp_path / "ckpt", NET | {"beta1_power": power, "beta2_power": power})
    layer, adam = dense(), keras.optimizers.Adam()
    names = {weight.name: weight.path for weight in layer.weights}
    report = restore(tmp_path / "ckpt", layer, adam, names=names, strict=False)
    assert (int(adam.iterations), report.unused) == (3, ())


def test_momentum_of_rmsprop_without_momentum(tmp_path):
    slots = {f"{name}/RMSProp{n}": array for name, array in NET.items() for n in ("", "_1")}
    bundles.write(tmp_path / "ckpt", NET | slots | {"global_step": COUNT})
    layer = dense()
    names = {weight.name: weight.path for weight in layer.weights}
    report = restore(tmp_path / "ckpt", layer, keras.optimizers.RMSprop(), names=names)
    assert NO_MOMENTUM in report.notes


@pytest.mark.parametrize(
    ("optimizer", "power"),
    [
        pytest.param(keras.optimizers.SGD, 0.81, id="an optimizer without beta"),
        pytest.param(keras.optimizers.Adam, 1e-42, id="a power that has lost its digits"),
    ],
)
def test_a_power_that_tells_no_step(tmp_path, optimizer, power):
    tensors = NET | {"beta1_power": np.asarray(power, "float32")}
    bundles.write(tmp_path / "ckpt", tensors)
    layer, made = dense(), optimizer()
    names = {weight.name: weight.path for weight in layer.weights}
    restore(tmp_path / "ckpt", layer, made, names=names, strict=False)
    assert int(made.iterations) == 0
