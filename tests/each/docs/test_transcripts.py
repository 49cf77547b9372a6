"""The walkthrough's commands print what the page says, and its training goes on as TF 2.3.4 did."""

import json

import keras
import numpy as np
import pytest

import keras_mp  # noqa: F401 - its classes are in the file
from tests import programs, transcripts
from tests.backends import on_one

# That each backend goes on with such a checkpoint: tests/each/compat/test_resume.py.
pytestmark = on_one
PAGE = programs.ROOT / "docs" / "tutorials" / "walkthrough-tf23.md"
RECORDED = json.loads((transcripts.DATA / "recorded.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walkthrough")
    transcripts.start(folder)
    page = PAGE.read_text(encoding="utf-8")
    return page, transcripts.replayed(page, folder), folder


def test_the_page_is_what_happens(ran):
    page, now, _ = ran
    # Keras counts in int64 on TensorFlow, and in int32 elsewhere.
    assert without_counters(now) == without_counters(page)


def without_counters(text):
    words = ("RMSprop/iteration", "step_counter")
    return [line for line in text.splitlines() if not any(word in line for word in words)]


def test_it_ends_where_tensorflow_ended(ran):
    model = keras.models.load_model(ran[2] / "resumed.keras")
    assert float(model.optimizer.loss_scale) == RECORDED["scales"][-1]
    assert int(model.optimizer.iterations) == RECORDED["iterations"]
    for now, then in zip(model.get_weights(), RECORDED["weights"], strict=True):
        np.testing.assert_allclose(now.ravel(), then, rtol=0, atol=0.01)  # one step of 24
