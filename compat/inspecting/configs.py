"""Facts in the configs that an artefact carries: model, policies, optimizer. Plain JSON only."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_mp.compat.configs.checks import is_deep
from keras_mp.compat.inspecting.computed_layers import computed_of
from keras_mp.compat.inspecting.inspection import Inspection, Model, Optimizer

Config = Mapping[str, object]
Pairs = Callable[[list[tuple[str, Any]]], Mapping[str, object]]


class Nonsense(ValueError):
    """A text that should be JSON is not; says why."""


def json_object(text: str | bytes, pairs: Pairs | None = None) -> Config:
    """Returns the JSON object in a text.

    Args:
        text: JSON.
        pairs: Makes an object of its keys and values, in their order; None for `dict`.

    Raises:
        Nonsense: It is none.
    """
    try:
        value: object = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise Nonsense(f"is not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise Nonsense("is not a JSON object")
    if is_deep(value):
        raise Nonsense("is nested too deeply")
    return value


def model_of(config: Config) -> Model | None:
    """Returns the model of a config; None where it has no class.

    >>> model_of({"class_name": "Sequential", "config": {"name": "net", "layers": [{}, {}]}})
    Model(class_name='Sequential', name='net', layers=2)
    """
    name, inside = config.get("class_name"), config.get("config")
    if not isinstance(name, str):
        return None
    layers = inside if isinstance(inside, list) else None  # Sequential before Keras 2.2.3
    called = None
    if isinstance(inside, Mapping):
        layers, called = inside.get("layers"), inside.get("name")
    if called is None:
        called = config.get("name")
    count = len(layers) if isinstance(layers, list) else None
    return Model(name, called if isinstance(called, str) else None, count)


def describe_model(found: Inspection, config: Config) -> None:
    """Fills in what the config of a model says."""
    found.model, found.policies = model_of(config), policies_of(config)
    found.computed = computed_of(config)


def policies_of(config: object) -> dict[str, int]:
    """Returns {dtype policy: number of layers that have it}, layers of nested models included.

    >>> layer = {"class_name": "Dense", "config": {"dtype": {"config": {"name": "mixed_float16"}}}}
    >>> policies_of({"config": {"layers": [layer, layer]}})
    {'mixed_float16': 2}
    """
    return dict(sorted(Counter(_policies(config)).items()))


def _policies(value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        return
    inside = value.get("config")
    if not isinstance(inside, Mapping):
        layers = inside
    else:
        layers = inside.get("layers")
        if not isinstance(layers, list) and "dtype" in inside:
            yield _name(inside["dtype"])
        yield from _policies(inside.get("layer"))  # of Bidirectional, TimeDistributed
    for layer in layers if isinstance(layers, list) else ():
        yield from _policies(layer)


def _name(dtype: object) -> str:
    inside = dtype.get("config") if isinstance(dtype, Mapping) else None
    name = inside.get("name") if isinstance(inside, Mapping) else dtype
    return name if isinstance(name, str) else "none" if name is None else "not a name"


def optimizer_of(config: object) -> Optimizer | None:
    """Returns the optimizer of an `optimizer_config` or a `compile_config`'s "optimizer".

    >>> adam = {"class_name": "Adam", "config": {"learning_rate": 0.1}}
    >>> old = {"optimizer": adam, "loss_scale": {"class_name": "DynamicLossScale", "config": {}}}
    >>> found = optimizer_of({"class_name": "LossScaleOptimizer", "config": old})
    >>> found.class_name, found.loss_scaler
    ('Adam', 'LossScaleOptimizer')
    """
    if isinstance(config, str):
        return Optimizer(class_name=config)
    if not isinstance(config, Mapping) or not isinstance(config.get("class_name"), str):
        return None
    name, inside = str(config["class_name"]), config.get("config")
    if not isinstance(inside, Mapping):
        return Optimizer(class_name=name)
    for key in ("inner_optimizer", "optimizer"):
        if key in inside:
            inner = optimizer_of(inside[key]) or Optimizer()
            inner.loss_scaler = name
            inner.scaling = {k: v for k, v in inside.items() if k != key}
            return inner
    rest = {key: value for key, value in inside.items() if key != "name"}
    called = inside.get("name")
    return Optimizer(class_name=name, name=called if isinstance(called, str) else None, config=rest)
