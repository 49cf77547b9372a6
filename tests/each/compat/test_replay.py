"""Training goes on as it did: gradients that TF recorded, through the optimizer of today.

Each fixture holds the state of a training in TF 1.15 to 2.15, five further gradients and the
weights after each. The optimizer is built from the converted config, gets the state by the small
map below, and must arrive at the recorded weights.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from keras_mp.compat.configs import convert
from keras_mp.compat.configs.versions import parse_version
from keras_mp.compat.errors import LegacyError
from tests.fixtures import FIXTURES
from tests.legacy_cases import divided

Json = dict[str, Any]


# Slot in TF -> attribute of the Keras 3 class that has one such list.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "momentum": ("momentums", "_momentums"),
    "m": ("_momentums", "_m", "momentums"),
    "v": ("_velocities", "_u"),
    "u": ("_u",),
    "vhat": ("_velocity_hats",),
    "rms": ("_velocities",),
    "velocity": ("_velocities",),
    "mg": ("_average_gradients",),
    "average_gradient": ("_average_gradients",),
    "accumulator": ("_accumulators",),
    "linear": ("_linears",),
    "accum_grad": ("_accumulated_grads",),
    "accum_var": ("_accumulated_delta_vars",),
    "average": ("_model_variables_moving_average",),
}


class Case:
    """One fixture, the same to look at whichever TF recorded it."""

    def __init__(self, folder: Path) -> None:
        self.oracle: Json = json.loads((folder / "oracle.json").read_text(encoding="utf-8"))
        with np.load(folder / "oracle.npz") as arrays:
            self.arrays = dict(arrays)
        self.recipe: Json = self.oracle["case"]
        self.version: str = self.oracle["tf_version"]
        self.state: Json = self.oracle["at_save"]
        self.config: Json = self.oracle["optimizer_config"]
        self.scale = self.state["loss_scale"]
        self.weights: list[Json] = self.state.get("weights") or self.oracle["weights"]
        self.slots: list[Json] = self.state.get("slots", self.oracle.get("slots"))
        if "error" in self.config:  # TF 1.15 wrote none; what TF 2.1 wrote for the same arguments
            self.config = as_2_1(self.recipe)
            self.scale = {"value": self.scale, "counter": self.state["counter"]}
        self.trained = [w for w in self.weights if w.get("trainable", True)]

    def gradients(self, step: int) -> list[np.ndarray]:
        return [self.arrays[f"cont/{step}/grad/{i}"] for i in range(len(self.trained))]

    def after(self, step: int) -> list[np.ndarray]:
        return [self.arrays[f"cont/{step}/weight/{weight['index']}"] for weight in self.trained]

    def product(self) -> np.ndarray | None:
        """The product of Nadam's momenta."""
        for variable in self.state.get("extra_variables", []):
            if variable.get("attribute") == "_u_product":
                return self.arrays[variable["npz"]]
        for variable in self.state.get("optimizer_weights", []):
            if variable["name"].split(":")[0].endswith("momentum_cache"):
                return self.arrays[variable["npz"]]
        return None


def as_2_1(recipe: Json) -> Json:
    optimizer = {
        "class_name": recipe["optimizer"]["class"],
        "config": recipe["optimizer"]["kwargs"],
    }
    match recipe["loss_scale"]:
        case {"fixed": scale}:
            loss_scale: Any = scale
        case {"dynamic": arguments}:
            loss_scale = {"class_name": "DynamicLossScale", "config": arguments}
        case loss_scale:
            pass
    inside = {"optimizer": optimizer, "loss_scale": loss_scale}
    return {"class_name": "LossScaleOptimizer", "config": inside}


def folders() -> Iterator[Any]:
    """Every fixture of an optimizer of Keras whose gradients were recorded."""
    for path in sorted(FIXTURES.glob("tf*/*/oracle.npz")):
        graph = path.parent.name.startswith("graph_")  # tf.compat.v1.train, which has no configs
        with np.load(path) as arrays:
            recorded = "cont/0/grad/0" in arrays
        if recorded and not graph:
            yield pytest.param(path.parent, id="/".join(path.parent.parts[-2:]))


ALL = list(folders())


def test_every_version_is_among_the_fixtures() -> None:
    versions = {parse_version(Case(param.values[0]).version) for param in ALL}
    assert versions >= {(1, 15), *((2, n) for n in (2, 3, 4, 6, 10, 11, 13, 15))}


def refused(case: Case) -> bool:
    """Whether the loss scale has no counterpart: another factor than 2, or a class of one's own."""
    return "multiplier" in str(case.recipe["loss_scale"]) or "custom" in str(
        case.recipe["loss_scale"]
    )


def optimizer_of(case: Case) -> Any:
    config = case.config
    if refused(case):
        with pytest.raises(
            LegacyError, match=r"^\$\.config\.loss_scale\.(config\.mult|class_name)"
        ):
            convert(config, kind="optimizer", tf_version=case.version)
        config = config["config"]["optimizer"]
    sparse = ("embeddings",) if case.recipe.get("model") == "embed" else ()
    done = convert(config, kind="optimizer", tf_version=case.version, sparse_variables=sparse)
    return keras.optimizers.deserialize(copy.deepcopy(done.config))


def restore(case: Case, inner: Any) -> None:
    """Puts the recorded state into the optimizer inside, and asserts that there is no more."""
    inner._iterations.assign(case.state["iterations"])
    filled = {id(inner._iterations), id(inner._learning_rate)}
    for slot in case.slots:
        values = case.arrays[slot["npz"]]
        lists = [getattr(inner, name, None) for name in ATTRIBUTES[slot["slot"]]]
        variables = next((variables for variables in lists if variables), None)
        if variables is None:
            assert inner.momentum == 0  # SGD of TF 2.11 and later had slots then, too, of no use
            continue
        variables[slot["trainable_index"]].assign(values)
        filled.add(id(variables[slot["trainable_index"]]))
    product = case.product()
    if product is not None:
        inner._u_product.assign(product)
        filled.add(id(inner._u_product))
    assert filled >= {id(variable) for variable in inner.variables}


def replay(case: Case, optimizer: Any) -> float:
    """Returns the largest error of five steps, as a share of the largest movement."""
    weights = [
        keras.Variable(
            case.arrays[weight["npz"]], name=weight["name"].replace("/", "_").split(":")[0]
        )
        for weight in case.trained
    ]
    start = [case.arrays[weight["npz"]].astype("float64") for weight in case.trained]
    optimizer.build(weights)
    scaled = isinstance(optimizer, LossScaleOptimizer)
    restore(case, optimizer.inner_optimizer if scaled else optimizer)
    if scaled:
        optimizer.dynamic_scale.assign(case.scale["value"])
        optimizer.step_counter.assign(case.scale["counter"] or 0)
    error = movement = 0.0
    for number, step in enumerate(case.oracle["continuation"]):
        gradients = [ops.array(gradient, "float32") for gradient in case.gradients(number)]
        if scaled:
            optimizer.apply([optimizer.scale_loss(gradient) for gradient in gradients], weights)
            assert float(optimizer.loss_scale) == step["loss_scale_after"]
            if optimizer.dynamic:
                assert int(optimizer.dynamic_counter) == step["counter_after"]
        else:
            assert step["grads_finite"] in (True, None)
            optimizer.apply(gradients, weights)
        assert int(optimizer.iterations) == step["iterations_after"], "another count of steps"
        for weight, expected, first in zip(weights, case.after(number), start, strict=True):
            found = ops.convert_to_numpy(weight).astype("float64")
            error = max(error, float(np.abs(found - expected).max()))
            movement = max(movement, float(np.abs(expected - first).max()))
    return error / movement


# What float32 leaves: below 6e-6 in all of 161 fixtures, on every backend.
TOLERANCE = 1e-5


@pytest.mark.parametrize("folder", divided(ALL))
def test_replay(folder: Path) -> None:
    case = Case(folder)
    assert replay(case, optimizer_of(case)) <= TOLERANCE


def test_embeddings_need_the_sparse_rule() -> None:
    """That is what `sparse_variables` is for: without, momentum moves rows that had no gradient."""
    case = Case(FIXTURES / "tf23" / "embed_sgd_momentum")
    done = convert(case.config, kind="optimizer", tf_version=case.version)
    assert replay(case, keras.optimizers.deserialize(done.config)) > 0.1


def test_skipped_steps_need_the_version() -> None:
    """TF 2.2 did not count them, and its schedule waits."""
    case = Case(FIXTURES / "tf22" / "mlp_sgd_piecewise")
    then, later = (
        convert(case.config, kind="optimizer", tf_version=each) for each in ("2.2", "2.3")
    )
    assert then.config["config"]["count_skipped_steps"] is False
    assert later.config["config"]["count_skipped_steps"] is True
    with pytest.raises(AssertionError, match="another count of steps"):
        replay(case, keras.optimizers.deserialize(later.config))
