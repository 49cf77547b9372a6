"""Layer configs of TF 1.15 to 2.15, rewritten as today's.

Knows one layer; layers inside it are handed to a function that the caller gives.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keras_mp.compat.configs import (
    checks,
    early_preprocessing,
    layer_tables as tables,
    policies,
)
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.configs.report import Report
from keras_mp.compat.configs.serialized import (
    CARRIED_OVER,
    Config,
    allowed_name,
    class_and_config,
    class_and_config_or_function,
    of_keras,
    of_ours,
    own_object,
)
from keras_mp.compat.errors import LegacyError

Json = dict[str, object]
Nested = Callable[[object, str, Report], Json]

SERIALIZED = ("class_name", "config", "module", "registered_name", "shared_object_id")
_OF_LAYER = (*SERIALIZED, "build_config", "name", "inbound_nodes")

HARD_SIGMOID = (
    "hard_sigmoid of Keras 3 is another function, relu6(x + 3) / 6; that of Keras 2, "
    "clip(0.2 x + 0.5, 0, 1), is keras_mp.compat.activations.keras2_hard_sigmoid: loading needs "
    "import keras_mp"
)
_EXACT = "; exact_training=True keeps the layer of tf.keras, keras_mp.compat.layers."
BATCH_NORM = (
    "BatchNormalization of images: TensorFlow's fused kernel kept the unbiased variance of a "
    "batch (N / (N - 1)), Keras 3 keeps the biased one; predictions are the same, moving_variance "
    f"drifts by (1 - momentum) / (N - 1) per step of further training{_EXACT}BatchNormalization"
)
DROPOUT = (
    "dropout: TensorFlow's fused kernel dropped other inputs at each time step, Keras 3 drops the "
    f"same at all steps of a sequence{_EXACT}LSTM or GRU"
)
TIME_DISTRIBUTED = (
    "TimeDistributed: tf.keras applied the layer to all time steps at once, Keras 3 to one after "
    "the other: a BatchNormalization inside has the statistics of each step by itself, and an "
    f"activity_regularizer inside is not in the loss{_EXACT}TimeDistributed"
)
NO_CONFIG = (
    "{name}, a class of your own, has no get_config: build the model in code, and restore this "
    "file with keras_mp.compat.restore"
)
_NO_CONFIG = "layer was saved without config"  # what TensorFlow wrote instead
_ATTENTIONS = ("Attention", "AdditiveAttention")
FLIP = (
    "RandomFlip of both axes: tf.keras flipped each axis with its own chance, Keras 3 flips both "
    f"or none{_EXACT}RandomFlip"
)
IN_FLOAT32 = (
    "activities that are computed in 16 bits are regularized in float32, by "
    "keras_mp.compat.regularizers.InFloat32: loading needs import keras_mp. Keras 3 on TensorFlow "
    "refuses to add a float16 loss to the others"
)
_APPLICATIONS = r"((tf_)?keras|tensorflow\.python\.keras)(\.src)?\.applications\..+"
_OF_TENSORFLOW = r"tensorflow\.python\.ops\.init_ops(_v2)?"
TF_VERSION = "2.5"  # the last one whose layers are those of TF 2.0, where nobody knows
CUDNN = (
    "it computes the same anywhere; its weights have another layout (kernels transposed, two "
    "biases)"
)
RENAMED = {
    "CuDNNGRU": CUDNN,
    "CuDNNLSTM": CUDNN,
    "SyncBatchNormalization": (
        "statistics are those of each replica; set synchronized=True in code, which Keras 3 has "
        "on TensorFlow only"
    ),
}


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of the TensorFlow that wrote a config, and what is wanted of its layers.

    Attributes:
        tf_version: As it was told, such as "1.15"; None if it was not.
        exact: The TensorFlow whose layers are kept where Keras 3 trains otherwise; None for none.
    """

    tf_version: str | None = None
    exact: str | None = None


def layer(value: object, path: str, report: Report, nested: Nested, origin: Origin) -> Json:
    """Returns today's form of a serialized layer that is no model.

    Args:
        value: `{"class_name": ..., "config": ...}`; a copy that may be kept.
        path: Where it is.
        report: Takes the changes.
        nested: Converts the layers inside: cells, and what wrappers wrap.
        origin: Where it is from.

    Raises:
        LegacyError: Something in it has no faithful counterpart today.
    """
    given = checks.mapping(value, path)
    name, inside = class_and_config(given, path)
    if is_todays(given):
        return dict(given)
    bare = name.removeprefix("Experimental>")
    ours = is_of_keras(given, bare, "layers")
    if ours and bare in tables.REFUSED:
        raise LegacyError(
            f"{path}.class_name", describe(name), tables.REFUSED[bare], needs_code=bare == "Lambda"
        )
    if ours:
        checks.only(given, path, _OF_LAYER, "no tf.keras wrote it")
    if _is_of_applications(given, inside):
        return _of_applications(given, inside, path, report)
    if not ours or bare not in tables.LAYERS:
        return own_layer(given, path, report)
    inside = early_preprocessing.as_of_tf_2_6(bare, inside, f"{path}.config", report)
    today, added = tables.CLASSES.get(bare, (bare, {}))
    if today != bare:
        note = RENAMED.get(bare)
        what = f"{today}: {note}" if note else today
        report.add(f"{path}.class_name", "renamed", what, matters=note is not None)
    flags: Json = {}
    if bare in _ATTENTIONS and inside.get("causal"):
        flags = {"causal": checks.truth(inside["causal"], f"{path}.config.causal")}
        inside = {key: value for key, value in inside.items() if key != "causal"}
    config = _config(bare, inside, f"{path}.config", report, nested) | added | flags
    if bare == "Bidirectional":
        config |= _other_direction(config, path, report)
    if bare == "TextVectorization" and config.get("max_tokens") is None:
        config["pad_to_max_tokens"] = False  # TF 2.3 wrote true, which padded nothing then
    if today == "Discretization":
        config["dtype"] = "float32"  # as of its inputs: Keras 3 would cast them to its int64
    today, config = _regularized_in_float32(today, config, path, report)
    why = _replaced(today, config, path)
    if why is not None:
        what = f"keras_mp.compat.layers.{today}, which {why}: loading needs import keras_mp"
        report.add(path, "rewritten", what, matters=True)
        if today == "RandomCrop":
            config["tf_version"] = origin.tf_version or "2.15"
        return of_ours("keras_mp.compat.layers", today, config) | _identity(given)
    differs = _trains_otherwise(bare, config, origin.exact or origin.tf_version)
    if differs and origin.exact:
        what = (
            f"keras_mp.compat.layers.{today}, which trains as then: loading needs import keras_mp"
        )
        if all(change.what != what for change in report):
            report.add(path, "rewritten", what, matters=True)
        if today == "BatchNormalization":
            config["tf_version"] = origin.exact
        return of_ours("keras_mp.compat.layers", today, config) | _identity(given)
    if differs and _says_so(today, config) and all(change.what != differs for change in report):
        keys = {BATCH_NORM: ".config.axis", DROPOUT: ".config.dropout"}
        report.add(f"{path}{keys.get(differs, '')}", "differs", differs, matters=True)
    return of_keras("keras.layers", today, config) | _identity(given)


def _regularized_in_float32(name: str, config: Json, path: str, report: Report) -> tuple[str, Json]:
    """Returns (class, config) of a layer whose activity regularizer is in a dtype that adds up."""
    policy = config.get("dtype")
    inside = policy.get("config") if isinstance(policy, Mapping) else None
    dtype = str(inside.get("name") if isinstance(inside, Mapping) else policy)
    given = config.get("activity_regularizer")
    if name == "ActivityRegularization":
        rates = {key: config.get(key, 0.0) for key in ("l1", "l2")}
        given = of_keras("keras.regularizers", "L1L2", rates)
    if given is None or not dtype.endswith(("float16", "bfloat16")):
        return name, config
    ours = of_ours("keras_mp.compat.regularizers", "InFloat32", {"regularizer": given})
    report.add(f"{path}.config.activity_regularizer", "rewritten", IN_FLOAT32, matters=True)
    if name == "ActivityRegularization":
        config = {key: config[key] for key in ("name", "trainable", "dtype") if key in config}
        name, config = "Activation", {**config, "activation": "linear"}
    return name, {**config, "activity_regularizer": ours}


def _other_direction(config: Config, path: str, report: Report) -> Json:
    """Returns the backward layer of one that goes backwards, which goes forwards."""
    given = config.get("layer")
    inside = given.get("config") if isinstance(given, Mapping) else None
    is_given = config.get("backward_layer") is not None
    if is_given or not isinstance(inside, Mapping) or inside.get("go_backwards") is not True:
        return {}
    report.add(f"{path}.config.backward_layer", "defaulted", "it goes forwards, as in tf.keras")
    other = {**inside, "go_backwards": False, "name": f"backward_{inside.get('name')}"}
    return {"backward_layer": {**checks.mapping(given, path), "config": other}}


def _replaced(name: str, today: Config, path: str) -> str | None:
    """Returns what a layer of ours does that the one of Keras 3 does not; None for other layers."""
    if name in tables.KEPT:
        return "Keras 3 has not"
    if today.get("causal"):
        return "masks later steps in every call"
    if name == "SeparableConv1D" and today.get("padding") == "causal":
        return "takes causal padding"
    if name == "RandomCrop":
        return "crops in predict, too"
    if name in ("Resizing", "UpSampling2D") and today.get("interpolation") in tables.INTERPOLATIONS:
        return "interpolates as TensorFlow on every backend"
    if name.startswith("AveragePooling") and _pads_unevenly(today):
        return "does not count padding, as Keras 3 does on PyTorch"
    if name == "GaussianNoise" and not 0 <= checks.number(today["stddev"], f"{path}.stddev") <= 1:
        return "takes a stddev above 1"
    return None


def _pads_unevenly(today: Config) -> bool:
    """Whether "same" may pad an axis more at its end than at its start."""
    pools, strides = today.get("pool_size"), today.get("strides")
    if today.get("padding") != "same" or not isinstance(pools, list | tuple | int):
        return False
    pools = [pools] if isinstance(pools, int) else list(pools)
    strides = pools if strides is None else strides
    strides = [strides] if isinstance(strides, int) else strides
    if not isinstance(strides, list | tuple) or len(strides) != len(pools):
        return False
    pairs = zip(pools, strides, strict=True)
    return any(pool > 1 and (stride != 1 or pool % 2 == 0) for pool, stride in pairs)


def _is_of_applications(given: Config, inside: Config) -> bool:
    """Whether it is a layer that models of tf.keras.applications define: nobody has its class."""
    package, _, name = str(given["class_name"]).rpartition(">")
    module = given.get("module")
    of_keras_only = module is None or re.fullmatch(_APPLICATIONS, str(module)) is not None
    keys = tables.APPLICATIONS.get(name)
    own = inside.keys() - set(tables.SHARED)
    return keys is not None and package in ("", "Custom") and of_keras_only and own == set(keys)


def _of_applications(given: Config, inside: Config, path: str, report: Report) -> Json:
    name = str(given["class_name"]).rpartition(">")[2]
    where = f"{path}.config"
    config: Json = {
        "name": name_of_today(inside.get("name", name.lower()), f"{where}.name", report),
        "trainable": bool(inside.get("trainable", True)),
        "dtype": policies.policy(inside.get("dtype"), f"{where}.dtype", report),
    }
    config |= {key: checks.number(inside[key], at(where, key)) for key in tables.APPLICATIONS[name]}
    if "projection_dim" in config:
        config["projection_dim"] = checks.count(inside["projection_dim"], f"{where}.projection_dim")
    report.add(path, "rewritten", f"keras_mp.compat.layers.{name}: loading needs import keras_mp")
    return of_ours("keras_mp.compat.layers", name, config) | _identity(given)


def _trains_otherwise(name: str, today: Config, tf_version: str | None) -> str | None:
    """Returns how Keras 3 trains a layer otherwise, or may, as far as its config tells."""
    if name == "RandomFlip" and today.get("mode") == "horizontal_and_vertical":
        return FLIP
    if "BatchNormalization" in name:
        return None if name == "SyncBatchNormalization" else BATCH_NORM
    if name == "TimeDistributed":
        return TIME_DISTRIBUTED
    if name not in ("LSTM", "GRU") or (tf_version or "").startswith("1."):
        return None
    fused = {
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "recurrent_dropout": 0.0,
        "unroll": False,
        "use_bias": True,
        "reset_after": True,
    }
    fits = all(today.get(key, value) == value for key, value in fused.items())
    return DROPOUT if today.get("dropout") and fits else None


def _says_so(name: str, today: Config) -> bool:
    # One of an image has its axis resolved; a layer of vectors says 1 or -1, as some images do.
    if name == "BatchNormalization":
        return today.get("axis") == 3
    return name != "TimeDistributed" or any(
        # It, or a layer inside, does not treat the rows of a batch one by one.
        one.get("class_name") == "BatchNormalization" or one.get("activity_regularizer")
        for one in checks.objects_in(today["layer"])
    )


def is_todays(given: Config) -> bool:
    """Whether Keras 3 wrote a layer: it writes every policy as an object.

    Four layers of Keras 3 do not; they have no "trainable", which Keras 2 always wrote.

    >>> is_todays({"class_name": "InputLayer", "config": {"batch_shape": [None, 3]}})
    True
    >>> is_todays({"class_name": "Dense", "config": {"dtype": "float32"}})
    False
    """
    inside = given.get("config")
    if not isinstance(inside, Mapping):
        return False
    if given.get("class_name") == "InputLayer":
        return "batch_shape" in inside
    if given.get("module") == "keras.layers" and "trainable" not in inside:
        return True
    return policies.is_todays(inside.get("dtype"))


def is_of_keras(given: Config, name: str, package: str) -> bool:
    """Whether a serialized object says nothing else than that it is Keras's own."""
    module, registered = given.get("module"), given.get("registered_name")
    if module is not None:
        pattern = rf"(tf_)?keras(\.src)?(\.{package}(\..+)?)?"
        if not isinstance(module, str) or not re.fullmatch(pattern, module):
            return name in tables.REFUSED
    elif "module" in given and registered is not None:
        return False  # Keras 3 writes no module for a class that a script defines
    return registered in (None, name, f"Experimental>{name}")


def _identity(given: Config) -> Json:
    # By it, a layer of two models is one object again.
    return {key: given[key] for key in given if key == "shared_object_id"}


def checked_name(name: object, path: str) -> str:
    """Returns a name that Keras 3 takes."""
    if not isinstance(name, str):
        raise LegacyError(path, describe(name), "expected a name")
    return allowed_name(name)


def name_of_today(name: object, path: str, report: Report) -> str:
    """Returns a name that Keras 3 takes, and notes where it is another."""
    today = checked_name(name, path)
    if today != name:
        report.add(path, "renamed", f"{today}: Keras 3 allows no '/' in a name", matters=True)
    return today


def check_config(given: Config, path: str) -> None:
    """Refuses a layer of a model that TensorFlow saved without its config."""
    if _NO_CONFIG in checks.mapping(given.get("config", {}), f"{path}.config"):
        why = NO_CONFIG.format(name=given.get("class_name"))
        raise LegacyError(f"{path}.config", "was not saved", why)


def own_layer(given: Config, path: str, report: Report) -> Json:
    """Returns today's form of a class that is not Keras's.

    Only what the base class of all layers wrote is known of it.
    """
    config = dict(checks.mapping(given["config"], f"{path}.config"))
    dropped = config.pop("batch_input_shape", None)
    if dropped is not None:
        report.add(f"{path}.config.batch_input_shape", "dropped", "it is built when called")
    if config.get("dynamic") is True:
        why = "Keras 3 has no dynamic layers; write it with keras.ops"
        raise LegacyError(f"{path}.config.dynamic", "is true", why)
    config.pop("dynamic", None)
    if isinstance(config.get("dtype"), Mapping):
        config["dtype"] = policies.policy(config["dtype"], f"{path}.config.dtype", report)
    result = own_object(
        {key: given[key] for key in given if key not in ("name", "inbound_nodes")}, config
    )
    registered = str(result["registered_name"])
    report.add(path, "rewritten", CARRIED_OVER.format(name=registered), matters=True)
    return result | _identity(given)


def _config(name: str, given: Config, path: str, report: Report, nested: Nested) -> Json:
    result: Json = {}
    for key, value in given.items():
        where = at(path, key)
        today = tables.KEYS.get((name, key), key)
        if key not in tables.LAYERS[name] and key not in tables.SHARED:
            why = f"no {name} of TF 1.15 to 2.15 wrote it; a class of your own needs another name"
            raise LegacyError(where, "is not known", why)
        if today != key:
            report.add(where, "renamed", today)
        elif key in ("batch_input_shape", "dynamic"):
            _leave_out(value, where, (None, False) if key == "dynamic" else "any", "", report)
            continue
        elif key == "vocabulary_size" and given.get("vocabulary", 0) is None:
            pass  # of words that are beside the config: what comes after needs their number
        elif (name, key) in tables.LEFT_OUT:
            _leave_out(value, where, *tables.LEFT_OUT[name, key], report)
            continue
        result[today] = _member(name, key, value, where, report, nested)
    if name in ("GRU", "GRUCell") and "reset_after" not in given:
        why = "False: before Keras 2.1.3 there was no other"
        report.add(at(path, "reset_after"), "defaulted", why)
        result["reset_after"] = False
    return result


def _leave_out(
    value: object, path: str, allowed: tables.AllowedValues, why: str, report: Report
) -> None:
    same = allowed == "any" or any(
        value == item and isinstance(value, bool) == isinstance(item, bool) for item in allowed
    )
    if not same:
        raise LegacyError(path, describe(value), why or "Keras 3 has nothing like it")
    report.add(path, "dropped", "Keras 3 has no such key, and does the same")


def _member(
    name: str, key: str, value: object, path: str, report: Report, nested: Nested
) -> object:
    kind = key.rpartition("_")[2]
    if key == "name":
        return name_of_today(value, path, report)
    if key == "dtype":
        if name == "InputLayer":
            return _input_dtype(value, path)
        if name == "Embedding" and value in ("int32", "int64"):
            report.add(path, "rewritten", "float32: Keras 2.0 meant the dtype of the input")
            return policies.policy("float32", path, report)
        return policies.policy(value, path, report)
    if key in ("layer", "cell"):
        if key == "cell" and isinstance(value, list):
            cells = [nested(item, f"{path}[{i}]", report) for i, item in enumerate(value)]
            return of_keras("keras.layers", "StackedRNNCells", {"cells": cells})
        return nested(value, path, report)
    if key == "backward_layer":
        return None if value is None else nested(value, path, report)
    if key == "cells":
        if not isinstance(value, list):
            raise LegacyError(path, describe(value), "expected a list of cells")
        return [nested(item, f"{path}[{i}]", report) for i, item in enumerate(value)]
    if kind == "activation":
        return activation(value, path, report, nested)
    if kind in _PARTS:
        return part(kind, value, path, report)
    if key in tables.FLAGS and (name, key) not in tables.NOT_FLAGS and value is not None:
        return checks.truth(value, path)
    if key == "axis" and "BatchNormalization" in name:
        return _axis(value, path, report)
    return value


def _input_dtype(value: object, path: str) -> object:
    if value is None or (isinstance(value, str) and value in policies.DTYPES):
        return value
    raise LegacyError(path, describe(value), "expected the name of a dtype")


def _axis(value: object, path: str, report: Report) -> object:
    axis = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise LegacyError(path, describe(value), "Keras 3 normalizes over one axis")
    if axis != value:
        report.add(path, "rewritten", f"{axis}, the one axis of the list")
    return axis


def activation(value: object, path: str, report: Report, nested: Nested) -> object:
    """Returns today's form of an activation: a name, a function of one's own, or a layer."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if value.get("class_name") != "function":
            return nested(value, path, report)
        checks.require(value, path, "config")
        path, value = f"{path}.config", value["config"]
    if not isinstance(value, str):
        raise LegacyError(path, describe(value), "expected the name of an activation")
    if value in tables.ACTIVATIONS:
        return value
    if value == "hard_sigmoid":
        if all(change.what != HARD_SIGMOID for change in report):
            report.add(path, "rewritten", HARD_SIGMOID, matters=True)
        return function(tables.HARD_SIGMOID)
    if value != tables.HARD_SIGMOID:
        report.add(path, "rewritten", CARRIED_OVER.format(name=value), matters=True)
    return function(value)


def function(name: str) -> Json:
    """Returns what Keras 3 writes for a function that is not its own."""
    return {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": "function",
    }


_PARTS = {
    "initializer": ("initializers", tables.INITIALIZERS),
    "regularizer": ("regularizers", tables.REGULARIZERS),
    "constraint": ("constraints", tables.CONSTRAINTS),
}
_BY_ALIAS = {kind: {name.lower(): name for name in table} for kind, (_, table) in _PARTS.items()}


def part(kind: str, value: object, path: str, report: Report) -> object:
    """Returns today's form of an initializer, a regularizer or a constraint."""
    if value is None:
        return None
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    given = checks.mapping(value, path)
    name, inside = class_and_config_or_function(given, path)
    package, table = _PARTS[kind]
    if name == "function":
        of_users = str(given["config"])
        report.add(f"{path}.config", "rewritten", CARRIED_OVER.format(name=of_users), matters=True)
        return function(of_users)
    known = _BY_ALIAS[kind].get(_alias(name), tables.ALIASES.get(_alias(name)))
    if name == "RadialConstraint":
        raise LegacyError(f"{path}.class_name", describe(name), "Keras 3 has no such constraint")
    # tf.initializers were classes of their own, with the same rules.
    module = str(given.get("module"))
    of_tensorflow = kind == "initializer" and re.fullmatch(_OF_TENSORFLOW, module) is not None
    if known not in table or not (of_tensorflow or is_of_keras(given, name, package)):
        report.add(path, "rewritten", CARRIED_OVER.format(name=name), matters=True)
        return own_object(given, dict(inside))
    config: Json = {}
    for key, item in inside.items():
        where = at(f"{path}.config", key)
        if kind == "initializer" and key in ("dtype", "verify_shape"):
            report.add(where, "dropped", "the weight's own dtype and shape count")
        elif key == "distribution" and item == "normal":
            report.add(where, "rewritten", "truncated_normal, its name since TF 1.15")
            config[key] = "truncated_normal"
        elif key not in table[known]:
            why = f"no {known} of TF 1.15 to 2.15 wrote it"
            raise LegacyError(where, "is not known", why)
        else:
            config[key] = item
    return of_keras(f"keras.{package}", known, config)


def _alias(name: str) -> str:
    return re.sub(r"v[12]$", "", name.removeprefix("Custom>").replace("_", "").lower())
