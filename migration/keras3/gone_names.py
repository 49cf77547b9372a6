"""KMP101: names of tf.keras that Keras 3 has not.

    tf.keras.backend.placeholder(shape=(None, 4))        # write keras.Input
    from tensorflow.keras.utils import multi_gpu_model   # write tf.distribute.MirroredStrategy
    tf.estimator.Estimator(model_fn)                     # there are none since TF 2.16

Reported where the name resolves through imports to tensorflow.keras or keras. What `keras` has not,
but `tf.keras` of TensorFlow 2.16 and later still has, is reported for `keras` only, such as
`keras.backend.sum`. Names of TF 1.15.0, 2.4.4, 2.10.1 and 2.15.1 were compared with Keras 3.10 and
3.15; `optimizers.legacy` is there and raises an error.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.parsed import parts_of
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import renamed_members, replaced_names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.names import Known

_ESTIMATOR = ("tensorflow.estimator", "tensorflow.compat.v1.estimator")
_NO_ESTIMATORS = "tf.estimator is gone since TF 2.16: train a Keras model with fit"


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for place, decision in replaced_names.decisions_by_status(code, "gone", _message):
        if not _is_rewritten(code, place):
            yield place, decision
    for node in code.chains:
        for part in parts_of(node):
            if code.program.full_name(part, is_sole=True) in _ESTIMATOR:
                yield part, Decision("manual", _NO_ESTIMATORS)


def _is_rewritten(code: Code, node: cst.CSTNode) -> bool:
    """Returns whether another rule rewrites the call of a name, as `K.set_value(variable, 1)`."""
    call = code.program.call_of(node)
    found = None if call is None else renamed_members.of_call(code, call)
    return found is not None and found.verdict == "rewritten"


def _message(known: Known) -> str:
    advice = known.advice
    return f"{known} is gone in Keras 3{f': {advice}' if advice else ''}"
