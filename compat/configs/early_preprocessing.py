"""Layers of `experimental.preprocessing` as TF 2.3 to 2.5 wrote them, in the words of TF 2.6.

Source: tensorflow/python/keras/layers/preprocessing, TF 2.4.4.
"""

from collections.abc import Callable
from math import inf

from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.configs.report import Report
from keras_mp.compat.configs.serialized import Config
from keras_mp.compat.errors import LegacyError

Json = dict[str, object]

# What `Hashing` wrote where it was given no salt.
_NO_SALT = [0xDECAFCAFFE, 0xDECAFCAFFE]
UNSALTED = (
    "none: TF 2.4 wrote this salt for a layer without one, which hashes by another function. (It "
    "took it for a salt itself where it loaded a model from its config: then give the layer this "
    "salt, in code.)"
)
INVERTED = (
    "null: up to TF 2.5 an inverted lookup had no index for words that it does not know, and the "
    "first word had the index 1. So it has here; but index 0, which was {!r}, gives {!r}"
)
_IN_CODE = "build the layer in code"


def as_of_tf_2_6(name: str, config: Config, path: str, report: Report) -> Config:
    """Returns the config of a layer as TF 2.6 would have written it; others as they are.

    Args:
        name: Class of the layer.
        config: As it was written.
        path: Where that is.
        report: Gets the changes.

    Raises:
        LegacyError: It does not say what the layer computes.

    >>> report = Report()
    >>> as_of_tf_2_6("Discretization", {"bins": [0.0, 1.0, inf]}, "$.config", report)
    {'bin_boundaries': [0.0, 1.0]}
    >>> print(*report)
    $.config.bins renamed: bin_boundaries
    """
    renew = _RENEW.get(name)
    return config if renew is None else renew(dict(config), path, report)


def _renamed(config: Json, path: str, report: Report, names: dict[str, str]) -> Json:
    for old, new in names.items():
        if old in config:
            report.add(at(path, old), "renamed", new)
    return {names.get(key, key): value for key, value in config.items()}


def _with_mode(config: Json, path: str, report: Report) -> Json:
    mode = config.get("output_mode")
    if isinstance(mode, str) and mode in _MODES:
        report.add(at(path, "output_mode"), "renamed", _MODES[mode])
        config["output_mode"] = _MODES[mode]
    return config


def _lookup(config: Json, path: str, report: Report) -> Json:
    if "output_mode" in config:
        return _with_mode(config, path, report)
    names = {"max_values": "max_tokens", "mask_value": "mask_token", "oov_value": "oov_token"}
    config = _renamed(config, path, report, names)
    config["dtype"] = "int64"  # that of the indices, since
    config["output_mode"] = "int"
    report.add(at(path, "output_mode"), "defaulted", "int: there was no other")
    if config.get("invert") and config.get("mask_token") is not None:
        what = INVERTED.format(config["mask_token"], config.get("oov_token"))
        report.add(at(path, "mask_token"), "differs", what, matters=True)
        config["mask_token"] = None
    return config


def _discretization(config: Json, path: str, report: Report) -> Json:
    if "bins" not in config:
        return config
    where = at(path, "bins")
    bins = config["bins"]
    if not isinstance(bins, list):
        raise LegacyError(where, describe(bins), "expected a list of numbers")
    config["bins"] = bins[:-1] if bins and bins[-1] == inf else bins
    return _renamed(config, path, report, {"bins": "bin_boundaries"})


def _category_encoding(config: Json, path: str, report: Report) -> Json:
    if "max_tokens" not in config:
        return config
    mode = config.get("output_mode")
    if mode not in ("binary", "count"):
        why = f"its weights are in no file of this layer: {_IN_CODE}"
        raise LegacyError(at(path, "output_mode"), describe(mode), why)
    if config["max_tokens"] is None:
        why = f"adapt() found the number of tokens, which no file has: {_IN_CODE}"
        raise LegacyError(at(path, "max_tokens"), describe(None), why)
    config = _with_mode(config, path, report)
    return _renamed(config, path, report, {"max_tokens": "num_tokens"})


def _hashing(config: Json, path: str, report: Report) -> Json:
    if "mask_value" in config:
        return config
    config["dtype"] = "int64"  # that of the bins, since
    if config.get("salt") == _NO_SALT:
        report.add(at(path, "salt"), "rewritten", UNSALTED, matters=True)
        config["salt"] = None
    return config


_MODES = {"binary": "multi_hot", "tf-idf": "tf_idf"}
_RENEW: dict[str, Callable[[Json, str, Report], Json]] = {
    "StringLookup": _lookup,
    "IntegerLookup": _lookup,
    "Discretization": _discretization,
    "CategoryEncoding": _category_encoding,
    "Hashing": _hashing,
    "TextVectorization": _with_mode,
}
