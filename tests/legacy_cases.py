"""The recorded trainings of TF 1.15 to 2.15: their models, optimizers and recorded values."""

import copy
import json
from pathlib import Path

import h5py
import keras
import numpy as np
from keras import ops

import keras_mp
from keras_mp.compat.configs import convert
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.keras2.slots import SLOTS
from tests.fixtures import DATA, FIXTURES


class Block(keras.layers.Layer):
    def __init__(self, units, **options):
        super().__init__(**options)
        self.inner = keras.layers.Dense(units, activation="relu")

    def build(self, shape):
        self.inner.build(shape)
        self.gain = self.add_weight(shape=(self.inner.units,), initializer="ones", name="gain")

    def call(self, x):
        return self.inner(x) * self.gain


class Net(keras.Model):
    """The twin of the recording programs' own model, with the same attribute names."""

    def __init__(self, **options):
        super().__init__(**{"name": "net"} | options)
        self.blocks = [Block(6), Block(4)]
        self.heads = {"main": keras.layers.Dense(2, dtype="float32")}
        self.norm = keras.layers.BatchNormalization()
        self.calls = self.add_weight(
            shape=(), dtype="int64", trainable=False, initializer="zeros", name="calls"
        )

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.heads["main"](self.norm(x, training=training))

    def by_old_name(self):
        """Returns each variable by the name that TensorFlow gave its twin."""
        first, second = self.blocks
        head = self.heads["main"]
        return {
            "net/block/gain:0": first.gain,
            "net/block/dense/kernel:0": first.inner.kernel,
            "net/block/dense/bias:0": first.inner.bias,
            "net/block_1/gain:0": second.gain,
            "net/block_1/dense_1/kernel:0": second.inner.kernel,
            "net/block_1/dense_1/bias:0": second.inner.bias,
            "net/dense_2/kernel:0": head.kernel,
            "net/dense_2/bias:0": head.bias,
            "net/batch_normalization/gamma:0": self.norm.gamma,
            "net/batch_normalization/beta:0": self.norm.beta,
            "net/batch_normalization/moving_mean:0": self.norm.moving_mean,
            "net/batch_normalization/moving_variance:0": self.norm.moving_variance,
            "calls:0": self.calls,
        }


OWN = {"Net": Net, "Block": Block}


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


class Case:
    """One folder of the fixtures.

    Attributes:
        oracle: The values that a correct migration must reproduce, as JSON.
        arrays: Its arrays.
        saved: The part of the oracle about saved files.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.oracle = read(self.folder / "oracle.json")
        with np.load(self.folder / "oracle.npz") as arrays:
            self.arrays = dict(arrays)
        self.recipe = self.oracle["case"]
        self.version = self.oracle["tf_version"]
        self.saved = self.oracle["at_save"]
        self.rows = self.saved.get("weights") or self.oracle["weights"]

    @property
    def policy(self):
        policy = self.recipe.get("policy", "mixed_float16")
        return policy["name"] if isinstance(policy, dict) else policy

    def config(self):
        model = self.oracle["model_json"]
        if isinstance(model, dict):
            return model
        path = self.folder / "model.h5"
        if not path.exists():
            return {"class_name": "Net"}
        with h5py.File(path) as file:
            return json.loads(file.attrs["model_config"])

    def model(self):
        """Returns the model, rebuilt, with its initial weights."""
        with keras_mp.policy_scope(self.policy):
            config = {**convert(self.config(), kind="model").config, "compile_config": {}}
            model = keras.saving.deserialize_keras_object(config, custom_objects=OWN)
            if isinstance(model, Net):
                model(np.zeros((1, 5), "float32"))
        return model

    def by_old_name(self, model):
        """Returns {TensorFlow's name: variable} of a model from `model()`."""
        if isinstance(model, Net):
            return model.by_old_name()
        found = {}
        for layer in self.saved.get("layers") or self._dense_layers():
            if layer["weights"]:
                weights = model.get_layer(layer["name"]).weights
                # TensorFlow lists trainable ones first.
                trained = [w for w in weights if w.trainable]
                order = trained + [w for w in weights if not w.trainable]
                found |= dict(zip(layer["weights"], order, strict=True))
        return found

    def _dense_layers(self):
        names = dict.fromkeys(row["name"].partition("/")[0] for row in self.rows)
        return [{"name": n, "weights": [f"{n}/kernel:0", f"{n}/bias:0"]} for n in names]

    def refused(self):
        """Whether its loss scale has no counterpart: another multiplier, a custom class."""
        text = str(self.recipe["loss_scale"])
        return "multiplier" in text or "custom" in text

    def optimizer(self, version=None):
        """Returns the optimizer of its config; if that is refused, a wrapper of the inner one."""
        config = self.oracle.get("optimizer_config")
        sparse = ("embeddings",) if self.recipe.get("model") == "embed" else ()
        if config is None or "error" in config:
            return self._of_recipe()
        try:
            done = convert(
                config,
                kind="optimizer",
                tf_version=version or self.version,
                sparse_variables=sparse,
            )
        except LegacyError:
            assert self.refused()
            inner = convert(config["config"]["optimizer"], kind="optimizer").config
            inner = keras.optimizers.deserialize(copy.deepcopy(inner))
            scale = self.recipe["loss_scale"]
            if "dynamic" not in scale:
                return inner
            return keras_mp.LossScaleOptimizer(
                inner,
                initial_scale=scale["dynamic"]["initial_loss_scale"],
                dynamic_growth_steps=scale["dynamic"]["increment_period"],
                growth_factor=4.0,
                backoff_factor=0.25,
            )
        return keras.optimizers.deserialize(copy.deepcopy(done.config))

    def _of_recipe(self):
        recipe = self.recipe["optimizer"]
        config = {"class_name": recipe["class"], "config": recipe["kwargs"]}
        match self.recipe["loss_scale"]:
            case {"fixed": scale}:
                loss_scale = scale
            case {"dynamic": arguments}:
                loss_scale = {"class_name": "DynamicLossScale", "config": arguments}
            case loss_scale:
                pass
        inside = {"optimizer": config, "loss_scale": loss_scale}
        old = {"class_name": "LossScaleOptimizer", "config": inside}
        done = convert(old, kind="optimizer", tf_version=self.version)
        return keras.optimizers.deserialize(copy.deepcopy(done.config))

    def loss_scale(self):
        """Returns (scale, counter), or None without a dynamic one."""
        scale = self.saved["loss_scale"]
        if not isinstance(scale, dict):
            return (scale, self.saved["counter"]) if self.saved.get("counter") is not None else None
        return (scale["value"], scale["counter"]) if scale["kind"] == "dynamic" else None

    def assert_weights(self, model):
        """Asserts that every weight has the recorded bits."""
        variables = self.by_old_name(model)
        rows = {row["name"]: row for row in self.rows}
        assert set(variables) == set(rows)
        for name, row in rows.items():
            assert_bits(variables[name], self.arrays[f"weight/{row['index']}"], name)

    def assert_optimizer(self, model, optimizer, scale=True):
        """Asserts that slots, step count, loss scale and counter have the recorded bits."""
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        assert int(ops.convert_to_numpy(inner._iterations)) == self.saved["iterations"]
        variables = self.by_old_name(model)
        filled = {id(inner._iterations), id(inner._learning_rate)}
        for slot in self.saved.get("slots", self.oracle.get("slots")):
            index = inner._get_variable_index(variables[slot["var"]])
            found = slot_list(inner, slot["slot"])
            if not found:
                assert inner.momentum == 0
                continue
            assert_bits(found[index], self.arrays[slot["npz"]], slot["var"])
            filled.add(id(found[index]))
        product = self.product()
        if product is not None:
            assert_bits(inner._u_product, product, "u_product")
            filled.add(id(inner._u_product))
        assert filled >= {id(variable) for variable in inner.variables}
        if scale and self.loss_scale() is not None:
            assert (
                float(optimizer.loss_scale),
                int(optimizer.dynamic_counter),
            ) == self.loss_scale()

    def product(self):
        """Returns the product of Nadam's momenta, or None."""
        for variable in self.saved.get("extra_variables", []):
            if variable.get("attribute") == "_u_product":
                return self.arrays[variable["npz"]]
        for variable in self.saved.get("optimizer_weights", []):
            if variable["name"].split(":")[0].endswith("momentum_cache"):
                return self.arrays[variable["npz"]]
        return None

    def inputs(self, prefix="fixed"):
        """Returns the model's input."""
        xs = [self.arrays[k] for k in sorted(self.arrays) if k.startswith(f"{prefix}/x")]
        return xs if len(xs) > 1 else xs[0]


def slot_list(inner, name):
    """Returns the variables of a slot, by its old name, in the new inner optimizer."""
    if name == "average":
        return inner._model_variables_moving_average
    of_class = next(SLOTS[c.__name__] for c in type(inner).__mro__ if c.__name__ in SLOTS)
    new = {"velocity": "_velocities", "average_gradient": "_average_gradients", "u": "_u"}
    new |= {"accumulated_grad": "_accumulated_grads", "mean": "_momentums"}
    new |= {"accumulated_delta_var": "_accumulated_delta_vars"}
    new |= {"m": "momentums"}  # of SGD; Lion's is in the table
    attribute = of_class.get(name) or new[name]
    return getattr(inner, attribute, None)


def assert_bits(variable, expected, name):
    """Asserts that a variable has the bits of an array."""
    found = ops.convert_to_numpy(variable)
    assert found.shape == expected.shape, name
    if expected.dtype == "float64" and keras.backend.backend() == "jax":
        expected = expected.astype("float32")  # JAX has no float64 by default
    assert np.array_equal(found.astype(expected.dtype), expected, equal_nan=True), name


def divided(params):
    """Returns those of the cases, whose first value is a path in FIXTURES, that this backend runs.

    Every backend reads the bundled ones; only PyTorch reads the others, in KERAS_MP_FIXTURES. The
    bundled ones are of each version and kind, so they reveal a reader that depends on the backend.
    """
    if keras.backend.backend() == "torch":
        return params
    return [param for param in params if DATA.joinpath(*_folder(param.values[0])).is_dir()]


def _folder(path):
    return path.relative_to(FIXTURES).parts[:2]
