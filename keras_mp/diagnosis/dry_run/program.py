"""Runs a step as one program, and shows its calls to an observer afterwards.

Op by op, JAX compiles each op separately, which takes most of the time of a search or report. Here
a step is traced instead: a tape records its calls, and one program returns all values and
gradients.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import keras
import numpy as np
from keras import ops

from keras_mp.backends.common import compiling
from keras_mp.diagnosis.dry_run.observers import Call, Key, observed_by
from keras_mp.diagnosis.dry_run.source_lines import is_in_custom_gradient
from keras_mp.diagnosis.dry_run.step import DryRun, ForwardPass
from keras_mp.diagnosis.dry_run.tensors import Perturber, TensorKey, floats
from keras_mp.graph_rewrite.tensors import dtype_of, is_sparse, shape_of


class Replayed(Protocol):
    """Receives the calls of a program after it ran.

    Attributes:
        held: The values of the variables that the call takes, by `id`; set before each call.
    """

    held: Mapping[int, Any]

    def note(self, call: Call, result: Any) -> None:
        """Receives a call of an op."""

    def layer(self, call: Call) -> Any:
        """Receives a call of a layer, and runs it, for the calls inside."""


@dataclass(eq=False)
class _Traced:
    """A call, with its result when the step was traced.

    Attributes:
        call: The call.
        has_values: Whether the program returns its tensors: not in a function that the framework
            traces by itself, such as the body of a loop.
        result: Its result.
        held: The values of the variables that it takes, by `id`.
        inner: The calls inside a layer.
    """

    call: Call
    has_values: bool
    result: Any = None
    held: dict[int, Any] = field(default_factory=dict)
    inner: "list[_Traced]" = field(default_factory=list)


class _UnsuitedError(Exception):
    """This step can run only op by op."""


class _Tape(Perturber):
    """Records the calls of a step.

    Attributes:
        calls: In order.
        tensors: Those that zeros may be added to, to differentiate by them.
    """

    def __init__(self, zeros: Mapping[TensorKey, Any], given: Any) -> None:
        super().__init__(zeros)
        self.calls: list[_Traced] = []
        self.tensors: dict[TensorKey, Any] = {}
        # By id, together with the tensor: ids of deleted tensors are reused.
        self._known = {id(x): x for x in floats(given)}
        self._trace = compiling.trace()

    def op(self, call: Call) -> Any:
        """Runs an op as `Perturber` does."""
        if is_in_custom_gradient():
            raise _UnsuitedError  # the program cannot return values from inside
        traced = self._new_record(call)
        flat = keras.tree.flatten((call.args, call.kwargs))
        traced.held = {id(x): x.value for x in flat if isinstance(x, keras.Variable)}
        traced.result = super().op(call)
        return traced.result

    def layer(self, call: Call) -> Any:
        """Runs a layer as `Perturber` does."""
        traced = self._new_record(call)
        outside, self.calls = self.calls, traced.inner
        known = len(self._known)
        try:
            traced.result = super().layer(call)
        finally:
            self.calls = outside
        if len(self._known) > known:
            traced.held = {id(v): v.value for v in call.site.owner.variables}
        return traced.result

    def _new_record(self, call: Call) -> _Traced:
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
            if not new:  # it returned its argument, so it needs no gradient by its inputs
                for each in [each for each in self.tensors if each.call == key]:
                    del self.tensors[each]
        return changed


@dataclass(eq=False)
class Program:
    """A step that ran as one program.

    Attributes:
        out: Its result.
        of_variable: Gradient by the `id` of a trainable variable.
        of_tensor: Gradient by the tensor that zeros were added to.
    """

    out: ForwardPass
    of_variable: dict[int, Any]
    of_tensor: dict[TensorKey, Any]
    _calls: list[_Traced]
    _values: dict[int, Any]

    def replay(self, observer: Replayed) -> None:
        """Shows all calls to an observer, in their order and with their values."""
        for traced in self._calls:
            self._replay(observer, traced)

    def _replay(self, observer: Replayed, traced: _Traced) -> None:
        site, args, kwargs = traced.call.site, traced.call.args, traced.call.kwargs
        given, result = site.given, traced.result
        if not traced.has_values:
            given, args, kwargs, result = ((), {}), (), {}, None
        given, args, kwargs, result = self._with_values((given, args, kwargs, result))
        call = replace(traced.call, site=replace(site, given=given), args=args, kwargs=kwargs)
        held = {key: self._with_values(value) for key, value in traced.held.items()}
        if call.op is not None:
            observer.held = held
            observer.note(call, result)
            return

        def run(*args: Any, **kwargs: Any) -> Any:
            for each in traced.inner:
                self._replay(observer, each)
            observer.held = held
            return result

        observer.layer(replace(call, function=run))

    def _with_values(self, nested: Any) -> Any:
        return _with_values(nested, self._values)


def run_as_program(dry_run: DryRun, programs: "StepPrograms | None" = None) -> Program | None:
    """Runs a step as one program.

    Returns None if that is impossible: on other backends, and if the step reads a tensor's value.

    Args:
        dry_run: The step.
        programs: Programs compiled for such steps at other loss scales.
    """
    return (programs or StepPrograms(dry_run.model)).run(dry_run)


def observed_step(
    dry_run: DryRun, observer: Any, programs: "StepPrograms", *, ops: bool = True
) -> tuple[ForwardPass, Program | None]:
    """Runs a step, with metrics if there are ops to observe, and shows its calls to an observer.

    As one program, if that is possible; else op by op, and returns None in place of the program.
    """
    program = run_as_program(dry_run, programs)
    if program is None:
        with observed_by(observer, dry_run.model, ops):
            return dry_run.run(metrics=ops), None
    program.replay(observer)
    return program.out, program


class StepPrograms:
    """The programs of the steps of a model: one for all batches of the same shapes and dtypes.

    Args:
        model: Its weights may change between two steps.
        with_ops: Whether to record ops like layers, and differentiate by them.
    """

    def __init__(self, model: Any, *, with_ops: bool = True) -> None:
        self._model, self._with_ops = model, with_ops
        self._compiled: dict[str, _Compiled | None] = {}

    def run(self, dry_run: DryRun) -> Program | None:
        """Runs the step as `run_as_program` does."""
        assert dry_run.model is self._model
        if not compiling.makes_programs():
            return None
        key = str(keras.tree.map_structure(_shape_and_dtype, _batch_parts(dry_run)))
        try:
            if key not in self._compiled:
                self._compiled[key] = None
                with compiling.without_optimization():
                    self._compiled[key] = _Compiled(dry_run, self._with_ops)
            compiled = self._compiled[key]
            return None if compiled is None else compiled.run(dry_run)
        except Exception:  # noqa: BLE001  what is wrong with a step it shows op by op
            return None


def _batch_parts(dry_run: DryRun) -> tuple[Any, Any, Any]:
    return dry_run.x, dry_run.y, dry_run.sample_weight


def _shape_and_dtype(leaf: Any) -> str:
    return f"{shape_of(leaf)} {dtype_of(leaf)}" if ops.is_tensor(leaf) else repr(leaf)


class _Step:
    """A step as a function of arrays.

    Attributes:
        weights: The trainable variables.
        others: Other variables of the model.
        batch: The tensors of the batch.
        tensors: Those that zeros are added to; the zeros follow the weights.
        tape, out, inputs: Of the last call.
    """

    def __init__(self, dry_run: DryRun, with_ops: bool) -> None:
        self._dry_run, self._with_ops = dry_run, with_ops
        self.weights = list(dry_run.model.trainable_variables)
        trained = set(map(id, self.weights))
        self.others = [v for v in dry_run.model.variables if id(v) not in trained]
        self._batch_parts = _batch_parts(dry_run)
        self.batch = batch_of(dry_run)
        self.tensors: list[TensorKey] = []
        self.tape: _Tape
        self.out: ForwardPass
        self.inputs: Sequence[Any]

    def __call__(self, weights: Sequence[Any], others: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Returns the scaled loss, and all observed tensors."""
        count = len(self.weights)
        mapping = list(zip(self.weights, weights[:count], strict=True))
        mapping += zip(self.others, others[: len(self.others)], strict=True)
        dry_run = copy.copy(self._dry_run)
        *self.inputs, scale = others[len(self.others) :]
        dry_run.loss_scale = scale
        values = dict(zip(map(id, self.batch), self.inputs, strict=True))
        dry_run.x, dry_run.y, dry_run.sample_weight = _with_values(self._batch_parts, values)
        self.tape = _Tape(dict(zip(self.tensors, weights[count:], strict=True)), self.inputs)
        with keras.StatelessScope(mapping, collect_losses=True):
            with observed_by(self.tape, dry_run.model, ops=self._with_ops):
                self.out = dry_run.run(metrics=True)
            loss = None if self.out.scaled_loss is None else ops.sum(self.out.scaled_loss)
        return loss, self.seen()

    def seen(self) -> list[Any]:
        """Returns the tensors that the last call observed."""
        seen = _tensors(vars(self.out))
        for traced in _all_calls(self.tape.calls):
            if traced.has_values:
                call = traced.call
                given = (call.site.given, call.args, call.kwargs)
                seen.update(_tensors((given, traced.result, traced.held)))
        return list(seen.values())


def batch_of(dry_run: DryRun) -> list[Any]:
    """Returns the tensors of the batch."""
    return [leaf for leaf in keras.tree.flatten(_batch_parts(dry_run)) if ops.is_tensor(leaf)]


class _Compiled:
    """A compiled step, for batches of the same shapes and dtypes."""

    def __init__(self, dry_run: DryRun, with_ops: bool) -> None:
        self._step = step = _Step(dry_run, with_ops)
        weights, others = self._arrays(dry_run)
        compiling.traced(step, weights, others)
        self._zeros: list[Any] = []
        if weights and step.out.scaled_loss is not None:
            step.tensors = list(step.tape.tensors)
            self._zeros = [np.zeros(x.shape, x.dtype) for x in step.tape.tensors.values()]
        else:
            step.weights, step.others = [], [*step.weights, *step.others]
            weights, others = self._arrays(dry_run)
        self._program = compiling.one_program(step, [*weights, *self._zeros], others)

    def _arrays(self, dry_run: DryRun) -> tuple[list[Any], list[Any]]:
        weights = [variable.value for variable in self._step.weights]
        others = [variable.value for variable in self._step.others]
        return weights, [*others, *batch_of(dry_run), dry_run.loss_scale]

    def run(self, dry_run: DryRun) -> Program:
        step = self._step
        weights, others = self._arrays(dry_run)
        gradients, seen = self._program([*weights, *self._zeros], others)
        values = dict(zip(map(id, step.seen()), seen, strict=True))
        values.update(zip(map(id, step.inputs), batch_of(dry_run), strict=True))
        out = ForwardPass(**_with_values(vars(step.out), values))
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
    tensors = [x for x in flat if ops.is_tensor(x) and not isinstance(x, keras.Variable)]
    if any(map(is_sparse, tensors)):
        raise _UnsuitedError
    return {id(x): x for x in tensors}


def _with_values(nested: Any, values: Mapping[int, Any]) -> Any:
    """Returns `nested` with tensors replaced by the value with their `id`."""
    return keras.tree.map_structure(lambda x: values.get(id(x), x), nested)
