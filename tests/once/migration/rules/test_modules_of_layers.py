"""KMP019: variables of a tf.Module that holds layers of Keras."""

from pathlib import Path

import pytest

from tests.source_rules import MAKE, TF, migrated

MODULE = (
    "import tensorflow as tf\nclass Net(tf.Module):\n    def __init__(self):\n"
    "        self.dense = {}\n"
)
MODULES = {
    "a layer": MODULE.format("tf.keras.layers.Dense(1)"),
    "a list": MODULE.format("[tf.keras.layers.Dense(1) for _ in range(2)]"),
    "a model of one's own": "import tensorflow as tf\nclass Own(tf.keras.Model): pass\n"
    + MODULE.format("Own()"),
    "derived twice": MODULE.format("tf.keras.Sequential()").replace("Net(", "Base(")
    + "class Net(Base): pass\n",
}


@pytest.mark.parametrize("net", MODULES.values(), ids=MODULES)
def test_a_module_of_layers_has_no_variables(net: str, tmp_path: Path) -> None:
    run = f"{TF}from net import Net\nnet = Net()\no = {MAKE}\ntrain(net.trainable_variables)\n"
    text, findings = migrated(tmp_path, net=net, run=run)["run"]
    assert "train(net.trainable_variables)" in text
    (found,) = (one for one in findings if one.rule == "KMP019")
    assert (found.place.line, found.verdict) == (5, "manual")


@pytest.mark.parametrize(
    "net",
    [
        MODULE.format("tf.Variable(1.0)"),
        MODULE.format("tf.keras.layers.Dense(1)").replace("tf.Module", "tf.keras.Model"),
    ],
)
def test_other_modules_and_models_have_theirs(net: str, tmp_path: Path) -> None:
    run = f"{TF}from net import Net\nnet = Net()\no = {MAKE}\ntrain(net.trainable_variables)\n"
    findings = migrated(tmp_path, net=net, run=run)["run"][1]
    assert not [one for one in findings if one.rule == "KMP019"]
