"""`HalfPrecisionWeights`: float32 targets for an optimizer's 16-bit weights; a step with them."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import keras
from keras import ops

from keras_mp.array_types import Gradient, Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.numerics import HALVES, upcast
from keras_mp.backends.protocol import Backend
from keras_mp.sixteen_bit.rounding import Draw
from keras_mp.sixteen_bit.storages import Rounded, Storage, Transient, sixteen_bit_slots

_AT_A_TIME = 2**22  # elements in float32 at once


class _Part(NamedTuple):
    """The storage of a weight, or of one of its slots. `place`: the weight's index."""

    place: int
    storage: Storage


class HalfPrecisionWeights:
    """Lets a float32 optimizer update 16-bit weights; it updates other weights as usual.

    Args:
        inner: The optimizer; not built yet.
        make: Returns the storage of a 16-bit weight.
        slots: dtype of the slots of such weights.
        seed: Seed of the random numbers.
        backend: Keras' backend.
    """

    def __init__(
        self,
        inner: Optimizer,
        make: Callable[[Variable], Storage],
        slots: str,
        seed: int,
        backend: Backend,
    ) -> None:
        self._inner, self._make, self._slots, self._seed = inner, make, slots, seed
        self._backend = backend
        self._parts: list[_Part] = []
        self._storages: list[Storage] = []
        self._targets: list[Variable] = []
        self._places: dict[int, int] = {}
        self._is_as_inner = False

    def build(self, variables: list[Variable]) -> None:
        """Builds the inner optimizer for the targets."""
        inner = self._inner
        storages = [self._make(v) if is_narrow(v) else None for v in variables]
        targets = [
            variable if storage is None else storage.target
            for variable, storage in zip(variables, storages, strict=True)
        ]
        if self._slots != "float32" or any(isinstance(target, Transient) for target in targets):
            self._backend.update_tensors(inner)
        _move_exclusions(inner, variables, targets)
        narrow = {id(storage.target) for storage in storages if storage is not None}
        with sixteen_bit_slots(inner, narrow, self._slots) as slots:
            inner.build(targets)
        stands_for = {id(t): v for t, v in zip(targets, variables, strict=True)}
        self._backend.cut_slots(inner, stands_for)
        for weight, slot in slots:
            self._backend.shard_like(slot.variable, stands_for[id(weight)])
        of_target = {id(target): place for place, target in enumerate(targets)}
        of_weights = [_Part(i, each) for i, each in enumerate(storages) if each is not None]
        of_slots = [_Part(of_target[id(weight)], slot) for weight, slot in slots]
        self._storages = [part.storage for part in of_weights]
        self._parts = sorted([*of_weights, *of_slots], key=lambda part: part.place)
        start = 0
        for part in self._parts:
            if isinstance(part.storage, Rounded):
                part.storage.start = start
                start += math.prod(part.storage.variable.shape)
        self._targets = targets
        self._places = {id(variable): place for place, variable in enumerate(variables)}

    # -- state -----------------------------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """The variables of the inner optimizer, then those kept for each 16-bit weight."""
        if self._is_as_inner:
            return self.of_the_rule
        return [*self.of_the_rule, *(v for each in self._storages for v in each.own)]

    @property
    def of_the_rule(self) -> list[Variable]:
        """The variables that the inner optimizer would have for float32 weights."""
        return [v for v in self._inner.variables if not isinstance(v, Transient)]

    @property
    def storages(self) -> list[Storage]:
        """The storage of each 16-bit weight."""
        return list(self._storages)

    def as_inner(self) -> contextlib.AbstractContextManager[None]:
        """A scope in which the state, for files, is that of the inner optimizer alone."""
        return keras_hooks.replaced([self], "_is_as_inner", True)

    def targets(self, variables: Sequence[Variable]) -> list[Variable]:
        """Returns the target of each variable; before `build`, the variables themselves."""
        if not self._targets:
            return list(variables)
        return [self._targets[self._places[id(variable)]] for variable in variables]

    @property
    def rounds(self) -> bool:
        """Whether some target has its float32 value only during a step."""
        return any(isinstance(part.storage.target, Transient) for part in self._parts)

    # -- the step --------------------------------------------------------------------------------

    def apply(self, gradients: list[Gradient], variables: list[Variable]) -> None:
        """Takes a step of the inner optimizer; no gradient is None."""
        if self.rounds and _is_plain(self._inner):
            self._apply_by_parts(gradients, variables)
        else:
            with self.in_float32(gradients, variables) as (wide, targets):
                self._inner.apply(wide, targets)

    @contextlib.contextmanager
    def in_float32(
        self, gradients: list[Gradient], variables: list[Variable]
    ) -> Iterator[tuple[list[Gradient], list[Variable]]]:
        """A scope in which the inner optimizer can take its step; stores the results at its end.

        Returns:
            (gradients, variables) for the step, in float32 instead of 16 bits.
        """
        wide, targets = self._wide(gradients, variables), self.targets(variables)
        # Averages and accumulators cover all weights, with or without a gradient.
        places = [self._places[id(variable)] for variable in variables]
        with self._loaded_targets(places if _is_plain(self._inner) else range(len(self._targets))):
            yield wide, targets

    def finalize(self, variables: Sequence[Variable]) -> None:
        """Lets the inner optimizer write final values (its moving averages) to the weights."""
        with self._loaded_targets(range(len(self._targets))):
            self._inner.finalize_variable_values(self.targets(variables))

    def _apply_by_parts(self, gradients: list[Gradient], variables: list[Variable]) -> None:
        """`apply` of the inner optimizer, with a limited number of weights in float32 at once."""
        inner = self._inner
        places = [self._places[id(variable)] for variable in variables]
        gradients = keras_hooks.clipped(inner, self._wide(gradients, variables))
        for start, end in _runs([math.prod(variable.shape) for variable in variables]):
            targets = [self._targets[place] for place in places[start:end]]
            with self._loaded_targets(places[start:end]):
                keras_hooks.update(inner, gradients[start:end], targets)
                for target in targets:
                    if target.constraint is not None:
                        target.assign(target.constraint(target))
        keras_hooks.step_counter(inner).assign_add(1)

    @contextlib.contextmanager
    def _loaded_targets(self, places: Iterable[int]) -> Iterator[None]:
        """A scope in which targets and their slots have float32 values; stores them at its end."""
        draw = Draw(self._seed, ops.cast(keras_hooks.step_counter(self._inner).value, "int32"))
        wanted = set(places)
        kinds: dict[type[Storage], list[Storage]] = {}
        for part in self._parts:
            if part.place in wanted:
                kinds.setdefault(type(part.storage), []).append(part.storage)
        for kind, storages in kinds.items():
            kind.load(storages)
        yield
        for kind, storages in kinds.items():
            kind.store(storages, draw)

    def _wide(self, gradients: list[Gradient], variables: list[Variable]) -> list[Gradient]:
        targets = self.targets(variables)
        return [
            gradient
            if gradient is None or target is variable
            else self._in_float32(gradient, variable, isinstance(target, Transient))
            for gradient, variable, target in zip(gradients, variables, targets, strict=True)
        ]

    def _in_float32(self, gradient: Gradient, variable: Variable, dense: bool) -> Gradient:
        if dense:
            gradient = self._backend.to_dense_gradient(gradient, variable)
        if ops.is_tensor(gradient):
            return upcast(gradient)
        # Of a sparse gradient only the values are floats.
        return self._backend.unscale([gradient], ops.ones((), "float32"), [False])[0]


def is_narrow(variable: Variable) -> bool:
    """Returns whether a variable is in float16 or bfloat16.

    >>> is_narrow(keras.Variable(1.0, dtype="bfloat16"))
    True
    """
    return keras.backend.standardize_dtype(variable.dtype) in HALVES


def _move_exclusions(inner: Optimizer, variables: list[Variable], targets: list[Variable]) -> None:
    """Moves the exclusion from weight decay from each variable to its target."""
    excluded = getattr(inner, "_exclude_from_weight_decay", None)
    if excluded:
        key = type(inner)._var_key  # of Keras' class: the instance may override it by now
        by_key = {key(inner, v): target for v, target in zip(variables, targets, strict=True)}
        moved = {inner._var_key(by_key[each]) for each in excluded if each in by_key}
        object.__setattr__(inner, "_exclude_from_weight_decay", moved)


def _is_plain(inner: Optimizer) -> bool:
    """Returns whether a step is clipping, weight decay and the rule, and nothing else."""
    of_keras = all(_is_of_keras(inner, name) for name in ("apply", "_backend_apply_gradients"))
    return of_keras and not (inner.gradient_accumulation_steps or inner.use_ema)


def _is_of_keras(inner: Optimizer, name: str) -> bool:
    home = next(cls for cls in type(inner).__mro__ if name in vars(cls))
    return home.__module__.startswith("keras.src.") and not hasattr(inner, "optimizers")


def _runs(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of runs of about `_AT_A_TIME` elements; each has at least one variable.

    >>> list(_runs([2**22, 1, 1]))
    [(0, 1), (1, 3)]
    """
    start, total = 0, 0
    for i, size in enumerate(sizes):
        if i > start and total + size > _AT_A_TIME:
            yield start, i
            start, total = i, 0
        total += size
    if sizes:
        yield start, len(sizes)
