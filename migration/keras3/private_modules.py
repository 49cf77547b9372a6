"""KMP103: private modules of Keras, and what is no name of it.

before:  from tensorflow.python.keras.layers import Dense
after:   from tensorflow.keras.layers import Dense

before:  from keras.engine.topology import InputSpec
after:   from keras import InputSpec

before:  from keras.layers.core import Dense as D, Flatten
after:   from keras.layers import Dense as D, Flatten

before:  from tensorflow.python.keras import backend as K
after:   from tensorflow.keras import backend as K

Safe where there is one public name that ends in the same word. `tensorflow.python.keras` is a copy
of Keras 2 that TensorFlow keeps for itself: it can be imported, and its layers are none of Keras 3.
Reported: names that have no public one, `import *`, and modules that are imported as a whole where
not all that is used of them is public.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import replaced_names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.names import Known


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    yield from replaced_names.decisions_by_status(code, "private", _message)


def _message(known: Known) -> str:
    if known.new is None:
        return f"{known} is not a public name of Keras, and its counterpart in Keras 3 is unknown"
    return f"{known} is private: {known.advice}"
