"""The loss scale and its state: scales a loss, unscales gradients, follows the rule at each step.

The numbers of the rule are in `loss_scale.py`.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_mp.array_types import Gradient, Gradients, Tensor
from keras_mp.backends.common.numerics import skip_count
from keras_mp.backends.common.warn_once import WarnOnce
from keras_mp.scaling.loss_scale import is_due, next_hysteresis_left, next_scale
from keras_mp.scaling.scaling_protocol import ScalingProtocol
from keras_mp.settings import Settings
from keras_mp.variables.variable_factory import VariableFactory

TRACE_CONSTANT = (
    "The function being compiled here captures the loss scale as a constant: it will not follow "
    "the optimizer. Pass the optimizer's variables to the function and use "
    "stateless_scale_loss(optimizer_variables, loss)."
)


class LossScaler:
    """A fixed loss scale; that of `DynamicLossScaler` changes.

    Args:
        settings: The optimizer's settings.
        variables: Creates its variables.
        warn: Warns if a compiled function would capture the scale as a constant.
    """

    def __init__(self, settings: Settings, variables: VariableFactory, warn: WarnOnce) -> None:
        self.settings = settings
        self.protocol = ScalingProtocol()
        self._backend = variables.backend
        self._warn = warn
        self.counter = variables.add("step_counter")
        self.scale = variables.add("dynamic_scale", settings.initial_scale, "float32")

    def read(self) -> Tensor:
        """Returns the loss scale: float32, shape ()."""
        return self._backend.read(self.scale)

    def read_or_warn(self, stacklevel: int) -> Tensor:
        """Returns the loss scale; warns if a compiled function would capture it as a constant."""
        scale = self.read()
        if self._backend.is_trace_constant(scale):
            self._warn(TRACE_CONSTANT, stacklevel)
        return scale

    def read_counter(self) -> Tensor:
        """Returns the finite steps since the last overflow or growth: integer, shape ()."""
        return self._backend.read(self.counter)

    def scale_loss(self, loss: Tensor | float, stacklevel: int = 5) -> Tensor:
        """Returns `loss` times the scale: float32, or float64 for a float64 loss."""
        loss, scale = as_tensor(loss), self.read_or_warn(stacklevel)
        dtype = keras.backend.standardize_dtype(loss.dtype)
        if dtype == "float64":
            scale = ops.cast(scale, dtype)
        elif dtype != "float32":
            loss = ops.cast(loss, "float32")
        return ops.multiply(loss, scale)

    def unscale(
        self, gradients: Gradients, skip_unscale: Sequence[bool], stacklevel: int = 5
    ) -> list[Gradient]:
        """Returns `gradients` divided by the scale, except those marked `skip_unscale`."""
        return self._backend.unscale(gradients, self.read_or_warn(stacklevel), skip_unscale)

    def update(self, finite: Tensor) -> None:
        """Records whether a step's gradients were `finite`: bool, shape ()."""
        return  # a body, without which AutoGraph warns

    def restored(self) -> None:
        """Called after values were restored into the variables."""
        return


class DynamicLossScaler(LossScaler):
    """A loss scale that grows after enough finite steps, and shrinks at an overflow."""

    def __init__(self, settings: Settings, variables: VariableFactory, warn: WarnOnce) -> None:
        super().__init__(settings, variables, warn)
        self._group: ScaleGroup | None = None
        self._state = [self.scale, self.counter]
        if settings.hysteresis > 1:
            self.hysteresis_left = variables.add_extra("hysteresis_left", settings.hysteresis)
            self._state.append(self.hysteresis_left)

    def update(self, finite: Tensor) -> None:
        """Moves the scale by the rule; a shared scale moves at the end of its round."""
        if self._group is None:
            self.move(finite)
            return
        now = skip_count(finite, self._skipped)
        self._skipped.assign(ops.maximum(self._backend.read(self._skipped), now))

    def move(self, finite: Tensor) -> None:
        """Moves the scale by the rule."""
        settings = self.settings
        assert settings.dynamic_growth_steps is not None
        counter = self.read_counter()
        if finite is True and self._backend.is_at_hand(counter):
            count = int(counter)
            if not is_due(count, settings.dynamic_growth_steps):
                # Most steps only count, for which the rule in tensors is too slow.
                self.counter.assign(count + 1)
                return
        has_hysteresis = settings.hysteresis > 1
        left = self._backend.read(self.hysteresis_left) if has_hysteresis else 1
        scale, new_counter = next_scale(
            self.read(),
            counter,
            finite,
            growth_steps=settings.dynamic_growth_steps,
            growth_factor=settings.growth_factor,
            backoff_factor=settings.backoff_factor,
            min_scale=settings.min_scale,
            max_scale=settings.max_scale,
            hysteresis_left=left,
        )
        self.scale.assign(scale)
        if has_hysteresis:
            left = next_hysteresis_left(
                left,
                counter,
                finite,
                growth_steps=settings.dynamic_growth_steps,
                hysteresis=settings.hysteresis,
            )
            self.hysteresis_left.assign(left)
        self.counter.assign(new_counter)

    def copy_from(self, other: "DynamicLossScaler") -> None:
        """Copies the loss scale and counters of another scaler with the same settings."""
        for mine, theirs in zip(self._state, other._state, strict=True):
            mine.assign(other._backend.read(theirs))

    def restart(self, scale: float) -> None:
        """Sets the loss scale, and begins to count anew, for all that share the scale."""
        for scaler in [self] if self._group is None else self._group.scalers:
            scaler.scale.assign(scale)
            scaler.counter.assign(0)
            if scaler.settings.hysteresis > 1:
                scaler.hysteresis_left.assign(scaler.settings.hysteresis)

    def set_growth_steps(self, value: int) -> None:
        """Sets the finite steps between two growths, for all scalers that share the scale."""
        for scaler in [self] if self._group is None else self._group.scalers:
            scaler.settings = scaler.settings.with_growth_steps(value)

    # -- a scale that several optimizers share ---------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether several scalers share the scale."""
        return self._group is not None

    def share(self, group: "ScaleGroup", variables: VariableFactory) -> None:
        """Leaves the scale to `group`, which updates it once a round."""
        with self._backend.init_scope():
            self._skipped = variables.add_extra("skipped_in_round")
        self._group = group

    def was_finite(self) -> Tensor:
        """Returns whether no step was skipped in this round: bool, shape ()."""
        return ops.equal(self._backend.read(self._skipped), 0)

    def begin_round(self) -> None:
        """Begins a new round."""
        self._skipped.assign(ops.zeros((), self._skipped.dtype))

    def restored(self) -> None:
        """Copies the restored values to all scalers that share the scale."""
        if self._group is not None:
            self._group.follow(self)


class ScaleGroup:
    """Scalers that share one scale and update it once a round."""

    def __init__(self, scalers: Sequence[DynamicLossScaler]) -> None:
        self.scalers = scalers

    def follow(self, leader: DynamicLossScaler) -> None:
        """Copies the scale and counters of `leader` to all scalers."""
        for scaler in self.scalers:
            if scaler is not leader:
                scaler.copy_from(leader)

    def end_round(self) -> None:
        """Updates the scale of all scalers and begins a new round."""
        leader = self.scalers[0]
        leader.move(ops.all(ops.stack([scaler.was_finite() for scaler in self.scalers])))
        self.follow(leader)
        for scaler in self.scalers:
            scaler.begin_round()


def as_tensor(loss: Tensor | float) -> Tensor:
    """Returns a number, or NumPy scalar, as a tensor; a tensor unchanged."""
    if not hasattr(loss, "dtype"):
        return ops.convert_to_tensor(loss, "float32")
    # Not a union type: torch.compile cannot trace it.
    return ops.convert_to_tensor(loss) if isinstance(loss, (np.ndarray, np.generic)) else loss
