"""`HalfPrecisionWeights`: stands for the 16-bit weights of an optimizer; a step with it."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import keras
from keras import ops

from keras_mp.array_types import Gradient, Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.numerics import HALVES, upcast
from keras_mp.backends.protocol import Backend
from keras_mp.sixteen_bit.rounding import Draw
from keras_mp.sixteen_bit.slots import sixteen_bit_slots
from keras_mp.sixteen_bit.storages import Rounded, Storage, Transient

_AT_A_TIME = 2**22  # elements that are in float32 at once


class _Part(NamedTuple):
    """What stands for a weight, or for a slot of one. `place`: of the weight."""

    place: int
    storage: Storage


class HalfPrecisionWeights:
    """Has an optimizer for float32 update weights in 16 bits; other weights are as ever.

    Args:
        inner: The optimizer; it is not built yet.
        make: Returns what stands for a 16-bit weight.
        slots: dtype of the slots of such weights.
        seed: Of the random numbers.
        backend: Of Keras.
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
        """Builds the inner optimizer for what stands for the weights."""
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
        """Those of the inner optimizer, then what is kept of each 16-bit weight."""
        if self._is_as_inner:
            return self.of_the_rule
        return [*self.of_the_rule, *(v for each in self._storages for v in each.own)]

    @property
    def of_the_rule(self) -> list[Variable]:
        """Those that the inner optimizer would have by itself, for weights in float32."""
        return [v for v in self._inner.variables if not isinstance(v, Transient)]

    @property
    def storages(self) -> list[Storage]:
        """What stands for each 16-bit weight."""
        return list(self._storages)

    @contextlib.contextmanager
    def as_inner(self) -> Iterator[None]:
        """A scope in which the state, for files, is that of the inner optimizer alone."""
        self._is_as_inner = True
        try:
            yield
        finally:
            self._is_as_inner = False

    def targets(self, variables: Sequence[Variable]) -> list[Variable]:
        """Returns what the inner optimizer updates in place of each; before `build`, these."""
        if not self._targets:
            return list(variables)
        return [self._targets[self._places[id(variable)]] for variable in variables]

    @property
    def rounds(self) -> bool:
        """Whether there is something that is in float32 during a step only."""
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
        """A scope in which the inner optimizer can take its step, whose results are kept after it.

        Returns:
            What to hand over: (gradients, variables), those of 16-bit weights in float32.
        """
        wide, targets = self._wide(gradients, variables), self.targets(variables)
        # Averages and sums are of all weights, whichever had a gradient.
        places = [self._places[id(variable)] for variable in variables]
        with self._loaded(places if _is_plain(self._inner) else range(len(self._targets))):
            yield wide, targets

    def finalize(self, variables: Sequence[Variable]) -> None:
        """Lets the inner optimizer put final values (its moving averages) into the weights."""
        with self._loaded(range(len(self._targets))):
            self._inner.finalize_variable_values(self.targets(variables))

    def _apply_by_parts(self, gradients: list[Gradient], variables: list[Variable]) -> None:
        """`apply` of the inner optimizer, with only so many weights in float32 at once."""
        inner = self._inner
        places = [self._places[id(variable)] for variable in variables]
        gradients = keras_hooks.clipped(inner, self._wide(gradients, variables))
        for start, end in _runs([math.prod(variable.shape) for variable in variables]):
            targets = [self._targets[place] for place in places[start:end]]
            with self._loaded(places[start:end]):
                keras_hooks.update(inner, gradients[start:end], targets)
                for target in targets:
                    if target.constraint is not None:
                        target.assign(target.constraint(target))
        keras_hooks.step_counter(inner).assign_add(1)

    @contextlib.contextmanager
    def _loaded(self, places: Iterable[int]) -> Iterator[None]:
        """A scope in which targets, and their slots, have float32 values, which are kept."""
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
        # Of a sparse one only the values are numbers.
        return self._backend.unscale([gradient], ops.ones((), "float32"), [False])[0]


def is_narrow(variable: Variable) -> bool:
    """Returns whether a variable is in float16 or bfloat16.

    >>> is_narrow(keras.Variable(1.0, dtype="bfloat16"))
    True
    """
    return keras.backend.standardize_dtype(variable.dtype) in HALVES


def _move_exclusions(inner: Optimizer, variables: list[Variable], targets: list[Variable]) -> None:
    """Has what is excluded from weight decay by the variable be so by what stands for it."""
    excluded = getattr(inner, "_exclude_from_weight_decay", None)
    if excluded:
        key = type(inner)._var_key  # of Keras' class: the instance's own may be another by now
        known = {key(inner, v): target for v, target in zip(variables, targets, strict=True)}
        moved = {inner._var_key(known[each]) for each in excluded if each in known}
        object.__setattr__(inner, "_exclude_from_weight_decay", moved)


def _is_plain(inner: Optimizer) -> bool:
    """Returns whether a step is clipping, weight decay and the rule, and nothing besides."""
    of_keras = all(_is_of_keras(inner, name) for name in ("apply", "_backend_apply_gradients"))
    return of_keras and not (inner.gradient_accumulation_steps or inner.use_ema)


def _is_of_keras(inner: Optimizer, name: str) -> bool:
    home = next(cls for cls in type(inner).__mro__ if name in vars(cls))
    return home.__module__.startswith("keras.src.") and not hasattr(inner, "optimizers")


def _runs(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of runs of about `_AT_A_TIME` in all, of one at least.

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
