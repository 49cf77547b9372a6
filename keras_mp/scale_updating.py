"""The part of the wrapper that moves the loss scale: after each step, or after a shared round."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import keras
from keras import ops

from keras_mp.backends.numerics import as_skipped
from keras_mp.extra_state import ExtraState
from keras_mp.loss_scale import next_hysteresis_left, next_scale
from keras_mp.scaling_protocol import ScalingProtocol
from keras_mp.settings import Settings


class UpdatesScale:
    """The variables of the loss-scale rule, and what a step does to them."""

    name: str
    step_counter: Any
    dynamic_scale: Any
    hysteresis_left: Any
    skipped_in_round: Any
    extra_state: ExtraState
    add_variable: Callable[..., Any]
    _native: ModuleType
    _protocol: ScalingProtocol
    _settings: Settings
    _group: Any

    @property
    def growth_factor(self) -> float:
        """Multiplier of the scale when it grows."""
        return self._settings.growth_factor

    @property
    def backoff_factor(self) -> float:
        """Multiplier of the scale after an overflow."""
        return self._settings.backoff_factor

    @property
    def min_scale(self) -> float:
        """What the scale never falls below."""
        return self._settings.min_scale

    @property
    def max_scale(self) -> float | None:
        """What the scale never grows above; None for the largest float32."""
        return self._settings.max_scale

    @property
    def hysteresis(self) -> int:
        """Overflows since the last growth until the scale falls."""
        return self._settings.hysteresis

    def _add_scale_variables(self) -> None:
        settings = self._settings
        self._group = None
        self.step_counter = self._add_own("step_counter", 0, "int")
        self.dynamic_scale = self._add_own("dynamic_scale", settings.initial_scale, "float32")
        if settings.hysteresis > 1:
            self.hysteresis_left = self._add_extra("hysteresis_left", settings.hysteresis)

    def _add_own(
        self, name: str, initial: float, dtype: str = "int", shape: tuple[int, ...] = ()
    ) -> Any:
        return self.add_variable(
            shape=shape,
            dtype=dtype,
            initializer=keras.initializers.Constant(initial),
            aggregation="only_first_replica",
            name=name,
        )

    def _add_extra(
        self, name: str, initial: float = 0, dtype: str = "int", shape: tuple[int, ...] = ()
    ) -> Any:
        """Adds a variable that Keras' own class does not have."""
        variable = self._add_own(name, initial, dtype, shape)
        self.extra_state.add(**{name: variable})
        return variable

    def _after_step(self, finite: Any) -> None:
        if not self.shares_scale:
            self._update_scale(finite)
            return
        skipped = self._native.read(self.skipped_in_round)
        now = as_skipped(finite, self.skipped_in_round)
        self.skipped_in_round.assign(ops.maximum(skipped, now))

    def _update_scale(self, finite: Any) -> None:
        settings = self._settings
        assert settings.dynamic_growth_steps is not None
        counter = self._native.read(self.step_counter)
        left = self._native.read(self.hysteresis_left) if settings.hysteresis > 1 else 1
        scale, new_counter = next_scale(
            self._native.read(self.dynamic_scale),
            counter,
            finite,
            growth_steps=settings.dynamic_growth_steps,
            growth_factor=settings.growth_factor,
            backoff_factor=settings.backoff_factor,
            min_scale=settings.min_scale,
            max_scale=settings.max_scale,
            hysteresis_left=left,
        )
        self.dynamic_scale.assign(scale)
        if settings.hysteresis > 1:
            left = next_hysteresis_left(
                left,
                counter,
                finite,
                growth_steps=settings.dynamic_growth_steps,
                hysteresis=settings.hysteresis,
            )
            self.hysteresis_left.assign(left)
        self.step_counter.assign(new_counter)

    # -- of a SharedLossScale --------------------------------------------------------------------

    @property
    def shares_scale(self) -> bool:
        """Whether the scale is decided together with other optimizers (`SharedLossScale`)."""
        return self._group is not None

    def share_scale(self, group: Any) -> None:
        """Leaves the scale to `end_round`.

        Args:
            group: A `SharedLossScale`, which follows this optimizer whenever state was restored
                into it.
        """
        with self._native.lifted():
            self.skipped_in_round = self._add_extra("skipped_in_round")
        # Past Keras' tracking: an object that holds other optimizers.
        object.__setattr__(self, "_group", group)
        self.extra_state.call_when_restored(lambda: group.follow(self))

    def expect_scaled(self) -> None:
        """Notes that the gradients to come are of a scaled loss, which another one scaled."""
        self._protocol.call("scale_loss")

    def was_finite(self) -> Any:
        """Returns whether no step was skipped in this round: a bool tensor of shape ()."""
        return ops.equal(self._native.read(self.skipped_in_round), 0)

    def end_round(self, finite: Any, followers: Any) -> None:
        """Moves the scale, gives it to `followers`, and begins a new round for all."""
        self._update_scale(finite)
        for each in followers:
            each.take_scale_of(self)
        for each in (self, *followers):
            each.skipped_in_round.assign(ops.zeros((), each.skipped_in_round.dtype))

    def take_scale_of(self, leader: Any) -> None:
        """Takes the loss scale, and what belongs to it, of another optimizer."""
        names = ["dynamic_scale", "step_counter"]
        if self._settings.hysteresis > 1:
            names.append("hysteresis_left")
        for name in names:
            getattr(self, name).assign(leader._native.read(getattr(leader, name)))
