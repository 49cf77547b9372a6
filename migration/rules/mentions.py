"""KMP016: strings, comments and names of the program's own. Left alone, and listed.

Kept: a comment, a docstring, a flag, `def set_mixed_precision_policy`.
Reported: a string that is the dotted path of an old name, such as what unittest.mock.patch takes;
the environment variable and the option of the graph rewrite are KMP011's.
"""

import re

from keras_mp.compat.names import NAMES
from keras_mp.migration.code.names import legacy_name
from keras_mp.migration.code.sites import Decision

_NAMES = {name.rpartition(".")[2] for name in NAMES}
_IN_MODULE = re.compile(rf"\bmixed_precision\.(experimental\.)?({'|'.join(sorted(_NAMES))})\b")
_PATH = re.compile(r"[\w.]+")
_COMMENT = Decision("kept", "a comment")
_STRING = Decision("kept", "in a string")
_OURS = Decision("kept", "keras_mp's already")
_OWN = Decision("kept", "not a name of TensorFlow's mixed precision")


def of_string(value: str) -> Decision | None:
    """Returns what is to be said of a string that names something old by its path."""
    if not _PATH.fullmatch(value) or "." not in value:
        return None
    full = "tensorflow" + value[2:] if value.startswith("tf.") else value
    found = legacy_name(full)
    if found is None:
        return None
    return Decision("manual", f"a path of an old name: {found.now}")


def of_name(text: str) -> Decision | None:
    """Returns what is to be said of a name that no import explains, as after `import *`."""
    root, _, rest = text.partition(".")
    if _IN_MODULE.search(text) and "keras_mp" not in text:
        return Decision("manual", f"check what {root} is, and what keras_mp.compat has for it")
    looks = text in _NAMES if not rest else root in ("tf", "keras", "tensorflow", "tf_keras")
    full = f"tensorflow.{rest}" if root == "tf" else text
    if not looks or (rest and legacy_name(full) is None):
        return None
    return Decision("manual", f"{root} is not imported here: check what it is")


def of_line(code: str, *, comment: bool, text: bool) -> Decision:
    """Returns what is said of a line that no other rule speaks of.

    Args:
        code: The line.
        comment: Whether what it mentions is in a comment.
        text: Whether it is in a string.
    """
    if comment:
        return _COMMENT
    if text:
        return _STRING
    return _OURS if "keras_mp" in code else _OWN
