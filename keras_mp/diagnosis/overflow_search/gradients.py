"""The gradients by what a `Recorder` recorded, and the same numbers in float32."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_mp import backends
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.foreign_parts import Part
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.diagnosis.dry_run.isolation import isolated
from keras_mp.diagnosis.dry_run.observers import Call, observed_by, unobserved
from keras_mp.diagnosis.dry_run.step import DryRun
from keras_mp.diagnosis.dry_run.tensors import (
    Perturber,
    TensorKey,
    as_numpy,
    floats,
    map_floats,
    zeros_like,
)
from keras_mp.diagnosis.overflow_search.record import CAST, Record, Recorder, Value
from keras_mp.graph_rewrite.tensors import dtype_of


class Gradients:
    """The gradients of a step, by value.

    Args:
        recorder: What was recorded of it.
        of_variable: Gradient by the `id` of a variable; None where the loss does not depend on it.
        of_tensor: Gradient by the tensor that zeros were added to.
    """

    def __init__(
        self,
        recorder: Recorder,
        of_variable: Mapping[int, Any],
        of_tensor: Mapping[TensorKey, Any],
    ) -> None:
        self.of_variable = of_variable
        self._of_value: dict[int, Any] = {}
        self._of_use: dict[tuple[int, int], Any] = {}
        for key, value, user in _inputs_of(recorder):
            gradient = of_tensor.get(key)
            if gradient is None:
                continue
            if user is None:
                self._of_value[id(value)] = gradient
            else:
                self._of_use[id(user), id(value)] = gradient

    def of(self, value: Value) -> Any:
        """Returns the gradient by a value, or None; where several ops take it, their sum."""
        if isinstance(value.tensor, keras.Variable):
            return self.of_variable.get(id(value.tensor))
        if id(value) in self._of_value:
            return self._of_value[id(value)]
        # A layer as a whole has the parts of its ops already.
        whole = [
            range(user.first_inside, user.index) for user in value.users if user.first_inside >= 0
        ]
        users = [u for u in value.users if not any(u.index in inside for inside in whole)]
        uses = ((id(user), id(value)) for user in users)
        parts = [self._of_use[use] for use in uses if use in self._of_use]
        return parts[0] if len(parts) == 1 else sum(map(as_numpy, parts)) if parts else None

    def by(self, record: Record, value: Value) -> tuple[Any, bool]:
        """Returns the gradient by a value, and whether only `record` has a part in it."""
        exact = self._of_use.get((id(record), id(value)))
        if exact is not None:
            return exact, True
        return self.of(value), len(value.users) == 1


def _inputs_of(
    recorder: Recorder,
) -> Iterator[tuple[TensorKey, Value, Record | None]]:
    """Yields the tensors by which to differentiate.

    Each with its value, and with the record that takes it where only this use of it is meant.
    """
    for record in recorder.records:
        if record.call.op == CAST or record.has_custom_gradient:
            continue
        for i, value in enumerate(record.outputs):
            if value.requires_gradient and value.record is record:
                yield TensorKey(record.call.key, "output", i), value, None
        for i, value in enumerate(record.sources):
            made = value.record
            unseen = made is None or made.call.op == CAST or made.has_custom_gradient
            if value.requires_gradient and unseen and not isinstance(value.tensor, keras.Variable):
                yield TensorKey(record.call.key, "input", i), value, record


def eager_gradients(dry_run: DryRun, recorder: Recorder) -> Gradients:
    """Returns the gradients of a step that was recorded op by op."""
    zeros = {key: zeros_like(value.tensor) for key, value, _ in _inputs_of(recorder)}
    weights = list(dry_run.model.trainable_variables)
    added, observed = list(zeros.values()), observed_by(Perturber(zeros), dry_run.model)
    found = dry_run.gradients([*weights, *added], added, observed)
    of_variable = dict(zip(map(id, weights), found[: len(weights)], strict=True))
    return Gradients(recorder, of_variable, dict(zip(zeros, found[len(weights) :], strict=True)))


def rerun(record: Record) -> list[Any] | None:
    """Returns what a record makes in float32 of what it was given, as float64 arrays.

    None where that cannot be computed.
    """
    try:
        with unobserved(), _in_float32(record) as run:
            args, kwargs = map_floats(_wide, _with_wide_names(record.call))
            return [as_numpy(x) for x in floats(run(*args, **kwargs))]
    except Exception:  # noqa: BLE001  an op or layer of its own that takes no float32
        return None


def differentiate(
    record: Record, upstream: Sequence[Any], variables: Sequence[Any]
) -> tuple[list[Any], list[Any]] | None:
    """Returns the gradients, in float32, that a record hands on.

    Args:
        record: An op, or a layer.
        upstream: Gradients by its outputs; None is 0.
        variables: By which of its variables to differentiate too.

    Returns:
        float64 arrays, or None: by its float tensors, and by `variables`; or None where that
        cannot be computed.
    """
    zeros = [
        keras.Variable(ops.zeros(s.tensor.shape), dtype="float32", autocast=False)
        for s in record.sources
    ]

    def total() -> Any:
        rest = iter(zeros)
        with _in_float32(record, zeros) as run:
            given = _with_wide_names(record.call)
            args, kwargs = map_floats(lambda x: ops.add(_wide(x), next(rest).value), given)
            made = floats(run(*args, **kwargs))
            parts = [
                ops.sum(ops.multiply(_wide(x), ops.convert_to_tensor(as_numpy(g), "float32")))
                for x, g in zip(made, upstream, strict=False)
                if g is not None
            ]
            return sum(parts[1:], parts[0])

    backend = backends.current()
    wanted = [*zeros, *variables]
    try:
        with unobserved():
            found = backend.gradients(total, wanted)
            arrays = [
                None if g is None else as_numpy(backend.to_dense_gradient(g, v))
                for g, v in zip(found, wanted, strict=True)
            ]
    except Exception:  # noqa: BLE001  as above
        return None
    return arrays[: len(zeros)], arrays[len(zeros) :]


@contextlib.contextmanager
def _in_float32(record: Record, extra: Sequence[Any] = ()) -> Iterator[Callable[..., Any]]:
    """A scope that yields what runs a record in float32; a layer has that policy meanwhile."""
    function = record.call.function
    if not record.is_layer:
        yield function
        return
    owner = record.call.site.owner
    if isinstance(owner, Part):
        with isolated(owner.layer, extra):
            yield owner.run_in_float32
        return
    layers = [layer for _, layer in layers_of(owner)]
    with (
        isolated(owner, extra),
        keras_hooks.replaced_policies(layers, keras.DTypePolicy("float32")),
    ):
        yield function


def widened(call: Call) -> Call:
    """Returns the same call in float32."""
    args, kwargs = map_floats(_wide, _with_wide_names(call))
    return call.with_arguments(args, kwargs)


def _wide(x: Any) -> Any:
    return ops.cast(x, "float64" if dtype_of(x) == "float64" else "float32")


def _with_wide_names(call: Call) -> Any:
    """Returns the arguments of a call with the names of 16-bit dtypes widened."""

    def change(x: Any) -> Any:
        if isinstance(x, str) and x in ("float16", "bfloat16"):
            return "float32"
        return x

    return keras.tree.map_structure(change, (call.args, call.kwargs))
