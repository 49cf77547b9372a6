"""KMP212: tf.config and tf.device, which set up TensorFlow, that computes nothing then.

before:  tf.config.list_physical_devices("GPU")
after:   keras.distribution.list_devices("gpu")

Left alone: `tf.config.set_visible_devices([], "GPU")`, which keeps TensorFlow's pipelines from
taking the memory of the GPU; and tf.device around what is no model.
"""

import libcst as cst

from keras_mp.migration.code.parsed import Nodes
from keras_mp.migration.to_backend.uses import Target, Use, message

ANCHOR = "devices"
_LEAVE_OUT = "remove it: it configures TensorFlow, which only loads data here"
_MEMORY: dict[Target, str] = {
    "jax": "remove it; on JAX, XLA_PYTHON_CLIENT_PREALLOCATE=false does it",
    "torch": "remove it: PyTorch takes memory as it needs it",
}
_LIST: dict[Target, str] = {
    "jax": "write keras.distribution.list_devices()",
    "torch": "write torch.cuda.device_count() or torch.cuda.is_available()",
}
# The end of a name -> what to do instead.
_DO: dict[str, str | dict[Target, str]] = {
    "set_memory_growth": _MEMORY,
    "ConfigProto": _MEMORY,
    "GPUOptions": _MEMORY,
    "list_physical_devices": _LIST,
    "list_logical_devices": _LIST,
    "get_visible_devices": _LIST,
    "is_gpu_available": _LIST,
    "gpu_device_name": _LIST,
    "run_functions_eagerly": "give compile run_eagerly=True",
    "experimental_run_functions_eagerly": "give compile run_eagerly=True",
    "set_jit": "give compile jit_compile=True",
    "device": "write keras.device, with 'gpu:0' for '/GPU:0'",
}
_OUTSIDE = {
    *("device", "ConfigProto", "GPUOptions", "test.is_gpu_available", "test.gpu_device_name"),
    "debugging.set_log_device_placement",
}

_OF_MODELS = {"fit", "compile", "evaluate", "predict", "train_on_batch", "Model", "Sequential"}


def decide(use: Use) -> str | None:
    name = use.tensorflow
    if use.call is None or not (name.startswith("config.") or name in _OUTSIDE):
        return None
    if name == "device" and not (use.in_model or _places_model(use.outer)):
        return None
    if name.endswith("set_visible_devices") and _hides_all(use.call):
        return None
    do = _DO.get(name.rpartition(".")[2], _LEAVE_OUT)
    return message(f"tf.{name}", do, ANCHOR, use.target)


def _places_model(block: cst.CSTNode | None) -> bool:
    """Returns whether a model is made or trained in a `with tf.device(...)`."""
    calls = Nodes(block.body).of(cst.Call) if isinstance(block, cst.With) else []
    return any(_last_name(call.func) in _OF_MODELS for call in calls)


def _last_name(node: cst.CSTNode) -> str:
    node = node.attr if isinstance(node, cst.Attribute) else node
    return node.value if isinstance(node, cst.Name) else ""


def _hides_all(call: cst.Call) -> bool:
    first = call.args[0].value if call.args else None
    return isinstance(first, (cst.List, cst.Tuple)) and not first.elements
