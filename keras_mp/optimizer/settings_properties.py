"""The part of the wrapper that shows its settings, under the names of the constructor."""

from keras_mp.optimizer.stepper import Stepper
from keras_mp.scaling.scaler import LossScaler
from keras_mp.settings import Settings


class SettingsProperties:
    """The arguments of the constructor, to be read."""

    _scaler: LossScaler
    _step: Stepper

    @property
    def _settings(self) -> Settings:
        return self._scaler.settings

    @_settings.setter
    def _settings(self, settings: Settings) -> None:
        self._scaler.settings = self._step.settings = settings

    @property
    def dynamic(self) -> bool:
        """Whether the loss scale changes during training."""
        return self._settings.dynamic

    @property
    def initial_scale(self) -> float:
        """The loss scale at the start of training."""
        return self._settings.initial_scale

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

    @property
    def count_skipped_steps(self) -> bool:
        """Whether `iterations` advances on a skipped step."""
        return self._settings.count_skipped_steps

    @property
    def skip_nonfinite(self) -> bool:
        """Whether steps with gradients that are not finite are skipped."""
        return self._settings.skip_nonfinite

    @property
    def diagnose(self) -> bool:
        """Whether it is counted which variables have gradients that are not finite."""
        return self._settings.diagnose

    @property
    def max_consecutive_skips(self) -> int | None:
        """Skipped steps in a row after which `LossScaleMonitor` stops the training."""
        return self._settings.max_consecutive_skips

    @property
    def fused(self) -> bool:
        """Whether steps are taken with fused kernels, where there are some: `fused_fallback`."""
        return self._settings.fused
