"""KMP118: programs that ask for Keras 2.

    os.environ["TF_USE_LEGACY_KERAS"] = "1"      # tf.keras is tf_keras then, Keras 2
    import tf_keras

Reported once, instead of what does not apply: with TF_USE_LEGACY_KERAS nothing else is said of
tf.keras in this file. Names of tf_keras are never judged. keras_mp needs Keras 3: take the line
out, and look again.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.parsed import imported, string
from keras_mp.migration.code.sites import Decision, Verdict
from keras_mp.migration.keras3.code import Code

VARIABLE = "TF_USE_LEGACY_KERAS"
_OFF = ("0", "false", "False", "")
_SAID = "the program asks for Keras 2, so the rules of Keras 3 skip it; keras_mp needs Keras 3"


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the place, and the decision about it."""
    node = asks(code)
    if node is not None:
        yield node, Decision("manual", _SAID)
    elif (imported := _imports(code)) is not None:
        tried = any(isinstance(up, (cst.Try, cst.If)) for up in code.program.above(imported))
        verdict: Verdict = "kept" if tried else "manual"
        yield imported, Decision(verdict, _SAID)


def asks(code: Code) -> cst.CSTNode | None:
    """Returns where TF_USE_LEGACY_KERAS is set; None where it is not."""
    for node in code.strings:
        if string(node) == VARIABLE and _is_set(code, node):
            return node
    return None


def _is_set(code: Code, node: cst.CSTNode) -> bool:
    for up in code.program.above(node):
        if isinstance(up, cst.Assign):
            is_target = any(node in _inside(code, target) for target in up.targets)
            return is_target and string(up.value) not in _OFF
        if isinstance(up, cst.Call):
            name = code.program.source(up.func).rpartition(".")[2]
            value = string(up.args[1].value) if len(up.args) > 1 else None
            return name in ("setdefault", "putenv") and value not in _OFF
        if isinstance(up, cst.DictElement):
            return string(up.value) not in _OFF
    return False


def _inside(code: Code, target: cst.AssignTarget) -> list[cst.CSTNode]:
    found = [one for one in code.strings if target in code.program.above(one)]
    return [*found]


def _imports(code: Code) -> cst.CSTNode | None:
    for statement in code.imports:
        if any(full.split(".")[0] == "tf_keras" for _, full in imported(statement)):
            return statement
    return None
