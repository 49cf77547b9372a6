"""Whether an object can be wrapped, and if not, what to write instead."""

from typing import Any

import keras

_ELSEWHERE = {
    "tf_keras": "a tf_keras optimizer; use the class of the same name in keras.optimizers",
    "tensorflow": "a TensorFlow optimizer; use the class of the same name in keras.optimizers",
    "torch": "a torch.optim optimizer; use the class of the same name in keras.optimizers, or "
    "torch.amp.GradScaler with it",
    "optax": "an optax transformation; use the class of the same name in keras.optimizers",
}


def check_inner_optimizer(optimizer: Any) -> None:
    """Raises TypeError unless `optimizer` is a Keras 3 optimizer that does not scale by itself.

    >>> check_inner_optimizer(keras.optimizers.SGD())
    >>> check_inner_optimizer("adam")
    Traceback (most recent call last):
    TypeError: inner_optimizer must be a keras.optimizers.Optimizer, but got the string 'adam'; \
write keras.optimizers.get('adam').
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise TypeError(
            "inner_optimizer must not be a LossScaleOptimizer itself (the loss would be scaled "
            f"twice), but got {optimizer}. Wrap its inner_optimizer."
        )
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return
    home = type(optimizer).__module__.split(".")[0]
    if isinstance(optimizer, str):
        found = f"the string {optimizer!r}; write keras.optimizers.get({optimizer!r})"
    elif isinstance(optimizer, type) and issubclass(optimizer, keras.optimizers.Optimizer):
        found = f"the class {optimizer.__name__}; write {optimizer.__name__}()"
    else:
        found = _ELSEWHERE.get(home, f"{optimizer!r} of type {type(optimizer).__name__}")
    raise TypeError(f"inner_optimizer must be a keras.optimizers.Optimizer, but got {found}.")


def serialized(optimizer: Any) -> dict[str, Any]:
    """Returns the config of `optimizer` by its public name, so that any backend can read it.

    On PyTorch, Keras writes the module of its PyTorch class, which no other backend can import.

    >>> serialized(keras.optimizers.SGD())["module"]
    'keras.optimizers'
    """
    config: dict[str, Any] = keras.saving.serialize_keras_object(optimizer)
    public = getattr(keras.optimizers, config["class_name"], None)
    if (
        isinstance(public, type)
        and isinstance(optimizer, public)
        and type(optimizer).__module__.startswith("keras.src.")
    ):
        return {**config, "module": "keras.optimizers", "registered_name": None}
    return config
