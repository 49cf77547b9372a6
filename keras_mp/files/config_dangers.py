"""What a serialized object would run, or would read or write, if Keras made it: place by place.

Knows configs as JSON, in the forms of Keras 2 and 3, and nothing of Keras itself: so the answer is
the same on every version of it, and before anything of the config was made. Of Keras, a config may
name what models are made of. What it names of other packages Keras takes only where a program
registered it.
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
_NO_PART = "is {}, which is no part of a model"

# Layers that read a vocabulary, if they are given a path in place of a list.
_LOOKUPS = ("IndexLookup", "IntegerLookup", "StringLookup", "TextVectorization")
_PATHS = ("merges", "vocabulary")
_MAY_BE_CODE = ("function", "output_shape", "mask")

# Their modules below "keras", whose own modules ("keras.src.ops.nn") are written for functions.
_AROUND = ("_tf_keras", "api", "keras", "src")
_OF_FUNCTIONS = (
    *("activations", "constraints", "initializers", "losses", "metrics", "ops", "random"),
    *("regularizers", "_legacy.backend", "legacy.backend"),
)
_OF_CLASSES = (
    *("", "_legacy", "backend", "distillation", "dtype_policies", "engine", "layers", "legacy"),
    *("mixed_precision", "models", "optimizers", "quantizers", "trainers"),
)
# What else is found in the files of ordinary models.
_OTHERS = {
    "preprocess_input": ("applications",),
    "normalize": ("utils", "utils.numerical_utils"),
    "to_categorical": ("utils", "utils.numerical_utils"),
    "smart_resize": ("preprocessing.image", "utils.image_utils"),
    "FeatureSpace": ("utils",),
}
# Functions that make what they are given the config of.
_MAKERS = ("deserialize", "deserialize_keras_object", "get", "serialize", "serialize_keras_object")
_OF_PACKAGES = ("keras_cv", "keras_hub", "keras_nlp")


@dataclass(frozen=True, slots=True)
class Danger:
    """A place of a config that is not safe to make.

    Attributes:
        path: Where it is, as a JSON path from the root `$`.
        what: What is there, as the rest of a sentence.
        owner: Name of the layer, or of what else has one, that it belongs to; None without one.
            A layer may be at another place in the file, whose config was converted.
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
    """Yields each place of a config that runs code, or names a file or what works with files.

    Args:
        config: JSON: a serialized object, or anything that holds some.
        path: Where that is.

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
    """Returns the name of a class without its package, which stands before a `.` or a `>`."""
    return str(name).rpartition(".")[2].rpartition(">")[2]


def _is_of_models(module: str, name: str, *, is_function: bool) -> bool:
    """Returns whether something may be in a model, if it is of Keras.

    >>> _is_of_models("keras.src.ops.nn", "relu", is_function=True)
    True
    >>> _is_of_models("keras.utils", "get_file", is_function=True)
    False
    """
    package, *parts = module.split(".")
    if ">" in name:  # only what was registered has such a name
        return True
    is_class = not is_function and name[:1].isupper()
    if package in _OF_PACKAGES:
        return is_class
    if package == "builtins":  # how Keras calls its own rooms of functions, all at once
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
