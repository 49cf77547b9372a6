"""A step as one program, and what happened in it told to a recorder afterwards.

Run op by op, JAX compiles each op by itself, which takes most of a search. Here the step is traced
instead: what it calls is written down, and all values and gradients are results of one program.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.backends import compiling, custom_gradients
from keras_mp.dry_run import observing
from keras_mp.dry_run.observing import Place, floats
from keras_mp.dry_run.step import ForwardPass, Trial
from keras_mp.graph_rewrite.tensors import is_sparse
from keras_mp.overflow_search.gradients import Spot, Tapper
from keras_mp.overflow_search.record import Key, Recorder


@dataclass(eq=False)
class Call:
    """A call of an op or a layer.

    Attributes:
        place: Where, as it was then.
        name: Of the op; None for a layer.
        run: The op.
        args, kwargs: What it was given.
        is_inside: Whether that was in a function that the framework traces by itself, such as the
            body of a loop, so that nothing of it has a value.
        result: What it returned.
        held: What the variables that it takes held, by `id`.
        calls: What a layer called.
    """

    place: Place | None
    name: str | None
    run: Callable[..., Any] | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_inside: bool
    result: Any = None
    held: dict[int, Any] = field(default_factory=dict)
    calls: "list[Call]" = field(default_factory=list)


class _UnsuitedError(Exception):
    """This step has to run op by op."""


class _Script(Tapper):
    """Writes down the calls of a step.

    Attributes:
        calls: In order.
        spots: Tensor by where zeros are to be added to it: where a gradient may be asked for.
    """

    def __init__(self, zeros: Mapping[Spot, Any], given: Any) -> None:
        super().__init__(zeros)
        self.calls: list[Call] = []
        self.spots: dict[Spot, Any] = {}
        self._known = {
            id(x): x for x in floats(given)
        }  # with it, as ids of what is gone come again
        self._trace = compiling.trace()

    def op(
        self,
        place: Place | None,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs an op as `Tapper` does."""
        if custom_gradients.is_inside():
            raise _UnsuitedError  # its values are none of the program
        call = self._begun(place, name, original, args, kwargs)
        flat = keras.tree.flatten((args, kwargs))
        call.held = {id(x): x.value for x in flat if isinstance(x, keras.Variable)}
        call.result = super().op(place, name, original, args, kwargs)
        return call.result

    def layer(
        self,
        place: Place,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
    ) -> Any:
        """Runs a layer as `Tapper` does."""
        call = self._begun(place, None, None, args, kwargs)
        outside, self.calls = self.calls, call.calls
        known = len(self._known)
        try:
            call.result = super().layer(place, args, kwargs, run)
        finally:
            self.calls = outside
        if len(self._known) > known:
            call.held = {id(v): v.value for v in place.owner.variables}
        return call.result

    def _begun(
        self,
        place: Place | None,
        name: str | None,
        run: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Call:
        is_inside = compiling.trace() != self._trace
        call = Call(place and copy.copy(place), name, run, args, kwargs, is_inside)
        self.calls.append(call)
        return call

    def _plus(self, key: Key, which: str, value: Any) -> Any:
        if compiling.trace() != self._trace:
            return value
        changed = super()._plus(key, which, value)
        new = {(key, which, i): x for i, x in enumerate(floats(value)) if id(x) not in self._known}
        self.spots.update(new)
        if which == "made":
            self._known.update({id(x): x for x in floats(changed)})
            if not new:  # nobody asks what went into it
                for spot in [spot for spot in self.spots if spot[0] == key]:
                    del self.spots[spot]
        return changed


@dataclass(eq=False)
class Program:
    """A step that was run as one program.

    Attributes:
        out: What it computed.
        of_variable: Gradient by the `id` of a trainable variable.
        of_spot: Gradient by where zeros were added.
    """

    out: ForwardPass
    of_variable: dict[int, Any]
    of_spot: dict[Spot, Any]
    _calls: list[Call]
    _values: dict[int, Any]

    def tell(self, recorder: Recorder) -> None:
        """Tells a recorder of all calls, in their order and with their values."""
        for call in self._calls:
            self._tell(recorder, call)

    def _tell(self, recorder: Recorder, call: Call) -> None:
        if call.is_inside:
            call = replace(call, args=(), kwargs={}, result=None)
        given = call.place.given if call.place is not None and not call.is_inside else ((), {})
        place = None if call.place is None else replace(call.place, given=self._valued(given))
        args, kwargs, result = self._valued((call.args, call.kwargs, call.result))
        held = {key: self._valued(value) for key, value in call.held.items()}
        if call.name is not None and call.run is not None:
            recorder.held = held
            recorder.saw(place, call.name, call.run, args, kwargs, result)
            return

        def run(*args: Any, **kwargs: Any) -> Any:
            for each in call.calls:
                self._tell(recorder, each)
            recorder.held = held
            return result

        if place is not None:
            recorder.layer(place, args, kwargs, run)

    def _valued(self, nested: Any) -> Any:
        return _valued(nested, self._values)


def run_as_program(trial: Trial) -> Program | None:
    """Returns a step that was run as one program.

    None where it cannot be: on other backends, and where it asks for the value of a tensor.
    """
    if not compiling.makes_programs():
        return None
    try:
        return _run(trial)
    except Exception:  # noqa: BLE001  what is wrong with a step it shows op by op
        return None


class _Step:
    """A step as a function of arrays.

    Attributes:
        weights: The trainable variables.
        others: Other variables of the model.
        batch: The tensors of the batch.
        spots: Where zeros are added; they follow the weights.
        script, out, inputs: Of the last call.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._nested = (trial.x, trial.y, trial.sample_weight)
        self.weights = list(trial.model.trainable_variables)
        trained = set(map(id, self.weights))
        self.others = [v for v in trial.model.variables if id(v) not in trained]
        self.batch = [leaf for leaf in keras.tree.flatten(self._nested) if ops.is_tensor(leaf)]
        self.spots: list[Spot] = []
        self.script: _Script
        self.out: ForwardPass
        self.inputs: Sequence[Any]

    def __call__(self, weights: Sequence[Any], others: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Returns the scaled loss, and all tensors that were seen."""
        count = len(self.weights)
        mapping = list(zip(self.weights, weights[:count], strict=True))
        mapping += zip(self.others, others[: len(self.others)], strict=True)
        self.inputs = others[len(self.others) :]
        trial = copy.copy(self._trial)
        values = dict(zip(map(id, self.batch), self.inputs, strict=True))
        trial.x, trial.y, trial.sample_weight = _valued(self._nested, values)
        self.script = _Script(dict(zip(self.spots, weights[count:], strict=True)), self.inputs)
        with keras.StatelessScope(mapping, collect_losses=True):
            with observing.watching(self.script, trial.model):
                self.out = trial.run(metrics=True)
            loss = None if self.out.scaled is None else ops.sum(self.out.scaled)
        return loss, self.tensors()

    def tensors(self) -> list[Any]:
        """Returns the tensors that the last call saw."""
        seen = _tensors(vars(self.out))
        for call in _all_calls(self.script.calls):
            if not call.is_inside:
                given = None if call.place is None else call.place.given
                seen.update(_tensors((given, call.args, call.kwargs, call.result, call.held)))
        return list(seen.values())


def _run(trial: Trial) -> Program:
    step = _Step(trial)
    weights = [variable.value for variable in step.weights]
    others = [*(variable.value for variable in step.others), *step.batch]
    compiling.traced(step, weights, others)
    zeros: list[Any] = []
    if weights and step.out.scaled is not None:
        step.spots = list(step.script.spots)
        zeros = [np.zeros(x.shape, x.dtype) for x in step.script.spots.values()]
    else:
        step.weights, step.others = [], [*step.weights, *step.others]
        weights, others = [], [*weights, *others]
    gradients, seen = compiling.in_one_program(step, [*weights, *zeros], others)
    values = dict(zip(map(id, step.tensors()), seen, strict=True))
    values.update(zip(map(id, step.inputs), step.batch, strict=True))
    out = ForwardPass(**_valued(vars(step.out), values))
    of_variable = dict(zip(map(id, step.weights), gradients, strict=False))
    of_spot = dict(zip(step.spots, gradients[len(weights) :], strict=True))
    return Program(out, of_variable, of_spot, step.script.calls, values)


def _all_calls(calls: Sequence[Call]) -> Iterator[Call]:
    for call in calls:
        yield call
        yield from _all_calls(call.calls)


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
