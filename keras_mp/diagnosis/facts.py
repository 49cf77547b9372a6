"""The input of the rules: a model's layers and dtypes, and functions that several rules share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import keeper_of_narrow_weights
from keras_mp.diagnosis.explanation import Finding, Level, LossScale, Row
from keras_mp.graph_rewrite.tensors import dtype_of


@dataclass(frozen=True, slots=True)
class Placed:
    """A layer and its place in the model.

    Attributes:
        path: Names from the model down.
        layer: The layer.
        variables: Its own weights, without those of layers inside it.
        is_graph: Whether it is a functional or Sequential model, which computes nothing itself.
        output: Whether its result reaches an output of the model without passing other weights;
            None if unknown.
    """

    path: str
    layer: Any
    variables: tuple[Any, ...]
    is_graph: bool
    output: bool | None

    @property
    def float16(self) -> bool:
        """Whether it computes in float16."""
        return not self.is_graph and self.layer.compute_dtype == "float16"

    @property
    def may_hide_layers(self) -> bool:
        """Whether its `build` may create layers of any dtype. Keras' own layers do not."""
        return not self.layer.built and not keras_hooks.is_of_keras(type(self.layer))


@dataclass(frozen=True, slots=True)
class Facts:
    """The input of the rules.

    Attributes:
        model: The model.
        layers: All of its layers.
        rows: The same layers, as shown.
        outputs: (name, operation, dtype) of the model's outputs; empty if unknown.
        optimizer: The optimizer, or None.
        is_compiled_in: Whether `compile` set it.
        loss_scale: What scales the loss.
        rewritten: The 16-bit dtypes in which the graph rewrite computes ops.
    """

    model: Any
    layers: tuple[Placed, ...]
    rows: tuple[Row, ...]
    outputs: tuple[tuple[str, Any, str], ...]
    optimizer: Any
    is_compiled_in: bool
    loss_scale: LossScale
    rewritten: frozenset[str]

    def path_of(self, layer: Any, name: str) -> str:
        """Returns the path of a layer, or `name` if it is not in the model."""
        return next((one.path for one in self.layers if one.layer is layer), name)


@dataclass(frozen=True, slots=True)
class LayerRule:
    """A rule that says the same of each layer for which it holds; see `Finding`."""

    code: str
    level: Level
    holds: Callable[[Facts, Placed], bool]
    what: str
    why: str
    remedy: str

    def __call__(self, facts: Facts) -> Iterator[Finding]:
        for one in facts.layers:
            if self.holds(facts, one):
                yield Finding(self.code, self.level, one.path, self.what, self.why, self.remedy)


def updated_in(facts: Facts, one: Placed, dtype: str) -> bool:
    """Returns whether the optimizer updates the layer's variables directly in a 16-bit dtype.

    An optimizer with float32 masters, or with stochastic rounding, does not.
    """
    directly = keeper_of_narrow_weights(facts.optimizer) is None
    return directly and any(v.trainable and dtype_of(v) == dtype for v in one.variables)


def float16_outputs(facts: Facts) -> Iterator[tuple[str, Any, str]]:
    """Yields the model's outputs that are known to be float16."""
    return (output for output in facts.outputs if output[2] == "float16")
