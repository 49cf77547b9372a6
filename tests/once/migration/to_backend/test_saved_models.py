"""KMP211: SavedModels, signatures, TensorFlow Lite."""

import pytest

from tests.obstacles import found

FOUND = {
    "saved": ("tf.saved_model.save(m, 'p')\n", "model.save('model.keras')"),
    "loaded": ("m = tf.saved_model.load('p')\n", "keras_mp.compat.load_model"),
    "save with signatures": ("m.save('p', signatures=m.f)\n", "model.save('model.keras')"),
    "export with signatures": ("m.export('p', signatures={'a': f})\n", "model.export"),
    "TensorFlow Lite": (
        "c = tf.lite.TFLiteConverter.from_keras_model(m)\n",
        "convert the .keras file there",
    ),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("source", "do"), FOUND.values(), ids=FOUND)
def test_found(source, do, target):
    (message,) = found(source, "KMP211", target).values()
    assert do in message
    assert message.endswith("leave-tensorflow.md#savedmodels")


LEFT_ALONE = {
    "Keras' own": "m.save('m.keras')\nm.export('p')\n",
    "a name of a signature": "x = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY\n",
    "an interpreter": "i = tf.lite.Interpreter('m.tflite')\n",
    "signatures of something else": "verify(signatures=3)\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP211") == {}
