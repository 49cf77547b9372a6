"""Layers of experimental.preprocessing of TF 2.3 to 2.5 in the words of TF 2.6."""

import math

import pytest

from keras_mp.compat.configs import convert

NO_SALT = [0xDECAFCAFFE, 0xDECAFCAFFE]


@pytest.mark.parametrize(
    ("name", "given", "today"),
    [
        (
            "StringLookup",
            {"mask_token": "", "oov_token": "[UNK]", "num_oov_indices": 1, "max_tokens": None},
            {"mask_token": "", "oov_token": "[UNK]", "output_mode": "int"},
        ),
        (
            "IntegerLookup",
            {"max_values": 9, "mask_value": 0, "oov_value": -1, "num_oov_indices": 1},
            {"max_tokens": 9, "mask_token": 0, "oov_token": -1, "output_mode": "int"},
        ),
        ("StringLookup", {"output_mode": "binary"}, {"output_mode": "multi_hot"}),
        ("Discretization", {"bins": [0.0, 1.5, math.inf]}, {"bin_boundaries": [0.0, 1.5]}),
        ("Discretization", {"bins": [0.0, 1.5]}, {"bin_boundaries": [0.0, 1.5]}),
        (
            "CategoryEncoding",
            {"max_tokens": 5, "output_mode": "binary", "sparse": False},
            {"num_tokens": 5, "output_mode": "multi_hot", "sparse": False},
        ),
        (
            "CategoryEncoding",
            {"max_tokens": 5, "output_mode": "count", "sparse": False},
            {"num_tokens": 5, "output_mode": "count"},
        ),
        ("Hashing", {"num_bins": 3, "salt": NO_SALT}, {"num_bins": 3, "salt": None}),
        ("Hashing", {"num_bins": 3, "salt": [1, 2]}, {"salt": [1, 2]}),
        ("Hashing", {"num_bins": 3, "salt": NO_SALT, "mask_value": None}, {"salt": NO_SALT}),
        ("TextVectorization", {"output_mode": "tf-idf"}, {"output_mode": "tf_idf"}),
    ],
)
def test_it_is_renewed(name, given, today):
    config = {"name": "one", "trainable": True, "dtype": "int64", **given}
    done = convert({"class_name": name, "config": config}, kind="layer", tf_version="2.4")
    found = done.config["config"]
    assert {key: found[key] for key in today} == today
    assert found.keys() & {"bins", "max_values", "mask_value", "oov_value"} <= today.keys() | {
        key for key in given if name == "Hashing"
    }


def test_the_unsalted_hash_is_told():
    config = {"name": "one", "trainable": True, "dtype": "int64", "num_bins": 3, "salt": NO_SALT}
    done = convert({"class_name": "Hashing", "config": config}, kind="layer")
    assert any("another function" in note for note in done.notes)
