"""What Python, Keras and the frameworks do not offer. A test that fails says which code can go."""

import sys
import threading
from contextvars import ContextVar

import keras
import numpy as np
import pytest

from tests import programs
from tests.backends import on_one


@on_one
def test_keras_does_not_import_the_module_that_a_file_names():
    """Else `keras_mp/after_import.py` can go."""
    program = """
import sys
import keras_mp
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != "keras_mp.after_import"]
import keras
config = {
    "module": "keras_mp.optimizer.loss_scale_optimizer",
    "class_name": "LossScaleOptimizer",
    "registered_name": "keras_mp>LossScaleOptimizer",
    "config": {},
}
try:
    keras.saving.deserialize_keras_object(config)
except TypeError as error:
    print(str(error).split(".")[0])
"""
    assert programs.run("-c", program).startswith("Could not locate class")


@on_one
def test_a_file_is_loaded_with_no_name_of_ours_touched(tmp_path):
    """What `keras_mp/after_import.py` is for."""
    import keras_mp

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.SGD()), "mse")
    model.save(tmp_path / "model.keras")
    program = """
import sys
import keras_mp
import keras
model = keras.saving.load_model(sys.argv[1])
print(type(model.optimizer).__module__.partition(".")[0], type(model.optimizer).__name__)
"""
    printed = programs.run("-c", program, tmp_path / "model.keras")
    assert printed.split() == ["keras_mp", "LossScaleOptimizer"]


@on_one
def test_threads_begin_without_the_context_of_who_starts_them():
    """Else `hand_down` of `keras_hooks.py` can go: `policy_scope` is in the context anyway."""
    if getattr(sys.flags, "thread_inherit_context", 0):
        pytest.skip("this Python was told to hand it down, which is not its default")
    said, seen = ContextVar("said", default="nothing"), []
    said.set("something")
    thread = threading.Thread(target=lambda: seen.append(said.get()))
    thread.start()
    thread.join()
    assert seen == ["nothing"]


def test_callbacks_know_none_of_the_others():
    """Else `keras_mp/monitor/callback.py` can ask."""

    class Known(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            self.known = {name.lstrip("_") for name in vars(self)}

    known = Known()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, callbacks=[known])
    assert known.known - {"known", "validation_data"} == {"model", "params"}


def test_no_framework_tells_that_a_function_has_its_own_gradient(backend):
    """Else `keras_mp/diagnosis/dry_run/source_lines.py` can ask it."""
    match backend:
        case "jax":
            import jax.custom_derivatives

            places = [jax, jax.core, jax.custom_derivatives]
        case "tensorflow":
            import tensorflow as tf

            places = [tf, tf.autodiff, tf.GradientTape]
        case _:
            import torch

            places = [torch, torch.autograd, torch.autograd.function, torch.autograd.Function]
    names = {name for place in places for name in dir(place) if not name.startswith("_")}
    asks = {name for name in names if name.startswith(("is_", "in_", "inside"))}
    assert not {name for name in asks if "custom" in name or "gradient" in name}
