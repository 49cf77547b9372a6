"""The gradients of what a `Recorder` recorded, and the same numbers in float32.

To every value a variable of zeros is added, in its dtype, and differentiated by: the gradient
arrives as the backward pass of the framework has it, its infs too.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_mp import backends
from keras_mp.dry_run import observing
from keras_mp.dry_run.observing import Place, floats, map_floats
from keras_mp.dry_run.step import Trial, isolated
from keras_mp.graph_rewrite.tensors import dtype_of, shape_of
from keras_mp.overflow_search.record import CAST, Key, Record, Recorder, Value, as_numpy, next_key

Spot = tuple[Key, str, int]


def zeros_like(x: Any) -> Any:
    """Returns a variable of zeros of the shape and dtype of a tensor, which no layer casts."""
    return keras.Variable(
        ops.zeros(x.shape), dtype=dtype_of(x), trainable=True, autocast=False, name="zeros"
    )


class Tapper(observing.Watcher):
    """Adds zeros to the values of a step.

    Attributes:
        zeros: Variable or tensor by the key of the op, "made" or "taken", and which of its float
            tensors.
    """

    def __init__(self, zeros: Mapping[Spot, Any]) -> None:
        self.zeros = zeros
        self._keys: Counter[tuple[str, str]] = Counter()

    def op(
        self,
        place: Place | None,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs an op on what it is given plus zeros, and returns its result plus zeros."""
        key = next_key(self._keys, place or Place("forward", "", ""), name)
        args, kwargs = self._plus(key, "taken", (args, kwargs))
        return self._plus(key, "made", original(*args, **kwargs))

    def layer(
        self,
        place: Place,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
    ) -> Any:
        """Runs a layer none of whose ops made its result as `op` runs an op."""
        key = next_key(self._keys, place, "")
        with observing.unwatched():
            args, kwargs = self._plus(key, "taken", (args, kwargs))
        result = run(*args, **kwargs)
        with observing.unwatched():
            return self._plus(key, "made", result)

    def _plus(self, key: Key, which: str, value: Any) -> Any:
        if not any((key, which, i) in self.zeros for i in range(len(floats(value)))):
            return value
        count = -1

        def plus(x: Any) -> Any:
            nonlocal count
            count += 1
            zeros = self.zeros.get((key, which, count))
            if zeros is None or shape_of(x) != shape_of(zeros) or dtype_of(x) != dtype_of(zeros):
                return x
            return ops.add(x, zeros.value if isinstance(zeros, keras.Variable) else zeros)

        return map_floats(plus, value)


class Gradients:
    """The gradients of a step, by value.

    Args:
        recorder: What was recorded of it.
        of_variable: Gradient by the `id` of a variable; None where the loss hangs on none.
        of_spot: Gradient by where zeros were added.
    """

    def __init__(
        self,
        recorder: Recorder,
        of_variable: Mapping[int, Any],
        of_spot: Mapping[Spot, Any],
    ) -> None:
        self.of_variable = of_variable
        self._of_value: dict[int, Any] = {}
        self._of_use: dict[tuple[int, int], Any] = {}
        for spot, value, user in _spots(recorder):
            gradient = of_spot.get(spot)
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
        whole = [range(user.first, user.index) for user in value.users if user.first >= 0]
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


def _spots(recorder: Recorder) -> Iterator[tuple[Spot, Value, Record | None]]:
    """Yields where a gradient is asked for, by which value, and in which of its uses, if in one."""
    for record in recorder.records:
        if record.op == CAST or record.is_passed:
            continue
        for i, value in enumerate(record.outputs):
            if value.depends and value.record is record:
                yield (record.key, "made", i), value, None
        for i, value in enumerate(record.sources):
            made = value.record
            unseen = made is None or made.op == CAST or made.is_passed
            if value.depends and unseen and not isinstance(value.tensor, keras.Variable):
                yield (record.key, "taken", i), value, record


def eager_gradients(trial: Trial, recorder: Recorder) -> Gradients:
    """Returns the gradients of a step that was recorded op by op."""
    zeros = {spot: zeros_like(value.tensor) for spot, value, _ in _spots(recorder)}
    weights = list(trial.model.trainable_variables)
    added, watched = list(zeros.values()), observing.watching(Tapper(zeros), trial.model)
    found = trial.gradients([*weights, *added], added, watched)
    of_variable = dict(zip(map(id, weights), found[: len(weights)], strict=True))
    return Gradients(recorder, of_variable, dict(zip(zeros, found[len(weights) :], strict=True)))


def rerun(record: Record) -> list[Any] | None:
    """Returns what a record makes in float32 of what it was given, as float64 arrays.

    None where that cannot be computed.
    """
    try:
        with observing.unwatched(), _in_float32(record) as run:
            args, kwargs = map_floats(_wide, _with_wide_names((record.args, record.kwargs)))
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
            given = _with_wide_names((record.args, record.kwargs))
            args, kwargs = map_floats(lambda x: ops.add(_wide(x), next(rest).value), given)
            made = floats(run(*args, **kwargs))
            parts = [
                ops.sum(ops.multiply(_wide(x), ops.convert_to_tensor(as_numpy(g), "float32")))
                for x, g in zip(made, upstream, strict=False)
                if g is not None
            ]
            return sum(parts[1:], parts[0])

    native = backends.current()
    wanted = [*zeros, *variables]
    try:
        with observing.unwatched():
            found = native.gradients(total, wanted)
            arrays = [
                None if g is None else as_numpy(native.densified(g, v))
                for g, v in zip(found, wanted, strict=True)
            ]
    except Exception:  # noqa: BLE001  as above
        return None
    return arrays[: len(zeros)], arrays[len(zeros) :]


@contextlib.contextmanager
def _in_float32(record: Record, extra: Sequence[Any] = ()) -> Iterator[Callable[..., Any]]:
    """A scope that yields what runs a record in float32; a layer has that policy meanwhile."""
    owner = record.owner
    if record.run is not owner:
        yield record.run
        return
    policies = [(layer, layer._dtype_policy) for _, layer in observing.layers_of(owner)]
    with isolated(owner, extra):
        try:
            for layer, _ in policies:
                object.__setattr__(layer, "_dtype_policy", keras.DTypePolicy("float32"))
            yield record.run
        finally:
            for layer, policy in policies:
                object.__setattr__(layer, "_dtype_policy", policy)


def _wide(x: Any) -> Any:
    return ops.cast(x, "float64" if dtype_of(x) == "float64" else "float32")


def _with_wide_names(structure: Any) -> Any:
    """Returns nested arguments with the names of 16-bit dtypes widened."""

    def change(x: Any) -> Any:
        if isinstance(x, str) and x in ("float16", "bfloat16"):
            return "float32"
        return x

    return keras.tree.map_structure(change, structure)
