"""What `explain` prints of long names, and of a scale that an optimizer has itself."""

import keras

from keras_mp.diagnosis.explaining import explain


def test_paths_are_cut_in_the_middle():
    name = "encoder_" * 8 + "query"
    first = keras.layers.Dense(3, name=name, dtype="mixed_float16")
    layers = [first, *map(keras.layers.Dense, [2] * 40)]
    model = keras.Sequential([keras.Input((4,)), *layers], name="net")
    text = explain(model, keras.optimizers.SGD(loss_scale_factor=128)).text()
    (row,) = (line for line in text.splitlines() if "query (Dense)" in line)
    assert name not in row
    path = next(word for word in row.split() if word.endswith("query"))
    assert path.startswith("encoder_")
    assert "\N{HORIZONTAL ELLIPSIS}" in path
    assert len(path) == 34
    assert "loss_scale_factor=128 of SGD, fixed" in text
