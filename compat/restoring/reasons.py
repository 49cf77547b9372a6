"""What Keras says is wrong, and with which layer, without the configs that it wraps around that."""

import re
from collections.abc import Iterator

# Keras 3.10 to 3.15, saving/serialization_lib.py and utils/traceback_utils.py.
_INSIDE = "Exception encountered: "
_CALLED = re.compile(r"Exception encountered when calling (.*?)\.\s+(.*)", re.DOTALL)
_ARGUMENTS = re.compile(r"\s+Arguments received by .*", re.DOTALL)
_OF_LAYER = re.compile(r"class '(\w+)' using config=\{(?:[^{}]*, )?'name': '([^']*)'")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_MOST = 600


def reason_of(error: BaseException) -> str:
    """Returns the innermost reason of an error of Keras on one line, and the layer that it is of.

    >>> inner = "Error when deserializing class 'Dense' using config={'name': 'out', 'units': -1}."
    >>> why = "Received an invalid value for `units`, expected a positive integer."
    >>> reason_of(TypeError(f"{inner}\\n\\nException encountered: {why}"))
    "Dense 'out': TypeError: Received an invalid value for `units`, expected a positive integer."
    """
    *_, (text, kind) = _levels(error)
    outer = _STYLE.sub("", str(error))
    layer = next(iter(reversed(_OF_LAYER.findall(outer))), None)
    where = "" if layer is None else f"{layer[0]} {layer[1]!r}: "
    called = _CALLED.fullmatch(text.strip())
    if called is not None:
        where, text = f"{where}{called[1]}: ", called[2]
    text = " ".join(_ARGUMENTS.sub("", text).split())
    text = text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
    return f"{where}{kind}: {text}" if text else f"{where}{kind}"


def _levels(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yields (message, class) of an error, and of those that it quotes, the innermost last."""
    seen = set()
    while True:
        seen.add(id(error))
        text = _STYLE.sub("", str(error))
        yield text.rpartition(_INSIDE)[2], type(error).__name__
        inner = error.__cause__ or error.__context__
        # What was caught on the way, and is not what is said, is no reason.
        if inner is None or id(inner) in seen or _INSIDE not in text or not str(inner):
            return
        if _STYLE.sub("", str(inner)) not in text:
            return
        error = inner
