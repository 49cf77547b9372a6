"""Likely problems in the optimizer of a mixed-precision model: one rule per function.

A rule reads `Facts` and yields findings. Numbers in the texts were measured on JAX, TensorFlow and
PyTorch.
"""

from collections.abc import Iterator

import keras

from keras_mp.backends.common.optimizers import class_path
from keras_mp.diagnosis.explanation import Finding
from keras_mp.diagnosis.facts import Facts, updated_in
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.optimizer.widened import bfloat16_paths, widened_paths
from keras_mp.policies import auto_wrapping


def no_loss_scale(facts: Facts) -> Iterator[Finding]:
    """float16 without a loss scale."""
    if not facts.loss_scale.needed or facts.loss_scale.present:
        return
    if facts.optimizer is None:
        yield Finding(
            "no_optimizer",
            "note",
            "optimizer",
            "the model computes in float16, and has no optimizer yet",
            "only training needs a loss scale",
            "pass keras_mp.LossScaleOptimizer(optimizer) to compile",
        )
        return
    name = facts.model.dtype_policy.name
    remedy = "keras_mp.LossScaleOptimizer(optimizer), or keras_mp.auto_wrap() before compile"
    if facts.rewritten:
        remedy = "keras_mp.graph_rewrite.enable(optimizer), or keras_mp.LossScaleOptimizer"
    if auto_wrapping.is_active() and not facts.is_compiled_in:
        compiling = "compile() would wrap it, because keras_mp.auto_wrap() is active"
    elif name == "mixed_float16" and not facts.is_compiled_in:
        compiling = "compile() would wrap it with Keras' own LossScaleOptimizer, which has no floor"
    elif name == "mixed_float16":
        compiling = (
            "compile() did not wrap it (auto_scale_loss=False, or a policy without loss scale)"
        )
    else:
        compiling = (
            "compile() wraps only where the model's own policy is called mixed_float16; this one's "
            f"is {name}"
        )
    yield Finding(
        "no_loss_scale",
        "error",
        "optimizer",
        "the model computes in float16, but nothing scales the loss",
        f"gradients below 6e-8 are 0 in float16, and those below 6e-5 lose bits. {compiling}",
        remedy,
    )


def repaired(facts: Facts) -> Iterator[Finding]:
    """Layers that compute in float32, or bfloat16, since a training that overflowed."""
    narrower = bfloat16_paths(facts.optimizer)
    for path in widened_paths(facts.optimizer) if facts.is_compiled_in else ():
        dtype = "bfloat16" if path in narrower else "float32"
        policy = "mixed_bfloat16" if path in narrower else "float32"
        remedy = f"write dtype={policy!r} where the program makes it, or paste `repairs.code()`"
        if facts.rewritten:
            remedy = f"pass deny_layers=({path!r},) to keras_mp.graph_rewrite.enable"
        yield Finding(
            "repaired",
            "note",
            path,
            f"it was repaired in training, and computes in {dtype} since",
            "it overflowed in float16: keras_mp.PrecisionRepair and keras_mp.repair did it",
            remedy,
        )


def unneeded_loss_scale(facts: Facts) -> Iterator[Finding]:
    """A loss scale without float16."""
    scale = facts.loss_scale
    if scale.needed is not False or not scale.present or scale.kind == "unknown":
        return
    if facts.rewritten:  # by the optimizer that scales
        return
    yield Finding(
        "unneeded_loss_scale",
        "note",
        "optimizer",
        "the loss is scaled, but nothing computes in float16",
        "harmless: bfloat16 and float32 do not need it. It costs a pass over the gradients and one "
        "branch per step; it also skips steps whose gradients are not finite",
        "pass the optimizer inside to compile, unless you want to skip such steps",
    )


def unguarded_fixed_scale(facts: Facts) -> Iterator[Finding]:
    """A fixed scale that lets inf and nan through."""
    optimizer, scale = facts.optimizer, facts.loss_scale
    remedy = (
        f"keras_mp.LossScaleOptimizer(optimizer, dynamic=False, initial_scale={scale.value}): "
        "skip_nonfinite is True by default"
    )
    if isinstance(optimizer, LossScaleOptimizer):
        if optimizer._settings.skip_nonfinite:
            return
        what = "a fixed loss scale with skip_nonfinite=False"
    elif scale.kind == "loss_scale_factor":
        what = f"loss_scale_factor={scale.value:g}, a fixed loss scale of Keras"
    else:
        return
    yield Finding(
        "unguarded_fixed_scale",
        "warning",
        "optimizer",
        what,
        "gradients that overflow are applied: one inf or nan stays in the weights forever",
        remedy,
    )


def double_scaling(facts: Facts) -> Iterator[Finding]:
    """A loss scale inside a loss scale."""
    optimizer = facts.optimizer
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return
    inner = optimizer.inner_optimizer
    if isinstance(inner, keras.optimizers.LossScaleOptimizer):
        what = f"a LossScaleOptimizer around a LossScaleOptimizer, {class_path(inner)}"
        factor = "by the scale of the inner one"
        remedy = "wrap the inner_optimizer of the inner one: keras_mp.LossScaleOptimizer(optimizer)"
    elif inner.loss_scale_factor is not None:
        what = f"loss_scale_factor={inner.loss_scale_factor:g} on the optimizer inside"
        factor = f"{inner.loss_scale_factor:g} times"
        remedy = "optimizer.inner_optimizer.loss_scale_factor = None"
    else:
        return
    yield Finding(
        "double_scaling",
        "error",
        "optimizer",
        what,
        f"the loss is scaled once and gradients are unscaled twice: they are too small {factor}",
        remedy,
    )


def no_floor(facts: Facts) -> Iterator[Finding]:
    """Keras' own LossScaleOptimizer."""
    if facts.loss_scale.kind != "keras.optimizers.LossScaleOptimizer":
        return
    yield Finding(
        "no_floor",
        "warning",
        "optimizer",
        "Keras' own LossScaleOptimizer",
        "it has no floor: 165 steps with an inf or a nan in a row take the scale to 0, and the "
        "next good step writes nan into all weights. It has no cap either",
        "keras_mp.LossScaleOptimizer(optimizer), or keras_mp.auto_wrap() before compile",
    )


# Measured with slots and epsilon in float16: Optimizer(0.01) on one weight, 10 equal gradients.
_SLOTS = {
    "Adam": "10 steps with gradients of 1e-3 move a weight by 59 instead of 0.1",
    "Nadam": "10 steps with gradients of 1e-3 move a weight by 652 instead of 0.08",
    "Adafactor": "gradients of 1e-4 and less give nan",
    "Adamax": "a gradient of 0 gives nan",
    "Lamb": "gradients of 1e-3 and less move nothing",
}


def float16_slots(facts: Facts) -> Iterator[Finding]:
    """Optimizers that square gradients, in float16."""
    if (
        not any(updated_in(facts, one, "float16") for one in facts.layers)
        or facts.optimizer is None
    ):
        return
    inner = getattr(facts.optimizer, "inner_optimizer", facts.optimizer)
    bases = (base.__name__ for base in type(inner).__mro__)
    measured = next((_SLOTS[name] for name in bases if name in _SLOTS), None)
    if measured is None:
        return
    epsilon = getattr(inner, "epsilon", None)
    with_epsilon = f" and epsilon={epsilon:g}" if isinstance(epsilon, float) else ""
    yield Finding(
        "float16_slots",
        "error",
        "optimizer",
        f"{type(inner).__name__} keeps its slots{with_epsilon} in float16, like its variables",
        f"the squares of small gradients underflow to 0 there: {measured}",
        "policy mixed_float16, whose variables and slots are float32",
    )


RULES = (
    no_loss_scale,
    repaired,
    unneeded_loss_scale,
    unguarded_fixed_scale,
    double_scaling,
    no_floor,
    float16_slots,
)
