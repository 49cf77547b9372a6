"""KMP113: `self` given to the constructor of a class of Keras.

before:  super().__init__(self)
after:   super().__init__()

before:  super(Head, self).__init__(self, name="head")
after:   super(Head, self).__init__(name="head")

Safe: Keras 2 took it for `trainable`, and a model took no notice; Keras 3 refuses it.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.code import Code

_SAID = "self is given twice, which raises an error in Keras 3"


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for call in code.calls:
        if not call.args or not isinstance(call.func, cst.Attribute):
            continue
        of_super, first = call.func.value, call.args[0]
        if call.func.attr.value != "__init__" or not isinstance(of_super, cst.Call):
            continue
        if not isinstance(first.value, cst.Name) or first.value.value != "self" or first.keyword:
            continue
        is_super = isinstance(of_super.func, cst.Name) and of_super.func.value == "super"
        if is_super and code.objects.of(of_super) is not None:
            yield first, Decision("rewritten", _SAID, (code.without(call, first),))
