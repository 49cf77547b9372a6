"""Whether `apply_gradients` receives scaled gradients: bookkeeping of calls, no framework.

Keras 3's trainers call `scale_loss` and pass scaled gradients; loops written for tf.keras call
`get_scaled_loss` and `get_unscaled_gradients` and pass unscaled ones. The last call decides. Its
decision holds for later steps, because a traced function makes its calls only once.
"""

import dataclasses

NEITHER = (
    "LossScaleOptimizer.apply_gradients was called, but neither scale_loss nor get_scaled_loss "
    "was: the loss is not scaled, and the gradients are applied as they are. Add "
    "`loss = optimizer.scale_loss(loss)` before computing the gradients, or call "
    "`apply_gradients(..., gradients_scaled=False)` if this is intended."
)
NOT_UNSCALED = (
    "LossScaleOptimizer.get_scaled_loss was called, but get_unscaled_gradients was not: the "
    "gradients are applied still multiplied by the loss scale. Add "
    "`gradients = optimizer.get_unscaled_gradients(gradients)` before apply_gradients."
)
MIXED = (
    "LossScaleOptimizer: scale_loss (Keras 3) and get_scaled_loss (Keras 2) were both called "
    "before one step; the last call decides whether the gradients count as scaled. Use one "
    "of them, or call `apply_gradients(..., gradients_scaled=True)` or False."
)
AMBIGUOUS = (
    "LossScaleOptimizer.apply_gradients cannot tell whether these gradients are scaled: earlier "
    "steps of this optimizer used scaled as well as unscaled gradients, and no call was seen since "
    "the last step (the functions that make the calls are traced already). Call "
    "`apply_gradients(..., gradients_scaled=True)` or False."
)
NEVER_SCALED = (
    "LossScaleOptimizer divides these gradients by the loss scale, but scale_loss was never "
    "called: the updates are too small by that factor. Add `loss = optimizer.scale_loss(loss)` "
    "before computing the gradients; in a train_step on JAX, which gets optimizer_variables, "
    "`loss = optimizer.stateless_scale_loss(optimizer_variables, loss)`."
)
TWICE_UNSCALED = (
    "LossScaleOptimizer.apply divides gradients by the loss scale, but get_unscaled_gradients has "
    "done so already. Use apply_gradients (in a function that JAX compiles, "
    "`stateless_apply(..., gradients_scaled=False)`), or leave out get_unscaled_gradients."
)


@dataclasses.dataclass
class Calls:
    """Which of the methods were called.

    Not a set: torch.compile guards on the elements of a set that a step adds to, and would
    recompile `scale_loss` for each new optimizer. It does not guard on an attribute that is only
    set.
    """

    scale_loss: bool = False
    get_scaled_loss: bool = False
    get_unscaled_gradients: bool = False

    @property
    def scaled_a_loss(self) -> bool:
        return self.scale_loss or self.get_scaled_loss


class ScalingProtocol:
    """Remembers the protocol calls of one optimizer.

    A step may have several passes, as SAM's has two: each scales a loss, and may unscale its
    gradients. The step uses the gradients of the last pass.

    >>> protocol = ScalingProtocol()
    >>> protocol.call("scale_loss")
    >>> protocol.gradients_scaled(None)
    (True, None)
    """

    def __init__(self) -> None:
        self._scaled: bool | None = None
        self._ever, self._pass = Calls(), Calls()
        # Whether earlier steps used gradients known to be scaled, or unscaled.
        self._took_scaled = self._took_unscaled = False

    def call(self, name: str) -> None:
        """Records a call of one of the three methods."""
        self._scaled = name == "scale_loss"
        if self._pass.get_unscaled_gradients and name != "get_unscaled_gradients":
            self._pass = Calls()
        for calls in (self._ever, self._pass):
            setattr(calls, name, True)

    def gradients_scaled(self, explicit: bool | None) -> tuple[bool, str | None]:
        """Returns, for `apply_gradients`, whether gradients are scaled, and a warning or None."""
        calls, self._pass = self._pass, Calls()
        if explicit is not None:
            return explicit, None
        if self._scaled is None:
            return False, NEITHER
        message = None
        if not self._ever.scaled_a_loss:
            message = NEVER_SCALED
        elif calls == Calls():
            message = AMBIGUOUS if self._took_scaled and self._took_unscaled else None
        elif calls.scale_loss and calls.get_scaled_loss:
            message = MIXED
        elif calls.get_scaled_loss and not calls.get_unscaled_gradients:
            message = NOT_UNSCALED
        if calls != Calls():
            self._note(self._scaled)
        return self._scaled, message

    def taken_as_scaled(self) -> str | None:
        """Returns a warning or None for `apply`, which always takes scaled gradients."""
        calls, self._pass = self._pass, Calls()
        self._note(scaled=True)
        if calls.get_unscaled_gradients:
            return TWICE_UNSCALED
        if not self._ever.scaled_a_loss:
            return NEVER_SCALED
        return None

    def _note(self, scaled: bool) -> None:
        if scaled:
            self._took_scaled = True
        else:
            self._took_unscaled = True
