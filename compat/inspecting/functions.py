"""The functions of a SavedModel, and the ops in them that cannot be evaluated. None is run."""

from dataclasses import dataclass, field
from pathlib import Path

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.saved_graphs import support
from keras_mp.compat.saved_graphs.reading import SIGNATURES, Concrete, SavedGraphs
from keras_mp.compat.saved_graphs.structures import Spec

_CALL = "__call__"


@dataclass(frozen=True, slots=True)
class Function:
    """A function that can be called from outside.

    Attributes:
        name: "signatures/serving_default", or the attribute of the root, such as "__call__".
        inputs: Its tensors: name, shape and dtype, as text.
        outputs: The same of what it returns.
        nodes: How many operations it has, those of functions that it calls included.
        refused: Op -> why it cannot be evaluated.
    """

    name: str
    inputs: list[str]
    outputs: list[str]
    nodes: int
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs) or 'nothing'}"
        text += f", {self.nodes} operations"
        if self.refused:
            why = ", ".join(f"{op} ({reason})" for op, reason in self.refused.items())
            text += f"; cannot be evaluated: {why}"
        return text


def functions_of(folder: str | Path) -> list[Function]:
    """Returns the functions of the root of a SavedModel, and its signatures.

    Raises:
        Unreadable: It is damaged, or one of TF 1, which has graphs only.
    """
    graphs = SavedGraphs(folder)
    found = [
        _function(graphs, f"{SIGNATURES}/{name}", concrete)
        for name, concrete in graphs.signatures.items()
    ]
    for name, number in graphs.children(0).items():
        # Keras keeps each function under several names; all but these are the same with losses.
        if name != _CALL and graphs.identifier(0).startswith("_tf_keras_"):
            continue
        for concrete in graphs.concrete_of(number):
            found.append(_function(graphs, name, concrete))
    return found


def _function(graphs: SavedGraphs, name: str, concrete: Concrete) -> Function:
    try:
        reached = support.reached(graphs, [concrete.name])
    except Malformed as error:
        raise Unreadable(str(graphs.file), concrete.name, str(error)) from None
    refused = support.refused(graphs, [concrete.name])
    flags = [f"{leaf}" for leaf in concrete.flags]
    return Function(
        name,
        [*map(_shown, concrete.inputs), *flags],
        [_shown(spec) for spec in concrete.outputs],
        sum(len(program.steps) for program in reached),
        {op: support.reason(op) for op in refused},
    )


def _shown(spec: Spec) -> str:
    shape = "?" if spec.shape is None else str(list(spec.shape))
    return f"{spec.name + ': ' if spec.name else ''}{spec.dtype}{shape}"
