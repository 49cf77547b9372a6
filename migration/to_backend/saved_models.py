"""KMP211: SavedModels and their signatures, and TensorFlow Lite.

before:  tf.saved_model.save(model, path)
after:   model.save("model.keras")

Of `model.save` and `model.export` it is those with `signatures=`, which Keras 3 does not have. For
serving, `model.export(path)` writes a SavedModel on JAX, too, and `format="onnx"` one for others.
"""

import libcst as cst

from keras_mp.migration.code.parsed import keywords
from keras_mp.migration.to_backend.uses import Target, Use, message

ANCHOR = "savedmodels"
_SAVE: dict[Target, str] = {
    "jax": "write model.save('model.keras') to go on, and model.export(path) to serve",
    "torch": "write model.save('model.keras') to go on, and model.export(path, format='onnx') to "
    "serve",
}
_LOAD = "keras_mp.compat.load_model reads a SavedModel of Keras; no other backend runs its graphs"
_LITE = "TensorFlow Lite converts models on TensorFlow: convert the .keras file there"
_METHODS = ("save", "export", "save_model")


def decide(use: Use) -> str | None:
    if use.call is None:
        return None
    name = use.tensorflow
    if name.startswith("saved_model.load") or name == "saved_model.loader.load":
        return message(f"tf.{name}", _LOAD, ANCHOR, use.target)
    if name.startswith("saved_model."):
        return message(f"tf.{name}", _SAVE, ANCHOR, use.target)
    if name.startswith("lite.TFLiteConverter"):
        return message(f"tf.{name}", _LITE, ANCHOR, use.target)
    return None


def with_signatures(call: cst.Call, target: Target) -> str | None:
    """Returns what is said of a call that saves a model with signatures."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _METHODS:
        return None
    if "signatures" not in keywords(call):
        return None
    return message(f"{call.func.attr.value} with signatures", _SAVE, ANCHOR, target)
