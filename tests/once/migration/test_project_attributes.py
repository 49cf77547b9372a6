"""Attributes of optimizers that another file makes: what is known of these decides."""

import pytest

from keras_mp.migration.code.project import analyse
from keras_mp.migration.code.rewriting import rewrite

TF = "import tensorflow as tf\nfrom tensorflow.keras.mixed_precision import experimental as mp\n"
WRAPPED = "mp.LossScaleOptimizer(opt, {})"
MAYBE = "opt = tf.keras.optimizers.SGD()\nif args.amp:\n    opt = {}\n"


def migrated(run: str, trainer: str) -> tuple[str, list[str]]:
    """Returns trainer.py after the command, and the verdicts of its findings by KMP009."""
    files = {"run.py": f"{TF}from trainer import *\n{run}", "trainer.py": trainer}
    found = rewrite(trainer, elsewhere=analyse(files)["trainer.py"])
    return found.text, [one.verdict for one in found.findings if one.rule == "KMP009"]


def of_run(scale: str) -> str:
    return MAYBE.format(WRAPPED.format(scale)) + "train(opt)\n"


@pytest.mark.parametrize("more", ["", "    o.variables()\n"], ids=["ours", "of Keras 2"])
def test_one_that_is_wrapped_only_if_a_flag_is_set(more: str) -> None:
    trainer = f"def train(o):\n    print(o.loss_scale(), o._optimizer)\n{more}"
    text, verdicts = migrated(of_run("'dynamic'"), trainer)
    assert text == trainer.replace("loss_scale()", "loss_scale").replace("_op", "inner_op")
    assert verdicts == ["rewritten", "rewritten"]


@pytest.mark.parametrize("scale", ["policy.loss_scale", "scale", "FLAGS['scale']"])
def test_one_whose_loss_scale_is_an_object_keeps_it(scale: str) -> None:
    trainer = "def train(o):\n    print(o.loss_scale(), o.loss_scale.increment_period)\n"
    text, verdicts = migrated(of_run(scale), trainer)
    assert (text, verdicts) == (trainer, ["kept", "kept"])


OTHERS = {
    "both kinds": of_run("'dynamic'") + of_run("scale"),
    "a wrapper that is not known": "import other\n" + of_run("'dynamic'") + "train(other.opt)\n",
    "another wrapper": (
        "import tensorflow_addons as tfa\n"
        + of_run("'dynamic'")
        + "train(tfa.optimizers.SWA(opt))\n"
    ),
    "what a call makes": "opt = tf.make()\n" + of_run("scale"),
    "no scale": MAYBE.format("mp.LossScaleOptimizer(opt)") + "train(opt)\n",
    "stars": MAYBE.format("mp.LossScaleOptimizer(*both)") + "train(opt)\n",
    "of a later TensorFlow, by position": MAYBE.format(
        "tf.keras.mixed_precision.LossScaleOptimizer(opt, dynamic)"
    )
    + "train(opt)\n",
}


@pytest.mark.parametrize("run", OTHERS.values(), ids=OTHERS)
def test_what_is_not_known_is_left_to_a_person(run: str) -> None:
    trainer = "def train(optimizer):\n    print(optimizer.loss_scale())\n"
    text, verdicts = migrated(run, trainer)
    assert (text, verdicts) == (trainer, ["manual"])


def test_the_loss_scale_of_a_policy_is_no_optimizer_s() -> None:
    run = "p = mp.Policy('mixed_float16', loss_scale=8)\ntrain(p)\n"
    trainer = "def train(policy):\n    print(policy.loss_scale.initial_loss_scale)\n"
    assert migrated(run, trainer) == (trainer, [])
