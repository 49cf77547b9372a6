"""KMP020: Horovod and TensorFlow Addons."""

import pytest

from keras_mp.migration.code.rewriting import Options, rewrite

HEAD = (
    "import horovod.tensorflow.keras as hvd\nimport tensorflow as tf\n"
    "import tensorflow_addons as tfa\nfrom tensorflow_addons.optimizers import LAMB\n"
    "opt = tf.keras.mixed_precision.LossScaleOptimizer(opt)\n"
)
REPORTED = {
    "opt = hvd.DistributedOptimizer(opt)": "reduce the gradients of all devices",
    "tape = hvd.DistributedGradientTape(tape)": "plain tf.GradientTape",
    "calls = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]": "remove it",
    "opt = tfa.optimizers.MovingAverage(opt)": "use_ema=True",
    "opt = tfa.optimizers.AdamW(0.1)": "keras.optimizers.AdamW",
    "opt = LAMB(0.1)": "keras.optimizers.Lamb",
    "opt = tfa.optimizers.Lookahead(opt)": "Keras 3 has no counterpart",
}


@pytest.mark.parametrize(("line", "said"), REPORTED.items())
def test_is_reported(line: str, said: str) -> None:
    source = f"{HEAD}{line}\n"
    result = rewrite(source)
    assert result.text.endswith(f"{line}\n")
    (found,) = (one for one in result.findings if one.rule == "KMP020")
    assert (found.line, found.verdict) == (6, "manual")
    assert said in found.message


@pytest.mark.parametrize(
    "line", ["hvd.init()", "x = hvd.rank()", "y = tfa.losses.TripletSemiHardLoss()"]
)
def test_the_rest_is_left(line: str) -> None:
    assert not [one for one in rewrite(f"{HEAD}{line}\n").findings if one.rule == "KMP020"]


def test_a_program_without_mixed_precision_is_left() -> None:
    source = "import horovod.tensorflow as hvd\nopt = hvd.DistributedOptimizer(o)  # loss_scale\n"
    assert not [one for one in rewrite(source).findings if one.rule == "KMP020"]


def test_with_a_target_horovod_is_told_once() -> None:
    source = f"{HEAD}opt = hvd.DistributedOptimizer(tfa.optimizers.AdamW(0.1))\n"
    rules = [one.rule for one in rewrite(source, Options(target="jax")).findings if one.line == 6]
    assert sorted(rules) == ["KMP020", "KMP215"], "one of the add-on, one of Horovod"
