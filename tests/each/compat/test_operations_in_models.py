"""Models in which operations meet masks, open axes, layers around layers, and files without names.

tests/data/legacy/operations_in_models has them, with what TF 1.15 to 2.15 predicted.
"""

import keras
import numpy as np
import pytest

from keras_mp.compat import load_model
from keras_mp.compat.model_code import model_code
from tests.backends import not_on
from tests.fixtures import DATA

FILES = sorted(
    path for path in (DATA / "operations_in_models").rglob("*") if path.suffix in (".h5", ".keras")
)


def recorded(path):
    with np.load(path.with_suffix(".npz")) as arrays:
        found = dict(arrays)
    x, y, p = (
        [found[key] for key in sorted(found) if key[0] == kind and key[1:].isdigit()]
        for kind in "xyp"
    )
    return *(v if len(v) > 1 else v[0] for v in (x, y)), p, found["evaluated"], found["later"]


LAST_CALL = not_on("jax", "Keras there counts the added loss of the last call of a layer only")


def cases(files):
    return [
        pytest.param(
            path,
            id=f"{path.parent.name}/{path.name}",
            marks=LAST_CALL if path.stem == "inner_with_loss" else (),
        )
        for path in files
    ]


def listed(value):
    return value if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize("path", cases(FILES))
def test_goes_on_as_it_was(path):
    x, y, expected, evaluated, later = recorded(path)
    model = load_model(path)
    predicted = listed(model.predict(x, verbose=0))
    for found, there in zip(predicted, expected, strict=True):
        assert np.abs(found - there).max() <= 1e-5 * np.abs(there).max()
    logs = model.evaluate(x, y, verbose=0, batch_size=4, return_dict=True)
    assert logs["loss"] == pytest.approx(evaluated[0], rel=1e-5)
    for number in evaluated[1:]:
        assert any(value == pytest.approx(number, rel=1e-4, abs=1e-6) for value in logs.values())
    model.train_on_batch(x, y)
    if is_plain_adam_of_words(model):
        return
    logs = model.evaluate(x, y, verbose=0, batch_size=4, return_dict=True)
    assert logs["loss"] == pytest.approx(later[0], rel=1e-4)


def is_plain_adam_of_words(model):
    """On TensorFlow Keras' Adam squares the gradients of a word that is there twice one by one."""
    has_words = any(isinstance(layer, keras.layers.Embedding) for layer in model.layers)
    is_plain = type(model.optimizer) is keras.optimizers.Adam
    return keras.backend.backend() == "tensorflow" and has_words and is_plain


@pytest.mark.parametrize("path", cases(FILES[::3]))
def test_is_saved_and_written_as_a_program(path, tmp_path):
    x, *_ = recorded(path)
    model = load_model(path)
    predicted = listed(model.predict(x, verbose=0))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    scope = {}
    exec(compile(model_code(model), "model.py", "exec"), scope)
    built = scope["build"]()
    built.load_weights(tmp_path / "model.keras")
    for other in (again, built):
        for found, there in zip(listed(other.predict(x, verbose=0)), predicted, strict=True):
            np.testing.assert_allclose(found, there, rtol=1e-5, atol=1e-6)
