"""There is one wrapper around an optimizer at most."""

import keras
import pytest

from keras_mp.optimizer import delegation


class Wrapper:
    """Stands for a LossScaleOptimizer."""


def test_an_optimizer_knows_its_wrapper_while_that_lives():
    optimizer, wrapper = keras.optimizers.SGD(), Wrapper()
    assert delegation.wrapper_of(optimizer) is None
    delegation.check_unwrapped(optimizer)
    delegation.note_wrapper(optimizer, wrapper)
    assert delegation.wrapper_of(optimizer) is wrapper
    with pytest.raises(ValueError, match="already wrapped"):
        delegation.check_unwrapped(optimizer)
    del wrapper
    delegation.check_unwrapped(optimizer)


def test_a_wrapper_in_a_cycle_that_nobody_uses_is_no_hindrance():
    optimizer, wrapper = keras.optimizers.SGD(), Wrapper()
    wrapper.itself = wrapper
    delegation.note_wrapper(optimizer, wrapper)
    del wrapper
    delegation.check_unwrapped(optimizer)
