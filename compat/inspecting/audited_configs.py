"""Audits an untrusted config: what it would have Keras do. It is walked and never used.

Every object in it is looked at, wherever it is: Keras takes apart what has a `class_name`, and
looks for no more than that.
"""

import base64
import binascii
import builtins
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from keras_mp.compat.configs import (
    layer_tables,
    models,
    operation_layers,
    optimizer_tables,
    policies,
    training_tables,
)
from keras_mp.compat.configs.checks import at
from keras_mp.compat.inspecting import configs
from keras_mp.compat.inspecting.audited_files import told_op, words
from keras_mp.compat.inspecting.findings import Finding, Sort
from keras_mp.files.config_dangers import dangers

# What Keras calls or loads, though its name in a config is no more than a name.
_CODE = {
    "Lambda": "a layer of a Python function",
    "JaxLayer": "a layer of a Python function",
    "FlaxLayer": "a layer of a Python function",
    "__typespec__": "an object of TensorFlow that is looked up by its name",
}
# Objects of the format itself.
_STRUCTURE = (
    *("__tuple__", "__ellipsis__", "__slice__", "__bytes__", "__numpy__", "__tensor__"),
    *("__lambda__", "TFSMLayer", "TorchModuleWrapper"),  # which `dangers` knows
    *("__keras_tensor__", "TensorShape", "TypeSpec", "CompositeTensor", "InputSpec"),
    *(
        "DTypePolicy",
        "DTypePolicyMap",
        "FloatDTypePolicy",
        "QuantizedDTypePolicy",
        "QuantizedFloat8DTypePolicy",
    ),
    *("MeanMetricWrapper", "SumOverBatchSizeMetricWrapper", "LossFunctionWrapper"),
)
_OF_KERAS = {
    name.casefold()
    for table in (
        *(layer_tables.LAYERS, layer_tables.REFUSED, layer_tables.APPLICATIONS),
        *(layer_tables.INITIALIZERS, layer_tables.REGULARIZERS, layer_tables.CONSTRAINTS),
        *(layer_tables.ALIASES, layer_tables.CLASSES, operation_layers.KINDS, models.MODELS),
        *(optimizer_tables.OPTIMIZERS, optimizer_tables.V1, optimizer_tables.SCHEDULES),
        *(optimizer_tables.LOSS_SCALES, optimizer_tables.LOSS_SCALED, policies.LEGACY),
        *(training_tables.LOSSES, training_tables.METRICS, training_tables.METRICS_REFUSED),
        _STRUCTURE,
    )
    for name in table
}
_MODULE = (
    r"((tf_)?keras|tensorflow\.python\.keras|keras_mp)(\..+)?|builtins|"
    r"tensorflow\.python\.ops\.init_ops(_v2)?"
)
_OF_KERAS_ITSELF = r"(tf_)?keras(\.|$)"
_PACKAGES = ("keras", "keras_mp")
_PATH = re.compile(r"(?:~?/|~|[A-Za-z]:[\\/]|\\\\)[^/\s]|(?:.*[\\/])?\.\.(?:[\\/]|$)")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://")
_OF_FILES = ("filepath", "filename", "file", "path", "vocabulary_file", "vocab_file", "url")
# Keys whose text names a file. A list of tokens has whatever a language has, and names none.
_FILES = (*_OF_FILES, "vocabulary", "vocabulary_path", "idf_weights")
_TOKENS = ("vocabulary", "input_vocabulary", "idf_weights")
# In base64: \x80, the version of the protocol, and anything.
_PICKLE = re.compile(r"gA[I-X][A-Za-z0-9+/\s]{8,}={0,2}")
# The same of a marshalled code object: its kind, and how many arguments it takes, in 32 bits.
_BYTE_CODE = re.compile(r"[4Y][w-z0-9+/][A-Za-z0-9+/]AAA[A-Za-z0-9+/=\s]{20,}")
_NAMES = ("name", "class_name", "module", "registered_name")
_CALLS = re.compile(r"(?:.*\.)?(?:py_func\w*|numpy_function|load_\w*library\w*)|(?:tf\.)?io\..+")
_SIZES = words("""
    units filters input_dim output_dim num_oov_indices output_shape kernel_size num_heads
    key_dim value_dim depth_multiplier n size target_shape pool_size num_bins max_tokens height
    width padding cropping intermediate_dim strides dilation_rate num_classes
""")
_MOST_RATIO, _SMALL = 1000, 1 << 24


def json_and_findings(text: str | bytes, where: str) -> tuple[Mapping[str, object], list[Finding]]:
    """Returns a JSON object, and a finding for each key that is in an object twice.

    Raises:
        Nonsense: It is none, or nested too deeply.

    >>> text = '{"class_name": "Dense", "class_name": "Lambda"}'
    >>> json_and_findings(text, "config.json")[1][0].what
    "'class_name' is there twice: programs differ in which one they use"
    """
    twice: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice.extend(name for name in found if names.count(name) > 1)
        return found

    value = configs.json_object(text, once)
    what = "{!r} is there twice: programs differ in which one they use"
    return value, [Finding("name", where, what.format(name)) for name in dict.fromkeys(twice)]


def of_config(config: object, where: str, stored: int) -> Iterator[Finding]:
    """Yields what is to be looked at in a config.

    Args:
        config: JSON.
        where: What to call it.
        stored: Bytes of the whole artefact, which sizes are compared with.

    >>> layer = {"class_name": "Dense", "config": {"units": 3_000_000_000}}
    >>> [(one.sort, one.where) for one in of_config(layer, "config.json", stored=4096)]
    [('size', 'config.json: $.config.units')]
    """
    refused: dict[Sort, list[str]] = {"code": [], "path": []}
    for danger in dangers(config):
        yield Finding(danger.sort, f"{where}: {danger.path}", danger.what)
        refused[danger.sort].append(danger.path)
    most = max(_SMALL, _MOST_RATIO * stored)
    for path, key, value in _walk(config):
        for kind, what in _of_value(key, value, most):
            if not any(path.startswith(one) for one in refused.get(kind, ())):
                yield Finding(kind, f"{where}: {path}", what)


def _walk(config: object) -> Iterator[tuple[str, str, object]]:
    """Yields (path, key, value) of all in a config; the key of an item is its list's, with []."""
    waiting: list[tuple[str, str, object]] = [("$", "", config)]
    while waiting:
        path, key, value = waiting.pop()
        yield path, key, value
        if isinstance(value, Mapping):
            inside = [(at(path, name), str(name), one) for name, one in value.items()]
            waiting += reversed(inside)
        elif isinstance(value, list) and key not in _TOKENS:
            listed = [(f"{path}[{i}]", f"{key}[]", one) for i, one in enumerate(value)]
            waiting += reversed(listed)


def _of_value(key: str, value: object, most: int) -> Iterator[tuple[Sort, str]]:
    if not key.isprintable():
        yield "name", f"a key with characters that are not seen: {key!a}"
    if isinstance(value, Mapping):
        if isinstance(value.get("class_name"), str):
            yield from _of_object(value)
        if isinstance(value.get("function"), str) and _CALLS.fullmatch(value["function"]):
            yield "code", f"calls {value['function']}"
        if isinstance(value.get("node_def"), str):
            yield from _of_node(value["node_def"])
    elif isinstance(value, str):
        yield from _of_text(key, value)
    if key in _SIZES and (size := _size(value)) > most:
        yield "size", f"asks for {size:,} of {key}, and the artefact is too small to hold them"


def _of_object(value: Mapping[str, Any]) -> Iterator[tuple[Sort, str]]:
    name, module = value["class_name"], value.get("module")
    package, _, bare = name.rpartition(">")
    registered = value.get("registered_name")
    if isinstance(registered, str) and ">" in registered:
        package = registered.rpartition(">")[0]
    bare = bare.rpartition(".")[2]
    if bare in _CODE:
        yield "code", f"{bare}: {_CODE[bare]}"
    elif bare == "function":
        yield from _of_function(value.get("config"), module)
    elif package and package not in _PACKAGES:
        yield "class", f"{bare} of {package}, which is not Keras"
    elif isinstance(module, str):
        if not re.fullmatch(_MODULE, module):
            yield "class", f"{bare} of the module {module}, which is not Keras"
        elif module == "builtins" and bare.casefold() not in _OF_KERAS:
            yield "class", f"{bare} of Python"
    elif not package and bare.casefold() not in _OF_KERAS:
        yield "class", f"{bare}, which is no class of Keras"


def _of_function(name: object, module: object) -> Iterator[tuple[Sort, str]]:
    if not isinstance(name, str) or (
        isinstance(module, str) and re.match(_OF_KERAS_ITSELF, module)
    ):
        return  # which of them are dangerous is known
    if module == "builtins" and hasattr(builtins, name):
        yield "code", f"Python's function {name}"
        return
    of = f" of {module}" if isinstance(module, str) and module != "builtins" else ""
    yield "class", f"the function {name}{of}, which is not Keras'"


def _of_node(text: str) -> Iterator[tuple[Sort, str]]:
    try:
        node = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(node, Mapping) and isinstance(node.get("op"), str):
        yield from told_op(node["op"])


def _of_text(key: str, value: str) -> Iterator[tuple[Sort, str]]:
    if key in _NAMES:
        if not value.isprintable():
            yield "name", f"has characters that are not seen: {value!a}"
        elif key != "name" and not value.isascii():
            yield "name", f"looks like ASCII, and is not: {value!a}"
    if _BYTE_CODE.fullmatch(value):
        yield "code", "byte code of Python"
    elif _is_pickle(value):
        yield "code", "a pickle of Python"
    if _ADDRESS.match(value):
        yield "path", f"the address {_short(value)}"
    elif _PATH.match(value) or (key in _FILES and value):
        yield "path", f"the file {_short(value)}"


def _is_pickle(text: str) -> bool:
    if not _PICKLE.fullmatch(text):
        return False
    try:
        return base64.b64decode(text).endswith(b".")
    except binascii.Error:
        return False


def _short(text: str) -> str:
    return ascii(text if len(text) <= 60 else f"{text[:57]}...")


def _size(value: object) -> int:
    """Returns what a number or a shape asks for; 0 for anything else.

    >>> _size(3), _size([None, 2, 5]), _size(True), _size([[1, 2], [3, 4]])
    (3, 10, 0, 0)
    """
    if isinstance(value, list):
        sizes = [one for one in value if one is not None]
        return math.prod(sizes) if sizes and all(type(one) is int for one in sizes) else 0
    return value if type(value) is int else 0
