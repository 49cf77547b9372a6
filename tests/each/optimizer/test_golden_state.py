"""Variables keep their order, and files their keys: those of before can be read."""

import json

import keras
import pytest

from tests import golden_state


@pytest.mark.parametrize("name", golden_state.MAKERS)
@pytest.mark.parametrize(
    "what",
    [
        golden_state.order,
        golden_state.in_file,
        pytest.param(
            golden_state.in_object_graph,
            marks=pytest.mark.skipif(
                keras.backend.backend() != "tensorflow", reason="object graphs are TensorFlow's"
            ),
        ),
    ],
    ids=lambda what: what.__name__,
)
def test_as_ever(what, name):
    recorded = json.loads((golden_state.FOLDER / f"{what.__name__}.json").read_text("utf-8"))
    assert what(golden_state.trained(name)) == recorded[name]
