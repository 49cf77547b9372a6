"""Who takes the step in `benchmarks/step.py`: ours, Keras', and the peers that are installed."""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

RATE, SCALE = 0.01, 1024.0
# A variant -> the one that is the same without loss scaling, where that is not Keras' Adam.
OWN = {
    "ours, in fit": "plain, in fit",
    "ours, fused, in fit": "plain, in fit",
    "flax DynamicScale": "optax.adam",
    "jmp": "optax.adam",
    "optax.apply_if_finite": "optax.adam",
    "tf_keras LossScale": "tf_keras.Adam",
    "GradScaler, foreach": "torch Adam, foreach",
    "GradScaler, fused": "torch Adam, fused",
}
# They take XLA minutes to compile at 400 tensors: measured for few tensors only.
SLOW_TO_COMPILE = ("flax DynamicScale", "jmp")
OURS_AND_KERAS = ("plain", "Keras' own", "ours", "plain, in fit", "ours, in fit")
PACKAGES = {
    "jax": ("jax", "optax", "flax", "jmp"),
    "tensorflow": ("tensorflow-cpu", "tensorflow", "tf_keras"),
    "torch": ("torch",),
}


def of_backend(mode: str, dtype: str = "float32") -> dict[str, Callable[[list[Any]], Any]]:
    """Returns functions of the first weights, by name, for the backend of Keras; "plain" first.

    Those of peers are for float32 only.
    """
    import keras

    Keras.dtype = dtype
    makers = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}[keras.backend.backend()]
    found: dict[str, Callable[[list[Any]], Any]] = makers(mode)
    if dtype != "float32":
        return {name: make for name, make in found.items() if name in OURS_AND_KERAS}
    return found


def _optimizers() -> dict[str, Callable[[], Any]]:
    import keras

    import keras_mp

    def plain() -> Any:
        return keras.optimizers.Adam(RATE)

    def own() -> Any:
        return keras.optimizers.LossScaleOptimizer(plain(), initial_scale=SCALE)

    def ours() -> Any:
        return keras_mp.LossScaleOptimizer(plain(), initial_scale=SCALE)

    def fused() -> Any:
        return keras_mp.LossScaleOptimizer(plain(), initial_scale=SCALE, fused=True)

    return {"plain": plain, "Keras' own": own, "ours": ours, "ours, fused": fused}


class Keras:
    """An optimizer of Keras, or ours, and its variables."""

    dtype = "float32"  # of weights, slots and gradients

    def __init__(self, make: Callable[[], Any], weights: list[Any]) -> None:
        import keras

        self.variables = [keras.Variable(weight, dtype=self.dtype) for weight in weights]
        self.optimizer = make()
        self.guarded = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)
        self.optimizer.build(self.variables)
        self.optimizer.scale_loss(1.0)

    def given(self, gradients: list[Any], scale: float) -> list[Any]:
        """Returns gradients of the scaled loss."""
        import keras

        scaled = [np.asarray(g * np.float32(scale)) for g in gradients]
        return [keras.ops.cast(keras.ops.array(each), self.dtype) for each in scaled]

    def again(self, given: list[Any]) -> list[Any]:
        """Returns the same for another step, which may have changed them."""
        return given

    def scale(self) -> float:
        return float(self.optimizer.dynamic_scale.numpy()) if self.guarded else 1.0

    def weights(self) -> list[Any]:
        import keras

        return [np.array(keras.ops.convert_to_numpy(v.value)) for v in self.variables]

    def slots(self) -> list[Any]:
        import keras

        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        kept = (*inner._momentums, *inner._velocities)
        return [np.array(keras.ops.convert_to_numpy(v.value)) for v in kept]

    def wait(self) -> None:
        pass


# -- JAX -------------------------------------------------------------------------------------------


def _jax(mode: str) -> dict[str, Any]:
    import jax

    class Compiled(Keras):
        """State is given away to the step and comes back in the same order, as in `fit`.

        In another order XLA has weights written where moments were, and copies: a step of `few`
        takes four times as long.
        """

        def __init__(self, make: Any, weights: list[Any]) -> None:
            super().__init__(make, weights)
            self.compiled = lambda trained, gradients, state: self.optimizer.stateless_apply(
                state, gradients, trained
            )
            if mode == "jit":
                self.compiled = jax.jit(self.compiled, donate_argnums=(0, 2))
            self.state = [v.value for v in self.optimizer.variables]
            self.trained = [v.value for v in self.variables]

        def step(self, gradients: list[Any]) -> None:
            self.trained, self.state = self.compiled(self.trained, gradients, self.state)

        def wait(self) -> None:
            jax.block_until_ready((self.trained, self.state))

        def scale(self) -> float:
            self._sync()
            return super().scale()

        def weights(self) -> list[Any]:
            return [np.array(value) for value in self.trained]

        def slots(self) -> list[Any]:
            self._sync()
            return super().slots()

        def _sync(self) -> None:
            for variable, value in zip(self.optimizer.variables, self.state, strict=True):
                variable.assign(jax.numpy.copy(value))

    makers = _optimizers()
    del makers["ours, fused"]  # the same as ours: there is no kernel
    found = {name: lambda w, m=make: Compiled(m, w) for name, make in makers.items()}
    if mode == "jit" and importlib.util.find_spec("optax"):
        found |= _optax()
    return found


def _optax() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import optax

    class Optax:
        """`update(state, gradients, weights, scale)` -> (state, weights, scale)."""

        guarded = True

        def __init__(self, weights: list[Any], transformation: Any, update: Any) -> None:
            self._weights = [jnp.asarray(weight) for weight in weights]
            self.state = transformation.init(self._weights)
            self.loss_scale = jnp.float32(SCALE if self.guarded else 1.0)
            self.compiled = jax.jit(update, donate_argnums=(0, 2))

        def given(self, gradients: list[Any], scale: float) -> list[Any]:
            return [jnp.asarray(g * np.float32(scale)) for g in gradients]

        def again(self, given: list[Any]) -> list[Any]:
            return given

        def scale(self) -> float:
            return float(self.loss_scale)

        def step(self, gradients: list[Any]) -> None:
            self.state, self._weights, self.loss_scale = self.compiled(
                self.state, gradients, self._weights, self.loss_scale
            )

        def wait(self) -> None:
            jax.block_until_ready((self.state, self._weights))

        def weights(self) -> list[Any]:
            return [np.array(weight) for weight in self._weights]

        def slots(self) -> list[Any]:
            inner = getattr(self.state, "inner_state", self.state)
            return [np.array(leaf) for leaf in jax.tree.leaves((inner[0].mu, inner[0].nu))]

    adam = optax.adam(RATE, eps=1e-7)

    def plain(state: Any, gradients: Any, weights: Any, scale: Any) -> Any:
        changes, state = adam.update(gradients, state, weights)
        return state, optax.apply_updates(weights, changes), scale

    guarded = optax.apply_if_finite(adam, max_consecutive_errors=1_000_000)

    def if_finite(state: Any, gradients: Any, weights: Any, scale: Any) -> Any:
        changes, state = guarded.update([g / scale for g in gradients], state, weights)
        return state, optax.apply_updates(weights, changes), scale

    class Unguarded(Optax):
        guarded = False

    found: dict[str, Any] = {
        "optax.adam": lambda w: Unguarded(w, adam, plain),
        "optax.apply_if_finite": lambda w: Optax(w, guarded, if_finite),
    }

    def chosen(finite: Any, new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)

    if importlib.util.find_spec("jmp"):
        import jmp

        def by_jmp(state: Any, gradients: Any, weights: Any, scale: Any) -> Any:
            loss_scale = jmp.DynamicLossScale(scale)
            gradients = loss_scale.unscale(gradients)
            finite = jmp.all_finite(gradients)
            changes, new = adam.update(gradients, state, weights)
            updated = optax.apply_updates(weights, changes)
            new, updated = jmp.select_tree(finite, (new, updated), (state, weights))
            return new, updated, loss_scale.adjust(finite).loss_scale

        found["jmp"] = lambda w: Optax(w, adam, by_jmp)
    if importlib.util.find_spec("flax"):

        def by_flax(state: Any, gradients: Any, weights: Any, scale: Any) -> Any:
            # What DynamicScale.value_and_grad does with the gradients, and its documentation after.
            gradients = [g / scale for g in gradients]
            finite = jnp.array(True)
            for gradient in gradients:
                finite &= jnp.all(jax.lax.is_finite(gradient))
            changes, new = adam.update(gradients, state, weights)
            new, updated = chosen(
                finite, (new, optax.apply_updates(weights, changes)), (state, weights)
            )
            return new, updated, jnp.where(finite, scale, jnp.maximum(1.0, scale * 0.5))

        found["flax DynamicScale"] = lambda w: Optax(w, adam, by_flax)
    return found


# -- TensorFlow ------------------------------------------------------------------------------------


def _tensorflow(mode: str) -> dict[str, Any]:
    import tensorflow as tf

    class Traced(Keras):
        def __init__(self, make: Any, weights: list[Any]) -> None:
            super().__init__(make, weights)
            self.step = tf.function(
                lambda gradients: self.optimizer.apply(gradients, self.variables),
                jit_compile=mode == "xla",
                autograph=False,
            )

    makers = _optimizers()
    if mode == "xla":
        del makers["ours, fused"]  # the same as ours: XLA would copy the state around a kernel
    found: dict[str, Any] = {name: lambda w, m=make: Traced(m, w) for name, make in makers.items()}
    if importlib.util.find_spec("tf_keras"):
        import tf_keras

        class Old(Keras):
            def __init__(self, weights: list[Any], scaled: bool) -> None:
                self.variables = [tf.Variable(weight) for weight in weights]
                adam = tf_keras.optimizers.Adam(RATE, jit_compile=False)
                self.guarded = scaled
                self.optimizer = (
                    tf_keras.mixed_precision.LossScaleOptimizer(adam, initial_scale=SCALE)
                    if scaled
                    else adam
                )
                self.inner = adam
                adam.build(self.variables)
                if scaled:
                    self.optimizer.get_scaled_loss(tf.constant(0.0))  # or it warns

                def step(gradients: list[Any]) -> None:
                    if scaled:
                        gradients = self.optimizer.get_unscaled_gradients(gradients)
                    self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))

                self.step = tf.function(step, jit_compile=mode == "xla", autograph=False)

            def scale(self) -> float:
                return float(self.optimizer.loss_scale) if self.guarded else 1.0

            def weights(self) -> list[Any]:
                return [v.numpy() for v in self.variables]

            def slots(self) -> list[Any]:
                return [v.numpy() for v in (*self.inner._momentums, *self.inner._velocities)]

        found["tf_keras.Adam"] = lambda w: Old(w, False)
        found["tf_keras LossScale"] = lambda w: Old(w, True)
    return found


# -- torch -----------------------------------------------------------------------------------------


def _torch(mode: str) -> dict[str, Any]:
    import torch

    class Eager(Keras):
        """A loop of one's own: the gradients are the caller's."""

        def __init__(self, make: Any, weights: list[Any]) -> None:
            super().__init__(make, weights)
            self.taken = self.optimizer.apply
            if mode == "compile":
                torch._dynamo.reset()
                self.taken = torch.compile(self.optimizer.apply)

        def step(self, gradients: list[Any]) -> None:
            with torch.no_grad():
                self.taken(gradients, self.variables)

    makers = _optimizers()
    found: dict[str, Any] = {name: lambda w, m=make: Eager(m, w) for name, make in makers.items()}
    if mode == "compile":
        return found

    class InFit(Eager):
        """The gradients are the trainer's, which Keras' own `train_step` hands over."""

        def __init__(self, make: Any, weights: list[Any]) -> None:
            super().__init__(make, weights)
            self.model = _model(self.optimizer, self.variables)

        def again(self, given: list[Any]) -> list[Any]:
            return [gradient.clone() for gradient in given]

        def step(self, gradients: list[Any]) -> None:
            self.model.gradients = gradients
            self.model.train_step((torch.zeros(1, 1), torch.zeros(1, 1)))

    for name in ("plain", "ours", "ours, fused"):
        found[f"{name}, in fit"] = lambda w, m=makers[name]: InFit(m, w)

    class Torch:
        def __init__(self, weights: list[Any], scaled: bool, **kind: bool) -> None:
            self.parameters = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
            self.optimizer = torch.optim.Adam(self.parameters, RATE, eps=1e-7, **kind)
            self.guarded = scaled
            self.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, enabled=scaled)
            self.scaler.scale(torch.zeros(()))

        def given(self, gradients: list[Any], scale: float) -> list[Any]:
            return [torch.tensor(g * np.float32(scale)) for g in gradients]

        def again(self, given: list[Any]) -> list[Any]:
            return [gradient.clone() for gradient in given]

        def scale(self) -> float:
            return float(self.scaler.get_scale()) if self.guarded else 1.0

        def step(self, gradients: list[Any]) -> None:
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.grad = gradient
            self.scaler.step(self.optimizer)
            self.scaler.update()

        def wait(self) -> None:
            pass

        def weights(self) -> list[Any]:
            return [p.detach().numpy().copy() for p in self.parameters]

        def slots(self) -> list[Any]:
            kept = [self.optimizer.state[p] for p in self.parameters]
            return [s[name].numpy().copy() for s in kept for name in ("exp_avg", "exp_avg_sq")]

    for kind in ("foreach", "fused"):
        found[f"torch Adam, {kind}"] = lambda w, k=kind: Torch(w, False, **{k: True})
        found[f"GradScaler, {kind}"] = lambda w, k=kind: Torch(w, True, **{k: True})
    return found


def _model(optimizer: Any, variables: list[Any]) -> Any:
    """Returns a model whose `train_step`, Keras' own, has nothing to do but take the step."""
    import keras
    import torch

    class Backward:
        """A loss whose gradients are there already."""

        def __init__(self, model: Any) -> None:
            self.model = model

        def backward(self) -> None:
            for variable, gradient in zip(variables, self.model.gradients, strict=True):
                variable.value.grad = gradient

    class Nothing(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.gradients: list[Any] = []

        @property
        def trainable_weights(self) -> list[Any]:
            return variables

        def call(self, x: Any) -> Any:
            return x

        def zero_grad(self) -> None:
            pass

        def _compute_loss(self, **_: Any) -> Any:
            return torch.zeros(())

        def compute_metrics(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {}

    model = Nothing()
    model.compile(optimizer, "mse")
    model.built = True
    scale_loss = optimizer.scale_loss

    def scaled(loss: Any) -> Any:
        scale_loss(loss)
        return Backward(model)

    object.__setattr__(optimizer, "scale_loss", scaled)
    return model
