"""Model and layer configs of TF 1.15 to 2.15, rewritten as today's."""

import functools
import re
from collections.abc import Mapping

from keras_mp.compat.configs import (
    checks,
    graph,
    keras1,
    layers,
    operation_layers,
    optimizer_tables,
    policies,
    training,
)
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.configs.layers import Json, Origin
from keras_mp.compat.configs.plain import json_copy
from keras_mp.compat.configs.report import Converted, Report
from keras_mp.compat.configs.serialized import (
    Config,
    class_and_config,
    of_keras,
    of_ours,
    own_object,
)
from keras_mp.compat.configs.versions import optional_version
from keras_mp.compat.errors import LegacyError

MODELS = ("Model", "Functional", "Sequential")
FUNCTIONAL = ("layers", "input_layers", "output_layers")
_OF_MODEL = (
    *("class_name", "config", "module", "registered_name", "shared_object_id", "name"),
    *("inbound_nodes", "keras_version", "backend", "build_config", "compile_config"),
)

OPTIMIZERS = {*map(str.lower, optimizer_tables.OPTIMIZERS), *optimizer_tables.LOSS_SCALED}
INPUT_SHAPE = "batch_input_shape"

LOST_POLICY = (
    "TF 1.15 wrote no dtype policies (and TF 2.1 the same keras_version): a layer that computed in "
    "float16 says float32 here; give it its policy again, in the config or in code"
)
SHARED = (
    "two layers in different models of this one were a single object; they load as one from a "
    ".keras file, but as two, with a weight each, through model_from_json"
)


def convert_model(
    config: Config, *, tf_version: str | None = None, exact_training: bool = False
) -> Converted:
    """Returns today's form of a serialized model, for `keras.models.model_from_json`.

    Args:
        config: What `model.to_json()` wrote, the `model_config` of an HDF5 file, or the
            `config.json` of a `.keras` file. Never changed. One of today comes back as it is.
        tf_version: The TensorFlow that wrote it, such as "2.2"; decides what configs do not tell.
        exact_training: Whether layers that Keras 3 trains otherwise become those of
            `keras_mp.compat.layers`, which train as then. Loading needs `import keras_mp`.

    Raises:
        LegacyError: Something in it has no faithful counterpart today.
        ValueError: `tf_version` is no version.

    >>> layer = {"class_name": "Dense", "config": {"units": 2, "batch_input_shape": [None, 3]}}
    >>> old = {"class_name": "Sequential", "config": {"name": "net", "layers": [layer]}}
    >>> [layer["class_name"] for layer in convert_model(old).config["config"]["layers"]]
    ['InputLayer', 'Dense']
    """
    report = Report()
    given = json_copy(config, "$", finite=False)
    keras1.refuse(given)
    origin = _origin(given, tf_version, exact_training=exact_training)
    with report.checked():
        today = _model(checks.mapping(given, "$"), "$", report, origin)
    identities = [
        repr(one["shared_object_id"])
        for one in checks.objects_in(given)
        if "inbound_nodes" in one and "shared_object_id" in one
    ]
    if len(identities) != len(set(identities)):
        report.add("$", "differs", SHARED, matters=True)
    return Converted.of(today, given, report)


def convert_layer(
    config: Config, *, tf_version: str | None = None, exact_training: bool = False
) -> Converted:
    """Returns today's form of a serialized layer, which may be a model.

    Args and errors are those of `convert_model`.

    >>> old = {"class_name": "LeakyReLU", "config": {"name": "a", "alpha": 0.5, "dtype": "float32"}}
    >>> convert_layer(old).config["config"]["negative_slope"]
    0.5
    """
    report = Report()
    given = checks.mapping(json_copy(config, "$", finite=False), "$")
    keras1.refuse(given)
    origin = _origin(given, tf_version, exact_training=exact_training)
    with report.checked():
        today = _any_layer(given, "$", report, origin)
    if "build_config" in given:  # inside a model, layers are built when they are called
        today["build_config"] = given["build_config"]
    return Converted.of(today, given, report)


def _origin(given: object, tf_version: str | None, *, exact_training: bool) -> Origin:
    """Layers are kept as of the TensorFlow that was told, or was written, or of an early one."""
    version = optional_version(tf_version)
    if not exact_training:
        return Origin(tf_version)
    written = given.get("keras_version") if isinstance(given, Mapping) else None
    if version is None and isinstance(written, str) and re.match(r"2\.[0-9]{1,4}\.", written):
        version = optional_version(written)  # the same from 2.5 on, and near enough before
    return Origin(tf_version, layers.TF_VERSION if version is None else ".".join(map(str, version)))


def _any_layer(value: object, path: str, report: Report, origin: Origin) -> Json:
    given = checks.mapping(value, path)
    name, inside = given.get("class_name"), given.get("config")
    if operation_layers.is_one(given) and not layers.is_todays(given):
        return _operation(given, path, report)
    if name in MODELS and layers.is_of_keras(given, str(name), "models|.*engine"):
        return _model(given, path, report, origin)
    if isinstance(inside, Mapping) and all(key in inside for key in FUNCTIONAL):
        return _model(given, path, report, origin)
    nested = functools.partial(_any_layer, origin=origin)
    return layers.layer(given, path, report, nested, origin)


def _operation(given: Config, path: str, report: Report) -> Json:
    try:
        return operation_layers.single_input_layer(given, path, report)
    except LegacyError as error:
        report.refuse(error)
        return dict(given)


def _model(given: Config, path: str, report: Report, origin: Origin) -> Json:
    if "config" not in given:
        given = {**given, "config": {}}  # of a subclassed model, in a SavedModel
    if given.get("class_name") == "Sequential" and isinstance(given["config"], list):
        # Standalone Keras before 2.2.3, where a Sequential had no name in its config.
        given = {**given, "config": {"name": "sequential", "layers": given["config"]}}
    name, inside = class_and_config(given, path)
    if _is_todays(given, inside):
        return dict(given)
    is_ours = name in MODELS
    if name.rpartition(">")[2].lower() in OPTIMIZERS:
        raise LegacyError(f"{path}.class_name", describe(name), "an optimizer, not a model")
    if is_ours:
        checks.only(given, path, _OF_MODEL, "no tf.keras wrote it")
    if given.get("keras_version") == "2.2.4-tf" and not any(
        one.get("class_name") in policies.LEGACY for one in checks.objects_in(inside)
    ):
        version = optional_version(origin.tf_version)
        if version is None or version < (2, 1):
            report.add(f"{path}.keras_version", "differs", LOST_POLICY, matters=True)
    for key in ("keras_version", "backend"):
        if key in given:
            report.add(at(path, key), "dropped", "no part of a config today")
    if name == "Sequential":
        config = _sequential(inside, f"{path}.config", report, origin)
        result = of_keras("keras", name, config)
    elif all(key in inside for key in FUNCTIONAL):
        config = _functional(inside, f"{path}.config", report, origin, is_ours=is_ours)
        result = _of_calls(config, path, report) if is_ours else own_object(given, config)
    elif is_ours:
        why = f"a {name} without {', '.join(FUNCTIONAL)} is a class of your own"
        raise LegacyError(f"{path}.config", "is not the config of a functional model", why)
    else:
        result = layers.own_layer(given, path, report)
    for key in ("keras_version", "backend", "name", "inbound_nodes"):
        result.pop(key, None)
    if "shared_object_id" in given:
        result["shared_object_id"] = given["shared_object_id"]
    if "build_config" in given and (name == "Sequential" or not is_ours):
        result["build_config"] = given["build_config"]
    if given.get("compile_config") == {}:
        result["compile_config"] = {}
    elif given.get("compile_config") is not None:
        result["compile_config"] = training.compile_config(
            checks.mapping(given["compile_config"], f"{path}.compile_config"),
            f"{path}.compile_config",
            report,
            origin.tf_version,
            is_scaled=_is_scaled(name, inside, result),
        )
    return result


def _is_todays(given: Config, inside: Config) -> bool:
    """Whether Keras 3 wrote a functional model: its calls are objects, not lists."""
    inner = inside.get("layers")
    if "module" not in given or "input_layers" not in inside or not isinstance(inner, list):
        return False
    calls = [layer.get("inbound_nodes") for layer in inner if isinstance(layer, Mapping)]
    return any(calls) and all(
        isinstance(call, Mapping) for node in calls if isinstance(node, list) for call in node
    )


def _sequential(given: Config, path: str, report: Report, origin: Origin) -> Json:
    known = ("name", "layers", "build_input_shape", "trainable", "dtype", INPUT_SHAPE)
    checks.only(given, path, known, "no Sequential of tf.keras wrote it")
    checks.require(given, path, "name", "layers")
    given_layers = given["layers"]
    if not isinstance(given_layers, list):
        raise LegacyError(f"{path}.layers", describe(given_layers), "expected a list of layers")
    result: Json = {}
    for key, value in given.items():
        if key == "name":
            result[key] = layers.checked_name(value, f"{path}.name")
        elif key == "dtype":
            result[key] = policies.policy(value, f"{path}.dtype", report)
        elif key == INPUT_SHAPE:  # of TF 1.15, inside another Sequential
            report.add(at(path, key), "dropped", "its layers have it")
        else:
            result[key] = value
    first = [_input_of(given_layers[0], f"{path}.layers[0]", report)] if given_layers else []
    result["layers"] = [item for item in first if item] + [
        _row(checks.mapping(item, f"{path}.layers[{i}]"), f"{path}.layers[{i}]", report, origin)
        for i, item in enumerate(given_layers)
    ]
    return result


def _input_of(layer: object, path: str, report: Report) -> Json | None:
    """The input that TF up to 2.2 only wrote as the shape of the first layer."""
    given = checks.mapping(layer, path)
    inside = given.get("config")
    if not isinstance(inside, Mapping) or given.get("class_name") == "InputLayer":
        return None
    shape = inside.get(INPUT_SHAPE)
    if not isinstance(shape, list):
        return None
    report.add(f"{path}.config.{INPUT_SHAPE}", "rewritten", "an InputLayer before the layer")
    dtype = policies.name_of(policies.policy(inside.get("dtype"), f"{path}.config.dtype", Report()))
    config: Json = {
        "batch_shape": shape,
        # The layer's variables had this dtype, and so had its input.
        "dtype": "float32" if dtype in (None, *policies.MIXED) else dtype,
        "sparse": False,
        "name": f"{layers.checked_name(inside.get('name', 'layer'), f'{path}.config.name')}_input",
    }
    return of_keras("keras.layers", "InputLayer", config)


def _functional(given: Config, path: str, report: Report, origin: Origin, *, is_ours: bool) -> Json:
    inner = given["layers"]
    if not isinstance(inner, list):
        raise LegacyError(f"{path}.layers", describe(inner), "expected a list of layers")
    where = f"{path}.layers"
    mappings = [checks.mapping(item, f"{where}[{i}]") for i, item in enumerate(inner)]
    mappings, outputs = operation_layers.layers_of_today(
        mappings, given["output_layers"], where, report
    )
    given = {**given, "output_layers": outputs}
    calls = graph.calls_by_layer(mappings, [given["input_layers"], given["output_layers"]], where)
    result: Json = {}
    for key, value in given.items():
        if key == "name":
            result[key] = layers.checked_name(value, f"{path}.name")
        elif key == "dtype":
            result[key] = policies.policy(value, f"{path}.dtype", report)
        elif key == "layers":
            result[key] = [
                _connected(item, calls, f"{where}[{i}]", report, origin)
                for i, item in enumerate(mappings)
            ]
        elif key in FUNCTIONAL:
            result[key] = graph.ends(value, calls, f"{path}.{key}")
        elif key == INPUT_SHAPE:
            report.add(at(path, key), "dropped", "its inputs have it")
        elif key == "trainable" or not is_ours:
            result[key] = value
        else:
            raise LegacyError(at(path, key), "is not known", "no functional model has it")
    graph.check_order(calls, where)
    return result


def _of_calls(config: Json, path: str, report: Report) -> Json:
    """Returns a functional model that keeps the `training` of its calls, if one of them has it."""
    inner = config["layers"]
    assert isinstance(inner, list)
    calls = {row["name"]: [node["kwargs"] for node in row["inbound_nodes"]] for row in inner}
    kept = [
        str(name)
        for name, keywords in calls.items()
        if any(each.get("training") is not None for each in keywords)
    ]
    if not kept:
        return of_keras("keras", "Model", config)
    for keywords in calls.values():
        for each in keywords:
            # Else Keras notes the default of the layer, as if the call had said it.
            each.setdefault("training", None)
    what = (
        f"keras_mp.compat.layers.Functional, which keeps the training=... that {', '.join(kept)} "
        "was called with: loading needs import keras_mp"
    )
    report.add(f"{path}.config.layers", "rewritten", what, matters=True)
    return of_ours("keras_mp.compat.layers", "Functional", config)


def _row(given: Config, path: str, report: Report, origin: Origin) -> Json:
    layers.check_config(given, path)
    return _any_layer(given, path, report, origin)


def _connected(
    given: Config, calls: graph.Graph, path: str, report: Report, origin: Origin
) -> Json:
    today = _row(given, path, report, origin)
    name = str(given["name"])
    inside = today["config"]
    own_name = inside.get("name") if isinstance(inside, Mapping) else None
    if own_name is not None and own_name != calls[name].name:
        why = f"the layer is called {name!r} outside its config; they should be the same"
        raise LegacyError(f"{path}.config.name", describe(own_name), why)
    inbound = graph.nodes(name, calls, f"{path}.inbound_nodes")
    return today | {"name": calls[name].name, "inbound_nodes": inbound}


def _is_scaled(name: str, given: Config, today: Json) -> bool | None:
    """Whether compile() of tf.keras scaled the loss of a model; None if that is not known."""
    if any(map(policies.is_todays, checks.objects_in(given))):
        return False  # Keras 3 wrote it, and compiles it as it did
    if name not in MODELS:
        return None
    return any(
        policies.is_todays(one) and policies.name_of(one) == "mixed_float16"
        for one in checks.objects_in(today)
    )
