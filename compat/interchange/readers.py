"""`scale_state`: reads the loss scale of torch, flax, jmp, Keras or keras_mp.

Knows what each framework calls its numbers, and where its rule differs from that of
`keras_mp.scaling.loss_scale`. Imports none of them: an object is known by its class, a dict by its
keys.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from keras_mp.compat.configs import checks
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.interchange.scale_states import ScaleState
from keras_mp.float_formats import FLOAT16, FLOAT32

_HOW = "pass the whole object, or add it"
_FLAX = (
    *("scale", "fin_steps", "growth_interval", "growth_factor", "backoff_factor"),
    "minimum_scale",
)
_JMP = ("loss_scale", "counter", "period", "factor", "min_loss_scale")


def scale_state(obj: Any) -> ScaleState:
    """Converts the loss scale of another framework, to resume with ours.

    | given                                   | growth after     | never below          |
    | --------------------------------------- | ---------------- | -------------------- |
    | torch GradScaler, or its state_dict()   | growth_interval  | 2**-126 (it: 0)      |
    | flax DynamicScale                       | growth_interval+1| minimum_scale        |
    | jmp DynamicLossScale                    | period           | min_loss_scale       |
    | jmp StaticLossScale, NoOpLossScale      |                  | fixed                |
    | keras.optimizers.LossScaleOptimizer     | growth_steps     | 2**-126 (it: 0)      |
    | LossScaleOptimizer of tf_keras          | growth_steps     | 1, or a lower scale  |
    | keras_mp.LossScaleOptimizer             | all as it is     | all as it is         |

    A dict has the keys of `GradScaler.state_dict()` (an empty one is of a disabled GradScaler), or
    is one of the others' fields by name. `flax.serialization.to_state_dict` writes the scale and
    the counter only: add growth_interval, growth_factor, backoff_factor and minimum_scale.

    Scale and counter then take the same course, bit for bit, where factors are powers of 2 (with
    others, to a unit in the last place of float32 a change) and below 2**127: there a scale of
    flax grows to the largest float32 and one of Keras to inf, where ours stays. Steps that are
    skipped do not advance `iterations`, as with torch and Keras (and with flax and jmp, if the
    state of the optimizer was kept); with tf_keras they do.

    Args:
        obj: One of these. Its numbers may be Python numbers, arrays or tensors of shape ().

    Raises:
        TypeError: It is none of these.
        LegacyError: A number is missing, out of its range, or the key is not known.

    Source: torch 2.9, amp/grad_scaler.py; flax 0.12.8, training/dynamic_scale.py; jmp 0.0.4,
    _src/loss_scale.py; Keras 3.15, optimizers/loss_scale_optimizer.py; tf_keras 2.21,
    mixed_precision/loss_scale_optimizer.py. optax 0.2.8 has no loss scale.

    >>> scale_state({"loss_scale": 4.0, "counter": 1, "period": 9, "factor": 2,
    ...              "min_loss_scale": 1.0}).arguments["dynamic_growth_steps"]
    9
    """
    state = _reader(obj)(obj)
    if state._warning:
        warnings.warn(state._warning, stacklevel=2)
    return state


def _reader(obj: Any) -> Callable[[Any], ScaleState]:
    if isinstance(obj, Mapping):
        return _of_mapping
    for base in type(obj).__mro__:
        read = _CLASSES.get((base.__module__.partition(".")[0], base.__name__))
        if read is not None:
            return read
    raise TypeError(
        "Expected a torch GradScaler or its state_dict(), a flax DynamicScale, a loss scale of jmp "
        f"or a LossScaleOptimizer, but got a {type(obj).__module__}.{type(obj).__qualname__}."
    )


def _of_mapping(state: Mapping[Any, Any]) -> ScaleState:
    if "fin_steps" in state:
        return _flax(state)
    if "loss_scale" in state:
        return _jmp(state) if len(state) > 1 else _fixed(state, "loss_scale")
    return _torch(state) if state else _disabled()


def _torch(state: Mapping[Any, Any]) -> ScaleState:
    keys = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
    numbers = _numbers(state, keys, "GradScaler")
    steps = checks.steps(numbers["growth_interval"], "$.growth_interval")
    return _dynamic(
        scale=numbers["scale"],
        counter=numbers["_growth_tracker"],
        counter_name="_growth_tracker",
        steps=steps,
        growth=numbers["growth_factor"],
        backoff=numbers["backoff_factor"],
    )


def _flax(state: Mapping[Any, Any]) -> ScaleState:
    numbers = _numbers(state, _FLAX, "DynamicScale")
    interval = checks.count(numbers["growth_interval"], "$.growth_interval")
    return _dynamic(
        scale=numbers["scale"],
        counter=numbers["fin_steps"],
        counter_name="fin_steps",
        steps=min(interval + 1, checks.INT32_MAX),  # it compares before it counts
        growth=numbers["growth_factor"],
        backoff=numbers["backoff_factor"],
        low=numbers["minimum_scale"],
        low_name="minimum_scale",
    )


def _jmp(state: Mapping[Any, Any]) -> ScaleState:
    numbers = _numbers(state, _JMP, "DynamicLossScale")
    factor = _factor(numbers["factor"], "$.factor")
    is_half = str(getattr(state["loss_scale"], "dtype", "")) == "float16"
    return _dynamic(
        scale=numbers["loss_scale"],
        scale_name="loss_scale",
        counter=numbers["counter"],
        steps=checks.steps(numbers["period"], "$.period"),
        growth=factor,
        growth_name="factor",
        backoff=1 / factor,
        low=numbers["min_loss_scale"],
        low_name="min_loss_scale",
        high=FLOAT16.largest if is_half else None,
    )


def _fixed(state: Mapping[Any, Any], key: str) -> ScaleState:
    scale = checks.scale(_plain(state[key], at("$", key)), at("$", key))
    return ScaleState({"dynamic": False, "initial_scale": scale}, scale, 0)


def _disabled() -> ScaleState:
    # Nothing looks at the gradients then.
    arguments = {"dynamic": False, "initial_scale": 1.0, "skip_nonfinite": False}
    return ScaleState(arguments, 1.0, 0)


def _keras(optimizer: Any) -> ScaleState:
    # It has its variables once it is built.
    steps = _plain(optimizer.dynamic_growth_steps, "$.dynamic_growth_steps")
    scale = getattr(optimizer, "dynamic_scale", optimizer.initial_scale)
    return _dynamic(
        scale=_plain(scale, "$.dynamic_scale"),
        scale_name="dynamic_scale",
        counter=_plain(getattr(optimizer, "step_counter", 0), "$.step_counter"),
        counter_name="step_counter",
        steps=checks.steps(steps, "$.dynamic_growth_steps"),
    )


def _tf_keras(optimizer: Any) -> ScaleState:
    scale = checks.scale(_plain(optimizer.loss_scale, "$.loss_scale"), "$.loss_scale")
    if not optimizer.dynamic:
        arguments = {"dynamic": False, "initial_scale": scale, "skip_nonfinite": False}
        return ScaleState(arguments, scale, 0)
    steps = _plain(optimizer.dynamic_growth_steps, "$.dynamic_growth_steps")
    state = _dynamic(
        scale=scale,
        counter=_plain(optimizer.dynamic_counter, "$.dynamic_counter"),
        counter_name="dynamic_counter",
        steps=checks.steps(steps, "$.dynamic_growth_steps"),
        low=min(1.0, scale),
        warns=False,
    )
    return ScaleState(state.arguments | {"count_skipped_steps": True}, state.scale, state.counter)


def _ours(optimizer: Any) -> ScaleState:
    settings = optimizer._settings.as_config()
    scale = float(optimizer.loss_scale)
    if not settings["dynamic"]:
        return ScaleState(settings | {"initial_scale": scale}, scale, 0)
    low, high = settings["min_scale"], settings["max_scale"] or math.inf
    start = min(max(scale, low), high)
    return ScaleState(settings | {"initial_scale": start}, scale, int(optimizer.dynamic_counter))


def _dynamic(
    *,
    scale: Any,
    counter: Any,
    steps: int,
    growth: Any = 2.0,
    backoff: Any = 0.5,
    low: Any = None,
    high: float | None = None,
    scale_name: str = "scale",
    counter_name: str = "counter",
    growth_name: str = "growth_factor",
    low_name: str = "",
    warns: bool = True,
) -> ScaleState:
    checked = checks.scale(scale, f"$.{scale_name}")
    floor = FLOAT32.smallest_normal if low is None else checks.scale(low, f"$.{low_name}")
    if checked < floor:
        raise LegacyError(
            f"$.{scale_name}",
            describe(scale),
            f"it is below {low_name}={floor}, to which the next overflow would raise it",
        )
    counted = checks.count(counter, f"$.{counter_name}")
    warning = ""
    if warns and counted >= steps:
        warning = (
            f"$.{counter_name} is {counted}, past the step that grows: the scale would have waited "
            "for an overflow; here it grows at the next finite step."
        )
    backoff = checks.number(backoff, "$.backoff_factor")
    if not 0 < backoff < 1:
        raise LegacyError(
            "$.backoff_factor", describe(backoff), "expected a number between 0 and 1"
        )
    arguments: dict[str, Any] = {
        "dynamic": True,
        "initial_scale": checked,
        "dynamic_growth_steps": steps,
        "growth_factor": _factor(growth, f"$.{growth_name}"),
        "backoff_factor": backoff,
        "min_scale": floor,
        "count_skipped_steps": False,
    }
    if high is not None:
        arguments["max_scale"] = high
    return ScaleState(arguments, checked, counted, warning)


def _factor(value: Any, path: str) -> float:
    factor = checks.number(value, path)
    if not factor > 1:
        raise LegacyError(path, describe(value), "expected a number greater than 1")
    return factor


def _numbers(state: Mapping[Any, Any], keys: tuple[str, ...], owner: str) -> dict[str, Any]:
    """Returns the numbers of a state, as Python's; a key too many or too few is refused."""
    checks.only(state, "$", keys, f"no {owner} has it")
    for key in keys:
        if key not in state:
            raise LegacyError(at("$", key), "is missing", f"every {owner} has it; {_HOW}")
    return {key: _plain(state[key], at("$", key)) for key in keys}


def _plain(value: Any, path: str) -> Any:
    """Returns a number of Python for an array or tensor of shape ()."""
    shape = tuple(getattr(value, "shape", ()))
    if shape:
        why = "expected one number; of a state that is replicated over devices take one copy"
        raise LegacyError(path, f"has the shape {shape}", why)
    if not hasattr(value, "item") and hasattr(value, "numpy"):
        value = value.numpy()
    return value.item() if hasattr(value, "item") else value


def _fields(obj: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(obj, name) for name in names}


# (package, class) -> how it is read.
_CLASSES: dict[tuple[str, str], Callable[[Any], ScaleState]] = {
    ("torch", "GradScaler"): lambda obj: _of_mapping(obj.state_dict()),
    ("flax", "DynamicScale"): lambda obj: _flax(_fields(obj, _FLAX)),
    ("jmp", "DynamicLossScale"): lambda obj: _jmp(_fields(obj, _JMP)),
    ("jmp", "StaticLossScale"): lambda obj: _fixed({"loss_scale": obj.loss_scale}, "loss_scale"),
    ("jmp", "NoOpLossScale"): lambda obj: _fixed({"loss_scale": 1.0}, "loss_scale"),
    ("keras_mp", "LossScaleOptimizer"): _ours,
    ("keras", "LossScaleOptimizer"): _keras,
    ("tf_keras", "LossScaleOptimizer"): _tf_keras,
    ("tf_keras", "LossScaleOptimizerV3"): _tf_keras,
}
