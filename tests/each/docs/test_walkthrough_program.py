"""The walkthrough's own program, migrated, runs to its end on the TensorFlow of Keras 3."""

import re
import shutil

import keras
import pytest

import keras_mp  # noqa: F401 - its classes are in the file
from keras_mp.migration.cli import main
from tests import programs, transcripts

# As recorded: `keras-mp inspect saved_model` of the page says so.
SCALE, STEP = 65536.0, 32


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the program is one of TensorFlow"
)
def test_it_ends_as_with_tensorflow_2_3(tmp_path):
    script = tmp_path / "train.py"
    shutil.copy(transcripts.DATA / "train.py", script)
    assert main(["migrate", "--write", str(script)]) == 0
    source = script.read_text(encoding="utf-8")
    saved = tmp_path / "trained.keras"
    # As the page says: Keras 3 saves files.
    changed = source.replace('model.save("saved_model")', f"model.save({str(saved)!r})")
    assert changed != source
    script.write_text(changed, encoding="utf-8")
    done = programs.completed(script, timeout=200, imported=True)
    assert done.returncode == 0, done.stderr
    said = re.search(r"loss scale ([\d.]+) at step (\d+)", done.stdout)
    assert (float(said[1]), int(said[2])) == (SCALE, STEP)
    model = keras.models.load_model(saved)
    assert int(model.optimizer.iterations) == STEP
    assert float(model.optimizer.loss_scale) == SCALE
