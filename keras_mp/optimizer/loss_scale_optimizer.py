"""`LossScaleOptimizer`: loss scaling around any Keras optimizer.

This class is the calling convention. Each of its parts owns its variables: `scaler.py` the loss
scale, `step_statistics.py` what came of the steps, `saved_state.py` what files hold. Numbers are in
`loss_scale.py`, what differs between frameworks in `backends/`.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_mp import backends
from keras_mp.array_types import Gradient, Gradients, Optimizer, Store, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common import devices
from keras_mp.backends.common.optimizers import built_for, note_those_inside, path, with_method
from keras_mp.backends.common.trainer_hook import keep_in_compile_config
from keras_mp.backends.common.warn_once import WarnOnce
from keras_mp.optimizer.configs import constructor_arguments, serialized
from keras_mp.optimizer.delegation import OptimizerWrapper, check_unwrapped, delegated, note_wrapper
from keras_mp.optimizer.errors import check_inner_optimizer
from keras_mp.optimizer.given_gradients import as_tensors, check_shapes
from keras_mp.optimizer.keras_2_methods import Keras2Methods, Loss, VarList
from keras_mp.optimizer.saved_state import SavedState
from keras_mp.optimizer.stepper import Stepper
from keras_mp.scaling.scaler import DynamicLossScaler, LossScaler, ScaleGroup
from keras_mp.settings import IMMUTABLE, Settings, unknown_keywords
from keras_mp.statistics.step_statistics import OptimizerState, StepStatistics
from keras_mp.variables.variable_factory import ExtraState, VariableFactory

NO_PAIRS = (
    "apply_gradients was called without a pair of a gradient and a variable, so it trains nothing. "
    "A tf.Module finds no variables of Keras 3 layers: collect them from each layer's "
    "trainable_variables, or derive the class from keras.Model"
)
_OWN = 4  # iteration, learning_rate, step_counter, dynamic_scale: those of Keras' own class


class LossScaleOptimizer(OptimizerWrapper, keras.optimizers.LossScaleOptimizer):
    """An optimizer that applies loss scaling to prevent numeric underflow.

    Loss scaling is a technique to prevent numeric underflow in intermediate gradients when
    float16 is used. The loss is multiplied ("scaled") by a number called the loss scale, which
    scales every intermediate gradient too. The final gradients are divided ("unscaled") by it to
    bring them back to their original value.

    `LossScaleOptimizer` wraps another optimizer. By default the loss scale is dynamic, so you do
    not have to choose one: it starts high, is halved at every step whose gradients hold an inf or
    a nan (such a step changes no weight and no slot), and is doubled after `dynamic_growth_steps`
    such free steps. It never falls below `min_scale` and never grows to inf. The optimizer cannot
    undo what the forward pass wrote: see `keras_mp.protect_state`.

    With `model.compile` nothing else is needed:

    >>> opt = LossScaleOptimizer(keras.optimizers.SGD(0.25))
    >>> var = keras.Variable(1.0)
    >>> _ = opt.minimize(lambda: var**2, var_list=var)
    >>> float(var.numpy())
    0.5

    In a loop of your own, scale the loss before differentiating. The gradients are unscaled where
    they are applied:

    ```python
    loss = opt.scale_loss(loss_fn(y, model(x)))      # TensorFlow, PyTorch, JAX
    gradients = ...                                   # of the scaled loss
    opt.apply(gradients, model.trainable_variables)   # or opt.stateless_apply(...) on JAX
    ```

    Loops written for `tf.keras` keep working as they are:

    ```python
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x))
        scaled_loss = opt.get_scaled_loss(loss)
    scaled_gradients = tape.gradient(scaled_loss, model.trainable_variables)
    gradients = opt.get_unscaled_gradients(scaled_gradients)
    opt.apply_gradients(zip(gradients, model.trainable_variables))
    ```

    Hyperparameters of the inner optimizer (`learning_rate`, `beta_1`, `momentum`, `clipnorm`,
    `use_ema`, ...) are read and set through the wrapper, as in `tf.keras`; `epsilon` is not
    forwarded.

    Args:
        inner_optimizer: The `keras.optimizers.Optimizer` to wrap. It keeps its own variables and
            must not be used on its own any more.
        dynamic: Whether the loss scale changes during training. With False it stays
            `initial_scale`, which must be given.
        initial_scale: The loss scale to start with, a positive number. Defaults to 2**15. Start
            high: a scale that is too high falls within a few steps, one that is too low rises once
            in `dynamic_growth_steps`.
        dynamic_growth_steps: Optimizer steps with finite gradients between two growths, at least 1.
            Defaults to 2000. None, and only None, with `dynamic=False`.
        growth_factor: Multiplier of a growth, greater than 1.
        backoff_factor: Multiplier after an overflow, between 0 and 1.
        min_scale: The loss scale never falls below this. `tf.keras` has 1, Keras 3 nothing.
        max_scale: The loss scale never grows above this; None for the largest float32.
        hysteresis: Overflows since the last growth until the scale falls, as in Megatron and
            DeepSpeed: with 3 the first two only skip their step, the third and each one after it
            halve the scale, too. 1 for a fixed scale.
        count_skipped_steps: Whether `iterations` advances on a skipped step, as from TensorFlow
            2.3 on. TensorFlow 1.15 to 2.2 and Keras 3 do not advance it. While gradients are
            accumulated (`gradient_accumulation_steps`) it never does: the window gets longer. Nor,
            with `use_ema`, before the first step that is taken: Keras begins the averages there.
        skip_nonfinite: Whether steps with non-finite gradients are skipped. False needs
            `dynamic=False`; it gives the documented behaviour of a fixed scale in `tf.keras`,
            which applies such gradients.
        diagnose: Whether to count, on the device, which variables have gradients that are not
            finite: see `first_overflow` and `nonfinite_variables`.
        max_consecutive_skips: Skipped steps in a row after which `keras_mp.LossScaleMonitor` stops
            the training and says why; None for no such limit. A compiled step cannot raise.
        fused: Whether steps are taken with the fused kernels of TensorFlow and PyTorch: one pass
            over the state, where Keras makes many. For Adam, AdamW, SGD, Adagrad and RMSprop;
            results differ from the default's by rounding. Where there is no kernel, as on JAX and
            under XLA, the default path is taken: see `fused_fallback`.
        name: Name of the optimizer; defaults to "loss_scale_optimizer".

    Raises:
        TypeError: `inner_optimizer` is not a Keras 3 optimizer, or is a LossScaleOptimizer;
            `dynamic` is not a bool; an unknown keyword.
        ValueError: A number out of its range, `inner_optimizer` is wrapped already, or `fused` with
            another optimizer, or one with clipping, a moving average or accumulated gradients.

    Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2; the API is that of
    `tf.keras.mixed_precision.LossScaleOptimizer`, TensorFlow 2.4.

    >>> opt = LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=8.0)
    >>> weight = keras.Variable([1.0])
    >>> opt.build([weight])
    >>> gradient = ops.array([float("inf")])  # an overflow
    >>> _ = opt.apply_gradients([(gradient, weight)], gradients_scaled=True)
    >>> float(weight.numpy()[0]), float(opt.loss_scale), int(opt.iterations)
    (1.0, 4.0, 1)
    """

    extra_state: ExtraState
    _saved_state: SavedState
    _step: Stepper
    _before_step: Callable[[Sequence[Variable]], None] | None

    def __init__(
        self,
        inner_optimizer: Optimizer,
        dynamic: bool = True,
        initial_scale: float | None = None,
        dynamic_growth_steps: int | None = None,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        min_scale: float = 1.0,
        max_scale: float | None = None,
        hysteresis: int = 1,
        count_skipped_steps: bool = True,
        skip_nonfinite: bool = True,
        diagnose: bool = False,
        max_consecutive_skips: int | None = None,
        fused: bool = False,
        name: str | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise unknown_keywords(unknown)
        check_inner_optimizer(inner_optimizer)
        settings = Settings.checked(
            dynamic=dynamic,
            initial_scale=initial_scale,
            dynamic_growth_steps=dynamic_growth_steps,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            min_scale=min_scale,
            max_scale=max_scale,
            hysteresis=hysteresis,
            count_skipped_steps=count_skipped_steps,
            skip_nonfinite=skip_nonfinite,
            diagnose=diagnose,
            max_consecutive_skips=max_consecutive_skips,
            fused=fused,
        )
        check_unwrapped(inner_optimizer)
        # Not super(): the parent would bring its own rule, state and checks.
        keras.optimizers.Optimizer.__init__(
            self, learning_rate=0.0, name="loss_scale_optimizer" if name is None else name
        )
        # The module is looked up once: torch.compile cannot trace an import.
        self._backend = backends.current()
        self._step = Stepper(inner_optimizer, settings, self._backend)
        self._warn_once = WarnOnce(self._backend)
        self._before_step = None
        self._backend.check_strategy()
        keras_hooks.mend_layers_in_16_bits()
        # Before build, so that a function traced early reads variables and not a constant.
        with self._backend.init_scope():
            self.extra_state = ExtraState()
            variables = self._own_variables()
            scaler = DynamicLossScaler if settings.dynamic else LossScaler
            self._scaler = scaler(settings, variables, self._warn_once)
            self.extra_state.call_when_restored(self._scaler.restored)
            self._statistics = StepStatistics(self._scaler, variables)
            self._keras_2_methods = Keras2Methods(self._scaler, self._backend, self._warn_once)
        if inner_optimizer.loss_scale_factor is not None:
            warnings.warn(
                f"loss_scale_factor={inner_optimizer.loss_scale_factor} of the inner optimizer is "
                "cleared: LossScaleOptimizer scales the loss. For a fixed scale write "
                f"LossScaleOptimizer(optimizer, dynamic=False, "
                f"initial_scale={inner_optimizer.loss_scale_factor}).",
                stacklevel=2,
            )
            inner_optimizer.loss_scale_factor = None
        own = keras_hooks.own_variables(self)[:_OWN]
        self._saved_state = SavedState(self, own, inner_optimizer, self._scaler, self.extra_state)
        self._wrap(inner_optimizer)
        note_wrapper(inner_optimizer, self)

    def _own_variables(self) -> VariableFactory:
        return VariableFactory(self, self.extra_state, self._backend)

    @property
    def _settings(self) -> Settings:
        return self._scaler.settings

    @_settings.setter
    def _settings(self, settings: Settings) -> None:
        self._scaler.settings = self._step.settings = settings

    # -- what its parts have ---------------------------------------------------------------------

    last_step_applied = delegated("_statistics", StepStatistics.last_step_applied)
    skipped_steps = delegated("_statistics", StepStatistics.skipped_steps)
    nonfinite_kind = delegated("_statistics", StepStatistics.nonfinite_kind)
    consecutive_skips = delegated("_statistics", StepStatistics.consecutive_skips)
    nonfinite_variables = delegated("_statistics", StepStatistics.nonfinite_variables)
    first_overflow = delegated("_statistics", StepStatistics.first_overflow)
    last_nonfinite_variable = delegated("_statistics", StepStatistics.last_nonfinite_variable)
    get_scaled_loss = delegated("_keras_2_methods", Keras2Methods.get_scaled_loss)
    get_unscaled_gradients = delegated("_keras_2_methods", Keras2Methods.get_unscaled_gradients)
    compute_gradients = delegated("_keras_2_methods", Keras2Methods.compute_gradients)
    get_gradients = delegated("_keras_2_methods", Keras2Methods.get_gradients)

    # -- what the loss scale is ------------------------------------------------------------------

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale, a float32 tensor of shape ().

        On JAX the optimizer's state is on loan to the compiled step during `fit`: in a callback
        call `model.jax_state_sync()` first. In a function that JAX compiles it is a constant; there
        use `stateless_scale_loss`.

        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=1024)
        >>> float(opt.loss_scale)
        1024.0
        """
        return ops.copy(self._scaler.read_or_warn(4))

    @property
    def dynamic_counter(self) -> Tensor | None:
        """Finite steps since the last overflow, or since growth was last due.

        An integer tensor of shape (); None with a fixed scale.
        """
        return ops.copy(self._scaler.read_counter()) if self.dynamic else None

    @property
    def dynamic_growth_steps(self) -> int | None:
        """Finite steps between two growths of the scale; None with a fixed scale.

        Can be set while the scale is dynamic, for all that share it; functions that are compiled
        already keep the old one.
        """
        return self._settings.dynamic_growth_steps

    @dynamic_growth_steps.setter
    def dynamic_growth_steps(self, value: int) -> None:
        if not isinstance(self._scaler, DynamicLossScaler):
            raise ValueError("dynamic_growth_steps cannot be set: this loss scale is fixed.")
        self._scaler.set_growth_steps(value)

    @property
    def fused_fallback(self) -> str | None:
        """Why steps take the default path in spite of `fused=True`; None if they are fused.

        Of the last step that was taken, or traced: it depends on the gradients, too. Before the
        first step, of one with dense float32 gradients. None with `fused=False`, too.

        >>> from keras_mp import LossScaleOptimizer
        >>> LossScaleOptimizer(keras.optimizers.RMSprop(), fused=True).fused_fallback is None
        False
        >>> LossScaleOptimizer(keras.optimizers.RMSprop()).fused_fallback is None
        True
        """
        return self._step.fused_fallback(keras_hooks.trained_variables(self) if self.built else [])

    def scale_loss(self, loss: Tensor | float) -> Tensor:
        """Returns `loss` times the loss scale, for `apply`; Keras 3's trainers call it.

        Args:
            loss: Number or tensor of any shape. float16 and bfloat16 are scaled in float32, so
                that the product cannot overflow.

        Returns:
            float32 (float64 for a float64 loss where the backend has that), same shape.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=2.0**20)
        >>> float(opt.scale_loss(ops.array(4.0, dtype="float16")))
        4194304.0
        """
        self._scaler.protocol.call("scale_loss")
        return self._scaler.scale_loss(loss)

    def stateless_scale_loss(
        self, optimizer_variables: Sequence[Tensor], loss: Tensor | float
    ) -> Tensor:
        """`scale_loss` with the loss scale among `optimizer_variables`, values of `variables`."""
        with keras.StatelessScope(zip(self.variables, optimizer_variables, strict=True)):
            return self.scale_loss(loss)

    def stateless_unscale_gradients(
        self, optimizer_variables: Sequence[Tensor], gradients: Gradients
    ) -> list[Gradient]:
        """`get_unscaled_gradients` with the loss scale among `optimizer_variables`.

        For functions that JAX transforms and that change the gradients: clipping by a custom rule,
        noise, the two passes of SAM. Pass the result to
        `stateless_apply(..., gradients_scaled=False)`.

        Args:
            optimizer_variables: Values of `variables`, in their order.
            gradients: Gradients of a loss that `stateless_scale_loss` scaled; as for
                `get_unscaled_gradients`.

        Returns:
            The gradients divided by the loss scale: float32 (float64 stays), None for None.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8)
        >>> values = [variable.value for variable in opt.variables]
        >>> [gradient] = opt.stateless_unscale_gradients(values, [ops.array(4.0)])
        >>> float(gradient)
        0.5
        """
        with keras.StatelessScope(zip(self.variables, optimizer_variables, strict=True)):
            return self.get_unscaled_gradients(gradients)

    def read_state(self, optimizer_variables: Sequence[Tensor]) -> OptimizerState:
        """Returns the loss scale, counters and skips by name, from the values of `variables`.

        For a loop that passes the optimizer's state from step to step, as on JAX, inside the
        compiled step or outside. Does not change the variables.

        Args:
            optimizer_variables: Values of `variables`, in their order.

        Returns:
            A named tuple of scalars: `loss_scale`, `dynamic_counter`, `iterations`,
            `last_step_applied`, `skipped_steps`, `nonfinite_kind`, `consecutive_skips`.

        Raises:
            ValueError: The number of values differs from that of the variables.

        >>> import keras
        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8)
        >>> opt.build([keras.Variable([1.0])])
        >>> state = opt.read_state([variable.value for variable in opt.variables])
        >>> float(state.loss_scale), int(state.skipped_steps), bool(state.last_step_applied)
        (8.0, 0, True)
        """
        values, known = list(optimizer_variables), self.variables
        if len(values) != len(known):
            raise ValueError(
                f"optimizer_variables has {len(values)} values, but the optimizer has "
                f"{len(known)} variables: pass one for each of `optimizer.variables`, in "
                "their order."
            )
        with keras.StatelessScope(list(zip(known, values, strict=True))):
            state = OptimizerState(*(getattr(self, name) for name in OptimizerState._fields))
            return state._replace(iterations=ops.copy(state.iterations))

    # -- state -----------------------------------------------------------------------------------

    def build(self, variables: Sequence[Variable]) -> None:
        """Creates the inner optimizer's variables for `variables`. A second call changes nothing.

        Args:
            variables: The trainable `keras.Variable`s of the model.

        Raises:
            ValueError: The inner optimizer was built for other variables.
        """
        if self.built:
            return
        variables = list(variables)
        inner = self.inner_optimizer
        with self._backend.init_scope():
            if not inner.built:
                inner.build(variables)
                inner.built = True  # as Keras does, for those that do not call super().build
        note_those_inside(inner)
        self._check_built_for(variables)
        keras_hooks.build_for(self, variables)
        with self._backend.init_scope():
            self._statistics.build(variables, self._own_variables())
        self.built = True
        devices.warn_if_still_undecided()
        with self._backend.init_scope():  # a trace of tf.function may be thrown away
            self._saved_state.take_waiting()

    def _check_built_for(self, variables: Sequence[Variable]) -> None:
        inner = self.inner_optimizer
        known, given = ([id(v) for v in each] for each in (built_for(inner), variables))
        # What hands `build` on may give each optimizer inside of it some of the variables.
        is_other = (
            known != given if keras_hooks.trained_variables(inner) else not set(known) <= set(given)
        )
        if is_other:
            raise ValueError(
                f"The inner optimizer was built for {len(known)} other variables than these "
                f"{len(given)}. Make a new optimizer for a new model."
            )

    @property
    def variables(self) -> list[Variable]:
        """Own variables (iteration, learning_rate, step_counter, dynamic_scale), the inner's, more.

        The first two are unused; they keep the order of Keras' own class. Last come those that it
        does not have (`skipped_steps`, `hysteresis_left`, ...).
        """
        return [*self._saved_state.variables, *keras_hooks.own_variables(self)[_OWN:]]

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Returns the values of `variables` as NumPy arrays, of those that Keras' own class has."""
        return self._saved_state.arrays()

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets `variables`, in their order.

        Args:
            weights: One array a variable, of its shape: as from `get_weights` of this class or of
                Keras' own, or of all `variables`.

        Raises:
            ValueError: The number of arrays or a shape differs; nothing is set then.
        """
        self._saved_state.set(weights, self.variables)

    def save_own_variables(self, store: Store) -> None:
        """Writes the state, in the layout of Keras' own LossScaleOptimizer."""
        self._saved_state.save(store)

    def load_own_variables(self, store: Store) -> None:
        """Restores what `store` holds, or warns and changes nothing.

        Takes what this class or Keras' own LossScaleOptimizer wrote, and what the inner optimizer
        wrote by itself (the loss scale then stays as it is). As a plain Keras optimizer it takes
        nothing before `build`, and nothing of another optimizer or of other variables: a warning
        says so. With a fixed scale the constructor owns the scale: another one in the store is not
        taken, with a warning.

        An optimizer that Keras makes from a config while it loads a whole model, or a copy, belongs
        to the state that follows: this may wait for `build`.
        """
        self._saved_state.load(store)

    # -- the gradients ---------------------------------------------------------------------------

    def check_finite(self, grads: Gradients) -> Tensor:
        """Returns whether `grads` are finite, a bool of shape (); None is skipped.

        Rows that a sparse gradient names twice are summed before, as in a step.
        """
        return self._backend.all_finite(self._backend.in_known_form(as_tensors(list(grads))))

    def apply(
        self,
        grads: Iterable[Gradient],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> None:
        """Unscales `grads` and takes a step with them, unless one is not finite.

        On PyTorch the `.grad`s of variables may be unscaled in place during the step, which saves
        a copy; after it they hold what they held.

        Args:
            grads: Gradients of the scaled loss (`scale_loss`), one a variable; None for a variable
                that the loss does not depend on. Tensors of any dtype, sparse ones, arrays, numbers
                and lists of numbers, of a shape that can be broadcast to that of the variable.
            trainable_variables: The variables, in the same order; all that the optimizer was built
                for if None.

        Raises:
            TypeError: A gradient is none of these.
            ValueError: A variable that the optimizer was not built for, only None gradients, or one
                of another shape, or without numbers (PyTorch's meta device).
        """
        self._warn_once(self._scaler.protocol.taken_as_scaled())
        self._apply(list(grads), trainable_variables, scaled=True)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
        *,
        gradients_scaled: bool | None = None,
    ) -> Tensor:
        """Takes a step with (gradient, variable) pairs, unless a gradient is not finite.

        Args:
            grads_and_vars: Iterable of pairs; a None gradient is passed over.
            name: Not used; accepted as in tf.keras.
            experimental_aggregate_gradients: As in tf.keras. False, for gradients that are summed
                over the replicas already, is possible with one replica only: Keras 3 sums them.
            gradients_scaled: Whether these are gradients of the scaled loss. None asks the last
                call on this optimizer, be it long ago (`fit` calls `scale_loss`): after
                `scale_loss` they are, after `get_scaled_loss`, `get_unscaled_gradients` or
                `compute_gradients` they are not. With neither they are taken as they are, and a
                warning says so.

        Returns:
            `iterations`.

        Raises:
            ValueError: There are no pairs, or no gradient in them.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError(NO_PAIRS)
        scaled, message = self._scaler.protocol.gradients_scaled(gradients_scaled)
        self._warn_once(message)
        if not experimental_aggregate_gradients and self._backend.replicas() > 1:
            raise ValueError(
                "experimental_aggregate_gradients=False does not support more than one "
                "replica: Keras 3 optimizers always sum the gradients of the replicas. Pass "
                "the gradients of each replica."
            )
        self._apply([g for g, _ in pairs], [v for _, v in pairs], scaled=scaled)
        return self.iterations

    def minimize(
        self,
        loss: Loss,
        var_list: VarList,
        grad_loss: Tensor | None = None,
        name: str | None = None,
        tape: Any = None,
    ) -> Any:
        """Differentiates the scaled loss and takes a step, on any backend.

        Args:
            loss: Callable that takes nothing, reads `keras.Variable`s and returns the loss, of any
                shape (its sum is minimized). On TensorFlow also a tensor, with the `tape` that
                recorded it.
            var_list: A variable, an iterable of them, or a callable that returns one.
            grad_loss: Optional tensor of the shape of the loss that weights its elements.
            name: Ignored; accepted as in tf.keras.
            tape: TensorFlow only: the `tf.GradientTape` that recorded `loss`.

        Returns:
            `iterations`.
        """
        pairs = self._keras_2_methods.gradient_pairs(loss, var_list, grad_loss, tape)
        return self.apply_gradients(pairs, gradients_scaled=False)

    def stateless_apply(
        self,
        optimizer_variables: Sequence[Tensor],
        grads: Gradients,
        trainable_variables: Sequence[Tensor],
        *,
        gradients_scaled: bool = True,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """`apply` without side effects, for functions that JAX transforms.

        Args:
            optimizer_variables: Values of `variables`, in their order.
            grads: Gradients of the scaled loss, one for each variable the optimizer was built for.
            trainable_variables: Values of these variables.
            gradients_scaled: False for gradients that are unscaled already, by
                `stateless_unscale_gradients`.

        Returns:
            The new values: (trainable_variables, optimizer_variables).

        Raises:
            ValueError: Not built, another number of values, or TensorFlow, where Keras has none.
        """
        with contextlib.nullcontext() if gradients_scaled else self._applying_unscaled():
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)

    def _applying_unscaled(self) -> contextlib.AbstractContextManager[None]:
        """A scope in which `apply`, which Keras' `stateless_apply` calls, divides nothing."""

        def apply(grads: Iterable[Gradient]) -> None:
            self._scaler.protocol.gradients_scaled(explicit=False)
            self._apply(list(grads), None, scaled=False)

        return with_method(self, "apply", apply)

    def _apply(
        self, gradients: list[Gradient], given: Iterable[Variable] | None, *, scaled: bool
    ) -> None:
        if not gradients:
            return
        variables = self._resolve(gradients, given)
        gradients = as_tensors(gradients, variables)
        check_shapes(gradients, variables)
        if self._before_step is not None:
            self._before_step(variables)
        gradients = self._backend.in_known_form(gradients, variables)
        scale = self._scaler.read() if scaled else None
        result = self._step(gradients, variables, scale)
        if not self._settings.skip_nonfinite:
            return
        before = self._statistics.scale_before()
        self._scaler.update(result.finite)
        self.extra_state.forget_waiting()
        self._statistics.note(
            result, variables, functools.partial(keras_hooks.variable_index, self), before
        )

    def _resolve(
        self, gradients: list[Gradient], given: Iterable[Variable] | None
    ) -> list[Variable]:
        variables = self._given_or_trained(given)
        if len(gradients) != len(variables):
            raise ValueError(
                f"There are {len(gradients)} gradients for {len(variables)} variables; they must "
                "match one to one (None for a variable without a gradient)."
            )
        if not self.built:
            inner = self.inner_optimizer
            self.build((built_for(inner) if inner.built else []) or variables)
        keras_hooks.check_variables(self, variables)
        if all(gradient is None for gradient in gradients):
            paths = ", ".join(map(path, variables))
            raise ValueError(f"No gradients provided for any variable: {paths}.")
        return variables

    # -- who watches -----------------------------------------------------------------------------

    def _log_steps(self, rows: int) -> bool:
        """Has `StepStatistics.keep_log` write a row for each step."""
        return self._statistics.keep_log(rows, self._own_variables())

    def _share_scale(self, group: ScaleGroup) -> None:
        """Leaves the scale to the group, which decides once a round."""
        assert isinstance(self._scaler, DynamicLossScaler)
        self._scaler.share(group, self._own_variables())

    def _call_before_steps(self, function: Callable[[Sequence[Variable]], None] | None) -> None:
        """Has `function` called with the variables of each step before it is taken; None ends it.

        Where steps are traced, it is called once a trace.
        """
        self._before_step = function

    # -- serialization ---------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable.

        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=128)
        >>> config = opt.get_config()
        >>> config["dynamic"], config["initial_scale"], config["dynamic_growth_steps"]
        (False, 128.0, None)
        >>> LossScaleOptimizer.from_config(config).initial_scale
        128.0
        """
        return {
            "name": self.name,
            "inner_optimizer": serialized(self.inner_optimizer),
            **self._settings.as_config(),
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Returns an optimizer from a config; the config is left as it was.

        Takes what `get_config` returns, what Keras 3's LossScaleOptimizer and the ones of
        TensorFlow 2.1 to 2.15 return.
        """
        inner, arguments = constructor_arguments(config, custom_objects)
        return cls(inner, **arguments)


def _setting(name: str, meaning: str) -> property:
    return property(lambda self: getattr(self._settings, name), doc=meaning)


for _each in fields(Settings):
    if _each.name in IMMUTABLE:
        setattr(LossScaleOptimizer, _each.name, _setting(_each.name, _each.metadata["meaning"]))

# The public home: what a config, a pickle and the documentation name. Doctest looks only for what
# is at home in a module, unless it is told.
LossScaleOptimizer.__module__ = "keras_mp"
__test__ = {"LossScaleOptimizer": LossScaleOptimizer}
keras.saving.register_keras_serializable(package="keras_mp")(LossScaleOptimizer)
keep_in_compile_config(LossScaleOptimizer, serialized)
