"""What a serialized object would run, read or write if Keras deserialized it, place by place.

Knows configs as JSON, in the forms of Keras 2 and 3, and does not use Keras: the result is the same
on every version, and nothing is deserialized. Of Keras' own objects, a config may name only parts
of models. Objects of other packages must be registered by the program, or Keras rejects them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from keras_mp.files.json_paths import at, describe

_RUNS = {
    "__lambda__": "a lambda",
    "TFSMLayer": "a TFSMLayer",
    "TorchModuleWrapper": "a TorchModuleWrapper",
}
_CODE = "{}, which runs code that is in the file"
_TO_READ = "{}: {} reads that file"
_NO_PART = "is {}, which is not part of a model"

# Layers that read a vocabulary from a file if given a path instead of a list.
_LOOKUPS = ("IndexLookup", "IntegerLookup", "StringLookup", "TextVectorization")
_PATHS = ("merges", "vocabulary")
_MAY_BE_CODE = ("function", "output_shape", "mask")

# Modules below "keras" that hold functions have prefixes ("keras.src.ops.nn").
_AROUND = ("_tf_keras", "api", "keras", "src")
_OF_FUNCTIONS = (
    *("activations", "constraints", "initializers", "losses", "metrics", "ops", "random"),
    *("regularizers", "_legacy.backend", "legacy.backend"),
)
_OF_CLASSES = (
    *("", "_legacy", "backend", "distillation", "dtype_policies", "engine", "layers", "legacy"),
    *("mixed_precision", "models", "optimizers", "quantizers", "trainers"),
)
# Other objects in files of ordinary models.
_OTHERS = {
    "preprocess_input": ("applications",),
    "normalize": ("utils", "utils.numerical_utils"),
    "to_categorical": ("utils", "utils.numerical_utils"),
    "smart_resize": ("preprocessing.image", "utils.image_utils"),
    "FeatureSpace": ("utils",),
}
# Functions that deserialize the config they are given.
_MAKERS = ("deserialize", "deserialize_keras_object", "get", "serialize", "serialize_keras_object")
_OF_PACKAGES = ("keras_cv", "keras_hub", "keras_nlp")


@dataclass(frozen=True, slots=True)
class Danger:
    """A place in a config that is unsafe to deserialize.

    Attributes:
        path: Where it is, as a JSON path from the root `$`.
        what: What is wrong with it, as the rest of a sentence.
        owner: Name of the layer, or other named object, that contains it; None without one. In a
            converted config, the layer may be at another place than in the file.
        sort: "code" that would run, or "path" of a file that would be read.
    """

    path: str
    what: str
    owner: str | None = None
    sort: Literal["code", "path"] = "code"

    def __str__(self) -> str:
        owner = "" if self.owner is None else f" of {json.dumps(self.owner[:60])}"
        return f"{self.path}{owner} {self.what}"


def dangers(config: object, path: str = "$") -> Iterator[Danger]:
    """Yields each place of a config that runs code, names a file, or uses files.

    Args:
        config: JSON: a serialized object, or a value that contains some.
        path: Its place.

    >>> layer = {"class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}}
    >>> [str(each) for each in dangers({"layers": [layer]})]
    ['$.layers[0].config.vocabulary is "/etc/passwd": StringLookup reads that file']
    """
    waiting: list[tuple[str, object, str | None]] = [(path, config, None)]
    while waiting:
        where, value, owner = waiting.pop()
        if isinstance(value, Mapping):
            owner = _name_in(value) or owner
            if isinstance(value.get("class_name"), str):
                yield from (replace(each, owner=owner) for each in _of_object(value, where))
            items = list(value.items())
        elif isinstance(value, list | tuple):
            items = list(enumerate(value))
        else:
            continue
        waiting += [
            (at(where, key), inner, owner)
            for key, inner in reversed(items)
            if isinstance(inner, Mapping | list | tuple)
        ]


def _of_object(value: Mapping[str, object], path: str) -> Iterator[Danger]:
    kind, inside, module = value["class_name"], value.get("config"), value.get("module")
    is_function = kind == "function"
    name = inside if is_function else kind
    names = {_last(given) for given in (name, value.get("registered_name"))}
    runs = next((each for each in _RUNS if each in names), None)
    if runs is not None:
        yield Danger(path, _CODE.format(f"is {_RUNS[runs]}"))
    elif isinstance(module, str) and not _is_of_models(module, str(name), is_function=is_function):
        yield Danger(path, _NO_PART.format(f"{module}.{name}"[:200]))
    if not isinstance(inside, Mapping):
        return
    if "Lambda" in names:
        for key in _MAY_BE_CODE:
            code = inside.get(key)
            if isinstance(code, list) and code and isinstance(code[0], str):
                yield Danger(at(f"{path}.config", key), _CODE.format("is byte code"))
    reader = next((each for each in _LOOKUPS if each in names), None)
    if reader is None and isinstance(module, str) and module.startswith(_OF_PACKAGES):
        reader = str(kind)
    for key in _PATHS if reader is not None else ():
        if isinstance(inside.get(key), str):
            what = _TO_READ.format(describe(inside[key]), reader)
            yield Danger(at(f"{path}.config", key), what, sort="path")
    if any(each.startswith("TextFile") and each.endswith("Initializer") for each in names):
        yield Danger(path, f"is a {_last(name)}, which reads a file", sort="path")


def _name_in(value: Mapping[str, object]) -> str | None:
    inside = value.get("config")
    name = inside.get("name") if isinstance(inside, Mapping) else None
    return name if isinstance(name, str) else None


def _last(name: object) -> str:
    """Returns a class name without its package, the part before a `.` or a `>`."""
    return str(name).rpartition(".")[2].rpartition(">")[2]


def _is_of_models(module: str, name: str, *, is_function: bool) -> bool:
    """Returns whether an object of Keras may be part of a model.

    >>> _is_of_models("keras.src.ops.nn", "relu", is_function=True)
    True
    >>> _is_of_models("keras.utils", "get_file", is_function=True)
    False
    """
    package, *parts = module.split(".")
    if ">" in name:  # only registered objects have such a name
        return True
    is_class = not is_function and name[:1].isupper()
    if package in _OF_PACKAGES:
        return is_class
    if package == "builtins":  # Keras writes this for functions of all its modules
        return name not in _MAKERS
    if package != "keras":
        return True
    while parts and parts[0] in _AROUND:
        parts = parts[1:]
    if any(parts[: depth + 1] == each.split(".") for each in _OF_FUNCTIONS for depth in (0, 1)):
        return is_class or not (name[:1].isupper() or name in _MAKERS)
    if is_class and (parts or [""])[0] in _OF_CLASSES:
        return True
    below = ".".join(parts)
    return any(below == room or below.startswith(f"{room}.") for room in _OTHERS.get(name, ()))
