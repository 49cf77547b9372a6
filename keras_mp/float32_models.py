"""`as_float32`: a float32 copy of a model trained in mixed precision, for other tools."""

import contextlib
from collections.abc import Mapping
from typing import Any

import keras

from keras_mp.array_types import Model
from keras_mp.backends import keras_hooks
from keras_mp.diagnosis.benchmarking.rebuilding import Blueprint
from keras_mp.sixteen_bit.wrapper import SixteenBitOptimizer, float32_weights_scope


def as_float32(
    model: Model,
    *,
    share_weights: bool = False,
    custom_objects: Mapping[str, Any] | None = None,
) -> Model:
    """Returns the same model in float32: for `quantize("int8")`, ONNX, LiteRT and other tools.

    The copy is rebuilt from the model's config, with float32 in place of each 16-bit policy, and
    is not compiled. The given model is unchanged. 16-bit weights get the exact values of their
    masters, if the model is compiled with `keras_mp.MasterWeights`.

    Args:
        model: A built Keras model whose class has a `get_config`: functional, Sequential, or a
            class of your own.
        share_weights: False: the weights are copied. True: both models hold the same
            `keras.Variable`s, so training one changes the other. This needs float32 weights, as
            under a mixed policy.
        custom_objects: Classes and functions that the config names, by name. Layers of the model
            and registered objects are found without it.

    Returns:
        The model, with the same layer names; all layers compute in float32.

    Raises:
        TypeError: `model` is not a Keras model.
        ValueError: The model is not built, or is quantized; it cannot be rebuilt from its config;
            a layer computes in 16 bits whatever the policy; or `share_weights` is set and weights
            have 16 bits.

    >>> import numpy as np
    >>> layers = [keras.Input((2,)), keras.layers.Dense(1, dtype="mixed_float16")]
    >>> model = keras.Sequential(layers)
    >>> ready = as_float32(model)
    >>> ready.layers[0].compute_dtype, model.layers[0].compute_dtype
    ('float32', 'float16')
    >>> np.array_equal(ready.get_weights()[0], model.get_weights()[0])
    True
    """
    _check(model, share_weights)
    with _masters_of(model):
        try:
            copy = Blueprint.of(model, custom_objects, None, None, None).with_policy("float32")
        except Exception as error:
            raise ValueError(
                f"The model {model.name!r} cannot be rebuilt from its config: "
                f"{_first_line(error)}. Build it in code without a 16-bit policy, and call "
                "set_weights(model.get_weights())."
            ) from error
    if left := _narrow_layers(copy):
        raise ValueError(
            f"Layers of {model.name!r} compute in 16 bits whatever the policy: {', '.join(left)}. "
            "Their code sets a dtype: write dtype=self.dtype_policy, that of the enclosing layer."
        )
    if share_weights:
        keras_hooks.share_weights(copy, model)
    return copy


def _check(model: Any, share_weights: bool) -> None:
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a keras.Model, but got {type(model).__name__}.")
    if not model.built:
        raise ValueError(
            f"The model {model.name!r} is not built, so it has no weights: call it on a batch "
            "first, or model.build(input_shape)."
        )
    layers = keras_hooks.all_layers(model)
    quantized = [each.name for each in layers if getattr(each, "quantization_mode", None)]
    if quantized:
        raise ValueError(
            f"Layers of {model.name!r} are quantized: {', '.join(quantized[:6])}. Call as_float32 "
            "before quantize, whose rounding cannot be undone."
        )
    narrow = [each.path for each in model.weights if _is_narrow(each.dtype)]
    if share_weights and narrow:
        raise ValueError(
            f"share_weights=True needs weights in float32, but {', '.join(narrow[:6])} are in 16 "
            "bits: leave it out, for copies."
        )


def _masters_of(model: Model) -> contextlib.AbstractContextManager[None]:
    optimizer = getattr(model, "optimizer", None)
    while optimizer is not None and not isinstance(optimizer, SixteenBitOptimizer):
        optimizer = getattr(optimizer, "inner_optimizer", None)
    if optimizer is None or not optimizer.built:
        return contextlib.nullcontext()
    return float32_weights_scope(model)


def _narrow_layers(model: Model) -> list[str]:
    return [
        layer.name
        for layer in keras_hooks.all_layers(model)
        if not isinstance(layer, keras.layers.InputLayer)
        and (_is_narrow(layer.compute_dtype) or _is_narrow(layer.variable_dtype))
    ]


def _is_narrow(dtype: str) -> bool:
    return keras.backend.standardize_dtype(dtype) in ("float16", "bfloat16")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.') if lines else ''}"
