"""Which layers of a model its author made, and how a `DTypePolicyMap` reaches them.

Keras looks a policy up by `Layer.path`, which `build` sets: the names of the models and layers in
whose `build` or `call` that happened. A layer that its constructor builds has none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer

# Packages whose layers, unless they are models, contain layers that users cannot change.
_LIBRARIES = ("keras", "keras_cv", "keras_hub", "keras_mp", "keras_nlp", "keras_rs", "tf_keras")


@dataclass(frozen=True, slots=True)
class Part:
    """A layer in a model.

    Attributes:
        path: Names from the model down.
        layer: The layer.
        whole: The layer that can be given a `dtype`: itself, or, inside a library's layer such as
            MultiHeadAttention, the outermost of these.
        whole_path: Names from the model down to that layer.
    """

    path: str
    layer: Any
    whole: Any
    whole_path: str


def parts(model: Any) -> Iterator[Part]:
    """Yields all layers in `model`, each once, without inputs; containers before their parts.

    A layer that is not a `keras.Model` is itself the first.

    >>> attention = keras.layers.MultiHeadAttention(1, 2, name="attend")
    >>> net = keras.Sequential([keras.layers.TimeDistributed(attention, name="times")])
    >>> {part.path: part.whole_path for part in parts(net)}
    {'times': 'times', 'times/attend': 'times'}
    """
    own = Part(model.name, model, model, model.name)
    if not isinstance(model, keras.Model):
        yield own
    yield from _below(model, "", None if _is_open(model) else own, {id(model)})


def _below(layer: Any, path: str, whole: Part | None, seen: set[int]) -> Iterator[Part]:
    for child in keras_hooks.child_layers(layer):
        if id(child) in seen or isinstance(child, keras.layers.InputLayer):
            continue
        seen.add(id(child))
        below = f"{path}/{child.name}" if path else child.name
        part = Part(below, child, child, below)
        if whole is not None:
            part = Part(below, child, whole.layer, whole.path)
        yield part
        yield from _below(child, below, whole or (None if _is_open(child) else part), seen)


def _is_open(layer: Any) -> bool:
    """Returns whether the model's author wrote the contents of a layer."""
    if isinstance(layer, keras.Model):
        return True
    return type(layer).__module__.partition(".")[0] not in _LIBRARIES


def inside(layer: Any) -> list[Any]:
    """Returns a layer and all layers in it."""
    return list(keras_hooks.all_layers(layer))


def has_path(layer: Any) -> bool:
    """Returns whether a key of a map can reach a layer."""
    return bool(layer.path) or not layer.built


def policy_of(layer: Any) -> Any:
    """Returns a layer's policy: if it is a map of policies, the one for this layer."""
    policy = layer.dtype_policy
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    return policy[layer.path] if layer.path else policy.default_policy


def float32_layers(
    model: Any,
    chosen: Iterable[Any],
    *,
    by_hand: Iterable[Any] = (),
    optimizer: Any = None,
    master_copy: bool = False,
) -> Float32Layers:
    """Returns how to make layers of a model compute in float32.

    Args:
        model: The model.
        chosen: Layers in it that should compute in float32. Each stands for its whole.
        by_hand: Those of them that a key would not fully reach.
        optimizer: The model's optimizer, or None.
        master_copy: Whether all others should have float32 variables.
    """
    all_parts = list(parts(model))
    wholes = {id(part.layer): part for part in all_parts}
    ids = {id(layer) for layer in chosen}
    needed = {id(part.whole): part for part in all_parts if id(part.layer) in ids}
    manual = {id(layer) for layer in by_hand}
    selected = [wholes[key] for key in needed]
    reached = [part for part in selected if has_path(part.layer) and id(part.layer) not in manual]
    others = [part for part in selected if part not in reached]
    reached = [part for part in reached if not _is_covered(part, reached)]
    default = _default(all_parts, master_copy)
    policies = dict.fromkeys(map(_key, (part.layer for part in reached)), "float32")
    kept = {key: name for key, name in _of_maps(all_parts, default).items() if key not in policies}
    kept = {key: name for key, name in kept.items() if not _is_among(key, policies)}
    if not policies:
        kept = {}
    now = keras.config.dtype_policy()
    now = getattr(now, "default_policy", now)
    return Float32Layers(
        default=default,
        layers=tuple(part.path for part in reached),
        policies=tuple({**kept, **policies}.items()),
        by_hand=tuple(part.path for part in others),
        is_global=now.name in (default, default.removeprefix("mixed_")),
        counted=_automatic_name(model, all_parts, (part.layer for part in reached)),
        unscaled="float16" in default and not isinstance(optimizer, LossScaleOptimizer),
    )


def _default(found: list[Part], master_copy: bool) -> str:
    names = [
        policy_of(part.layer).name
        for part in found
        if part.layer.compute_dtype == "float16" and not isinstance(part.layer, keras.Model)
    ]
    name = Counter(names or ["mixed_float16"]).most_common(1)[0][0]
    return "mixed_float16" if master_copy and name == "float16" else str(name)


def _key(layer: Any) -> str:
    # Keras treats a key as a pattern; 3.10 also matches it within a path.
    if layer.path:
        return f"^{re.escape(layer.path)}(/.*)?$"
    return f"^(.*/)?{re.escape(layer.name)}(/.*)?$"


def _is_covered(part: Part, others: Iterable[Part]) -> bool:
    """Returns whether another key matches this part, too: two matching keys are an error."""
    own = _key(part.layer)
    path = part.layer.path or part.layer.name
    return any(_key(p.layer) != own and re.search(_key(p.layer), path) for p in others)


def _of_maps(found: Iterable[Part], default: str) -> dict[str, str]:
    """Returns the current maps' policies, layer by layer: two matching keys are an error."""
    is_map = keras.dtype_policies.DTypePolicyMap
    return {
        f"^{re.escape(part.layer.path)}$": policy_of(part.layer).name
        for part in found
        if isinstance(part.layer.dtype_policy, is_map)
        and part.layer.path
        and policy_of(part.layer).name != default
    }


def _is_among(exact: str, patterns: Iterable[str]) -> bool:
    path = re.sub(r"\\(.)", r"\1", exact[1:-1])
    return any(re.search(pattern, path) for pattern in patterns)


def _automatic_name(model: Any, found: Iterable[Part], layers: Iterable[Any]) -> str | None:
    """Returns a name that Keras derived from the class, among those in paths of `layers`."""
    automatic = {
        layer.name
        for layer in (model, *(part.layer for part in found))
        if re.fullmatch(rf"{type(layer).__name__.lower()}\d*", layer.name.replace("_", ""))
    }
    for layer in layers:
        for name in (layer.path or layer.name).split("/"):
            if name in automatic:
                return str(name)
    return None
