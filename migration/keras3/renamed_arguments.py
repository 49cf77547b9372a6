"""KMP105: arguments that have another name in Keras 3, or none because none is needed.

before:  tf.keras.optimizers.Adam(lr=1e-3)
after:   tf.keras.optimizers.Adam(learning_rate=1e-3)

before:  tf.keras.regularizers.l2(l=0.01)
after:   tf.keras.regularizers.l2(l2=0.01)

before:  tf.keras.layers.LSTM(8, time_major=False)
after:   tf.keras.layers.LSTM(8)

before:  tf.keras.utils.load_img(path, grayscale=True)
after:   tf.keras.utils.load_img(path, color_mode="grayscale")

Safe: the same value by another name; or the value that was the default, of an option that is gone.
Other values of such options are KMP104's.
"""

from collections.abc import Container, Iterator

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import keywords
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.argument_advice import Action, Renamed, Valued
from keras_mp.migration.keras3.calls import Called, calls_of_keras
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.gone_arguments import action_of, fits, subject_of


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for one in calls_of_keras(code):
        given = keywords(one.call)
        found = []
        for name, argument in given.items():
            action = action_of(one, name)
            value = fits(code, action, argument) if action is not None else None
            if action is not None and value is not None:
                found.append((argument, action, value))
        gone = [argument for argument, _, value in found if not value]
        for argument, action, value in found:
            if not value:
                edit = code.without(one.call, argument, gone)
                yield (
                    argument,
                    Decision("rewritten", f"{subject_of(one, argument)}it goes", (edit,)),
                )
            else:
                yield argument, _decided(code, one, argument, action, value, given)


def _decided(
    code: Code, one: Called, argument: cst.Arg, action: Action, value: str, given: Container[str]
) -> Decision:
    assert argument.keyword is not None
    new = action.new if isinstance(action, (Renamed, Valued)) else ""
    edits: list[Edit] = []
    if new:
        if new in given:
            return Decision(
                "manual", f"{subject_of(one, argument)}write {new}, which is given, too"
            )
        edits.append(code.replaced(argument.keyword, new))
    if value != code.program.value(argument):
        edits.append(code.replaced(argument.value, value))
    written = new or argument.keyword.value
    what = f"{one.title} of Keras 3: write {written}{'' if new else f'={value}'}"
    return Decision("rewritten", what, tuple(edits))
