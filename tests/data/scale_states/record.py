"""Records loss scales of flax and jmp over 200 steps: run as `python record.py OUT.json`.

Written for flax 0.12.8 and jmp 0.0.4. The steps' gradients are finite or not as `finite` says.
"""

import dataclasses
import json
import pathlib
import random
import sys

import flax.serialization
import jax.numpy as jnp
import jmp
from flax.training.dynamic_scale import DynamicScale

random.seed(5)
FINITE = [random.random() < 0.8 for _ in range(200)]

CASES = {
    "flax_default": DynamicScale(),
    "flax_interval_3": DynamicScale(growth_interval=3),
    "flax_interval_1": DynamicScale(growth_interval=1, scale=jnp.float32(2.0**60)),
    "flax_saturated": DynamicScale(growth_interval=1, scale=jnp.float32(2.0**126)),
    "flax_under_way": DynamicScale(
        growth_interval=4, fin_steps=jnp.int32(3), scale=jnp.float32(8.0), minimum_scale=2.0
    ),
    "flax_factor_4": DynamicScale(growth_interval=2, growth_factor=4.0, backoff_factor=0.25),
    "flax_no_minimum": DynamicScale(growth_interval=9, scale=jnp.float32(4.0), minimum_scale=None),
    "jmp_default": jmp.DynamicLossScale(jnp.float32(2.0**15)),
    "jmp_period_3": jmp.DynamicLossScale(jnp.float32(2.0**10), period=3),
    "jmp_period_1": jmp.DynamicLossScale(jnp.float32(2.0**120), period=1),
    "jmp_under_way": jmp.DynamicLossScale(
        jnp.float32(8.0), counter=jnp.int32(3), period=4, factor=4, min_loss_scale=jnp.float32(0.25)
    ),
    "jmp_float16": jmp.DynamicLossScale(
        jnp.float16(2.0**15), period=2, min_loss_scale=jnp.float16(1.0)
    ),
    "jmp_static": jmp.StaticLossScale(jnp.float32(128.0)),
    "jmp_none": jmp.NoOpLossScale(),
}


def plain(value):
    return value if value is None or isinstance(value, (int, float)) else value.item()


def described(scale):
    names = [field.name for field in dataclasses.fields(scale)]
    return {name: plain(getattr(scale, name)) for name in names}


def after(scale, finite):
    if isinstance(scale, DynamicScale):
        factor = jnp.float32(1.0 if finite else jnp.nan)
        return scale.value_and_grad(lambda x: x * factor)(jnp.float32(1.0)).dynamic_scale
    return scale.adjust(jnp.asarray(finite))


recorded = {}
for name, scale in CASES.items():
    record = recorded[name] = {
        "module": type(scale).__module__,
        "class_name": type(scale).__name__,
        "fields": described(scale),
        "dtype": "float16" if name == "jmp_float16" else "float32",
    }
    if isinstance(scale, DynamicScale):
        state = flax.serialization.to_state_dict(scale)
        record["state_dict"] = {key: plain(value) for key, value in state.items()}
    record["trace"] = []
    for finite in FINITE:
        scale = after(scale, finite)
        found = described(scale)
        counter = found.get("fin_steps", found.get("counter", 0))
        record["trace"].append([found.get("scale", found.get("loss_scale", 1.0)), counter])
with pathlib.Path(sys.argv[1]).open("w") as file:
    json.dump({"finite": FINITE, "cases": recorded}, file)
