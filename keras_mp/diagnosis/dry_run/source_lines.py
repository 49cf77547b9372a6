"""What the stack of Python tells: the line of source code that computes, and custom gradients.

Knows the stack of Python, and by name the modules in which nobody looks for a fault of a model.
What it finds is shown to people; nothing is decided by it.
"""

import inspect
import linecache
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import keras

# Parts of Keras that compute something themselves: a layer, a loss, a metric.
_ROOMS = frozenset({"layers", "losses", "metrics", "regularizers"})
_COMPUTING = ("keras_cv.", "keras_hub.", "keras_rs.")
_CALLING = frozenset({keras.layers.Layer.__module__, keras.losses.Loss.__module__})
_LIBRARIES = frozenset({"keras_cv", "keras_hub", "keras_nlp", "keras_rs", "tf_keras"})
_PASSED_OVER = frozenset(
    {
        "flax",
        "jax",
        "jaxlib",
        "keras",
        "keras_mp",
        "ml_dtypes",
        "numpy",
        "optree",
        "tensorflow",
        "torch",
    }
)
_END = "keras_mp.diagnosis.dry_run.step"  # runs the model


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line that computes something.

    Attributes:
        file: Path of the file, or a name such as "<stdin>".
        line: Its number, from 1.
        function: Name of the function.
        code: The line without its indentation; "" if the file is unavailable.
        is_of_user: Whether it is outside of libraries.
    """

    file: str
    line: int
    function: str
    code: str
    is_of_user: bool = True

    def __str__(self) -> str:
        text = f'File "{self.shown_file}", line {self.line}, in {self.function}'
        return f"{text}\n  {self.code}" if self.code else text

    @property
    def short(self) -> str:
        """Name of the file and number, as "train.py:12"."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def shown_file(self) -> str:
        """The path, relative to the working directory if the file is in it."""
        return self.file.removeprefix(f"{Path.cwd()}{os.sep}")


def calling_line() -> SourceLine | None:
    """Returns the innermost line of the user's code that is running in a dry run.

    Without one, the innermost line of Keras, or of a library of layers, that computes something
    itself; else None.
    """
    # No framework has this on all backends: PyTorch's anomaly mode and tracebacks read it so.
    computing: tuple[FrameType, int] | None = None
    for frame, line in traceback.walk_stack(inspect.currentframe()):
        name = frame.f_globals.get("__name__", "")
        if name == _END:
            break
        if not _is_library(name):
            return _at(frame.f_code, line, is_of_user=True)
        if _computes(name):
            computing = computing or (frame, line)
    if computing is None:
        return None
    frame, line = computing
    return _at(frame.f_code, line, is_of_user=False)


def definition(function: Any) -> SourceLine | None:
    """Returns where a function is defined; None if it is not written in Python."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    module = getattr(function, "__module__", None) or ""
    return _at(code, code.co_firstlineno, is_of_user=not _is_library(module))


def _computes(module: str) -> bool:
    is_of_keras = module.startswith("keras.") and not _ROOMS.isdisjoint(module.split("."))
    return (is_of_keras or module.startswith(_COMPUTING)) and module not in _CALLING


def _is_library(module: str) -> bool:
    top = module.partition(".")[0]
    return top in _PASSED_OVER or top in _LIBRARIES or top in sys.stdlib_module_names


def _at(code: CodeType, number: int, is_of_user: bool) -> SourceLine:
    text = linecache.getline(code.co_filename, number).strip()
    return SourceLine(code.co_filename, number, code.co_name, text, is_of_user)


_CALLERS = frozenset(
    {
        "jax._src.custom_derivatives",
        "tensorflow.python.ops.custom_gradient",
        "torch.autograd.function",
    }
)


def is_in_custom_gradient() -> bool:
    """Returns whether the caller is called, at any depth, by a function with its own gradient.

    Frameworks differentiate nothing inside, and let nothing in that is no argument. None says
    publicly that it is in one, and a user may call each framework's own, so the stack is asked.

    >>> import keras
    >>> @keras.ops.custom_gradient
    ... def identity(x):
    ...     print(is_in_custom_gradient())
    ...     return x, lambda upstream: upstream
    >>> _ = identity(keras.ops.ones(()))
    True
    >>> is_in_custom_gradient()
    False
    """
    frames = traceback.walk_stack(inspect.currentframe())
    return any(frame.f_globals.get("__name__") in _CALLERS for frame, _ in frames)
