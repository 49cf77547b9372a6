"""Lambda functions give what they gave in TensorFlow 2.15, whichever Python compiled them.

tests/data/lambdas has them: byte code of Python 3.6 to 3.11, and what each function returned.
"""

import json
from typing import Any

import numpy as np
import pytest
from keras import ops

from keras_mp.compat.code_objects import from_config
from keras_mp.compat.operations import expressions, lambdas
from keras_mp.compat.operations.computing.evaluating import as_result, evaluate
from tests.data.lambdas.inputs import INPUTS
from tests.data.lambdas.reading import LAMBDAS, fields
from tests.each.compat.operations.recorded_calls import differences, flat

RESULTS = json.loads((LAMBDAS / "results.json").read_text(encoding="utf-8"))
FLAG = next(source for source in RESULTS if "K.ndim(y) > 2 and flag" in source)
# What TensorFlow computed, and we do not take, with a part of the reason.
REFUSED = {
    "lambda x: tf.abs(tf.signal.rfft(x))": "tf.signal.rfft",
    "lambda x: tf.signal.stft(x, frame_length=256, frame_step=128)": "tf.signal.stft",
    "lambda x: tf.constant(2.0).numpy() * x": "calls `.numpy",
    # Keras never saved defaults of parameters that are given by keyword only.
    "def f(x, k=2, *, axis=1):\n    y = K.repeat_elements(x, k, axis)\n    return y": "'axis'",
    "lambda x, y=1, *, by=2: x * by + y": "no value for its argument 'by'",
    # They need a global variable for other inputs.
    "lambda x: x or y": "needs 'y'",
    "lambda x: x or y and z": "needs 'y'",
    FLAG: "needs 'flag'",
}
# One tensor has the rows of an image here, as layers return tensors and lists of them.
STACKED = "lambda x: [[x[i, j] for j in range(2)] for i in range(2)]"
# As many numbers as are true: known only when it runs.
OF_NO_SIZE = "lambda x: x[x > 0]"
# Of a negative number as uint8 each backend makes another.
UNDEFINED = "lambda x: K.one_hot(K.cast(x, 'uint8'), num_classes=10)"


def program(field: Any, number: int) -> lambdas.Program:
    """Returns what a function computes, of a tensor or of two."""
    tensors: list[Any] = [expressions.tensor(i) for i in range(number)]
    return lambdas.program(from_config(field), tensors if number > 1 else tensors[0], {})


def array(kept: dict[str, Any]) -> Any:
    """Returns a recorded tensor."""
    return np.array(kept["is"], kept["dtype"]).reshape(kept["shape"])


@pytest.mark.parametrize(
    "source", sorted(RESULTS.keys() - REFUSED.keys() - {STACKED, OF_NO_SIZE, UNDEFINED})
)
def test_gives_what_it_gave(source: str) -> None:
    name, expected = RESULTS[source]
    arrays = INPUTS[name]
    programs = [program(field, len(arrays)) for _, field in fields(source)]
    first = programs[0]
    assert all(other == first for other in programs)
    inputs = [ops.convert_to_tensor(array) for array in arrays]
    done: list[Any] = []
    for one in (*first.steps, first.result):
        done.append(evaluate(one, inputs, steps=done))
    pairs = zip(flat(as_result(done[-1])), flat(expected), strict=True)
    assert not [
        text for value, there in pairs for text in differences(first.result, value, array(there))
    ]


@pytest.mark.parametrize("source", sorted(REFUSED))
def test_is_refused(source: str) -> None:
    for _, field in fields(source):
        with pytest.raises(lambdas.NotConverted, match=REFUSED[source]):
            program(field, len(INPUTS[RESULTS[source][0]]))
