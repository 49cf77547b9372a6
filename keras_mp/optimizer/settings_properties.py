"""The part of the wrapper that shows its settings, under the names of the constructor."""

from dataclasses import fields

from keras_mp.optimizer.stepper import Stepper
from keras_mp.scaling.scaler import LossScaler
from keras_mp.settings import Settings


class SettingsProperties:
    """The arguments of the constructor, to be read: a property for each field of `Settings`."""

    _scaler: LossScaler
    _step: Stepper

    @property
    def _settings(self) -> Settings:
        return self._scaler.settings

    @_settings.setter
    def _settings(self, settings: Settings) -> None:
        self._scaler.settings = self._step.settings = settings


def _shown(name: str, meaning: str) -> property:
    return property(lambda self: getattr(self._settings, name), doc=meaning)


for _each in fields(Settings):
    setattr(SettingsProperties, _each.name, _shown(_each.name, _each.metadata["meaning"]))
