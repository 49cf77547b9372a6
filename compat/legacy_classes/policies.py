"""Dtype policies of TF 1.15 to 2.15 that know their loss scale, and how `compile` uses it."""

import functools
from typing import Any

import keras

import keras_mp
from keras_mp.compat.legacy_classes import graph_rewriting, loss_scales
from keras_mp.compat.legacy_classes.loss_scale_optimizers import (
    ExperimentalLossScaleOptimizer,
    LossScaleOptimizer,
)
from keras_mp.policies import auto_wrapping


class Policy(keras_mp.Policy):
    """`tf.keras.mixed_precision.Policy` of TF 2.4 to 2.15.

    As `keras_mp.Policy`; a model built under the global policy "mixed_float16" has its optimizer
    wrapped by `compile` with `mixed_precision.LossScaleOptimizer`. Under "float16" it is not, as in
    TensorFlow.

    Args:
        name: "mixed_float16", "mixed_bfloat16", or the name of a floating-point dtype.

    Raises:
        ValueError: `name` is another one; "infer" and "..._with_float32_vars" of TF 1.15 to 2.3
            are refused with what to write instead.

    >>> policy = Policy("mixed_float16")
    >>> policy.compute_dtype, policy.variable_dtype
    ('float16', 'float32')
    """

    def __init__(self, name: str | None = None) -> None:
        if isinstance(name, str):
            _check_name(name)
        super().__init__(name)

    @property
    def should_cast_variables(self) -> bool:
        """Whether variables are cast to be computed with, as in TF 2.1 to 2.3."""
        return bool(self.variable_dtype != self.compute_dtype)

    @property
    def wrap_optimizer(self) -> Any:
        """What `compile` wraps with, or None for the rule of `keras_mp.auto_wrap`."""
        if self.name == "mixed_float16":
            return LossScaleOptimizer
        return _as_it_is if self.compute_dtype == "float16" else None


class ExperimentalPolicy(Policy):
    """`tf.keras.mixed_precision.experimental.Policy` of TF 1.15 to 2.8, with a loss scale.

    Set globally, it makes `compile` wrap the optimizers of models built under it with that loss
    scale. It equals every policy of its name, and is saved as one: what a file of the model holds
    is the wrapped optimizer, with its loss scale.

    Args:
        name: As for `mixed_precision.Policy`.
        loss_scale: "auto" for "dynamic" under "mixed_float16", and None under all others; or what
            `experimental.LossScaleOptimizer` takes. None: `compile` does not wrap.

    Raises:
        ValueError: As for `mixed_precision.Policy`, or for the loss scale.
        TypeError: A loss scale of a class of your own.

    >>> ExperimentalPolicy("mixed_float16").loss_scale
    DynamicLossScale(initial_loss_scale=32768.0, increment_period=2000, multiplier=2.0)
    >>> ExperimentalPolicy("mixed_float16", loss_scale=1024).loss_scale
    FixedLossScale(1024.0)
    >>> ExperimentalPolicy("float32").loss_scale is None
    True
    """

    def __init__(self, name: str | None = None, loss_scale: Any = "auto") -> None:
        super().__init__(name)
        if isinstance(loss_scale, str) and loss_scale == "auto":
            loss_scale = "dynamic" if self.name == "mixed_float16" else None
        self._loss_scale = loss_scales.get(loss_scale)

    @property
    def loss_scale(self) -> loss_scales.LossScale | None:
        """The loss scale, or None. A dynamic one is that of the first optimizer it wrapped."""
        return self._loss_scale

    @property
    def wrap_optimizer(self) -> Any:
        """What `compile` wraps with, or None for the rule of `keras_mp.auto_wrap`."""
        if self._loss_scale is not None:
            return functools.partial(ExperimentalLossScaleOptimizer, loss_scale=self._loss_scale)
        return _as_it_is if self.compute_dtype == "float16" else None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ExperimentalPolicy":
        """Returns the policy that had this config, in TF 2.1 to 2.8 or here.

        >>> fixed = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 128.0}}
        >>> config = {"name": "mixed_float16", "loss_scale": fixed}
        >>> ExperimentalPolicy.from_config(config).loss_scale
        FixedLossScale(128.0)
        """
        return cls(**config)

    def __reduce__(self) -> Any:
        return type(self), (self.name, self._loss_scale)

    def __repr__(self) -> str:
        return f'<Policy "{self.name}", loss_scale={self._loss_scale}>'


def set_global_policy(policy: str | keras.DTypePolicy | None) -> None:
    """Sets the policy of all new layers, in all threads, and lets `compile` follow it.

    As `keras_mp.set_global_policy`, and from now on `keras_mp.auto_wrap` is in force.

    Args:
        policy: A policy or its name; None for the default, float32.

    >>> set_global_policy("mixed_float16")
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> isinstance(model.optimizer, LossScaleOptimizer)
    True
    >>> set_global_policy("float32")
    """
    _set(_as(Policy, policy))


def set_experimental_policy(policy: str | keras.DTypePolicy | None) -> None:
    """`set_global_policy`, where a name stands for an `experimental.Policy`.

    >>> set_experimental_policy(ExperimentalPolicy("mixed_float16", loss_scale=None))
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> isinstance(model.optimizer, LossScaleOptimizer)
    False
    >>> set_experimental_policy("float32")
    """
    _set(_as(ExperimentalPolicy, policy))


def global_experimental_policy() -> ExperimentalPolicy | keras.DTypePolicy:
    """Returns the global policy, with the loss scale it stands for.

    One that TensorFlow did not have, such as a quantized one, comes as it is, without.

    >>> global_experimental_policy()
    <Policy "float32", loss_scale=None>
    """
    return _with_loss_scale(keras_mp.global_policy())


def get_layer_policy(layer: Any) -> ExperimentalPolicy | keras.DTypePolicy:
    """Returns the policy of a layer, with the loss scale it stands for.

    One that TensorFlow did not have, such as a quantized one, comes as it is, without.

    Raises:
        ValueError: It is not a layer.

    >>> get_layer_policy(keras.layers.Dense(1, dtype="mixed_bfloat16"))
    <Policy "mixed_bfloat16", loss_scale=None>
    """
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(
            f"get_layer_policy can only be called on a layer, but got {layer!r} of type "
            f"{type(layer).__name__}."
        )
    return _with_loss_scale(layer.dtype_policy)


_undo: auto_wrapping.AutoWrap | None = None


def _set(policy: Any) -> None:
    global _undo
    graph_rewriting.check_policy(policy)
    plain = policy is None or policy.name == "float32"
    installs = _undo is None and not (plain and getattr(policy, "wrap_optimizer", None) is None)
    if installs:
        _undo = auto_wrapping.auto_wrap()  # first: it is what set_global_policy would advise
    try:
        keras_mp.set_global_policy(policy)
    except BaseException:
        if installs and _undo is not None:
            _undo()
            _undo = None
        raise


def _as(cls: type[Policy], policy: Any) -> Any:
    """Returns a name, or a float policy that knows no loss scale, as a policy of `cls`.

    One that TensorFlow did not have, quantized or of one's own, is that of Keras.
    """
    if isinstance(policy, str):
        return keras.dtype_policies.get(policy) if "_from_" in policy else cls(policy)
    is_plain = type(policy) in (keras.DTypePolicy, keras_mp.Policy)
    return cls(policy.name) if is_plain else policy


def _with_loss_scale(policy: Any) -> Any:
    if isinstance(policy, ExperimentalPolicy):
        return policy
    try:
        return ExperimentalPolicy(policy.name)
    except ValueError:  # quantized, a map, of whole numbers: as Keras has it
        return policy


def _as_it_is(optimizer: Any) -> Any:
    return optimizer


def _check_name(name: str) -> None:
    bare = name.removesuffix("_with_float32_vars")
    if bare == name and name not in ("infer", "_infer"):
        return
    if bare in ("float16", "bfloat16"):
        raise ValueError(
            f"the policy name {name!r} is from TF 1.15: write 'mixed_{bare}', which it is called "
            "since TF 2.1."
        )
    raise ValueError(
        f"in TF 1.15 to 2.3 the policy {name!r} took the dtype of a layer's first input, which "
        "Keras 3 does not do: write the dtype, such as 'float32', or 'mixed_float16' where the "
        "input was float16 and the variables float32."
    )
