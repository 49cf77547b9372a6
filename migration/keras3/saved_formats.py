"""KMP109: files that Keras 3 does not write or read.

before:  model.save("model.h5", save_format="h5")
after:   model.save("model.h5")

    model.save("folder")                        # "folder.keras", or model.export("folder")
    model.save_weights("weights.h5")            # "weights.weights.h5"
    model.load_weights("checkpoints/cp")        # keras_mp.compat.restore reads checkpoints
    tf.keras.models.load_model("folder")        # keras_mp.compat.load_model, or TFSMLayer
    ModelCheckpoint("{epoch}.hdf5")             # "{epoch}.keras"

Judged by how the path ends, where that is written out; other paths are left alone. `save_format`
belongs to Keras alone, so it is reported for any object in programs that use Keras. `save_weights`
and `load_weights` are, where the object is called a model or a network: others have them, too, such
as agents of keras-rl.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.parsed import keywords
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.code import Code, ending, is_called_a_model
from keras_mp.migration.keras3.objects import kinds_of

_WHOLE = (".keras", ".h5", ".hdf5")
_READ = (".keras", ".h5", ".hdf5", ".zip")
_WEIGHTS = ".weights.h5"
_SAVE = "Keras 3 writes models to .keras or .h5 files: name one, or write model.export(folder)"
_SAVE_WEIGHTS = "Keras 3 writes weights to files that end in .weights.h5"
_LOAD = (
    "Keras 3 loads no SavedModel: `keras-mp migrate` makes a .keras file of it, "
    "keras_mp.compat.load_model loads it, and keras.layers.TFSMLayer calls it"
)
_LOAD_WEIGHTS = (
    "Keras 3 loads no weights of TensorFlow's checkpoints: write keras_mp.compat.restore, or bring "
    "them to a .keras file with `keras-mp migrate`"
)
_CHECKPOINT = "ModelCheckpoint of Keras 3 writes to .keras files; of weights, to .weights.h5 files"
_BY_NAME = "Keras 3 takes by_name for .h5 files only"


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for call in code.calls:
        name = code.objects.public(call.func)
        if name in ("models.save_model", "models.load_model", "callbacks.ModelCheckpoint"):
            found = _of_function(code, call, name)
        elif isinstance(call.func, cst.Attribute):
            found = _of_method(code, call, call.func)
        else:
            found = None
        if found is not None:
            yield found


_Found = tuple[cst.CSTNode, Decision]


def _of_function(code: Code, call: cst.Call, name: str) -> _Found | None:
    if name == "models.save_model":
        return _saved(code, call, _given(call, 1, "filepath"))
    path = _given(call, 0, "filepath")
    end = ending(path.value) if path is not None else None
    if path is None or end is None:
        return None
    if name == "models.load_model":
        return None if _has_suffix(end) else (path, Decision("manual", _LOAD))
    only = keywords(call).get("save_weights_only")
    if only is not None and code.program.value(only) not in ("True", "False"):
        return None
    wanted = (_WEIGHTS,) if only is not None and code.program.value(only) == "True" else _WHOLE[:2]
    return None if end.endswith(wanted) else (path, Decision("manual", _CHECKPOINT))


def _of_method(code: Code, call: cst.Call, function: cst.Attribute) -> _Found | None:
    name = function.attr.value
    if name not in ("save", "save_weights", "load_weights"):
        return None
    receiver = code.objects.of(function.value)
    if receiver is not None and (
        "Model" not in kinds_of(receiver.kind) or code.objects.defines(receiver, name)
    ):
        return None
    known = receiver is not None
    path = _given(call, 0, "filepath")
    if name == "save":
        if not known and not ("save_format" in keywords(call) and code.uses_keras):
            return None
        return _saved(code, call, path)
    if not known and not (code.uses_keras and is_called_a_model(function.value)):
        return None
    if path is None:
        return None
    if name == "load_weights":
        return _loaded_weights(code, call, path, ending(path.value))
    return _saved(code, call, path, weights=True)


def _saved(
    code: Code, call: cst.Call, path: cst.Arg | None, *, weights: bool = False
) -> _Found | None:
    end = ending(path.value) if path is not None else None
    format_ = keywords(call).get("save_format")
    advice = _SAVE_WEIGHTS if weights else _SAVE
    if format_ is not None:
        formats = ("h5", "hdf5") if weights else ("h5", "hdf5", "keras")
        value = code.program.value(format_).strip("\"'")
        if value in formats and end is not None and end.endswith(_WEIGHTS if weights else _WHOLE):
            said = advice if weights else "Keras 3 knows the format by the end of the path"
            return format_, Decision("rewritten", said, (code.without(call, format_),))
        return format_, Decision("manual", f"Keras 3 has no save_format: {advice}")
    if end is None or path is None:
        return None
    if weights:
        is_fine = end.endswith(_WEIGHTS) or _may_end_longer(path.value, end)
    else:
        is_fine = _has_suffix(end, _WHOLE)
    return None if is_fine else (path, Decision("manual", advice))


def _loaded_weights(code: Code, call: cst.Call, path: cst.Arg, end: str | None) -> _Found | None:
    if end is None:
        value = path.value
        is_latest = isinstance(value, cst.Call) and code.program.source(value.func).endswith(
            "latest_checkpoint"
        )
        return (path, Decision("manual", _LOAD_WEIGHTS)) if is_latest else None
    if not _has_suffix(end):
        return path, Decision("manual", _LOAD_WEIGHTS)
    by_name = keywords(call).get("by_name")
    if by_name is not None and code.program.value(by_name) == "True" and end.endswith(_WEIGHTS):
        return by_name, Decision("manual", _BY_NAME)
    return None


def _given(call: cst.Call, position: int, name: str) -> cst.Arg | None:
    for i, argument in enumerate(call.args):
        if argument.star:
            return None
        if (i == position and argument.keyword is None) or argument is keywords(call).get(name):
            return argument
    return None


def _has_suffix(end: str, suffixes: tuple[str, ...] = _READ) -> bool:
    return end.lower().endswith(suffixes)


def _may_end_longer(node: cst.CSTNode, end: str) -> bool:
    """Returns whether only the last of a path is known, and may be the end of `x.weights` + end."""
    return not isinstance(node, cst.SimpleString) and end == ".h5"
