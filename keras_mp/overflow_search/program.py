"""A step as one program, and its calls shown to a recorder afterwards.

Run op by op, JAX compiles each op by itself, which takes most of a search. Here the step is traced
instead: its calls are noted on a tape, and all values and gradients are results of one program.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_mp.backends import compiling, custom_gradients
from keras_mp.dry_run.calls import Call, Key
from keras_mp.dry_run.observers import observed_by
from keras_mp.dry_run.perturbing import Perturber, TensorKey
from keras_mp.dry_run.step import DryRun, ForwardPass
from keras_mp.dry_run.tensors import floats
from keras_mp.graph_rewrite.tensors import is_sparse
from keras_mp.overflow_search.record import Recorder


@dataclass(eq=False)
class _Traced:
    """A call, and what came of it when the step was traced.

    Attributes:
        call: Itself.
        has_values: Whether its tensors are among the program's: not in a function that the
            framework traces by itself, such as the body of a loop.
        result: What it returned.
        held: What the variables that it takes held, by `id`.
        inner: What a layer called.
    """

    call: Call
    has_values: bool
    result: Any = None
    held: dict[int, Any] = field(default_factory=dict)
    inner: "list[_Traced]" = field(default_factory=list)


class _UnsuitedError(Exception):
    """This step can only be run op by op."""


class _Tape(Perturber):
    """Notes the calls of a step.

    Attributes:
        calls: In order.
        tensors: Those that zeros may be added to, where a gradient may be asked for.
    """

    def __init__(self, zeros: Mapping[TensorKey, Any], given: Any) -> None:
        super().__init__(zeros)
        self.calls: list[_Traced] = []
        self.tensors: dict[TensorKey, Any] = {}
        # By id, with the tensor itself: the id of one that is gone is given to another.
        self._known = {id(x): x for x in floats(given)}
        self._trace = compiling.trace()

    def op(self, call: Call) -> Any:
        """Runs an op as `Perturber` does."""
        if custom_gradients.is_inside():
            raise _UnsuitedError  # the program cannot return values from inside
        traced = self._begun(call)
        flat = keras.tree.flatten((call.args, call.kwargs))
        traced.held = {id(x): x.value for x in flat if isinstance(x, keras.Variable)}
        traced.result = super().op(call)
        return traced.result

    def layer(self, call: Call) -> Any:
        """Runs a layer as `Perturber` does."""
        traced = self._begun(call)
        outside, self.calls = self.calls, traced.inner
        known = len(self._known)
        try:
            traced.result = super().layer(call)
        finally:
            self.calls = outside
        if len(self._known) > known:
            traced.held = {id(v): v.value for v in call.site.owner.variables}
        return traced.result

    def _begun(self, call: Call) -> _Traced:
        traced = _Traced(call, has_values=compiling.trace() == self._trace)
        self.calls.append(traced)
        return traced

    def _plus(self, key: Key, side: Literal["input", "output"], value: Any) -> Any:
        if compiling.trace() != self._trace:
            return value
        changed = super()._plus(key, side, value)
        new = {
            TensorKey(key, side, i): x
            for i, x in enumerate(floats(value))
            if id(x) not in self._known
        }
        self.tensors.update(new)
        if side == "output":
            self._known.update({id(x): x for x in floats(changed)})
            if not new:  # it made nothing, so no gradient by its inputs is wanted
                for each in [each for each in self.tensors if each.call == key]:
                    del self.tensors[each]
        return changed


@dataclass(eq=False)
class Program:
    """A step that was run as one program.

    Attributes:
        out: What it computed.
        of_variable: Gradient by the `id` of a trainable variable.
        of_tensor: Gradient by the tensor that zeros were added to.
    """

    out: ForwardPass
    of_variable: dict[int, Any]
    of_tensor: dict[TensorKey, Any]
    _calls: list[_Traced]
    _values: dict[int, Any]

    def replay(self, recorder: Recorder) -> None:
        """Shows a recorder all calls, in their order and with their values."""
        for traced in self._calls:
            self._replay(recorder, traced)

    def _replay(self, recorder: Recorder, traced: _Traced) -> None:
        site, args, kwargs = traced.call.site, traced.call.args, traced.call.kwargs
        given, result = site.given, traced.result
        if not traced.has_values:
            given, args, kwargs, result = ((), {}), (), {}, None
        given, args, kwargs, result = self._valued((given, args, kwargs, result))
        call = replace(traced.call, site=replace(site, given=given), args=args, kwargs=kwargs)
        held = {key: self._valued(value) for key, value in traced.held.items()}
        if call.op is not None:
            recorder.held = held
            recorder.note(call, result)
            return

        def run(*args: Any, **kwargs: Any) -> Any:
            for each in traced.inner:
                self._replay(recorder, each)
            recorder.held = held
            return result

        recorder.layer(replace(call, function=run))

    def _valued(self, nested: Any) -> Any:
        return _valued(nested, self._values)


def run_as_program(dry_run: DryRun) -> Program | None:
    """Returns a step that was run as one program.

    None where it cannot be: on other backends, and where it asks for the value of a tensor.
    """
    if not compiling.makes_programs():
        return None
    try:
        return _run(dry_run)
    except Exception:  # noqa: BLE001  what is wrong with a step it shows op by op
        return None


class _Step:
    """A step as a function of arrays.

    Attributes:
        weights: The trainable variables.
        others: Other variables of the model.
        batch: The tensors of the batch.
        tensors: Those that zeros are added to; the zeros follow the weights.
        tape, out, inputs: Of the last call.
    """

    def __init__(self, dry_run: DryRun) -> None:
        self._dry_run = dry_run
        self._nested = (dry_run.x, dry_run.y, dry_run.sample_weight)
        self.weights = list(dry_run.model.trainable_variables)
        trained = set(map(id, self.weights))
        self.others = [v for v in dry_run.model.variables if id(v) not in trained]
        self.batch = [leaf for leaf in keras.tree.flatten(self._nested) if ops.is_tensor(leaf)]
        self.tensors: list[TensorKey] = []
        self.tape: _Tape
        self.out: ForwardPass
        self.inputs: Sequence[Any]

    def __call__(self, weights: Sequence[Any], others: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Returns the scaled loss, and all tensors that were seen."""
        count = len(self.weights)
        mapping = list(zip(self.weights, weights[:count], strict=True))
        mapping += zip(self.others, others[: len(self.others)], strict=True)
        self.inputs = others[len(self.others) :]
        dry_run = copy.copy(self._dry_run)
        values = dict(zip(map(id, self.batch), self.inputs, strict=True))
        dry_run.x, dry_run.y, dry_run.sample_weight = _valued(self._nested, values)
        self.tape = _Tape(dict(zip(self.tensors, weights[count:], strict=True)), self.inputs)
        with keras.StatelessScope(mapping, collect_losses=True):
            with observed_by(self.tape, dry_run.model):
                self.out = dry_run.run(metrics=True)
            loss = None if self.out.scaled_loss is None else ops.sum(self.out.scaled_loss)
        return loss, self.seen()

    def seen(self) -> list[Any]:
        """Returns the tensors that the last call saw."""
        seen = _tensors(vars(self.out))
        for traced in _all_calls(self.tape.calls):
            if traced.has_values:
                call = traced.call
                given = (call.site.given, call.args, call.kwargs)
                seen.update(_tensors((given, traced.result, traced.held)))
        return list(seen.values())


def _run(dry_run: DryRun) -> Program:
    step = _Step(dry_run)
    weights = [variable.value for variable in step.weights]
    others = [*(variable.value for variable in step.others), *step.batch]
    compiling.traced(step, weights, others)
    zeros: list[Any] = []
    if weights and step.out.scaled_loss is not None:
        step.tensors = list(step.tape.tensors)
        zeros = [np.zeros(x.shape, x.dtype) for x in step.tape.tensors.values()]
    else:
        step.weights, step.others = [], [*step.weights, *step.others]
        weights, others = [], [*weights, *others]
    gradients, seen = compiling.in_one_program(step, [*weights, *zeros], others)
    values = dict(zip(map(id, step.seen()), seen, strict=True))
    values.update(zip(map(id, step.inputs), step.batch, strict=True))
    out = ForwardPass(**_valued(vars(step.out), values))
    of_variable = dict(zip(map(id, step.weights), gradients, strict=False))
    of_tensor = dict(zip(step.tensors, gradients[len(weights) :], strict=True))
    return Program(out, of_variable, of_tensor, step.tape.calls, values)


def _all_calls(calls: Sequence[_Traced]) -> Iterator[_Traced]:
    for traced in calls:
        yield traced
        yield from _all_calls(traced.inner)


def _tensors(nested: Any) -> dict[int, Any]:
    """Returns the tensors in `nested`, by `id`."""
    flat = keras.tree.flatten(nested)
    found = [x for x in flat if ops.is_tensor(x) and not isinstance(x, keras.Variable)]
    if any(map(is_sparse, found)):
        raise _UnsuitedError
    return {id(x): x for x in found}


def _valued(nested: Any, values: Mapping[int, Any]) -> Any:
    """Returns `nested` with the tensors whose `id` is known replaced."""
    return keras.tree.map_structure(lambda x: values.get(id(x), x), nested)
