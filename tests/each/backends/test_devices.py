"""What is said, once, when float16 is slow here."""

import importlib
import logging
from types import SimpleNamespace

import keras
import pytest

import keras_mp
from keras_mp import backends
from keras_mp.backends.common import devices
from keras_mp.policies.policy import policy_scope, set_global_policy
from tests import programs

BACKEND = keras.backend.backend()
SLOW = "GeForce GTX 1080 has compute capability 6.1, float16 needs 7.0"
NO_GPU = f"this machine has no GPU ({BACKEND} sees only cpu)"

only_jax = pytest.mark.skipif(BACKEND != "jax", reason="about how jax finds its platforms")


@pytest.fixture(autouse=True)
def _restored_policy():
    set_global_policy(None)
    yield
    set_global_policy(None)


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch):
    monkeypatch.setattr(devices, "_warned", False)


@pytest.fixture
def machine(monkeypatch, request):
    """Gives the machine GPUs, each as (name, (major, minor)); a capability of None is unknown."""

    def on_jax(gpus):
        import jax

        def version(capability):
            return "gfx90a" if capability is None else ".".join(map(str, capability))

        found = [
            SimpleNamespace(
                platform="gpu", device_kind=name, compute_capability=version(capability)
            )
            for name, capability in gpus
        ]
        found = found or [SimpleNamespace(platform="cpu", device_kind="cpu")]
        monkeypatch.setattr(jax, "local_devices", lambda: found)
        platforms = jax.config.jax_platforms
        request.addfinalizer(lambda: jax.config.update("jax_platforms", platforms))
        jax.config.update("jax_platforms", None)
        monkeypatch.setattr(devices, "_jax_accelerators_installed", lambda: bool(gpus))

    def on_tensorflow(gpus):
        import tensorflow as tf

        found = [SimpleNamespace(device_type="GPU", row=row) for row in gpus]

        def list_devices(kind=None):
            return found if kind == "GPU" else [SimpleNamespace(device_type="CPU"), *found]

        def details(device):
            name, capability = device.row
            return {"device_name": name} | (
                {"compute_capability": capability} if capability else {}
            )

        monkeypatch.setattr(tf.config, "list_physical_devices", list_devices)
        monkeypatch.setattr(tf.config.experimental, "get_device_details", details)

    def on_torch(gpus):
        import torch

        unknown = any(capability is None for _, capability in gpus)
        monkeypatch.setattr(torch.version, "cuda", None if unknown or not gpus else "12.8")
        for platform in (torch.backends.mps, torch.xpu):
            monkeypatch.setattr(platform, "is_available", lambda: False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: gpus[index][0])
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: gpus[index][1])

    return {"jax": on_jax, "tensorflow": on_tensorflow, "torch": on_torch}[BACKEND]


class TestReason:
    @pytest.mark.parametrize(
        ("gpus", "reason"),
        [
            pytest.param([], NO_GPU, id="no gpu"),
            pytest.param([("GeForce GTX 1080", (6, 1))], SLOW, id="Pascal"),
            pytest.param([("H200", (9, 0)), ("GeForce GTX 1080", (6, 1))], SLOW, id="two kinds"),
            pytest.param([("V100", (7, 0))], None, id="Volta"),
            pytest.param([("B200", (10, 0))], None, id="two digits"),
            pytest.param([("MI250", None)], None, id="no capability"),
        ],
    )
    def test_is_the_slowest_device(self, machine, gpus, reason):
        machine(gpus)
        assert devices.slow_float16(initialize=True) == reason

    def test_of_a_machine_without_gpu_needs_no_initialisation(self, machine):
        machine([])
        assert devices.slow_float16(initialize=False) == NO_GPU

    def test_of_a_device_waits_for_initialisation(self, machine):
        machine([("GeForce GTX 1080", (6, 1))])
        # TensorFlow tells before.
        expected = SLOW if BACKEND == "tensorflow" else None
        assert devices.slow_float16(initialize=False) == expected

    @only_jax
    @pytest.mark.parametrize(
        ("platforms", "reason"),
        [("cpu", NO_GPU), ("cuda", None), ("cuda,cpu", None), ("", NO_GPU), (None, NO_GPU)],
    )
    def test_listens_to_the_platforms_of_jax(self, machine, platforms, reason):
        import jax

        machine([])
        jax.config.update("jax_platforms", platforms)
        assert devices.slow_float16(initialize=False) == reason

    @only_jax
    @pytest.mark.parametrize("module", ["jax_plugins", "libtpu"])
    def test_knows_installed_accelerators_of_jax(self, monkeypatch, module):
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == module or find(name))
        assert devices._jax_accelerators_installed()


STAYS_UNINITIALISED = {
    "jax": (
        "import os, jax; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=3'\n"
        "assert jax.device_count('cpu') == 3"
    ),
    "tensorflow": (
        "import tensorflow as tf; cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "two = [tf.config.LogicalDeviceConfiguration()] * 2\n"
        "tf.config.set_logical_device_configuration(cpu, two)"
    ),
    "torch": "import torch; assert not torch.cuda.is_initialized()",
}


@pytest.mark.parametrize(
    ("first", "fails"), [("policy", False), ("keras.ops.ones(1) + 1", BACKEND != "torch")]
)
def test_setting_a_policy_initialises_no_device(first, fails):
    # The second case checks the probe: it must be able to say no.
    if first == "policy":
        first = "keras_mp.policies.policy.set_global_policy('mixed_float16')"
    code = f"import keras, keras_mp.policies.policy\n{first}\n{STAYS_UNINITIALISED[BACKEND]}"
    done = programs.completed("-c", code, timeout=120, imported=True)
    assert bool(done.returncode) == fails, done.stderr


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.WARNING, logger="keras_mp")

    def said():
        assert {(record.name, record.levelname) for record in caplog.records} <= {
            ("keras_mp", "WARNING")
        }
        return [record.getMessage() for record in caplog.records]

    return said


class TestSlowDevice:
    @pytest.mark.parametrize("name", ["mixed_float16", "float16", "float8_from_mixed_float16"])
    @pytest.mark.parametrize("how", ["global", "scope"])
    def test_is_warned_about_once(self, machine, said, name, how):
        machine([])
        for _ in range(3):
            if how == "global":
                set_global_policy(name)
            else:
                with policy_scope(name):
                    pass
        (message,) = said()
        assert NO_GPU in message
        assert 'logging.getLogger("keras_mp").setLevel(logging.ERROR)' in message

    def test_is_warned_about_as_soon_as_it_is_known(self, machine, said):
        machine([("GeForce GTX 1080", (6, 1))])
        devices.warn_if_slow()
        devices.warn_if_slow(initialize=True)
        devices.warn_if_slow(initialize=True)
        (message,) = said()
        assert SLOW in message

    def test_a_fast_device_is_not(self, machine, said):
        machine([("H200", (9, 0))])
        devices.warn_if_slow(initialize=True)
        assert said() == []

    @pytest.mark.parametrize("name", ["mixed_bfloat16", "bfloat16", "float32", "float64", None])
    def test_other_policies_do_not_warn(self, machine, said, name):
        machine([])
        set_global_policy(name)
        with policy_scope(name):
            pass
        assert said() == []

    def test_can_be_silenced(self, machine, said):
        machine([])
        logger = logging.getLogger("keras_mp")
        logger.setLevel(logging.ERROR)
        set_global_policy("mixed_float16")
        assert said() == []
        logger.setLevel(logging.WARNING)
        set_global_policy("mixed_float16")
        assert len(said()) == 1


def test_the_optimizer_asks_again_when_it_is_built(monkeypatch):
    asked = []
    monkeypatch.setattr(devices, "warn_if_still_undecided", lambda: asked.append(True))
    keras_mp.LossScaleOptimizer(keras.optimizers.SGD()).build([keras.Variable(1.0)])
    assert asked


def test_what_could_not_be_known_is_asked_again(monkeypatch):
    calls = []
    monkeypatch.setattr(devices, "_undecided", False)
    monkeypatch.setattr(devices, "_warned", False)
    monkeypatch.setattr(devices, "slow_float16", lambda initialize: calls.append(initialize))
    devices.warn_if_still_undecided()
    assert calls == []
    devices.warn_if_slow()
    devices.warn_if_still_undecided()
    devices.warn_if_still_undecided()
    assert calls == [False, True]


def test_another_backend_of_keras_is_refused_with_those_there_are(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
    assert devices.slow_float16(initialize=True) is None
    with pytest.raises(
        RuntimeError, match=r"jax, tensorflow and torch, .* backend of Keras is numpy"
    ):
        backends.current()
