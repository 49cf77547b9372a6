"""KMP109: files that Keras 3 does not write or read."""

import pytest

from tests.keras3_rules import header, holds, messages, rewritten, verdicts

REPORTED = {
    "a folder": ("model.save('folder')", ".keras or .h5"),
    "a folder, joined": ("import os\nmodel.save(os.path.join(d, 'folder'))", ".keras or .h5"),
    "a folder, added": ("model.save(d + '/folder')", ".keras or .h5"),
    "a folder, a Path": ("model.save(d / 'folder')", ".keras or .h5"),
    "as a function": ("keras.models.save_model(model, 'folder')", ".keras or .h5"),
    "format of TensorFlow": ("model.save(p, save_format='tf')", "no save_format"),
    "of any object": ("def f(m): m.save('a.h5', save_format=q)", "no save_format"),
    "weights": ("model.save_weights('w.h5')", ".weights.h5"),
    "weights, in a format": ("model.save_weights('w', save_format='tf')", ".weights.h5"),
    "of what is called a model": ("def f(model): model.save_weights('w')", ".weights.h5"),
    "a checkpoint": ("model.load_weights('ck/cp.ckpt')", "keras_mp.compat.restore"),
    "the latest": ("model.load_weights(tf.train.latest_checkpoint(d))", "keras_mp.compat.restore"),
    "by_name": ("model.load_weights('a.weights.h5', by_name=True)", "by_name"),
    "a SavedModel": ("keras.models.load_model('folder')", "TFSMLayer"),
    "checkpoints of fit": ("keras.callbacks.ModelCheckpoint('c.hdf5')", ".keras files"),
    "of weights": (
        "keras.callbacks.ModelCheckpoint(filepath='c.h5', save_weights_only=True)",
        ".weights.h5",
    ),
    "formatted": ("model.save('m_{}'.format(n) + '_last')", ".keras or .h5"),
}
FINE = {
    "keras": "model.save('a.keras')",
    "h5": "model.save('a.h5')\nmodel.save('a.hdf5')",
    "an unknown path": "model.save(path)\nkeras.models.load_model(path)\nmodel.load_weights(path)",
    "an unknown end": "model.save('model_%d' % 3)\nmodel.save('model_{}'.format(p))",
    "f-string": "model.save(f'model_{suffix}')",
    "a placeholder inside": "keras.callbacks.ModelCheckpoint('m{epoch:02d}.keras')",
    "weights": "model.save_weights('a.weights.h5')\nmodel.load_weights('a.h5')",
    "of others": "def f(agent): agent.save_weights('w')\nplot.save('folder')",
    "its own": "class M(Model):\n    def save(self, p): pass\nM().save('folder')",
    "weights or not": "keras.callbacks.ModelCheckpoint('c.h5', save_weights_only=only)",
}


@pytest.mark.parametrize(("before", "after"), header("KMP109"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("line", "advice"), REPORTED.values(), ids=REPORTED)
def test_is_reported(line, advice):
    found = messages(line, "KMP109")
    assert len(found) == 1
    assert advice in found[0]
    assert verdicts(line, "KMP109") == ["manual"]


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_is_left_alone(line):
    assert messages(line, "KMP109") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "model.save('a.h5', save_format='h5', overwrite=True)",
            "model.save('a.h5', overwrite=True)",
        ),
        ("model.save(save_format='h5', filepath='a.h5')", "model.save(filepath='a.h5')"),
        (
            "keras.models.save_model(model, 'a.h5', save_format='h5')",
            "keras.models.save_model(model, 'a.h5')",
        ),
        (
            "model.save_weights('a.weights.h5', save_format='h5')",
            "model.save_weights('a.weights.h5')",
        ),
    ],
)
def test_a_format_that_the_path_says_goes(before, after):
    assert rewritten(before) == after
