"""Steps on TensorFlow, each variant one `tf.function`, whose variables are filled for its turn."""

import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.on_a_gpu.models import batch_of
from benchmarks.on_a_gpu.policies import RATE, compiled, optimizers
from benchmarks.on_a_gpu.sizes import Size, Work
from benchmarks.on_a_gpu.states import remembered
from benchmarks.on_a_gpu.steps import Steps, Variants, WholePrograms
from benchmarks.train_step import makers


class TensorFlow(WholePrograms):
    """With XLA where `fit` has it by default: on a GPU."""

    def __init__(self, quick: bool) -> None:
        import tensorflow as tf

        devices = tf.config.list_physical_devices("GPU")
        self.cuda = self.xla = bool(devices)
        self.name = "cpu"
        if devices:
            details = tf.config.experimental.get_device_details(devices[0])
            self.name = details.get("device_name", "GPU")
        built = tf.sysconfig.get_build_info()
        self.versions = {"tensorflow": tf.__version__, "CUDA": built.get("cuda_version", "none")}
        self.failures = (RuntimeError, ValueError, tf.errors.OpError)
        self.filled: State | None = None

    def free(self) -> int | None:
        """Gives up the state of the last variant; None, as TensorFlow does not say what is free."""
        if self.filled is not None:
            self.filled.empty()
            self.filled = None
        gc.collect()
        return None

    def begin_peak(self) -> None:
        import tensorflow as tf

        if self.cuda:
            tf.config.experimental.reset_memory_stats("GPU:0")

    def peak(self, _: Steps) -> int | None:
        """Returns the most bytes that were in use since; None on a CPU."""
        import tensorflow as tf

        if not self.cuda:
            return None
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])

    def copying(self, elements: int) -> Steps:
        import tensorflow as tf

        given = tf.ones(elements)
        taken = [given]

        def take() -> None:
            taken[0] = tf.negative(given)  # a read and a write

        return Steps(take, tf.test.experimental.sync_devices, lambda: None)

    def updates(self, size: Size) -> Variants:
        import keras
        import tensorflow as tf

        shapes = size.shapes()
        variables = [keras.Variable("zeros", shape) for shape in shapes]
        for seed, variable in enumerate(variables):
            variable.assign(drawn(variable.shape, tf.float32, seed))
        gradients = [drawn(shape, tf.float32, -seed) for seed, shape in enumerate(shapes, 1)]

        def variant(make: Callable[[], Any], xla: bool) -> Callable[[], Steps]:
            optimizer = make()
            optimizer.build(variables)
            optimizer.scale_loss(1.0)  # which gradients of a loss have been through

            def step() -> None:
                optimizer.apply(gradients, variables)

            taken = tf.function(step, jit_compile=xla, autograph=False)
            return self._variant(taken, State([], optimizer.variables), optimizer)

        return {n: variant(*way) for n, way in self._ways(makers(RATE, 1.0)).items()}

    def training(self, size: Work, scale: float, policy: str = "float32") -> Variants:
        import tensorflow as tf

        batch = tuple(tf.constant(array) for array in batch_of(size))

        def variant(make: Callable[[], Any], xla: bool) -> Callable[[], Steps]:
            model, optimizer = compiled(policy, size, make, jit_compile=xla)
            trained = tf.function(model.train_step, jit_compile=xla, autograph=False)
            others = [*model.non_trainable_variables, *optimizer.variables]
            state = State(model.trainable_variables, others)
            return self._variant(functools.partial(trained, batch), state, optimizer)

        return {n: variant(*way) for n, way in self._ways(optimizers(policy, scale)).items()}

    def _ways(
        self, found: dict[str, Callable[[], Any]]
    ) -> dict[str, tuple[Callable[[], Any], bool]]:
        """Returns by variant what makes its optimizer, and whether XLA compiles the step.

        XLA has no fused kernels. What has them, and what that compares with, is a graph.
        """
        if not self.xla:
            return {name: (make, False) for name, make in found.items()}
        compiled = {name: (make, True) for name, make in found.items() if name != "ours, fused"}
        graphs = [name for name in ("plain", "ours", "ours, fused") if name in found]
        return compiled | {f"{name}, graph": (found[name], False) for name in graphs}

    def _variant(
        self, take: Callable[[], Any], state: "State", optimizer: Any
    ) -> Callable[[], Steps]:
        """Returns a function that fills the state, which is empty until then."""
        import tensorflow as tf

        state.empty()
        scaled = getattr(optimizer, "dynamic_scale", None)

        def start() -> Steps:
            self.free()
            self.filled = state
            state.fill()
            return Steps(
                take,
                tf.test.experimental.sync_devices,
                lambda: None if scaled is None else float(scaled.numpy()),
                lambda: getattr(optimizer, "fused_fallback", None),
            )

        return start


class State:
    """Variables that a function holds, but whose memory is given up between its turns."""

    def __init__(self, weights: Sequence[Any], others: Sequence[Any]) -> None:
        random = {id(variable.value) for variable in weights}
        found = {id(v.value): v.value for v in (*weights, *others)}  # some hold others' variables
        self.kept = [(v, remembered(v), key in random) for key, v in found.items()]

    def fill(self) -> None:
        """Begins again: large weights are random, what else is large is zero, the rest as kept."""
        import tensorflow as tf

        for seed, (variable, kept, random) in enumerate(self.kept):
            if not isinstance(kept, tuple):
                variable.assign(kept)
            elif random:
                put(variable, drawn(*kept, seed))
            else:
                put(variable, tf.zeros(*kept))

    def empty(self) -> None:
        import tensorflow as tf

        for variable, kept, _ in self.kept:
            if isinstance(kept, tuple):
                put(variable, tf.zeros((0,), variable.dtype))


def put(variable: Any, value: Any) -> None:
    """Gives a variable a value of any shape, which `assign` would refuse."""
    import tensorflow as tf

    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def drawn(shape: Any, dtype: Any, seed: int) -> Any:
    """Returns a small and random tensor on the device."""
    import tensorflow as tf

    return tf.random.stateless_normal(shape, (seed, 0), stddev=0.01, dtype=dtype)
