"""Rebuilds a model from its config with other policies: layers, weights, loss, metrics, optimizer.

Only reads the given model. Its functions and classes exist in this process, so they need no
registration, and a lambda's code comes from the model itself.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import keras
from keras import ops

from keras_mp.array_types import Model, Optimizer
from keras_mp.backends import keras_hooks
from keras_mp.diagnosis.dry_run.isolation import copied_metrics
from keras_mp.files.deserializing import deserialized
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.policies.policy import policy_scope
from keras_mp.sixteen_bit.policies import sixteen_bit_policy
from keras_mp.sixteen_bit.wrapper import MasterWeights, SixteenBitOptimizer
from keras_mp.state.state_protection import SEED


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to train the model.

    Attributes:
        policy: The layers' policy: a name, or a function that returns a map for the float32 model.
        wrap: Wraps the model's own optimizer, from which loss scaling was removed.
        how: The same as code, for the report.
        rewritten: Whether the graph rewrite decides op by op what computes in float16.
    """

    policy: str | Callable[[Model], Any]
    wrap: Callable[[Optimizer, dict[str, Any]], Optimizer]
    how: str
    rewritten: bool = False


def _plain(optimizer: Optimizer, _: dict[str, Any]) -> Optimizer:
    return optimizer


def _scaled(optimizer: Optimizer, settings: dict[str, Any]) -> Optimizer:
    return LossScaleOptimizer(optimizer, **settings)


def _fused(optimizer: Optimizer, settings: dict[str, Any]) -> Optimizer:
    return LossScaleOptimizer(optimizer, **{**settings, "fused": True})


def _with_masters(optimizer: Optimizer, _: dict[str, Any]) -> Optimizer:
    return MasterWeights(optimizer, "split")


FLOAT32 = "float32"
# Simpler variants first: of two equally fast ones the first is recommended.
VARIANTS: dict[str, Variant] = {
    FLOAT32: Variant("float32", _plain, 'policy "float32", the optimizer as it is'),
    "mixed_bfloat16": Variant(
        "mixed_bfloat16", _plain, 'policy "mixed_bfloat16", the optimizer as it is'
    ),
    "mixed_float16": Variant(
        "mixed_float16", _scaled, 'policy "mixed_float16", keras_mp.LossScaleOptimizer(optimizer)'
    ),
    "mixed_float16, fused": Variant(
        "mixed_float16",
        _fused,
        'policy "mixed_float16", keras_mp.LossScaleOptimizer(optimizer, fused=True)',
    ),
    "graph rewrite": Variant(
        "float32",
        _scaled,
        'policy "float32", keras_mp.graph_rewrite.enable(optimizer)',
        rewritten=True,
    ),
    "16-bit weights": Variant(
        lambda model: sixteen_bit_policy("bfloat16", model),
        _with_masters,
        'policy keras_mp.sixteen_bit_policy("bfloat16"), '
        'keras_mp.MasterWeights(optimizer, "split")',
    ),
}


def innermost(optimizer: Optimizer) -> Optimizer:
    """Returns an optimizer without wrappers that scale the loss or keep masters.

    >>> innermost(LossScaleOptimizer(keras.optimizers.SGD())).__class__.__name__
    'SGD'
    """
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer | SixteenBitOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def scaling_settings(optimizer: Optimizer) -> dict[str, Any]:
    """Returns the loss-scale settings of an optimizer, as our arguments; empty without any.

    >>> scaling_settings(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), 128.0))
    {'initial_scale': 128.0, 'dynamic_growth_steps': 2000}
    """
    if isinstance(optimizer, LossScaleOptimizer):
        config = optimizer.get_config()
        return {k: v for k, v in config.items() if k not in ("name", "inner_optimizer", "fused")}
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return {
            "initial_scale": float(optimizer.initial_scale),
            "dynamic_growth_steps": int(optimizer.dynamic_growth_steps),
        }
    return {}


_MAP = "DTypePolicyMap"
_FUNCTION = "function of the layer "
_POLICIES = ("DTypePolicy", "Policy", "FloatDTypePolicy")


@dataclass(frozen=True)
class Blueprint:
    """The data for rebuilding a model.

    Attributes:
        model: The model, which is only read.
        config: Of its layers, without the config of `compile`.
        weights: Their values, on the host.
        seeds: Those of its layers' random numbers.
        narrow: The policies to replace.
        outputs: Names of layers that stay in float32, so that the loss is computed from float32.
        custom_objects: Classes and functions by name.
        jit_compile: Whether the framework compiles the step; None: the default.
        optimizer: The model's optimizer.
        loss: Its loss, with weights; the metrics are those of the model.
    """

    model: Model
    config: dict[str, Any]
    weights: list[Any]
    seeds: list[Any]
    narrow: frozenset[str]
    outputs: frozenset[str]
    custom_objects: dict[str, Any]
    jit_compile: bool | None
    optimizer: Any
    loss: Any

    @classmethod
    def of(
        cls,
        model: Model,
        custom_objects: Mapping[str, Any] | None,
        jit_compile: bool | None,
        optimizer: Any,
        loss: Any,
    ) -> "Blueprint":
        """Returns the blueprint of `model`, for compiling with `optimizer` and `loss`."""
        config = dict(keras.saving.serialize_keras_object(model))
        config.pop("compile_config", None)
        lambdas = {
            layer.name: layer.function
            for layer in keras_hooks.all_layers(model)
            if isinstance(layer, keras.layers.Lambda)
        }
        config = _with_functions(config, lambdas)
        names = {layer.dtype_policy.name for layer in keras_hooks.all_layers(model)}
        narrow = frozenset(name for name in names.union(_policies(config)) if _is_narrow(name))
        objects: dict[str, Any] = {_FUNCTION + name: each for name, each in lambdas.items()}
        for layer in keras_hooks.all_layers(model):
            objects[type(layer).__name__] = type(layer)
            held = [each for each in vars(layer).values() if isinstance(each, FunctionType)]
            objects.update({each.__name__: each for each in held if not _is_of_keras(each)})
        return cls(
            model,
            config,
            [_on_host(variable) for variable in model.weights],
            [_on_host(seed) for seed in _seeds(model)],
            narrow or frozenset(["float32"]),
            frozenset() if narrow else _output_layers(model),
            {**objects, **dict(custom_objects or {})},
            jit_compile,
            optimizer,
            loss,
        )

    def made(self, variant: Variant, float32: Model | None = None) -> Model:
        """Returns the model with a variant's policy, same values, compiled with its optimizer.

        Args:
            variant: The variant.
            float32: The rebuilt float32 model, if the policy is a map for it.

        Raises:
            ValueError: The rebuilt model has other weights. Errors of the model's own code, or of
                Keras, pass through.
        """
        policy = variant.policy if isinstance(variant.policy, str) else variant.policy(float32)
        # A map decides by itself what stays in float32.
        kept = self.outputs if isinstance(policy, str) else frozenset()
        model = self.with_policy(policy, kept)
        self._compile(model, variant)
        return model

    def with_policy(self, policy: Any, kept: frozenset[str] = frozenset()) -> Model:
        """Returns the model with another policy, same values, not compiled.

        Args:
            policy: Its name, or a map.
            kept: Names of layers that keep their policy.

        Raises:
            ValueError: The rebuilt model has other weights. Errors of the model's own code, or of
                Keras, pass through.
        """
        config = retyped(self.config, self.narrow, policy_config(policy), kept)
        with policy_scope("float32"), keras.saving.custom_object_scope(self.custom_objects):
            # Layers made in a constructor have no config of their own.
            keras.config.set_dtype_policy(policy)
            model = deserialized(config, safe_mode=False)
        self._fill(model)
        return model

    def _fill(self, model: Model) -> None:
        found = [tuple(variable.shape) for variable in model.weights]
        expected = [tuple(value.shape) for value in self.weights]
        if found != expected or len(_seeds(model)) != len(self.seeds):
            raise ValueError(
                f"its config makes a model with {len(found)} weights of other shapes than "
                f"the {len(expected)} of {self.model.name!r}: its get_config is incomplete"
            )
        for variable, value in zip(model.weights, self.weights, strict=True):
            variable.assign(value)
        for variable, value in zip(_seeds(model), self.seeds, strict=True):
            variable.assign(value)

    def _compile(self, model: Model, variant: Variant) -> None:
        inner = innermost(self.optimizer)
        with keras.saving.custom_object_scope(self.custom_objects):
            again = type(inner).from_config(inner.get_config())
        metrics, weighted_metrics = keras_hooks.given_metrics(
            keras_hooks.compiled_metrics(self.model)
        )
        _, loss_weights = keras_hooks.given_loss(keras_hooks.compiled_loss(self.model))
        jit: Any = self.jit_compile
        if jit is None:
            jit = self.model.jit_compile if self.model.compiled else "auto"
        model.compile(
            optimizer=variant.wrap(again, scaling_settings(self.optimizer)),
            loss=self.loss,
            loss_weights=loss_weights,
            metrics=copied_metrics(metrics),
            weighted_metrics=copied_metrics(weighted_metrics),
            run_eagerly=bool(self.model.compiled and self.model.run_eagerly),
            jit_compile=jit,
            auto_scale_loss=False,  # the variant scales the loss itself
        )


def _is_of_keras(function: FunctionType) -> bool:
    return function.__module__.startswith("keras.")


def _with_functions(config: Any, lambdas: Mapping[str, Any]) -> Any:
    """Returns a config whose Lambda layers name their functions: byte code loses its globals."""
    if isinstance(config, list | tuple):
        return [_with_functions(item, lambdas) for item in config]
    if not isinstance(config, Mapping):
        return config
    new_config = {key: _with_functions(value, lambdas) for key, value in config.items()}
    if config.get("class_name") == "Lambda" and new_config["config"].get("name") in lambdas:
        key = _FUNCTION + new_config["config"]["name"]
        new_config["config"]["function"] = {
            "module": "builtins",
            "class_name": "function",
            "config": key,
            "registered_name": key,
        }
    return new_config


def policy_config(policy: Any) -> dict[str, Any]:
    """Returns the config of a policy, of a map, or of a policy given by name."""
    found: dict[str, Any] = keras.saving.serialize_keras_object(
        keras.DTypePolicy(policy) if isinstance(policy, str) else policy
    )
    return found


def retyped(
    config: Any, replaced: frozenset[str], by: Mapping[str, Any], kept: frozenset[str]
) -> Any:
    """Returns a model's config with another policy for its layers.

    Args:
        config: The model's config, or a part of it.
        replaced: Names of the policies that are replaced. Others were chosen explicitly, and stay.
        by: The config of the new policy.
        kept: Names of layers of the outermost model that keep their policy.

    >>> layer = keras.saving.serialize_keras_object(keras.layers.Dense(1))
    >>> found = retyped(layer, frozenset(["float32"]), policy_config("float16"), frozenset())
    >>> found["config"]["dtype"]["config"]["name"]
    'float16'
    """
    if isinstance(config, list | tuple):
        return [retyped(item, replaced, by, kept) for item in config]
    if not isinstance(config, Mapping):
        return config
    if _name_of_policy(config) in replaced:
        return dict(by)
    if config.get("class_name") == _MAP:
        return _retyped_map(config, replaced, by)
    if kept and "layers" in config:  # the outermost model
        layers = [
            copy.deepcopy(layer)  # making a layer may change its config
            if layer.get("config", {}).get("name") in kept
            else retyped(layer, replaced, by, frozenset())
            for layer in config["layers"]
        ]
        others = {k: v for k, v in config.items() if k != "layers"}
        return {**retyped(others, replaced, by, frozenset()), "layers": layers}
    return {key: retyped(value, replaced, by, kept) for key, value in config.items()}


def _retyped_map(
    config: Mapping[str, Any], replaced: frozenset[str], by: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a map with its narrow policies replaced; its default is a name."""
    if by["class_name"] == _MAP:  # which decides by itself what stays
        return dict(by)
    inside = config["config"]
    default = inside["default_policy"]
    found = {
        "default_policy": by["config"]["name"] if default in replaced else default,
        "policy_map": retyped(inside["policy_map"], replaced, by, frozenset()),
    }
    return {**config, "config": found}


def _policies(config: Any) -> Iterator[str]:
    """Yields the names of all policies in a config."""
    if isinstance(config, list | tuple):
        for item in config:
            yield from _policies(item)
    elif isinstance(config, Mapping):
        name = _name_of_policy(config) or config.get("default_policy")
        if isinstance(name, str):
            yield name
        for value in config.values():
            yield from _policies(value)


def _is_narrow(name: str) -> bool:
    return name in ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16")


def _name_of_policy(config: Mapping[str, Any]) -> str | None:
    if config.get("class_name") not in _POLICIES:
        return None
    inside = config.get("config")
    return inside.get("name") if isinstance(inside, Mapping) else None


def _output_layers(model: Model) -> frozenset[str]:
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or [])
    operations = [keras_hooks.made_by(x) for x in outputs]
    return frozenset(
        each.name
        for each in operations
        if isinstance(each, keras.layers.Layer) and not isinstance(each, keras.Model)
    )


def _seeds(model: Model) -> list[Any]:
    return [variable for variable in model.variables if variable.name == SEED]


def _on_host(variable: Any) -> Any:
    value = variable.value
    if keras.backend.standardize_dtype(variable.dtype) == "bfloat16":
        value = ops.cast(value, "float32")  # exact; NumPy has no bfloat16 of its own
    return ops.convert_to_numpy(value)
