"""Checkpoints of TF 1.15 to 2.15 in Keras 3 models: every bit where it was."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat.restoring.checkpoints import restore
from tests.fixtures import FIXTURES
from tests.legacy_cases import Case, divided, read

FLAVOURS = ("ckpt", "weights_tf", "manager", "saved_model", "ckpt_net")

# One layer of some models has the policy float64, and JAX has no float64 unless asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")


def checkpoints():
    for path in sorted(FIXTURES.glob("tf*/*/oracle.npz")):
        folder = path.parent
        if folder.name.startswith("graph_"):
            continue
        for flavour in FLAVOURS:
            index = folder / flavour if flavour in ("manager", "saved_model") else None
            if (index or folder / f"{flavour}.index").exists():
                name = f"{folder.parent.name}/{folder.name}/{flavour}"
                yield pytest.param(folder, flavour, id=name)


@pytest.mark.parametrize(("folder", "flavour"), divided(list(checkpoints())))
def test_every_checkpoint_is_restored_bit_for_bit(folder, flavour):
    case = Case(folder)
    model, optimizer = case.model(), case.optimizer()
    # Two things beside the model and the optimizer stood in that Checkpoint.
    strict = flavour != "ckpt_net"
    if "custom" in str(case.recipe["loss_scale"]):
        strict = False  # the state of a class of one's own
    report = restore(folder / flavour, model, optimizer, strict=strict)
    assert report.missing == ()
    if flavour == "ckpt_net":
        assert {key.split("/.")[0] for key in report.unused} == {"meta/best"}
    case.assert_weights(model)
    case.assert_optimizer(model, optimizer)
    if isinstance(optimizer, keras_mp.LossScaleOptimizer) and optimizer.dynamic:
        counts = tuple(map(int, case.version.split(".")[:2])) >= (2, 3)
        assert optimizer.get_config()["count_skipped_steps"] == counts
    assert len(report.rows) >= len(model.weights)
    assert all(row.target in str(report) for row in report.rows)


def weights_files():
    for name in ("weights.h5", "model.h5", "model.keras", "model.weights.h5"):
        folders = sorted(path.parent for path in FIXTURES.glob(f"tf2*/cnn_adam*/{name}"))
        yield from (pytest.param(folder / name, id=name) for folder in folders[:1])


@pytest.mark.parametrize("path", list(weights_files()))
def test_weights_files_are_restored_too(path):
    case = Case(path.parent)
    model = case.model()
    report = restore(path, model, strict=False)
    assert report.missing == ()
    case.assert_weights(model)
    again = case.model()
    restore(path.as_uri(), again, strict=False)
    case.assert_weights(again)
    with pytest.raises(ValueError, match="has the weights of one model: pass that"):
        restore(path, {"net": model})
    with pytest.raises(ValueError, match="are for checkpoints"):
        restore(path, model, model_path="net")


# Class of tf.compat.v1.train -> Keras 3 optimizer that has its rule.
V1 = {
    "AdamOptimizer": ("Adam", {"epsilon": 1e-8}),
    "MomentumOptimizer": ("SGD", {}),
    "RMSPropOptimizer": ("RMSprop", {}),
    "GradientDescentOptimizer": ("SGD", {}),
    "AdagradOptimizer": ("Adagrad", {"epsilon": 0.0}),
    "AdadeltaOptimizer": ("Adadelta", {"epsilon": 1e-8}),
    "FtrlOptimizer": ("Ftrl", {}),
}
RENAMED = {"use_nesterov": "nesterov", "decay": "rho"}


def of_v1(recipe):
    """Returns the optimizer that a program of tf.compat.v1 had, as one of Keras 3."""
    name, more = V1[recipe["optimizer"]["class"]]
    given = {RENAMED.get(k, k): v for k, v in recipe["optimizer"]["kwargs"].items()}
    if isinstance(given["learning_rate"], dict):
        rate = given["learning_rate"]
        given["learning_rate"] = keras.optimizers.schedules.ExponentialDecay(
            rate["learning_rate"], rate["decay_steps"], rate["decay_rate"]
        )
    inner = getattr(keras.optimizers, name)(**{**more, **given})
    match recipe["loss_scale"]:
        case "dynamic":
            return keras_mp.LossScaleOptimizer(inner)
        case {"dynamic": numbers}:
            return keras_mp.LossScaleOptimizer(
                inner,
                initial_scale=numbers["initial_loss_scale"],
                dynamic_growth_steps=numbers["increment_period"],
            )
        case {"fixed": scale} | scale:
            return keras_mp.LossScaleOptimizer(inner, dynamic=False, initial_scale=scale)


def dense_net(units, inputs):
    model = keras.Sequential(name="net")
    for number, size in enumerate(units):
        model.add(keras.layers.Dense(size, name=f"fc{number}"))
    model.build((None, inputs))
    return model


def old_names(model, oracle):
    """Returns name of the tensor in the file -> path of the weight."""
    names = dict.fromkeys(n.replace("/part_0", "") for n in oracle["trainable_names"])
    whole = [name for name in names if "/part_" not in name]
    return dict(zip(whole, (w.path for w in model.weights), strict=True))


def whole_arrays(arrays, oracle, prefix):
    """Returns name -> array of a step or of the start, the parts of a variable joined."""
    found = {}
    for number, name in enumerate(oracle["trainable_names"]):
        array = arrays[prefix(number, name)]
        bare = name.split("/part_")[0]
        found[bare] = np.concatenate([found[bare], array]) if bare in found else array
    return found


def of_graphs():
    for path in sorted(FIXTURES.glob("tf115/graph_*/oracle.npz")):
        if "v1format" not in path.parent.name:
            for flavour in ("saver", "object_ckpt"):
                if flavour in read(path.parent / "oracle.json")["artefacts"]:
                    yield pytest.param(path.parent, flavour, id=f"{path.parent.name}/{flavour}")


@pytest.mark.parametrize(("folder", "flavour"), divided(list(of_graphs())))
def test_tf_1_15_goes_on(folder, flavour):
    """Restored, and the five recorded gradients give the five recorded weights."""
    oracle = read(folder / "oracle.json")
    with np.load(folder / "oracle.npz") as file:
        arrays = dict(file)
    recipe, saved = oracle["case"], oracle["at_save"]
    model, optimizer = dense_net(recipe["units"], recipe["n_in"]), of_v1(recipe)
    names = old_names(model, oracle)
    prefix = folder / oracle["artefacts"][flavour]["prefix"]
    if flavour == "saver":
        report = restore(prefix, model, optimizer, names=names)
    else:
        report = restore(prefix, model.weights, optimizer)
    assert (report.missing, report.unused) == ((), ())
    rows = {row["name"]: row for row in oracle["variables"]}
    start = whole_arrays(arrays, oracle, lambda _, name: arrays_key(rows, name))
    for name, weight in zip(names, model.weights, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(weight), start[name])
    assert int(optimizer.iterations) == saved["global_step"]
    if optimizer.dynamic:
        assert (float(optimizer.loss_scale), int(optimizer.dynamic_counter)) == (
            saved["loss_scale"],
            saved["counter"],
        )
        assert optimizer.get_config()["count_skipped_steps"] is False
    error = movement = 0.0
    for number, step in enumerate(oracle["continuation"]):
        key = f"cont/{number}/grad/{{}}"
        gradients = whole_arrays(arrays, oracle, lambda i, _, key=key: key.format(i))
        scaled = [optimizer.scale_loss(ops.array(gradients[name])) for name in names]
        optimizer.apply(scaled, model.trainable_variables)
        assert float(optimizer.loss_scale) == step["loss_scale_after"]
        assert int(optimizer.iterations) == step["global_step_after"]
        key = f"cont/{number}/weight/{{}}"
        after = whole_arrays(arrays, oracle, lambda i, _, key=key: key.format(i))
        for name, weight in zip(names, model.weights, strict=True):
            found = ops.convert_to_numpy(weight)
            error = max(error, np.abs(found - after[name]).max())
            movement = max(movement, np.abs(after[name] - start[name]).max())
    assert error <= 1e-5 * movement


def arrays_key(rows, name):
    return rows[name]["npz"]
