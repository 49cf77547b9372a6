"""`LossScaleOptimizer`: the loss-scale rule around any Keras optimizer.

Owns the variables of the rule and the calling conventions; numbers are in `loss_scale.py`,
what differs between frameworks in `backends/`.
"""

import gc
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_mp import backends, hyperparameters
from keras_mp.backends import devices, reference
from keras_mp.backends.numerics import as_skipped, tensors_of
from keras_mp.backends.optimizers import overwritten, parts, path
from keras_mp.delegation import DelegatesToInnerOptimizer
from keras_mp.extra_state import ExtraState
from keras_mp.fused import FusesSteps
from keras_mp.inner_optimizer import check_inner_optimizer, serialized
from keras_mp.loss_scaling import ScalesLosses
from keras_mp.minimizing import MinimizesLosses
from keras_mp.optimizer_state import KeepsState
from keras_mp.scale_updating import UpdatesScale
from keras_mp.scaling_protocol import ScalingProtocol
from keras_mp.settings import BASE_OPTIONS, Settings, unknown_keywords
from keras_mp.step_outcomes import TellsOutcomes


def wrapper_of(optimizer: Any) -> "LossScaleOptimizer | None":
    """Returns the LossScaleOptimizer around `optimizer`, if one is alive."""
    wrapper = optimizer.__dict__.get("_keras_mp_wrapper")
    return wrapper() if wrapper else None


class LossScaleOptimizer(
    DelegatesToInnerOptimizer,
    KeepsState,
    ScalesLosses,
    UpdatesScale,
    TellsOutcomes,
    FusesSteps,
    MinimizesLosses,
    keras.optimizers.LossScaleOptimizer,
):
    """An optimizer that applies loss scaling to prevent numeric underflow.

    Loss scaling is a technique to prevent numeric underflow in intermediate gradients when
    float16 is used. The loss is multiplied ("scaled") by a number called the loss scale, which
    scales every intermediate gradient too. The final gradients are divided ("unscaled") by it to
    bring them back to their original value.

    `LossScaleOptimizer` wraps another optimizer. By default the loss scale is dynamic, so you do
    not have to choose one: it starts high, is halved at every step whose gradients hold an inf or
    a nan (such a step changes no weight and no slot), and is doubled after `dynamic_growth_steps`
    such free steps. It never falls below `min_scale` and never grows to inf. What a forward pass
    wrote before is not the optimizer's to put back: see `keras_mp.protect_state`.

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
    `use_ema`, ...) are read and set through the wrapper, as in `tf.keras`; `epsilon`, which is
    none, is not.

    Args:
        inner_optimizer: The `keras.optimizers.Optimizer` to wrap. It keeps its own variables and
            must not be used by itself any more.
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

    def __init__(
        self,
        inner_optimizer: Any,
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
            dynamic,
            initial_scale,
            dynamic_growth_steps,
            growth_factor,
            backoff_factor,
            min_scale,
            max_scale,
            hysteresis,
            count_skipped_steps,
            skip_nonfinite,
            diagnose,
            max_consecutive_skips,
            fused,
        )
        if wrapper_of(inner_optimizer) is not None:
            gc.collect()  # a wrapper that nobody uses any more may still be there
        if wrapper_of(inner_optimizer) is not None:
            raise ValueError(
                f"inner_optimizer is already wrapped by a LossScaleOptimizer: {inner_optimizer}. "
                "Use that wrapper, or make a new optimizer."
            )
        # Not super(): the parent would bring its own rule, state and checks.
        keras.optimizers.Optimizer.__init__(
            self, learning_rate=0.0, name="loss_scale_optimizer" if name is None else name
        )
        self._settings = settings
        self._prepare_fused(inner_optimizer)
        self._protocol = ScalingProtocol()
        self._said: set[str] = set()
        self._prepare_state()
        # Past Keras' tracking. The module is looked up once: torch.compile cannot trace an import.
        object.__setattr__(self, "_before_step", None)
        object.__setattr__(self, "_native", backends.current())
        self._native.check_strategy()
        # Before build, so that a function traced early reads variables and not a constant.
        with self._native.lifted():
            object.__setattr__(self, "extra_state", ExtraState())
            self._add_scale_variables()
            self._add_outcome_variables()
        if inner_optimizer.loss_scale_factor is not None:
            warnings.warn(
                f"loss_scale_factor={inner_optimizer.loss_scale_factor} of the inner optimizer is "
                "cleared: LossScaleOptimizer scales the loss. For a fixed scale write "
                f"LossScaleOptimizer(optimizer, dynamic=False, "
                f"initial_scale={inner_optimizer.loss_scale_factor}).",
                stacklevel=2,
            )
            inner_optimizer.loss_scale_factor = None
        self._names = hyperparameters.names(inner_optimizer)
        self._unbuilt_inner = 0 if inner_optimizer.built else len(inner_optimizer.variables)
        self.inner_optimizer = inner_optimizer
        object.__setattr__(inner_optimizer, "_keras_mp_wrapper", weakref.ref(self))

    # -- what the loss scale is ------------------------------------------------------------------

    @property
    def dynamic(self) -> bool:
        """Whether the loss scale changes during training."""
        return self._settings.dynamic

    @property
    def loss_scale(self) -> Any:
        """The current loss scale, a float32 tensor of shape ().

        On JAX the optimizer's state is on loan to the compiled step during `fit`: in a callback
        call `model.jax_state_sync()` first. In a function that JAX compiles it is a constant; there
        use `stateless_scale_loss`.

        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=1024)
        >>> float(opt.loss_scale)
        1024.0
        """
        return ops.copy(self._current_scale(4))

    @property
    def dynamic_counter(self) -> Any:
        """Finite steps since the last overflow, or since growth was last due.

        An integer tensor of shape (); None with a fixed scale.
        """
        return ops.copy(self._native.read(self.step_counter)) if self.dynamic else None

    @property
    def initial_scale(self) -> float:
        """The loss scale at the start of training."""
        return self._settings.initial_scale

    @property
    def dynamic_growth_steps(self) -> int | None:
        """Finite steps between two growths of the scale; None with a fixed scale.

        Can be set while the scale is dynamic, for all that share it; functions that are compiled
        already keep the old one.
        """
        return self._settings.dynamic_growth_steps

    @dynamic_growth_steps.setter
    def dynamic_growth_steps(self, value: int) -> None:
        if not self.dynamic:
            raise ValueError("dynamic_growth_steps cannot be set: this loss scale is fixed.")
        for each in self._group.optimizers if self.shares_scale else (self,):
            each._settings = each._settings.with_growth_steps(value)

    # -- state -----------------------------------------------------------------------------------

    def build(self, variables: Sequence[Any]) -> None:
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
        with self._native.lifted():
            if not inner.built:
                inner.build(variables)
        if [id(v) for v in inner._trainable_variables] != [id(v) for v in variables]:
            raise ValueError(
                f"The inner optimizer was built for {len(inner._trainable_variables)} other "
                f"variables than these {len(variables)}. Make a new optimizer for a new model."
            )
        # Past Keras' tracking, which would add the model's variables to the optimizer's own.
        object.__setattr__(self, "_trainable_variables", variables)
        object.__setattr__(
            self,
            "_trainable_variables_indices",
            {self._var_key(variable): i for i, variable in enumerate(variables)},
        )
        with self._native.lifted():
            self._add_diagnosis_variables()
        self.built = True
        devices.warn_if_still_undecided()
        with self._native.lifted():  # a trace of tf.function may be thrown away
            self._take_waiting()

    # -- the gradients ---------------------------------------------------------------------------

    def check_finite(self, grads: Sequence[Any]) -> Any:
        """Returns a bool of shape (): no inf and no nan in `grads`; None is passed over."""
        return self._native.all_finite(tensors_of(list(grads)))

    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> None:
        """Unscales `grads` and takes a step with them, unless one is not finite.

        Args:
            grads: Gradients of the scaled loss (`scale_loss`), one a variable; None for a variable
                that the loss does not depend on.
            trainable_variables: The variables, in the same order; all that the optimizer was built
                for if None.

        Raises:
            ValueError: A variable that the optimizer was not built for, or only None gradients.
        """
        self._warn_once(self._protocol.taken_as_scaled())
        self._apply(list(grads), trainable_variables, scaled=True)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
        *,
        gradients_scaled: bool | None = None,
    ) -> Any:
        """Takes a step with (gradient, variable) pairs, unless a gradient is not finite.

        Args:
            grads_and_vars: Iterable of pairs; a None gradient is passed over, no pairs is no step.
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
        """
        scaled, message = self._protocol.gradients_scaled(gradients_scaled)
        self._warn_once(message)
        if not experimental_aggregate_gradients and self._native.replicas() > 1:
            raise ValueError(
                "experimental_aggregate_gradients=False is not possible with more than one "
                "replica: Keras 3 optimizers always sum the gradients of the replicas. Hand over "
                "the gradients of each replica."
            )
        pairs = list(grads_and_vars)
        self._apply([g for g, _ in pairs], [v for _, v in pairs], scaled=scaled)
        return self.iterations

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> tuple[list[Any], list[Any]]:
        """`apply` without side effects, for functions that JAX transforms.

        Args:
            optimizer_variables: Values of `variables`, in their order.
            grads: Gradients of the scaled loss, one for each variable the optimizer was built for.
            trainable_variables: Values of these variables.

        Returns:
            The new values: (trainable_variables, optimizer_variables).

        Raises:
            ValueError: Not built, another number of values, or TensorFlow, where Keras has none.
        """
        values: tuple[list[Any], list[Any]] = keras.optimizers.Optimizer.stateless_apply(
            self,
            self._native.stateless_values(optimizer_variables),
            grads,
            self._native.stateless_values(trainable_variables),
        )
        return values

    def _apply(self, gradients: list[Any], variables: Any, *, scaled: bool) -> None:
        if not gradients:
            return
        variables = self._resolve(gradients, variables)
        if self._before_step is not None:
            self._before_step(variables)
        gradients = self._native.merged(tensors_of(gradients))
        native, inner = self._native, self.inner_optimizer
        scale = native.read(self.dynamic_scale) if scaled else None
        raw = list(map(overwritten, variables))
        plain = reference.is_taken()
        outcome = None if plain else self._fused_step(gradients, variables, scale)
        if not self._settings.skip_nonfinite:
            if outcome is None:
                ready = gradients if scale is None else native.unscale(gradients, scale, raw)
                native.apply(inner, ready, variables)
            return
        if outcome is None:
            room = reference if plain and native.replicas() == 1 else native
            outcome = room.apply_if_finite(inner, gradients, variables, scale, raw)
            if self._settings.count_skipped_steps:
                self._count_skip(outcome.finite)
        watched = self._settings.diagnose or self._recorded is not None
        before = ops.copy(native.read(self.dynamic_scale)) if watched else None
        if self.dynamic:
            self._after_step(outcome.finite)
        self._note_outcome(outcome, variables, before)

    def _resolve(self, gradients: list[Any], given: Any) -> list[Any]:
        if given is None:
            if not self.built:
                raise ValueError(
                    "apply(grads) without variables needs a built optimizer: call "
                    "`optimizer.build(model.trainable_variables)`, or hand over the variables."
                )
            given = self._trainable_variables
        variables = list(given)
        if len(gradients) != len(variables):
            raise ValueError(
                f"There are {len(gradients)} gradients for {len(variables)} variables; they must "
                "match one to one (None for a variable without a gradient)."
            )
        if not self.built:
            inner = self.inner_optimizer
            self.build(inner._trainable_variables if inner.built else variables)
        self._check_variables_are_known(variables)
        if all(gradient is None for gradient in gradients):
            paths = ", ".join(map(path, variables))
            raise ValueError(f"No gradients provided for any variable: {paths}.")
        return variables

    def _count_skip(self, finite: Any) -> None:
        if finite is True:
            return
        for optimizer in parts(self.inner_optimizer):
            if optimizer.built and not optimizer.gradient_accumulation_steps:
                counter = optimizer._iterations
                skipped = as_skipped(finite, counter)
                if optimizer.use_ema:  # Keras begins averages at iteration 0, and else at zeros
                    skipped = skipped * ops.cast(counter.value > 0, counter.dtype)
                counter.assign_add(skipped)

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
        arguments = dict(config)
        inner = arguments.get("inner_optimizer")
        if not isinstance(inner, keras.optimizers.Optimizer):
            from keras_mp.compat import configs  # late: pyproject.toml names it

            if configs.is_legacy(arguments):
                arguments = dict(configs.convert_loss_scale_config(arguments).config)
            if "inner_optimizer" not in arguments:
                raise ValueError(
                    f"A config of a LossScaleOptimizer has an inner_optimizer, but the keys are "
                    f"{', '.join(arguments)}. Of a serialized optimizer hand over its 'config'."
                )
            inner = keras.saving.deserialize_keras_object(
                arguments["inner_optimizer"], custom_objects=custom_objects
            )
        del arguments["inner_optimizer"]
        # Keras' own class, which has no floor, takes a scale below ours.
        if "dynamic" not in arguments and "min_scale" not in arguments:
            arguments["min_scale"] = min(1.0, arguments.get("initial_scale") or 1.0)
        # Keras 3 wrote the options of its base class too, at their defaults: they mean nothing.
        for option, default in BASE_OPTIONS.items():
            if option in arguments and arguments[option] == default:
                del arguments[option]
        return cls(inner, **arguments)


# The public home: what a config, a pickle and the documentation name. Doctest looks only for what
# is at home in a module, unless it is told.
LossScaleOptimizer.__module__ = "keras_mp"
__test__ = {"LossScaleOptimizer": LossScaleOptimizer}
keras.saving.register_keras_serializable(package="keras_mp")(LossScaleOptimizer)
