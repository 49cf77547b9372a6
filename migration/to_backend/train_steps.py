"""KMP203: `train_step`, `test_step` and `predict_step` of a Keras model, overridden.

before:  def train_step(self, data):
after:   def train_step(self, state, data):

That is JAX, where such a step gets the state of the model and returns the new one, with a tape or
without. On PyTorch it keeps its arguments, and only one with a tape is reported. Where just the
loss is special, `compute_loss` can be overridden instead, which runs on every backend.
"""

import libcst as cst

from keras_mp.migration.code.parsed import Nodes, Program
from keras_mp.migration.to_backend.tensors import is_gradient_tape
from keras_mp.migration.to_backend.uses import Target, message

ANCHOR = "train-steps"
_STEPS = ("train_step", "test_step", "predict_step")
_DO: dict[str, dict[Target, str]] = {
    "train_step": {
        "jax": "on JAX it is train_step(self, state, data), differentiates by jax.grad, and "
        "returns the logs and the new state",
        "torch": "call loss.backward() in it, and give self.optimizer.apply the .grad of the "
        "weights",
    },
    "test_step": {
        "jax": "on JAX it is test_step(self, state, data), and returns the logs and the new state",
        "torch": "compute the gradients with torch.autograd.grad",
    },
    "predict_step": {
        "jax": "on JAX it is predict_step(self, state, data), and returns the predictions and the "
        "new state",
        "torch": "compute the gradients with torch.autograd.grad",
    },
}


def decide(program: Program, method: cst.FunctionDef, target: Target) -> str | None:
    """Returns what is said of a method of a Keras model.

    Args:
        program: Its names resolved.
        method: The method.
        target: The backend that the program is to run on.
    """
    name = method.name.value
    if name not in _STEPS:
        return None
    names = [parameter.name.value for parameter in method.params.params]
    calls = Nodes(method.body).of(cst.Call)
    has_tape = any(is_gradient_tape(program, call.func) for call in calls)
    if not has_tape and (target == "torch" or len(names) != 2):
        return None
    if "state" in names[1:2]:
        return None
    what = f"{name} of a model" + (" with tf.GradientTape" if has_tape else "")
    return message(what, _DO[name], ANCHOR, target)
