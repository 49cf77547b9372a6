"""Which callbacks come before the one that puts the loss scale into the logs, and miss it there."""

import inspect
import traceback
from typing import Any

import keras

# Those of Keras that write all that they find in the logs.
_WRITERS = ("CSVLogger", "RemoteMonitor", "TensorBoard")
_PACKAGES = ("mlflow", "wandb")  # whose callbacks write them, too


def called_before(callback: Any) -> list[Any]:
    """Returns the callbacks that come before `callback` in the list that calls it now.

    Keras tells no callback of the others: the list is looked for on the stack, where the call comes
    from. It is for a warning only, and empty where there is none.

    >>> called_before(keras.callbacks.Callback())
    []
    """
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            places = [i for i, each in enumerate(caller.callbacks) if each is callback]
            return list(caller.callbacks[: places[0]]) if places else []
    return []


def writes_logs(callback: Any) -> bool:
    """Returns whether `callback` writes whatever is in the logs.

    >>> writes_logs(keras.callbacks.CSVLogger("log.csv"))
    True
    >>> writes_logs(keras.callbacks.TerminateOnNaN())
    False
    """
    if any(isinstance(callback, getattr(keras.callbacks, name)) for name in _WRITERS):
        return True
    return any(cls.__module__.partition(".")[0] in _PACKAGES for cls in type(callback).__mro__)
