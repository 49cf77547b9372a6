"""Records the ops of one call of a model as a `Graph`: those of Keras and of its framework."""

import inspect
import numbers
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite import hooks, keras_ops
from keras_mp.graph_rewrite.flops import flops
from keras_mp.graph_rewrite.foreign_ops import ForeignOp
from keras_mp.graph_rewrite.graph import Carried, Graph, Loop, Op, Origin, Sequence, Value
from keras_mp.graph_rewrite.loop_calls import LoopCall, loop_call
from keras_mp.graph_rewrite.tensors import (
    dtype_of,
    has_float32,
    is_constant,
    is_sparse,
    name_of_dtype,
    shape_of,
    tensors,
    version_of,
)


def record(
    call: Callable[..., Any], args: abc.Sequence[Any], kwargs: Mapping[str, Any], model: Any
) -> Graph:
    """Runs `call(*args, **kwargs)` abstractly, and returns its ops.

    Leaves no traces: variables, seeds and losses are as before.

    Args:
        call: The unchanged `call` of the model.
        args: Its positional arguments; tensors, arrays, or `keras.KerasTensor`s.
        kwargs: Its keyword arguments, likewise.
        model: The model, for its name and variables.
    """
    recorder = _Recorder(model)

    def run(masks: list[Any], *args: Any, **kwargs: Any) -> None:
        inputs = keras.tree.flatten((args, kwargs))
        for x, mask in zip(inputs, masks, strict=True):
            if mask is not None:
                hooks.set_mask(x, mask)
        recorder.restart([*inputs, *masks])
        # Not the recorder: JAX keeps the keys of its trace cache alive, and so all variables.
        with hooks.dispatching(recorder, traced_as=object()), hooks.in_layer(model):
            outputs = call(*args, **kwargs)
        recorder.finish(outputs, hooks.assigned_values(), hooks.added_losses())

    masks = [_spec(hooks.mask_of(x)) for x in keras.tree.flatten((tuple(args), dict(kwargs)))]
    args, kwargs = keras.tree.map_structure(_spec, (tuple(args), dict(kwargs)))
    with hooks.unchanged_buffers(model):
        hooks.run_abstractly(run, masks, *args, **kwargs)
    return recorder.graph


def _spec(x: Any) -> Any:
    if keras.ops.is_tensor(x) or hasattr(x, "__array_interface__"):
        sparse = type(x).__name__ in ("SparseTensor", "BCOO")
        ragged = type(x).__name__ == "RaggedTensor"
        kinds = {"sparse": sparse} | ({"ragged": True} if ragged else {})
        x = keras.KerasTensor(shape_of(x), dtype_of(x), **kinds)
    if isinstance(x, keras.KerasTensor) and x.sparse:
        # With every side known, Keras 3.10 makes it dense on JAX.
        return keras.KerasTensor((None, *x.shape[1:]), x.dtype, sparse=True)
    return x


class _Recorder:
    is_recording = True

    def __init__(self, model: Any) -> None:
        self._path = hooks.path_of(model)
        self._trainable = {id(variable) for variable in model.trainable_variables}
        self._by_value = {
            id(each): variable
            for variable in model.variables
            if (value := keras_hooks.stored(variable)) is not None
            for each in (value, getattr(value, "handle", value))
        }
        self.restart(())

    def restart(self, inputs: Iterable[Any]) -> None:
        """Discards the recording: an abstract run may fail and be retried."""
        self.graph = Graph()
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is reused
        self._times = 1  # how often the body of a loop runs
        for x in inputs:
            if keras.ops.is_tensor(x):
                self._add(x, Value(Origin.INPUT, None, shape_of(x), dtype_of(x)))

    def __call__(
        self,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        with hooks.dispatching(None):
            if name == "dropout":  # draws no numbers that anything else needs
                result = keras.ops.multiply(args[0] if args else kwargs["inputs"], 1.0)
            else:
                result = original(*args, **kwargs)
        return self._recorded(name, original, args, kwargs, result)

    def foreign(
        self,
        op: ForeignOp,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Records an op of the framework itself."""
        if op.inside == "function":  # whose ops, of Keras too, are not seen in later calls either
            self.function()
        given = [*tensors(args, kwargs)]
        before = [version_of(x) for x in given]
        with hooks.dispatching(None):
            result = original(*args, **kwargs)
        if op.own == "tensorflow" and not has_float32(args, kwargs):
            self.constants((result,))
            return result
        if op.own not in ("unknown", "in_place"):
            return self._recorded(op.name, original, args, kwargs, result, op)
        pairs = zip(given, before, strict=True)
        changed = [x for x, v in pairs if version_of(x) != v and _is_float32(x)]
        anything = (result,) if op.inside == "function" else args
        if not changed and not self._makes_float32(anything, kwargs, result):
            return result  # reads a shape, draws numbers, or the like
        return self._recorded(op.name, original, args, kwargs, result, op, changed)

    def _makes_float32(self, args: Any, kwargs: Any, result: Any) -> bool:
        made = [x for x in tensors((result,), {}) if id(x) not in self._known]
        taken = [*tensors(args, kwargs)]
        return all(any(_is_float32(x) for x in each) for each in (made, taken))

    def constants(self, results: abc.Sequence[Any]) -> None:
        """Records tensors that get no gradient."""
        for x in tensors(results, {}):
            if id(x) not in self._known and _has_dtype_of_keras(x):
                self._add(x, Value(Origin.CONSTANT, None, shape_of(x), dtype_of(x)))

    def read(self, handle: Any, x: Any) -> None:
        """Records that `x` is the value of the variable that TensorFlow has under a handle."""
        if id(handle) in self._by_value:
            self._known[id(x)] = self._index(handle)
            self._alive.append(x)

    def branch(
        self,
        name: str,
        chosen: Any,
        made: abc.Sequence[abc.Sequence[Any]],
        results: abc.Sequence[Any],
    ) -> None:
        """Records that the layer chooses between functions.

        Args:
            name: "cond" or "switch_case".
            chosen: The tensor that says which of them runs.
            made: What each of them returned.
            results: The results, each of which is one of those that the functions returned.
        """
        layer, name = layer_of(self._path), f"tf.{name}"
        self.graph.branching.add(layer)
        for i, x in enumerate(results):
            sources = [each[i] for each in made if i < len(each)]
            sources.append(chosen)
            if not all(keras.ops.is_tensor(each) for each in (x, *sources)):
                continue
            taken = tuple(map(self._index, sources))
            index = len(self.graph.ops)
            output = self._add(x, Value(None, index, shape_of(x), dtype_of(x)))
            occurrence = self.graph.calls[layer, name]
            self.graph.calls[layer, name] += 1
            self.graph.ops.append(
                Op(layer, name, occurrence, ("Merge",), taken, (output,), kind="copy", own="listed")
            )

    def tape(self, count: int) -> None:
        """Records that a `tf.GradientTape` begins, or ends."""
        self.graph.has_functions = True

    def function(self) -> None:
        """Records that a function of TensorFlow is called, inlined or as a whole."""
        self.graph.has_functions = True

    def _recorded(
        self,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        foreign: ForeignOp | None = None,
        changed: abc.Sequence[Any] = (),
    ) -> Any:
        numbers = foreign is not None and foreign.own == "tensorflow"
        found = [x for x in tensors(args, kwargs) if _has_dtype_of_keras(x)]
        taken = tuple(self._index(x) for x in found if not (numbers and is_constant(x)))
        index = len(self.graph.ops)
        # An op that returns its argument makes nothing.
        made = [x for x in tensors((result,), {}) if id(x) not in self._known]
        made = [x for x in made if _has_dtype_of_keras(x)]
        if foreign is not None and len(foreign.outputs) == len(made) and any(foreign.outputs):
            pairs = [*zip(made, foreign.outputs, strict=True)]
            self.constants([x for x, is_own in pairs if not is_own])
            made = [x for x, is_own in pairs if is_own]
        made += changed  # in place: from here on they are values of this op
        layer = layer_of(self._path)
        occurrence = self.graph.calls[layer, name]
        self.graph.calls[layer, name] += 1
        if not made:
            return result
        outputs = tuple(self._add(x, Value(None, index, shape_of(x), dtype_of(x))) for x in made)
        arguments = {} if foreign is not None else _arguments(original, args, kwargs)
        kind = name if foreign is None else foreign.kind
        values = [self.graph.values[i] for i in taken]
        shapes = [value.shape for value in values]
        if foreign is not None:
            shapes = list(foreign.as_keras(shapes))
            if kind == "einsum" and isinstance(args[0], str):
                arguments["subscripts"] = args[0]
            if foreign.equation:
                arguments["subscripts"] = foreign.equation
        sparse = any(is_sparse(x) for x in tensors(args, kwargs))
        names = () if foreign is None else foreign.stands_for
        of_variable = bool(values) and values[0].origin is Origin.VARIABLE
        self.graph.ops.append(
            Op(
                layer,
                name,
                occurrence,
                ()
                if sparse
                else names or keras_ops.stands_for(kind, shapes, arguments, of_variable),
                taken,
                outputs,
                self._times
                * flops(
                    kind,
                    shapes,
                    self.graph.values[outputs[0]].shape,
                    arguments.get("subscripts"),
                ),
                _numbers(args, kwargs) if kind in keras_ops.WITH_NUMBERS else (),
                "" if foreign is None else foreign.kind,
                "" if foreign is None else foreign.own,
            )
        )
        return result

    def loop(
        self,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Records one step of a loop, however many it has; returns the loop's result."""
        call = loop_call(name, original, args, kwargs)
        if call is None:
            return original(*args, **kwargs)
        layer, counted = layer_of(self._path), f"loop {name}"
        occurrence = self.graph.calls[layer, counted]
        self.graph.calls[layer, counted] += 1
        place = len(self.graph.loops)
        with hooks.dispatching(None):
            state = keras.tree.map_structure(_as_tensor, call.state)
            elements = keras.tree.map_structure(lambda x: _first(x, call.axis), call.sequences)
        before = self._leaves(call.state)
        start = self._handed_on(state)
        read = self._sequences(call.sequences, elements)
        first, steps = len(self.graph.ops), 1 if call.steps is None else call.steps
        self._times *= steps
        if call.condition is not None:
            call.condition(state)
        ended, made = call.body(state, elements)
        self._times //= max(steps, 1)
        last = len(self.graph.ops)
        end, elements_made = self._leaves(ended), self._leaves(made)
        with hooks.dispatching(None):
            state = keras.tree.map_structure(_another, ended)
            whole = keras.tree.map_structure(lambda x: _stacked(x, call), made)
            final = keras.tree.map_structure(_another, made)
        after, wholes, finals = (self._handed_on(each) for each in (state, whole, final))
        written = [
            None if together is None or one is None else Sequence(together, one, at_last)
            for together, one, at_last in zip(wholes, elements_made, finals, strict=True)
        ]
        self.graph.loops.insert(
            place,
            Loop(
                layer,
                counted,
                occurrence,
                first,
                last,
                call.steps,
                tuple(Carried(*each) for each in zip(before, start, end, after, strict=True)),
                read,
                tuple(written),
                call.masked,
                dict(self.graph.calls),
            ),
        )
        return call.pack(state, whole, final)

    def _leaves(self, structure: Any) -> list[int | None]:
        """Returns the index of each tensor of a structure; None for other objects."""
        leaves = keras.tree.flatten(structure)
        return [self._index(x) if keras.ops.is_tensor(x) else None for x in leaves]

    def _handed_on(self, structure: Any) -> list[int | None]:
        """Adds the tensors of a structure as values that a loop passes on."""
        return [
            self._add(x, Value(Origin.LOOP, None, shape_of(x), dtype_of(x)))
            if keras.ops.is_tensor(x)
            else None
            for x in keras.tree.flatten(structure)
        ]

    def _sequences(self, whole: Any, elements: Any) -> tuple[Sequence | None, ...]:
        pairs = zip(self._leaves(whole), self._handed_on(elements), strict=True)
        return tuple(None if x is None or y is None else Sequence(x, y) for x, y in pairs)

    def moved(self, made: Any, x: Any) -> None:
        """Records that `x` was set to the value of `made` in place."""
        if id(made) in self._known:
            self._known[id(x)] = self._known[id(made)]
            self._alive.append(x)

    def finish(self, outputs: Any, assigned: abc.Sequence[Any], losses: abc.Sequence[Any]) -> None:
        """Records the model's results, the values assigned to variables, and added losses."""
        self.graph.outputs = self._indices(keras.tree.flatten(outputs))
        self.graph.assigned = self._indices(assigned)
        self.graph.losses = self._indices(losses)

    def _indices(self, found: Iterable[Any]) -> tuple[int, ...]:
        return tuple(self._known[id(x)] for x in found if id(x) in self._known)

    def _index(self, x: Any) -> int:
        known = self._known.get(id(x))
        if known is not None:
            return known
        variable = x if isinstance(x, keras.Variable) else self._by_value.get(id(x))
        if variable is None:
            return self._add(x, Value(Origin.UNKNOWN, None, shape_of(x), dtype_of(x)))
        trainable = id(variable) in self._trainable
        return self._add(
            x, Value(Origin.VARIABLE, None, shape_of(variable), dtype_of(variable), trainable)
        )

    def _add(self, x: Any, value: Value) -> int:
        self._known[id(x)] = len(self.graph.values)
        self._alive.append(x)
        self.graph.values.append(value)
        return len(self.graph.values) - 1


def _is_float32(x: Any) -> bool:
    return name_of_dtype(x) == "float32"


def _has_dtype_of_keras(x: Any) -> bool:
    try:
        return bool(dtype_of(x))
    except ValueError:  # a handle of TensorFlow
        return False


def _as_tensor(x: Any) -> Any:
    """Returns the value that the body gets for a state: a number as a tensor."""
    is_number = isinstance(x, (int, float)) and not isinstance(x, bool)
    return keras.ops.convert_to_tensor(x) if is_number else _another(x)


def _another(x: Any) -> Any:
    """Returns another object with the value of `x`: values are identified by their objects."""
    return keras.ops.copy(x) if keras.ops.is_tensor(x) else x


def _first(x: Any, axis: int) -> Any:
    return x[(slice(None),) * axis + (0,)] if keras.ops.is_tensor(x) else x


def _stacked(x: Any, call: LoopCall) -> Any:
    if not keras.ops.is_tensor(x):
        return x
    shape = list(keras.ops.shape(x))
    shape.insert(call.axis, call.length)
    return keras.ops.broadcast_to(keras.ops.expand_dims(x, call.axis), shape)


def layer_of(model_path: str) -> str:
    """Returns the path of the layer being called, relative to the model."""
    path = hooks.layer_path()
    return "" if path == model_path else path.removeprefix(f"{model_path}/")


def _arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return dict(kwargs)
    bound.apply_defaults()
    return bound.arguments


def _numbers(args: abc.Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[float, ...]:
    constants: list[float] = []
    for x in (*args, *kwargs.values()):
        if isinstance(x, np.ndarray) and x.size and x.dtype.kind in "fiu":
            sizes = np.abs(x[x != 0])
            constants += [float(sizes.min()), float(sizes.max())] if sizes.size else []
        elif isinstance(x, numbers.Real) and not isinstance(x, bool):
            constants.append(float(x))
    return tuple(constants)
