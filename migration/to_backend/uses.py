"""A name of TensorFlow, Keras or Horovod where a program uses it, and what a rule says of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import libcst as cst

Target = Literal["jax", "torch"]
PAGE = "docs/how-to/leave-tensorflow.md"


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a name.

    Attributes:
        node: The name, such as `tf.train.Checkpoint`.
        call: The call of it; None where it is not called.
        parent: What the name, or the call of it, is directly in.
        outer: What that is in.
        target: The backend that the program is to run on.
        tensorflow: Its name below `tf.`: "train.Checkpoint".
        keras: Its name below `keras.`: "backend.mean".
        horovod: Its name below Horovod's module: "DistributedOptimizer".
        in_model: Whether it is in the code of a model, see `ModelCode`.
        compiles_model: Of tf.function, whether what it compiles is such code.
        scales: Whether the function around it scales a loss.
    """

    node: cst.CSTNode
    call: cst.Call | None
    parent: cst.CSTNode | None
    outer: cst.CSTNode | None
    target: Target
    tensorflow: str = ""
    keras: str = ""
    horovod: str = ""
    in_model: bool = False
    compiles_model: bool = False
    scales: bool = False

    @property
    def is_call(self) -> bool:
        """Returns whether it is called, as a decorator, too."""
        return self.call is not None or isinstance(self.parent, cst.Decorator)

    @property
    def is_base(self) -> bool:
        """Returns whether a class derives from it."""
        return isinstance(self.parent, cst.Arg) and isinstance(self.outer, cst.ClassDef)


def message(what: str, do: str | Mapping[Target, str], anchor: str, target: Target) -> str:
    """Returns a message: what it is, what to write instead, and the recipe.

    >>> message("tf.Module", "derive from keras.layers.Layer", "modules", "jax")
    'tf.Module: derive from keras.layers.Layer; docs/how-to/leave-tensorflow.md#modules'
    """
    advice = do if isinstance(do, str) else do[target]
    return f"{what}: {advice}; {PAGE}#{anchor}"
