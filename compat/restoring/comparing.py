"""Compares a model with the graphs of the SavedModel that it was loaded from.

The same seeded inputs go to both. Where results differ by more than the rounding of the dtype, the
functions that the file has of each layer tell which layer is the first to compute otherwise.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.checkpoints.object_graph import Node, ObjectGraph
from keras_mp.compat.errors import NotComputed
from keras_mp.compat.layers import Operation, SavedFunction
from keras_mp.compat.operations.computing.values import is_tensor
from keras_mp.compat.restoring import object_matching
from keras_mp.compat.restoring.comparison import (
    REFUSED,
    Comparison,
    Differences,
    Differs,
    Part,
)
from keras_mp.compat.restoring.plan import RestoreReport
from keras_mp.compat.restoring.reasons import reason_of
from keras_mp.compat.saved_graphs import functions, structures, support, widening
from keras_mp.compat.saved_graphs.functions import Evaluated
from keras_mp.compat.saved_graphs.programs import Program, outputs_of_scopes
from keras_mp.compat.saved_graphs.reading import Concrete, SavedGraphs
from keras_mp.compat.saved_graphs.structures import Spec
from keras_mp.optimizer.widened import in_float32

# What rounding may make of the largest number of a result, through all layers.
_ROUNDED = 1e-4
ROUNDING = {"float16": 1e-2, "bfloat16": 8e-2}  # and so much of wider ones
_OF_CONSTANTS = 0.2  # of these, what rounding constants to 16 bits makes where all is in float32
_LEAST = 1e-3  # the scale of results that are smaller
LOST_MASKS = (
    "the functions of the file do not predict as its signature: TensorFlow lost masks in them"
)
SERVED = "_default_save_signature"  # attribute of a model
NOT_IN_FLOAT32 = "predictions were not compared in float32: {} may cast to 16 bits itself"
_SEED = 43
_TRIALS = 2
# Sizes of free axes, by trial: of the batch, of images and volumes, of sequences and others.
_BATCH, _SPACE, _STEPS = (2, 3), (32, 64), (5, 8)
_MOST_NUMBERS = 1 << 22  # of an input
_IDS = 2  # how many there are where no layer says


def compare(path: str | Path, model: Any) -> Comparison:
    """Returns how far a model computes what the graphs of a SavedModel do.

    Variables keep their values. What cannot be compared is said in `why`.

    Args:
        path: The folder of the SavedModel.
        model: The model that was loaded from it, with its weights.
    """
    try:
        return _Comparing(SavedGraphs(path), model).run()
    except Unreadable as error:
        return Comparison(why=f"predictions were not compared: {error.why}")


def with_comparison(
    report: RestoreReport, path: str | Path, model: Any, differences: Differences
) -> RestoreReport:
    """Returns a report with how far the model computes what the file does.

    Raises:
        Differs: It does not, and `differences` is "refuse".
    """
    if differences == "ignore":
        return report
    return checked(report, path, compare(path, model), differences)


def checked(
    report: RestoreReport, path: str | Path, found: Comparison, differences: Differences
) -> RestoreReport:
    """Returns a report with a comparison; raises `Differs` where that is to be refused."""
    if found.differs and differences == "refuse":
        raise Differs(REFUSED.format(path, "; ".join(found.differences())))
    return dataclasses.replace(report, comparison=found)


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a layer, as it was in the model."""

    layer: Any
    path: str
    inputs: list[Any]
    outputs: list[Any]


class _Comparing:
    def __init__(self, graphs: SavedGraphs, model: Any) -> None:
        self.graphs = graphs
        self.model = model
        self.layers = keras_hooks.all_layers(model)
        self.allowed = rounding_of(model)
        self._is_wide = False  # whether all is computed in float32
        self._own = next((one for one in self.layers if not _can_be_wide(one)), None)
        served = graphs.concrete_of(graphs.find(SERVED))
        self._name_of_served = served[0].name if served else ""
        self._random: Any = np.random.default_rng(_SEED)

    def run(self) -> Comparison:
        root = self.graphs.concrete_of(self.graphs.find("__call__"))
        called = chosen(root, training=False)
        if called is None:
            return Comparison(why="predictions were not compared: the file has no function of them")
        predicting = self._served(called) or called
        why = self._reason(predicting)
        if why:
            return Comparison(why=f"predictions were not compared: {why}")
        trials = range(_TRIALS if self._is_varied(predicting) else 1)
        inputs = [self._inputs(predicting, trial) for trial in trials]
        shapes = tuple(tuple(map(np.shape, keras.tree.flatten(one))) for one in inputs)
        try:
            found = Comparison(shapes, self._of_trials(predicting, inputs))
        except NotComputed as error:
            why = self._refused(predicting) or str(error)
            return Comparison(shapes, why=f"predictions were not compared: {why}")
        found = self._with_float32(found, predicting, inputs)
        return found if found.differs else self._with_training(found, chosen(root, training=True))

    def _served(self, called: Concrete) -> Concrete | None:
        """Returns what was exported to predict; None where it is unclear which output is which.

        It is the model itself. In `__call__`, TensorFlow lost masks behind some layers.
        """
        of = self.graphs.concrete_of(self.graphs.find(SERVED))
        results = of[0].results if len(of) == 1 else None
        if not isinstance(results, dict):
            return None
        served, names = of[0], [one.name for one in of[0].inputs]
        outputs = [str(one) for one in getattr(self.model, "output_names", ())]
        has_names = len(names) == 1 or names == [one.name for one in called.inputs]
        if len(names) != len(called.inputs) or not has_names:
            return None
        if len(results) > 1 and sorted(outputs) != sorted(results):
            return None
        return dataclasses.replace(served, arguments=called.arguments)

    def _results(self, function: Concrete, results: Any) -> list[Any]:
        """Returns results in the order of the model's."""
        is_served = function.name == self._name_of_served and isinstance(results, dict)
        if is_served and len(results) > 1:
            return [results[str(name)] for name in self.model.output_names]
        return structures.flat(results)

    def _of_trials(self, function: Concrete, inputs: list[Any]) -> Part:
        parts = [self._compared(function, one, training=False) for one in inputs]
        return max(parts, key=lambda part: part.largest)

    def _with_float32(self, found: Comparison, function: Concrete, inputs: list[Any]) -> Comparison:
        """Returns a comparison with that in float32, which finds what 16 bits round away."""
        if self.allowed == _ROUNDED:
            return found
        if self._own is not None:
            return dataclasses.replace(found, why=NOT_IN_FLOAT32.format(self._own.path))
        with self._in_float32(function):
            return dataclasses.replace(found, in_float32=self._of_trials(function, inputs))

    @contextlib.contextmanager
    def _in_float32(self, function: Concrete) -> Iterator[None]:
        """A scope in which the model and the graph compute in float32."""
        narrow = [one for one in self.layers if one.compute_dtype in ROUNDING]
        before = self.allowed
        reached = support.reached(self.graphs, [function.name])
        is_rounded = any(map(widening.has_rounded_constants, reached))
        self.allowed = self.allowed * _OF_CONSTANTS if is_rounded else _ROUNDED
        self._is_wide = True
        try:
            with in_float32(narrow):
                yield
        finally:
            self.allowed, self._is_wide = before, False

    def _with_training(self, found: Comparison, function: Concrete | None) -> Comparison:
        if function is None or function.name == "":
            return found
        why = self._reason(function) or self._refused(function, random=True)
        try:
            if not why:
                inputs = self._inputs(function, 0)
                part = self._compared(function, inputs, training=True)
                if part.differs and found.in_float32 is not None:  # is it more than rounding?
                    with self._in_float32(function):
                        part = self._compared(function, inputs, training=True)
                if not part.differs or self._is_as_served(inputs):
                    return dataclasses.replace(found, training=part)
                why = LOST_MASKS
        except NotComputed as error:
            why = str(error)
        known = [found.why] if found.why else []
        return dataclasses.replace(
            found, why="; ".join([*known, f"training was not compared: {why}"])
        )

    def _is_as_served(self, inputs: Any) -> bool:
        """Returns whether the functions of `__call__` predict as what was exported does."""
        called = chosen(self.graphs.concrete_of(self.graphs.find("__call__")), training=False)
        served = None if called is None else self._served(called)
        if called is None or served is None:
            return True
        given = structures.flat(inputs)
        ours, theirs = (
            functions.evaluate(self.graphs, one, given, in_float32=True) for one in (called, served)
        )
        expected = self._results(served, theirs.results)
        return largest_difference(structures.flat(ours.results), expected) <= _ROUNDED

    def _is_varied(self, function: Concrete) -> bool:
        """Returns whether inputs differ in more than the batch: in sizes, or in masked steps."""
        return any(
            spec.shape is not None
            and (None in spec.shape[1:] or len(spec.shape) == 3 or self._ids() is not None)
            for spec in function.inputs
        )

    def _reason(self, function: Concrete) -> str:
        """Returns why a function is not compared, by how it is called; "" if it is."""
        positional, named = function.arguments
        if not positional or structures.specs((positional[1:], named)):
            return "the model is called with several arguments"
        for leaf in structures.flat(positional[0]):
            if not isinstance(leaf, Spec) or leaf.shape is None:
                return "the file does not tell the shapes of its inputs"
            if leaf.dtype == "string":
                return "its inputs are strings"
        return ""

    def _refused(self, function: Concrete, *, random: bool = False) -> str:
        """Returns which ops of a function cannot be evaluated, though it may get along without."""
        refused = support.refused(self.graphs, [function.name])
        if refused:
            op = next(iter(refused))
            return f"the graph has {', '.join(refused)}: {op} {support.reason(op)}"
        if not random and self._is_random(function):
            return "its graph draws random numbers"
        return ""

    def _is_random(self, function: Concrete) -> bool:
        reached = support.reached(self.graphs, [function.name])
        return any(step.op in support.RANDOM for one in reached for step in one.steps)

    def _inputs(self, function: Concrete, trial: int) -> Any:
        specs = structures.specs(function.arguments[0][0])
        arrays = iter([self._array(spec, trial) for spec in specs])
        return structures.packed(function.arguments[0][0], arrays)

    def _array(self, spec: Spec, trial: int) -> Any:
        assert spec.shape is not None
        rank = len(spec.shape)
        free = _SPACE if rank > 3 else _STEPS
        sizes: list[int] = [
            size if size is not None else (_BATCH if axis == 0 else free)[trial]
            for axis, size in enumerate(spec.shape)
        ]
        if np.prod(sizes, dtype="float64") > _MOST_NUMBERS:
            raise Unreadable(str(self.graphs.folder), "", f"its inputs are too large: {sizes}")
        ids = self._ids()
        if spec.dtype == "bool":
            return self._random.integers(0, 2, sizes).astype(bool)
        if "int" in spec.dtype or ids is not None:
            array = self._random.integers(0, ids or _IDS, sizes).astype(spec.dtype)
        else:
            kind = "float32" if spec.dtype == "bfloat16" else spec.dtype
            array = self._random.normal(size=sizes).astype(kind)
        if trial and rank in (2, 3) and (rank == 3 or ids is not None):
            array[0, -(-sizes[1] // 2) :] = 0  # steps that layers with masks leave out
        return array

    def _ids(self) -> int | None:
        """Returns how many ids all layers know that look them up; None where none does."""
        sizes = [
            layer.input_dim for layer in self.layers if isinstance(layer, keras.layers.Embedding)
        ]
        return max(1, min(sizes)) if sizes else None

    def _compared(self, function: Concrete, inputs: Any, *, training: bool) -> Part:
        by_layers = training and self._is_random(function)
        if by_layers:  # others are drawn in the model: each layer by itself
            return self._by_layers(inputs, training=True)
        # None draws where dropout is off, though there may be ops that would.
        seed = _generator() if training else None
        given = structures.flat(inputs)
        expected = self._evaluated(function, given, seed=seed)
        with keras.StatelessScope() as scope:
            results = keras.tree.flatten(self._called(inputs, training=training))
        largest = largest_difference(results, self._results(function, expected.results))
        if training:
            largest = max(largest, self._of_updates(expected.updates, scope))
        if largest <= self.allowed:
            return Part(largest, self.allowed)
        found = self._in_place(function, inputs, training=training)
        if not found.differs:
            found = self._by_layers(inputs, training=training)
        return dataclasses.replace(found, largest=largest)

    def _evaluated(self, function: Concrete, inputs: list[Any], **options: Any) -> Evaluated:
        return functions.evaluate(
            self.graphs, function, inputs, in_float32=self._is_wide, **options
        )

    def _called(self, inputs: Any, *, training: bool) -> Any:
        given = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
        try:
            return self.model(given, training=training)
        except Exception as error:
            raise NotComputed(f"the model raises {reason_of(error)}") from error

    def _of_updates(self, updates: Mapping[int, Any], scope: Any) -> float:
        """Returns the largest difference of what variables became."""
        largest = 0.0
        told = self._with_other_variance()
        matched = object_matching.match(self._objects(), 0, self.model)
        for number, value in updates.items():
            for variable in matched.get(number, ()):
                now = scope.get_current_value(variable)
                if id(variable) not in told and now is not None:
                    largest = max(largest, largest_difference([now], [value]))
        return largest

    def _with_other_variance(self) -> set[int]:
        """Returns the variables whose updates Keras 3 computes otherwise, as reports tell."""
        kinds = (keras.layers.BatchNormalization,)
        return {id(layer.moving_variance) for layer in self.layers if type(layer) in kinds}

    def _by_layers(self, inputs: Any, *, training: bool) -> Part:
        """Returns the first layer that differs, each called with what the model calls it with."""
        numbers: dict[int, int] = {}
        for place, ours in object_matching.pairs(self._objects(), 0, self.model):
            if isinstance(ours, keras.layers.Layer):
                numbers.setdefault(id(ours), place)
        largest = 0.0
        for call in self._calls(inputs, training=training):
            number = numbers.get(id(call.layer))
            if number is None or call.layer is self.model:
                continue
            difference = self._of_layer(number, call, training=training)
            largest = max(largest, difference)
            if not difference <= self.allowed:
                return self._differing(call, difference)
        return Part(largest, self.allowed)

    def _in_place(self, function: Concrete, inputs: Any, *, training: bool) -> Part:
        """Returns the first layer whose output in the model differs from that in the graph.

        How it is called counts, as with which mask. Nodes of a layer start with its name.
        """
        seen: dict[str, list[Any]] = {}

        def watch(path: tuple[str, ...], program: Program, done: list[list[Any]]) -> None:
            for scope, places in outputs_of_scopes(program).items():
                values = [done[step][number] for step, number in places]
                seen.setdefault("/".join((*path, scope)), values)

        seed = _generator() if training else None
        self._evaluated(function, structures.flat(inputs), seed=seed, watch=watch)
        root = "" if function.name != self._name_of_served else self._root_of(seen)
        for call in self._calls(inputs, training=training):
            # Popped: a later call of the same layer has another name.
            values = seen.pop(root + call.path, [])
            for output in call.outputs:
                difference = _in_graph(values, output)
                if not difference <= self.allowed:
                    return self._differing(call, difference)
        return Part(0.0, self.allowed)

    def _root_of(self, seen: Mapping[str, Any]) -> str:
        """Returns what all names start with in a graph of the whole model: its name there."""
        return next((f"{one}/" for one in seen if "/" not in one), "")

    def _differing(self, call: Called, difference: float) -> Part:
        name = f"{call.path} ({type(call.layer).__name__})"
        return Part(difference, self.allowed, name, difference)

    def _of_layer(self, number: int, call: Called, *, training: bool) -> float:
        """Returns by how much a layer differs from the function that the file has of it."""
        of = self.graphs.concrete_of(self.graphs.find("__call__", number))
        function = chosen(of, training=training, inputs=call.inputs)
        if function is None or support.refused(self.graphs, [function.name]):
            return 0.0
        if self._is_random(function):
            return 0.0
        try:
            expected = self._evaluated(function, call.inputs)
        except (NotComputed, ValueError):
            return 0.0
        return largest_difference(call.outputs, structures.flat(expected.results))

    def _calls(self, inputs: Any, *, training: bool) -> list[Called]:
        return calls_of(self.model, lambda: self._called(inputs, training=training))

    def _objects(self) -> ObjectGraph:
        return objects_of(self.graphs)


def _can_be_wide(layer: Any) -> bool:
    """Returns whether a layer computes in float32 where its policy says so.

    Code that a user wrote may cast to 16 bits by itself, and so do operations that name a dtype.
    """
    if layer.compute_dtype not in ROUNDING:
        return True
    is_known = type(layer).__module__.partition(".")[0] in ("keras", "keras_mp")
    if not is_known or isinstance(layer, keras.layers.Lambda | SavedFunction):
        return False
    computed = str([layer.operation, layer.steps]) if isinstance(layer, Operation) else ""
    casts = any(one in computed for one in ROUNDING)
    return layer.variable_dtype == "float32" and not casts


def rounding_of(model: Any) -> float:
    """Returns what rounding may make of the largest number of a result."""
    dtypes = {str(one.compute_dtype) for one in keras_hooks.all_layers(model) if one.compute_dtype}
    return max(ROUNDING.get(one, _ROUNDED) for one in (*dtypes, "float32"))


def calls_of(model: Any, run: Callable[[], object]) -> list[Called]:
    """Returns the calls of layers in the order in which they end. Variables keep their values.

    Those inside loops that are compiled, as of cells, are left out.

    Args:
        model: The model.
        run: Calls it.
    """
    from keras_mp.diagnosis.dry_run.observers import Observer, observed_by

    found: list[Called] = []

    class Kept(Observer):
        def layer(self, call: Any) -> Any:
            outputs = call.run()
            if call.site.owner is not None and call.args:
                given = [one for one in keras.tree.flatten(call.args[0]) if one is not None]
                results = keras.tree.flatten(outputs)
                if all(map(_is_readable, results)):
                    found.append(Called(call.site.owner, call.site.path, given, results))
            return outputs

    with observed_by(Kept(), model, ops=False), keras.StatelessScope():
        run()
    return found


def _is_readable(output: Any) -> bool:
    try:
        keras.ops.convert_to_numpy(output)
    except Exception:  # noqa: BLE001  each backend has its own for a symbol
        return False
    return True


def objects_of(graphs: SavedGraphs) -> ObjectGraph:
    """Returns the objects of a SavedModel, as a checkpoint has them."""
    return ObjectGraph(
        tuple(Node(dict(graphs.children(number)), (), ()) for number in range(graphs.objects))
    )


def chosen(
    of: list[Concrete], *, training: bool, inputs: list[Any] | None = None
) -> Concrete | None:
    """Returns the function that computes with training, or without it; None if there is none.

    Args:
        of: What there is of one object, one for each way in which it was called.
        training: Which is wanted. A function that makes no difference is of both.
        inputs: Tensors that its inputs are to be like.
    """
    best, most = None, (-1, 0)
    for one in of:
        if (not training) in one.flags or (inputs is not None and not _fits(one, inputs)):
            continue
        # One of several is of the first example that was seen, with its sizes.
        free = sum(size is None for spec in one.inputs for size in spec.shape or ())
        points = (2 * (training in one.flags) + (len(one.inputs) == 1), free)
        if points > most:
            best, most = one, points
    return best


def _fits(function: Concrete, inputs: list[Any]) -> bool:
    specs = function.inputs
    if len(specs) != len(inputs):
        return False
    for spec, given in zip(specs, inputs, strict=True):
        if spec.shape is None:
            continue
        if len(spec.shape) != len(given.shape):
            return False
        if any(a not in (None, b) for a, b in zip(spec.shape, given.shape, strict=True)):
            return False
    return True


def _in_graph(values: list[Any], output: Any) -> float:
    """Returns how far the output of a layer is from what the graph has of it: 0.0 of nothing.

    There may be more, such as a mask; those of other ranks are left out.
    """
    rank = len(output.shape)
    tensors = [one for one in values if is_tensor(one) or isinstance(one, np.ndarray)]
    like = [one for one in tensors if len(one.shape) == rank]
    return min((largest_difference([output], [one]) for one in like), default=0.0)


def _generator() -> Any:
    return keras.random.SeedGenerator(_SEED)


def largest_difference(found: list[Any], expected: list[Any]) -> float:
    """Returns the largest difference, as a part of the largest number of its tensor.

    Inf where shapes differ, or only one of two numbers is nan.
    """
    if len(found) != len(expected):
        return float("inf")
    largest = 0.0
    for one, other in zip(found, expected, strict=True):
        a, b = _wide(one), _wide(other)
        if a.shape != b.shape:
            return float("inf")
        if not a.size:
            continue
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            off = np.where(same, 0.0, np.abs(a - b))
        finite = np.abs(b[np.isfinite(b)])
        scale = max(float(finite.max()) if finite.size else 0.0, _LEAST)
        off = np.where(np.isfinite(off), off, np.inf)
        largest = max(largest, float(off.max()) / scale)
    return largest


def _wide(value: Any) -> Any:
    kind = keras.backend.standardize_dtype(value.dtype)
    if kind == "bfloat16":
        value = keras.ops.cast(value, "float32")
    return np.asarray(keras.ops.convert_to_numpy(value)).astype("float64")
