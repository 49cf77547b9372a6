"""`sixteen_bit_policy`: 16-bit weights, except in layers that must stay in float32."""

import re
from typing import Any

import keras

from keras_mp.array_types import Layer, Model
from keras_mp.backends import keras_hooks

DTYPES = ("bfloat16", "float16")
# Their scales are near 1, where 16 bits are coarse, and their statistics are sums.
_NORMALIZATION = re.compile(r"(.*Normalization|BatchNorm.*)")
# The same layers by Keras' automatic names: "layer_normalization_3", "block/batch_normalization".
_NAMES = {
    "normalization": r"(.*/)?([a-z]+_)*normalization(_[0-9]+)?(/.*)?",
    "softmax": r"(.*/)?softmax(_[0-9]+)?",
}


def sixteen_bit_policy(dtype: str = "bfloat16", model: Model | None = None) -> Any:
    """Returns a policy with 16-bit weights, except for normalization and softmax.

    Normalization layers keep their variables, and BatchNormalization its statistics, in float32;
    they return 16 bits. Layers that end in a softmax compute in float32. For training, put
    `keras_mp.MasterWeights` or `keras_mp.StochasticRounding` around the optimizer.

    ```python
    keras_mp.set_global_policy(keras_mp.sixteen_bit_policy("bfloat16"))
    model = make_model()
    ```

    Args:
        dtype: "bfloat16" or "float16".
        model: The same model, built before in float32. Its layers are recognized by their classes
            and activations. Without it they are recognized by Keras' automatic names, which misses
            a normalization that you call "ln", and a softmax that is the activation of a Dense.

    Returns:
        A `keras.dtype_policies.DTypePolicyMap`.

    Raises:
        ValueError: Another dtype.
        TypeError: `model` is not a Keras model.

    >>> policy = sixteen_bit_policy("bfloat16")
    >>> policy["encoder/layer_normalization_2"].name, policy["encoder/dense"].name
    ('mixed_bfloat16', 'bfloat16')
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be 'bfloat16' or 'float16', but got {dtype!r}.")
    mixed = keras.DTypePolicy(f"mixed_{dtype}")
    full = keras.DTypePolicy("float32")
    if model is None:
        policies = {_NAMES["normalization"]: mixed, _NAMES["softmax"]: full}
    elif isinstance(model, keras.Model):
        layers = {layer.path: layer for layer in keras_hooks.inner_layers(model)}
        policies = {path: mixed for path, layer in layers.items() if _is_normalization(layer)}
        policies |= {path: full for path, layer in layers.items() if path and _is_softmax(layer)}
    else:
        raise TypeError(f"model must be a keras.Model or None, but got {type(model).__name__}.")
    return keras.dtype_policies.DTypePolicyMap(keras.DTypePolicy(dtype), policies)


def _is_normalization(layer: Layer) -> bool:
    return any(_NORMALIZATION.fullmatch(base.__name__) for base in type(layer).__mro__)


def _is_softmax(layer: Layer) -> bool:
    activation = getattr(layer, "activation", None)
    name = getattr(activation, "__name__", "")
    return isinstance(layer, keras.layers.Softmax) or name in ("softmax", "log_softmax")
