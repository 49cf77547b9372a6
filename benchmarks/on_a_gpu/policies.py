"""The ways to 16 bits: the model under each, and the optimizers that go with it."""

from collections.abc import Callable
from typing import Any

from benchmarks.on_a_gpu.models import model_of
from benchmarks.on_a_gpu.sizes import Work
from benchmarks.train_step import makers

REWRITE, NARROW = "graph rewrite", "16-bit weights"
# In the order of what it is worth to know.
POLICIES = ("mixed_float16", "float32", "mixed_bfloat16", REWRITE, NARROW)
RATE = 1e-5


def under(policy: str, work: Work) -> Any:
    """Returns the model of some work with a policy; afterwards the global one is float32."""
    import keras

    import keras_mp

    chosen: Any = {REWRITE: "float32", NARROW: keras_mp.sixteen_bit_policy("bfloat16")}
    keras.config.set_dtype_policy(chosen.get(policy, policy))
    try:
        model = model_of(work)
    finally:
        keras.config.set_dtype_policy("float32")
    if policy == REWRITE:
        keras_mp.graph_rewrite.apply(model)
    return model


def compiled(policy: str, work: Work, make: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Returns a model of some work, like every other, and the optimizer of it that `make` makes.

    `options` are `compile`'s.
    """
    import keras

    keras.utils.set_random_seed(0)
    model, optimizer = under(policy, work), make()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, auto_scale_loss=False, **options)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def optimizers(policy: str, scale: float) -> dict[str, Callable[[], Any]]:
    """Returns what makes the optimizers of training steps under a policy, by variant."""
    import keras_mp

    found = makers(RATE, scale)
    if policy == REWRITE:
        return {name: make for name, make in found.items() if name.startswith("ours")}
    if policy == NARROW:
        plain = found["plain"]
        return {
            "MasterWeights": lambda: keras_mp.MasterWeights(plain()),
            "MasterWeights, split": lambda: keras_mp.MasterWeights(plain(), "split"),
            "StochasticRounding": lambda: keras_mp.StochasticRounding(plain()),
        }
    return found
