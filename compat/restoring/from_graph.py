"""A model around a function of a SavedModel, of whatever classes it was saved."""

from pathlib import Path
from typing import Any

import keras

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.file_formats.values import value_of
from keras_mp.compat.layers.saved_function import MOST_BYTES, SavedFunction, constant_of
from keras_mp.compat.restoring.comparing import chosen
from keras_mp.compat.restoring.plan import Plan
from keras_mp.compat.saved_graphs import programs, structures, support
from keras_mp.compat.saved_graphs.reading import Concrete, SavedGraphs
from keras_mp.compat.saved_graphs.structures import Spec

SERVED = "serving_default"
NOTE = (
    "the model runs the function {} of the file: its classes are not restored, nor losses that its "
    "layers add; import keras_mp before Keras loads what is saved of it"
)
NOT_COMPILED = "the model is not compiled: compile it to train it"
NO_TRAINING = "the file has no function of its own for training: it trains as it predicts"


def load(path: str | Path, name: str | None) -> tuple[Any, Plan]:
    """Returns a model around a function of a SavedModel, and the plan that gives it its weights.

    Args:
        path: Of the SavedModel.
        name: Of the signature, or the attribute of the root that is the function; None for what
            Keras calls, or for what is served.

    Raises:
        Unreadable: It is damaged, or has no such function.
        LegacyError: The function cannot be evaluated; the ops are named.
    """
    graphs = SavedGraphs(path)
    shown, predicting, training = _functions(graphs, name)
    maker = _Maker(graphs)
    if structures.specs(predicting.results) == []:
        raise Unreadable(str(graphs.folder), shown, "returns no tensor")
    config = maker.config(shown, predicting, training)
    layer = SavedFunction(**config, name="graph")
    specs = structures.from_json(config["predicting"]["inputs"])
    inputs = structures.packed(specs, map(_input, structures.specs(specs)))
    model = keras.Model(inputs, layer(inputs), name=Path(graphs.folder).name or "graph")
    plan = Plan(graphs.checkpoint.prefix if maker.keys else str(graphs.folder))
    for key, variable in zip(maker.keys, layer.held, strict=True):
        plan.assign(value_of(graphs.checkpoint, key), variable)
    plan.note(NOTE.format(shown))
    if training is None:
        plan.note(NO_TRAINING)
    plan.note(NOT_COMPILED)
    return model, plan


def _functions(graphs: SavedGraphs, name: str | None) -> tuple[str, Concrete, Concrete | None]:
    """Returns the name of the function, what predicts, and what trains."""
    signatures = graphs.signatures
    called = graphs.concrete_of(graphs.find("__call__" if name is None else name))
    if name in signatures:
        return str(name), signatures[str(name)], None
    predicting = chosen(called, training=False)
    if predicting is not None and (name is not None or _is_plain(predicting)):
        training = chosen(called, training=True)
        if training is not None and (
            training.name == predicting.name or not _same(predicting, training)
        ):
            training = None
        return name or "__call__", predicting, training
    if name is None and SERVED in signatures:
        return SERVED, signatures[SERVED], None
    if name is None and len(signatures) == 1:
        return *next(iter(signatures.items())), None
    known = [*signatures, *(key for key in graphs.children(0) if _is_function(graphs, key))]
    raise Unreadable(
        str(graphs.folder),
        name or "",
        f"has no function to call without a name: from_graph= takes one of {', '.join(known)}"
        if name is None
        else f"is no function of it: from_graph= takes one of {', '.join(known)}",
    )


def _is_function(graphs: SavedGraphs, key: str) -> bool:
    return bool(graphs.concrete_of(graphs.find(key)))


def _is_plain(function: Concrete) -> bool:
    return bool(structures.specs(_inputs_of(function)))


def _same(one: Concrete, other: Concrete) -> bool:
    """Returns whether two functions take and return tensors of the same dtypes."""
    return all(
        [spec.dtype for spec in a] == [spec.dtype for spec in b]
        for a, b in ((one.inputs, other.inputs), (one.outputs, other.outputs))
    )


def _inputs_of(function: Concrete) -> Any:
    """Returns the structure of what a model is called with: its tensors, without flags."""
    positional, named = function.arguments
    parts = [part for part in positional if structures.specs(part)]
    if not parts and structures.specs(named):
        specs = {key: part for key, part in named.items() if structures.specs(part)}
        return next(iter(specs.values())) if len(specs) == 1 else specs
    if len(parts) == 1 and not structures.specs(named):
        return parts[0]
    return function.inputs


def _input(spec: Spec) -> Any:
    assert spec.shape is not None
    # Names of arguments need not be such as Keras takes.
    name = spec.name.replace("/", "_").replace(":", "_") or None
    return keras.Input(batch_shape=spec.shape, dtype=spec.dtype, name=name)


class _Maker:
    """The config of a layer, being made."""

    def __init__(self, graphs: SavedGraphs) -> None:
        self.graphs = graphs
        self.keys: list[str] = []
        self._numbers: dict[int, int] = {}
        self._variables: list[dict[str, Any]] = []
        self._constants: list[Any] = []

    def config(self, shown: str, predicting: Concrete, training: Concrete | None) -> dict[str, Any]:
        names = [one.name for one in (predicting, training) if one is not None]
        refused = support.refused(self.graphs, names)
        if refused:
            ops = ", ".join(f"{op} ({support.reason(op)})" for op in refused)
            raise LegacyError(f"$: {shown}", f"has the ops {ops}", "they cannot be evaluated")
        for spec in predicting.inputs:
            if spec.shape is None or spec.dtype in ("string", "variant", "resource"):
                why = "only tensors of numbers whose rank is known can be"
                raise LegacyError(f"$: {shown}", f"takes {spec.dtype} as {spec.name!r}", why)
        reached = support.reached(self.graphs, names)
        said = [programs.as_json(one, self._constants) for one in reached]
        called = [self._called(one) if one is not None else None for one in (predicting, training)]
        if sum(array.nbytes for array in self._constants) > MOST_BYTES:
            why = f"{MOST_BYTES} bytes of them fit into a config"
            raise LegacyError(f"$: {shown}", "has larger constants", why)
        for array in self._constants:
            if array.dtype.kind not in "fiubV":
                raise LegacyError(f"$: {shown}", "has constants that are texts", "they cannot be")
        return {
            "programs": said,
            "constants": [constant_of(array) for array in self._constants],
            "variables": self._variables,
            "predicting": called[0],
            "training": called[1],
        }

    def _called(self, function: Concrete) -> dict[str, Any]:
        return {
            "function": function.name,
            "captured": [self._captured(number) for number in function.captured],
            "inputs": structures.as_json(_inputs_of(function)),
            "results": structures.as_json(_results_of(function)),
        }

    def _captured(self, number: int) -> list[Any]:
        if number in self._numbers:
            return ["variable", self._numbers[number]]
        variable = self.graphs.variables.get(number)
        if variable is None:
            constant = self.graphs.constant(number)
            if constant is None:
                return ["other", "a table or another resource"]
            self._constants.append(constant)
            return ["constant", len(self._constants) - 1]
        if variable.key is None or variable.dtype in ("string", "resource", "variant"):
            return ["other", f"the variable {variable.name}, which has no value in the file"]
        self._numbers[number] = len(self._variables)
        self.keys.append(variable.key)
        shape = list(self.graphs.checkpoint.entry(variable.key).shape)
        self._variables.append(
            {
                "name": variable.name.removesuffix(":0") or "variable",
                "shape": shape,
                "dtype": variable.dtype,
                "trainable": variable.trainable,
            }
        )
        return ["variable", self._numbers[number]]


def _results_of(function: Concrete) -> Any:
    """Returns the structure of results: a tensor where a signature returns one by name."""
    results = function.results
    if isinstance(results, dict) and len(results) == 1:
        return next(iter(results.values()))
    return results
