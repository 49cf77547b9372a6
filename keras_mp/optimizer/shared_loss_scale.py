"""`SharedLossScale`: one loss scale for several optimizers, updated once a round."""

from collections.abc import Sequence

import keras

from keras_mp.array_types import Optimizer, Tensor
from keras_mp.optimizer.errors import unwrapped
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.scaling.scaler import DynamicLossScaler, ScaleGroup
from keras_mp.settings import WATCHING


class SharedLossScale:
    """One loss scale for several optimizers: those of a GAN, or of parts of one model.

    By default each LossScaleOptimizer has its own scale. This suits losses that are unrelated: each
    finds its own range. Share a scale if a single backward pass feeds several optimizers, because
    each of them divides by its scale, or if losses have a similar size and the rarer one should not
    search for itself.

    Each optimizer still skips by its own gradients. Call `update` once a round, after all have
    stepped: the scale shrinks if any of them skipped a step, and counts towards growth if none did.
    Until then no scale changes, so losses may be scaled in any order.

    ```python
    shared = keras_mp.SharedLossScale(encoder_optimizer, decoder_optimizer)
    ...
    gradients = ...                    # of shared.scale_loss(loss), for all variables
    encoder_optimizer.apply(gradients[:n], encoder.trainable_variables)
    decoder_optimizer.apply(gradients[n:], decoder.trainable_variables)
    shared.update()
    ```

    Every optimizer holds a copy of the scale among its own variables, so each is saved and
    restored by itself. State restored into one of them goes to all, and `dynamic_growth_steps` set
    on one of them is set on all. Create the object before the first step: on TensorFlow, functions
    traced earlier do not share the scale.

    Args:
        *optimizers: At least two LossScaleOptimizers with the same settings and a dynamic scale.
            They start with the scale of the first.

    Raises:
        TypeError: One is not a LossScaleOptimizer.
        ValueError: Fewer than two, one of them twice or in another group, fixed scales, or
            settings that differ.

    Source: torch.amp.GradScaler, one scaler for several optimizers, with the same `update`.

    >>> from keras import ops
    >>> first, second = (
    ...     LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0) for _ in range(2)
    ... )
    >>> shared = SharedLossScale(first, second)
    >>> variable = keras.Variable([1.0])
    >>> second.build([variable])
    >>> pair = (ops.array([float("inf")]), variable)
    >>> _ = second.apply_gradients([pair], gradients_scaled=True)
    >>> shared.update()
    >>> float(first.loss_scale), float(second.loss_scale)
    (4.0, 4.0)
    """

    def __init__(self, *optimizers: LossScaleOptimizer) -> None:
        _check(optimizers)
        self._optimizers = optimizers
        self._group = ScaleGroup([_scaler_of(optimizer) for optimizer in optimizers])
        for optimizer in optimizers:
            optimizer._share_scale(self._group)
        self.follow(optimizers[0])

    @property
    def optimizers(self) -> tuple[LossScaleOptimizer, ...]:
        """The optimizers that share the scale."""
        return self._optimizers

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale, a float32 tensor of shape ()."""
        return self._optimizers[0].loss_scale

    def scale_loss(self, loss: Tensor | float) -> Tensor:
        """Returns `loss` times the loss scale, for `apply` of any of the optimizers.

        As `LossScaleOptimizer.scale_loss`, for a loss whose gradients go to several of them.
        """
        self._expect_scaled_gradients()
        return self._optimizers[0].scale_loss(loss)

    def stateless_scale_loss(
        self, optimizer_variables: Sequence[Tensor], loss: Tensor | float
    ) -> Tensor:
        """`scale_loss` with the values of the first optimizer's `variables`, for JAX."""
        self._expect_scaled_gradients()
        return self._optimizers[0].stateless_scale_loss(optimizer_variables, loss)

    def _expect_scaled_gradients(self) -> None:
        for scaler in self._group.scalers[1:]:
            scaler.protocol.call("scale_loss")

    def update(self) -> None:
        """Ends a round: shrinks the scale if a step was skipped since the last call, or counts.

        Call it in a replica context if a `tf.distribute` strategy trains, and inside the traced
        step if there is one.
        """
        self._group.end_round()

    def stateless_update(
        self, optimizers_variables: Sequence[Sequence[Tensor]]
    ) -> list[list[Tensor]]:
        """`update` without side effects, for functions that JAX transforms.

        Args:
            optimizers_variables: For each optimizer, values of its `variables`, in their order.

        Returns:
            The new values, in the same order.

        >>> pair = [LossScaleOptimizer(keras.optimizers.SGD()) for _ in range(2)]
        >>> shared = SharedLossScale(*pair)
        >>> values = shared.stateless_update([[v.value for v in o.variables] for o in pair])
        >>> [len(of_one) for of_one in values] == [len(o.variables) for o in pair]
        True
        """
        mapping = [
            pair
            for optimizer, values in zip(self._optimizers, optimizers_variables, strict=True)
            for pair in zip(optimizer.variables, values, strict=True)
        ]
        with keras.StatelessScope(mapping) as scope:
            self.update()
        return [[scope.get_current_value(v) for v in o.variables] for o in self._optimizers]

    def follow(self, leader: LossScaleOptimizer) -> None:
        """Copies the scale and counters of `leader` to all optimizers."""
        self._group.follow(_scaler_of(leader))


def _check(optimizers: Sequence[Optimizer]) -> None:
    for optimizer in optimizers:
        if not isinstance(optimizer, LossScaleOptimizer):
            raise TypeError(
                "SharedLossScale takes keras_mp.LossScaleOptimizers, but got "
                f"{unwrapped(optimizer)}."
            )
    if len(optimizers) < 2 or len({id(o) for o in optimizers}) < len(optimizers):
        raise ValueError(
            f"SharedLossScale takes two or more different optimizers, but got {len(optimizers)}"
            f"{', one of them twice' if len(optimizers) > 1 else ''}."
        )
    for optimizer in optimizers:
        if _scaler_of(optimizer).is_shared:
            raise ValueError(f"{optimizer.name} shares its loss scale already, in another group.")
    first, *others = (optimizer._settings.as_config() for optimizer in optimizers)
    for i, other in enumerate(others, 2):
        for name in first:
            if name not in ("count_skipped_steps", *WATCHING) and first[name] != other[name]:
                raise ValueError(
                    "The settings of optimizers that share a loss scale must be the same, but "
                    f"{name} is {first[name]} for the first and {other[name]} for number {i}."
                )


def _scaler_of(optimizer: LossScaleOptimizer) -> DynamicLossScaler:
    if not isinstance(optimizer._scaler, DynamicLossScaler):
        raise ValueError(f"{optimizer.name} has a fixed loss scale, which cannot be shared.")
    return optimizer._scaler
