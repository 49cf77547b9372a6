"""`scale_state`: the scale goes on here as it would have gone on there, step for step."""

import json
import random
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.interchange.readers import scale_state
from keras_mp.compat.interchange.scale_states import ScaleState

RECORDED = json.loads(
    (Path(__file__).parents[2] / "data/scale_states/recorded.json").read_text(encoding="utf-8")
)
STEPS = 200
TORCH = {
    "scale": 1024.0,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 3,
    "_growth_tracker": 1,
}


def finite_steps(chance: float = 0.8) -> list[bool]:
    chooser = random.Random(11)
    return [chooser.random() < chance for _ in range(STEPS)]


def continued(state: ScaleState) -> keras_mp.LossScaleOptimizer:
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.1), **state.arguments)
    state.apply(optimizer)
    return optimizer


def course(optimizer: Any, finite: list[bool]) -> list[list[float]]:
    """Takes a step for each of `finite`; returns [scale, counter] after each."""
    weight = optimizer._trainable_variables[0] if optimizer.built else keras.Variable([1.0])
    optimizer.build([weight])
    gradients = {True: ops.array([1.0]), False: ops.array([float("inf")])}
    trace = []
    for step in finite:
        optimizer.scale_loss(ops.array(1.0))
        optimizer.apply([gradients[step]], [weight])
        trace.append([float(optimizer.loss_scale), int(optimizer.dynamic_counter or 0)])
    return trace


def course_of_keras(optimizer: Any, finite: list[bool]) -> list[list[float]]:
    weight = keras.Variable([1.0])
    if not optimizer.built:
        optimizer.build([weight])
    gradients = {True: ops.array([1.0]), False: ops.array([float("inf")])}
    trace = []
    for step in finite:
        if keras.backend.backend() == "jax":  # where it cannot `apply`
            state = [variable.value for variable in optimizer.variables]
            _, state = optimizer.stateless_apply(state, [gradients[step]], [weight.value])
            for variable, value in zip(optimizer.variables, state, strict=True):
                variable.assign(value)
        else:
            optimizer.apply([gradients[step]], optimizer._trainable_variables)
        numbers = (optimizer.dynamic_scale, optimizer.step_counter)
        trace.append([ops.convert_to_numpy(number).item() for number in numbers])
    return trace


def course_of_torch(scaler: Any, finite: list[bool]) -> list[list[float]]:
    import torch

    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    trace = []
    for step in finite:
        scaler.scale(weight.sum()).backward()
        weight.grad = torch.full((1,), 1.0 if step else float("inf"))
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        trace.append([state["scale"], state["_growth_tracker"]])
    return trace


def grad_scaler(state: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(state)
    return scaler


@pytest.mark.parametrize(
    ("changed", "chance"),
    [
        pytest.param({}, 0.8, id="under way"),
        pytest.param({"growth_interval": 1, "_growth_tracker": 0}, 0.8, id="grows each step"),
        pytest.param({"_growth_tracker": 2}, 0.8, id="about to grow"),
        pytest.param({"growth_interval": 2000}, 0.8, id="long interval"),
        pytest.param({"scale": 1.0}, 0.5, id="falls below 1"),
        pytest.param({"scale": 2.0**-20}, 0.6, id="starts below 1"),
        pytest.param({"growth_factor": 4.0, "backoff_factor": 0.25}, 0.8, id="factor 4"),
        pytest.param({"scale": 2.0**126, "growth_interval": 2}, 0.95, id="stops before inf"),
    ],
)
def test_goes_on_as_in_torch(changed: dict[str, Any], chance: float) -> None:
    scaler = grad_scaler(TORCH | changed)
    optimizer = continued(scale_state(scaler))
    finite = finite_steps(chance)
    trace = course(optimizer, finite)
    assert trace == course_of_torch(scaler, finite)
    assert int(optimizer.iterations) == sum(finite)


def test_other_factors_go_on_to_a_rounding_each_change() -> None:
    scaler = grad_scaler(TORCH | {"growth_factor": 1.1, "backoff_factor": 0.7})
    finite = finite_steps()
    ours = course(continued(scale_state(scaler)), finite)
    theirs = course_of_torch(scaler, finite)
    assert [counter for _, counter in ours] == [counter for _, counter in theirs]
    scales = np.array([[a[0], b[0]] for a, b in zip(ours, theirs, strict=True)])
    changes = np.cumsum(np.diff(scales[:, 1], prepend=1024.0) != 0)
    # Theirs rounds the product of two doubles; ours rounds the factor, too.
    assert np.all(np.abs(scales[:, 0] / scales[:, 1] - 1) <= 2.0**-23 * (changes + 1))


def test_goes_back_to_torch() -> None:
    state = scale_state(TORCH)
    optimizer = continued(state)
    finite = finite_steps()
    course(optimizer, finite[:50])
    back = scale_state(optimizer).to_torch_grad_scaler()
    assert course(optimizer, finite[50:]) == course_of_torch(grad_scaler(back), finite[50:])
    assert state.to_torch_grad_scaler() == TORCH


def test_a_state_of_torch_may_hold_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensors = {key: torch.tensor(value) for key, value in TORCH.items()}
    assert scale_state(tensors) == scale_state(TORCH)


def test_a_scaler_that_is_off() -> None:
    torch = pytest.importorskip("torch")
    state = scale_state(torch.amp.GradScaler("cpu", enabled=False))
    assert state == scale_state({}) == ScaleState(state.arguments, 1.0, 0)
    assert float(continued(state).loss_scale) == 1.0
    assert state.to_torch_grad_scaler() == {}


def test_what_a_grad_scaler_cannot_hold() -> None:
    inner = keras.optimizers.SGD()
    optimizer = keras_mp.LossScaleOptimizer(inner, max_scale=2.0**16, min_scale=2.0**-126)
    with pytest.warns(UserWarning, match=r"max_scale=65536\.0 is lost: a torch GradScaler has"):
        scale_state(optimizer).to_torch_grad_scaler()
    with pytest.warns(UserWarning, match=r"min_scale=1\.0 is lost"):
        scale_state(keras_mp.LossScaleOptimizer(keras.optimizers.SGD())).to_torch_grad_scaler()
    settings = {"hysteresis": 2, "min_scale": 2.0**-126}
    patient = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), **settings)
    with pytest.warns(UserWarning, match=r"hysteresis=2 is lost: a torch GradScaler shrinks"):
        scale_state(patient).to_torch_grad_scaler()
    fixed = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), False, 8.0)
    with pytest.raises(ValueError, match=r"fixed at 8\.0, but that of a torch GradScaler always"):
        scale_state(fixed).to_torch_grad_scaler()


def stand_in(record: dict[str, Any]) -> Any:
    """Returns an object of a class of this name, with these fields."""
    made = type(record["class_name"], (), {"__module__": record["module"]})()
    for name, value in record["fields"].items():
        dtype = record["dtype"] if "scale" in name else None
        is_array = value is not None and name in ("scale", "fin_steps", "loss_scale", "counter")
        setattr(made, name, np.asarray(value, dtype) if is_array else value)
    return made


MOVING = [name for name in RECORDED["cases"] if name != "flax_saturated"]


@pytest.mark.parametrize("name", MOVING)
def test_goes_on_as_in_flax_and_jmp(name: str) -> None:
    record = RECORDED["cases"][name]
    assert len(record["trace"]) == STEPS
    assert 20 < RECORDED["finite"].count(False) < 80
    state = scale_state(stand_in(record))
    assert course(continued(state), RECORDED["finite"]) == record["trace"]


def test_stops_before_the_largest_float32_where_flax_goes_there() -> None:
    record = RECORDED["cases"]["flax_saturated"]
    ours = course(continued(scale_state(stand_in(record))), RECORDED["finite"])
    both = list(zip(ours, record["trace"], strict=True))
    first = next(i for i, (a, b) in enumerate(both) if a != b)
    assert both[first] == ([2.0**127, 0], [float(np.finfo("float32").max), 0])


@pytest.mark.parametrize("name", ["flax_under_way", "jmp_under_way", "jmp_static"])
def test_fields_as_a_dict(name: str) -> None:
    record = RECORDED["cases"][name]
    assert scale_state(record["fields"]) == scale_state(stand_in(record))


def test_the_state_dict_of_flax_needs_the_settings() -> None:
    record = RECORDED["cases"]["flax_under_way"]
    assert record["state_dict"].keys() == {"fin_steps", "scale"}
    with pytest.raises(LegacyError, match=r"^\$\.growth_interval is missing: every DynamicScale"):
        scale_state(record["state_dict"])


def test_goes_on_as_in_keras() -> None:
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 8.0, 3)
    assert scale_state(theirs).scale == 8.0
    finite = finite_steps(0.7)[:30]  # each takes JAX a third of a second
    course_of_keras(theirs, finite[:10])
    ours = continued(scale_state(theirs))
    assert course(ours, finite[10:]) == course_of_keras(theirs, finite[10:])


def test_ours_comes_back_as_it_was() -> None:
    options = {"growth_factor": 4.0, "min_scale": 0.5, "max_scale": 2.0**20}
    first = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.1), True, 64.0, 5, **options)
    finite = finite_steps(0.7)
    course(first, finite[:33])
    assert course(continued(scale_state(first)), finite[33:]) == course(first, finite[33:])
    fixed = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.1), False, 64.0)
    assert float(continued(scale_state(fixed)).loss_scale) == 64.0


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        pytest.param({"dynamic": False, "initial_scale": 0.5}, 0.5, id="fixed below 1"),
        pytest.param({"dynamic": False, "initial_scale": 1000.1}, None, id="not in float32"),
        pytest.param({"max_scale": 2.0**15}, 2.0**20, id="above the cap"),
        pytest.param({}, 0.25, id="below the floor"),
        pytest.param({"initial_scale": 0.7, "min_scale": 0.7}, None, id="a floor not in float32"),
    ],
)
def test_ours_takes_its_own_scale_again(options: dict[str, Any], scale: float | None) -> None:
    first = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.1), **options)
    if scale is not None:
        first.dynamic_scale.assign(scale)  # as a file that was loaded does
    state = scale_state(first)
    state.apply(first)
    other = continued(state)
    assert float(other.loss_scale) == float(first.loss_scale) == state.scale
    assert other.get_config()["min_scale"] == first.get_config()["min_scale"]
    finite = [True, False, False, True]
    assert course(other, finite) == course(first, finite)


@pytest.mark.parametrize("name", ["LossScaleOptimizer", "LossScaleOptimizerV3"])
def test_tf_keras(name: str) -> None:
    # What both classes of tf_keras 2.21 have.
    theirs = type(name, (), {"__module__": "tf_keras.src.mixed_precision.loss_scale_optimizer"})()
    theirs.dynamic, theirs.dynamic_growth_steps = True, 7
    theirs.loss_scale, theirs.dynamic_counter = np.float32(0.5), np.int64(3)
    state = scale_state(theirs)
    assert (state.scale, state.counter) == (0.5, 3)
    assert state.arguments["min_scale"] == 0.5
    assert state.arguments["count_skipped_steps"]
    theirs.dynamic, theirs.loss_scale = False, np.float32(12.0)
    fixed = continued(scale_state(theirs))
    assert (float(fixed.loss_scale), fixed.dynamic) == (12.0, False)


def test_apply_names_every_setting_that_differs() -> None:
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=16.0)
    expected = (
        r"dynamic_growth_steps is 2000, not 3; min_scale is 1\.0, not 1\.17\d*e-38; "
        r"count_skipped_steps is True, not False\. Make it with"
    )
    with pytest.raises(ValueError, match=expected):
        scale_state(TORCH).apply(optimizer)
    assert float(optimizer.loss_scale) == 16.0
    with pytest.raises(TypeError, match=r"a keras_mp\.LossScaleOptimizer, but got keras.*SGD"):
        scale_state(TORCH).apply(keras.optimizers.SGD())
    fixed = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=2)
    with pytest.raises(ValueError, match=r"initial_scale is 2\.0, not 4\.0"):
        scale_state({"loss_scale": 4.0}).apply(fixed)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (TORCH | {"scale": 0.0}, r"^\$\.scale is 0\.0: expected a positive scale"),
        (TORCH | {"scale": float("inf")}, r"^\$\.scale is Infinity: expected a finite number"),
        (TORCH | {"scale": True}, r"^\$\.scale is true: expected a number"),
        (TORCH | {"scale": "8"}, r'^\$\.scale is "8": expected a number'),
        (TORCH | {"growth_factor": 1.0}, r"^\$\.growth_factor is 1\.0: expected a number greater"),
        (
            TORCH | {"backoff_factor": 0.0},
            r"^\$\.backoff_factor is 0\.0: expected a number between",
        ),
        (
            TORCH | {"growth_interval": 0},
            r"^\$\.growth_interval is 0: expected a whole number from",
        ),
        (TORCH | {"growth_interval": 2.5}, r"^\$\.growth_interval is 2\.5: expected a whole"),
        (
            TORCH | {"_growth_tracker": -1},
            r"^\$\._growth_tracker is -1: expected a whole number, zero or more",
        ),
        (TORCH | {"more": 1}, r"^\$\.more is not known: no GradScaler has it"),
        ({"scale": 1.0}, r"^\$\.growth_factor is missing: every GradScaler has it"),
        (
            RECORDED["cases"]["flax_under_way"]["fields"] | {"scale": 1.0},
            r"^\$\.scale is 1\.0: it is below minimum_scale=2\.0",
        ),
        (
            RECORDED["cases"]["flax_under_way"]["fields"] | {"scale": np.ones(8)},
            r"^\$\.scale has the shape \(8,\): expected one number; of a state that is replicated",
        ),
        (
            RECORDED["cases"]["jmp_under_way"]["fields"] | {"factor": 1},
            r"^\$\.factor is 1: expected a number greater than 1",
        ),
    ],
)
def test_malformed_states(state: dict[str, Any], message: str) -> None:
    with pytest.raises(LegacyError, match=message):
        scale_state(state)


def test_a_counter_past_its_step() -> None:
    with pytest.warns(UserWarning, match=r"\$\._growth_tracker is 5, past the step") as of_dict:
        state = scale_state(TORCH | {"_growth_tracker": 5})
    assert course(continued(state), [True]) == [[2048.0, 0]]
    record = RECORDED["cases"]["flax_under_way"]
    late = stand_in(record | {"fields": record["fields"] | {"fin_steps": 5000}})
    with pytest.warns(UserWarning, match=r"\$\.fin_steps is 5000, past the step") as of_object:
        scale_state(late)
    assert of_dict[0].filename == of_object[0].filename == __file__


@pytest.mark.parametrize("obj", [None, 3.0, "dynamic", object()])
def test_other_objects(obj: object) -> None:
    with pytest.raises(TypeError, match=r"Expected a torch GradScaler or its state_dict\(\)"):
        scale_state(obj)
