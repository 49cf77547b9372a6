"""Who scaled, who unscaled: sequences of calls and what is concluded from them."""

import pytest

from keras_mp.scaling import scaling_protocol
from keras_mp.scaling.scaling_protocol import ScalingProtocol

K3, LOSS, GRADS = "scale_loss", "get_scaled_loss", "get_unscaled_gradients"


def after(*calls):
    protocol = ScalingProtocol()
    for call in calls:
        if call == "step":
            protocol.gradients_scaled(None)
        else:
            protocol.call(call)
    return protocol


@pytest.mark.parametrize(
    ("calls", "scaled", "message"),
    [
        ((), False, "NEITHER"),
        ((K3,), True, None),
        ((LOSS, GRADS), False, None),
        ((LOSS,), False, "NOT_UNSCALED"),
        ((GRADS,), False, "NEVER_SCALED"),
        ((K3, "step"), True, None),
        ((LOSS, GRADS, "step"), False, None),
        ((K3, "step", LOSS, GRADS), False, None),
        ((LOSS, GRADS, "step", K3), True, None),
        ((K3, LOSS, GRADS), False, "MIXED"),
        ((LOSS, K3), True, "MIXED"),
        ((K3, "step", LOSS, GRADS, "step"), False, "AMBIGUOUS"),
        # Two passes in one step, as of SAM: the step is taken with the gradients of the last.
        ((LOSS, GRADS, K3), True, None),
        ((K3, GRADS, K3), True, None),
        ((LOSS, GRADS, LOSS, GRADS), False, None),
        ((K3, GRADS, K3, GRADS), False, None),
        ((LOSS, GRADS, LOSS), False, "NOT_UNSCALED"),
        ((LOSS, GRADS, K3, "step"), True, None),
        ((K3, GRADS, K3, GRADS, "step"), False, None),
        # A rule of one's own for the gradients, as to clip them.
        ((K3, GRADS), False, None),
        ((K3, GRADS, "step"), False, None),
        ((K3, LOSS, GRADS, GRADS), False, "MIXED"),
    ],
)
def test_the_last_call_decides(calls, scaled, message):
    expected = getattr(scaling_protocol, message) if message else None
    assert after(*calls).gradients_scaled(None) == (scaled, expected)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("calls", [(), (K3,), (LOSS, GRADS), (K3, LOSS)])
def test_the_keyword_wins_and_is_silent(calls, explicit):
    assert after(*calls).gradients_scaled(explicit) == (explicit, None)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ((), "NEVER_SCALED"),
        ((K3,), None),
        ((K3, "step"), None),
        ((LOSS,), None),
        ((GRADS,), "TWICE_UNSCALED"),
        ((LOSS, GRADS), "TWICE_UNSCALED"),
        ((K3, GRADS), "TWICE_UNSCALED"),
        ((LOSS, GRADS, K3), None),
        ((K3, GRADS, K3), None),
        ((LOSS, GRADS, LOSS), None),
        ((LOSS, GRADS, K3, GRADS), "TWICE_UNSCALED"),
    ],
)
def test_apply_always_takes_scaled_gradients(calls, message):
    expected = getattr(scaling_protocol, message) if message else None
    assert after(*calls).taken_as_scaled() == expected


@pytest.mark.parametrize("explicit", [False, True])
def test_each_step_begins_anew(explicit):
    """No warning of a mixture with calls that belong to an earlier step."""
    protocol = ScalingProtocol()
    protocol.call(K3)
    if explicit:
        protocol.gradients_scaled(True)
    else:
        protocol.taken_as_scaled()
    protocol.call(LOSS)
    protocol.call(GRADS)
    assert protocol.gradients_scaled(None) == (False, None)
