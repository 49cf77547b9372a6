"""Every argument of the constructor: what is taken, what is refused, and with which words."""

import subprocess
import sys

import numpy as np
import pytest

from keras_mp.settings import Settings, unknown_keywords
from tests import programs

DEFAULTS = {
    "dynamic": True,
    "initial_scale": 32768.0,
    "dynamic_growth_steps": 2000,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "min_scale": 1.0,
    "max_scale": None,
    "hysteresis": 1,
    "count_skipped_steps": True,
    "skip_nonfinite": True,
    "diagnose": False,
    "max_consecutive_skips": None,
    "fused": False,
}


def test_defaults_are_those_of_tensorflow():
    assert Settings.checked().as_config() == DEFAULTS


def test_the_constructor_has_the_defaults_of_the_table():
    program = """
import inspect
from dataclasses import fields
from keras_mp import LossScaleOptimizer
from keras_mp.settings import Settings
parameters = inspect.signature(LossScaleOptimizer).parameters
for each in fields(Settings):
    assert parameters[each.name].default == each.default, each.name
    assert getattr(LossScaleOptimizer, each.name).__doc__.startswith(each.metadata["meaning"])
left = set(parameters) - {each.name for each in fields(Settings)}
assert left == {"inner_optimizer", "name", "unknown"}, left
"""
    programs.run("-c", program)


def test_fixed_scale_has_no_growth():
    settings = Settings.checked(dynamic=False, initial_scale=128)
    assert (settings.initial_scale, settings.dynamic_growth_steps) == (128.0, None)


def test_numpy_scalars_become_python_numbers():
    settings = Settings.checked(
        dynamic=np.bool_(True),
        initial_scale=np.float32(4.0),
        dynamic_growth_steps=np.int64(7),
        max_scale=np.float64(8.0),
    )
    assert {k: type(v).__module__ for k, v in settings.as_config().items()} == dict.fromkeys(
        DEFAULTS, "builtins"
    )


@pytest.mark.parametrize("dynamic", [1024.0, 1, "dynamic", None, 0])
def test_dynamic_must_be_a_bool(dynamic):
    with pytest.raises(TypeError, match=r"dynamic must be True or False.*initial_scale="):
        Settings.checked(dynamic=dynamic)


@pytest.mark.parametrize(
    "value", [0, -8, float("inf"), float("nan"), 1e39, 1e-50, 1e-45, 10**400, -(10**400)]
)
@pytest.mark.parametrize("name", ["initial_scale", "min_scale", "max_scale"])
def test_scales_must_be_positive_and_finite(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be positive and finite.*got"):
        Settings.checked(**{name: value})


@pytest.mark.parametrize("value", ["1024", True, [1.0], 1j])
def test_scales_must_be_numbers(value):
    with pytest.raises(TypeError, match="initial_scale must be a number"):
        Settings.checked(initial_scale=value)


@pytest.mark.parametrize("value", [0, -3, 2.5, "2", True, float("nan"), float("inf")])
def test_growth_steps_must_be_a_whole_number(value):
    with pytest.raises(ValueError, match="dynamic_growth_steps must be an integer of at least 1"):
        Settings.checked(dynamic_growth_steps=value)


REFUSED = {
    "no fixed scale": ({"dynamic": False}, "initial_scale must be given"),
    "growth of a fixed scale": (
        {"dynamic": False, "initial_scale": 2, "dynamic_growth_steps": 3},
        "dynamic_growth_steps must be None",
    ),
    "growth factor": (
        {"growth_factor": 1.0},
        "growth_factor must be greater than 1 and finite, in float32, but got 1.0",
    ),
    "growth factor of 1 in float32": ({"growth_factor": 1 + 1e-9}, "in float32, but got 1.0000"),
    "growth factor beyond float32": (
        {"growth_factor": 1e39},
        r"finite, in float32, but got 1e\+39",
    ),
    "backoff factor of 1 in float32": ({"backoff_factor": 1 - 1e-9}, "in float32, but got 0.99"),
    "growth factor inf": ({"growth_factor": float("inf")}, "finite, in float32, but got inf"),
    "backoff factor": ({"backoff_factor": 1.0}, "backoff_factor must lie between 0 and 1"),
    "backoff factor below float32": ({"backoff_factor": 1e-50}, "in float32, but got 1e-50"),
    "backoff zero": ({"backoff_factor": 0.0}, "backoff_factor must lie between 0 and 1"),
    "min above max": ({"min_scale": 8, "max_scale": 4}, "min_scale must not exceed max_scale"),
    "below the floor": ({"initial_scale": 0.5}, "Set min_scale=0.5"),
    "above the cap": ({"initial_scale": 8, "max_scale": 4}, "Set max_scale=8.0"),
    "hysteresis": ({"hysteresis": 0}, "hysteresis must be an integer of at least 1"),
    "half a hysteresis": ({"hysteresis": 1.5}, "hysteresis must be an integer"),
    "hysteresis of a fixed scale": (
        {"dynamic": False, "initial_scale": 2, "hysteresis": 2},
        "hysteresis must be 1 when dynamic=False",
    ),
    "diagnosis without a guard": (
        {"dynamic": False, "initial_scale": 2, "skip_nonfinite": False, "diagnose": True},
        "diagnose and max_consecutive_skips need skip_nonfinite=True",
    ),
    "a limit of skips without a guard": (
        {"dynamic": False, "initial_scale": 2, "skip_nonfinite": False, "max_consecutive_skips": 3},
        "diagnose and max_consecutive_skips need skip_nonfinite=True",
    ),
    "no guard of a dynamic scale": ({"skip_nonfinite": False}, "needs dynamic=False"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(arguments, words):
    with pytest.raises(ValueError, match=words):
        Settings.checked(**arguments)


def test_fixed_scale_is_not_bound_by_the_limits():
    assert Settings.checked(dynamic=False, initial_scale=0.5).initial_scale == 0.5


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("clipnorm", "set it on the inner optimizer"),
        ("use_ema", "set it on the inner optimizer"),
        ("loss_scale", "write initial_scale="),
        ("loss_scale_factor", "write dynamic=False, initial_scale="),
        ("nonsense", "nonsense"),
    ],
)
def test_unknown_keywords_are_named(name, remedy):
    error = unknown_keywords([name])
    assert isinstance(error, TypeError)
    assert name in str(error)
    assert remedy in str(error)


@pytest.mark.parametrize(("module", "loads_keras"), [("settings", 0), ("policies.policy", 3)])
def test_needs_no_keras(module, loads_keras):
    # The second case checks the probe: it must be able to say yes.
    probe = f"import sys, keras_mp.{module}; sys.exit(3 * ('keras' in sys.modules))"
    environment = {"KERAS_BACKEND": "numpy", "PATH": "", "PYTHONPATH": programs.path()}
    assert subprocess.run([sys.executable, "-c", probe], env=environment).returncode == loads_keras


@pytest.mark.parametrize("name", ["count_skipped_steps", "skip_nonfinite"])
def test_flags_must_be_bools(name):
    with pytest.raises(TypeError, match=f"{name} must be True or False"):
        Settings.checked(**{name: 1})


def test_hysteresis_is_no_bool():
    with pytest.raises(ValueError, match="hysteresis must be an integer"):
        Settings.checked(hysteresis=True)


@pytest.mark.parametrize("name", ["learning_rate", "lr", "decay"])
def test_rates_belong_to_the_inner_optimizer(name):
    assert "set it on the inner optimizer" in str(unknown_keywords([name]))
