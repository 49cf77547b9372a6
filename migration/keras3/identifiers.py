"""KMP117: strings that stood for losses, metrics and initializers, and values of Reduction.

before:  model.compile("adam", loss="kullback_leibler_divergence")
after:   model.compile("adam", loss="kl_divergence")

before:  tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.AUTO)
after:   tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE)

Safe: the same loss, and what AUTO was outside of custom loops with tf.distribute.
Reported: strings of metrics, as the name of a metric is also that of its column in the history.
Looked at: the arguments loss, metrics, weighted_metrics, kernel_initializer and the like, of calls
that are Keras'.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.parsed import string
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.calls import Called, calls_of_keras
from keras_mp.migration.keras3.code import Code

# (space, string of then) -> what is the same today.
SAME = {
    ("losses", "kullback_leibler_divergence"): "kl_divergence",
    ("losses", "logcosh"): "log_cosh",
    ("losses", "cosine_proximity"): "cosine_similarity",
    ("initializers", "constant"): "zeros",
    ("initializers", "Constant"): "zeros",
}
_SPACES = {"loss": "losses", "metrics": "metrics", "weighted_metrics": "metrics"}
_ENDS = {
    "_initializer": "initializers",
    "_regularizer": "regularizers",
    "_constraint": "constraints",
}
_POSITIONS = {1: "loss", 2: "metrics"}  # of compile, then


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for one in calls_of_keras(code):
        for space, node in _given(one):
            for text in _strings(node):
                value = string(text)
                if value is not None and value in names.table()["identifiers"][space]:
                    yield text, _decided(code, space, text, value)
    for node in code.chains:
        found = code.known(node)
        if found is not None and found.name == "losses.Reduction":
            is_auto = code.program.full_name(node).endswith(".Reduction.AUTO")
            if is_auto and isinstance(node, cst.Attribute):
                yield node, _of_reduction(code, node)


def _given(one: Called) -> Iterator[tuple[str, cst.CSTNode]]:
    for i, argument in enumerate(one.call.args):
        if argument.star:
            return
        name = argument.keyword.value if argument.keyword else ""
        if not name and one.scopes[-1].endswith(".compile"):
            name = _POSITIONS.get(i, "")
        space = _SPACES.get(name) if any(s.endswith(".compile") for s in one.scopes) else None
        space = space or next((of for end, of in _ENDS.items() if name.endswith(end)), None)
        if space is not None:
            yield space, argument.value


def _strings(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    if isinstance(node, (cst.List, cst.Tuple)):
        for element in node.elements:
            yield from _strings(element.value)
    elif isinstance(node, cst.Dict):
        for one in node.elements:
            if isinstance(one, cst.DictElement):
                yield from _strings(one.value)
    elif isinstance(node, cst.SimpleString):
        yield node


def _decided(code: Code, space: str, node: cst.CSTNode, value: str) -> Decision:
    said = f"Keras 3 knows no {value!r} of {space}"
    new = SAME.get((space, value))
    if new is None:
        return Decision("manual", f"{said}: give the object itself, of keras.{space}")
    quote = code.program.source(node)[0]
    if quote not in "\"'":
        return Decision("manual", f"{said}: write {new!r}")
    return Decision(
        "rewritten", f"{said}: {new!r} is the same", (code.replaced(node, f"{quote}{new}{quote}"),)
    )


def _of_reduction(code: Code, node: cst.Attribute) -> Decision:
    said = "losses of Keras 3 refuse Reduction.AUTO"
    return Decision("rewritten", said, (code.replaced(node.attr, "SUM_OVER_BATCH_SIZE"),))
