"""Tells whether this machine computes float16 slowly, and warns once.

Asks the running backend's framework, and by default does not initialise its devices: on JAX,
`jax.distributed.initialize` must still be possible afterwards.
"""

import importlib.metadata
import importlib.util
import logging

import keras

_FAST = (7, 0)  # the first CUDA devices with float16 matrix units: Volta

_logger = logging.getLogger("keras_mp")
_warned = False
_undecided = False


def slow_float16(initialize: bool) -> str | None:
    """Returns why float16 is slow here, or None.

    Args:
        initialize: Whether the framework's devices may be initialised for the answer.

    Returns:
        The reason; None if float16 is fast, or if the answer needs devices to be initialised and
        `initialize` is False.
    """
    match keras.backend.backend():
        case "jax":
            return _slow_on_jax(initialize)
        case "tensorflow":
            return _slow_on_tensorflow()
        case "torch":
            return _slow_on_torch(initialize)
    return None


def warn_if_slow(initialize: bool = False) -> None:
    """Logs once per process, as a warning of the logger "keras_mp", why float16 is slow here.

    `logging.getLogger("keras_mp").setLevel(logging.ERROR)` silences it.
    """
    global _warned, _undecided
    if _warned or not _logger.isEnabledFor(logging.WARNING):
        return
    reason = slow_float16(initialize)
    if reason is None:
        _undecided = not initialize
        return
    _warned = True
    _logger.warning(
        "keras_mp: computing in float16 may be slow here: %s. "
        'logging.getLogger("keras_mp").setLevel(logging.ERROR) silences this',
        reason,
    )


def warn_if_still_undecided() -> None:
    """Checks again if the answer had to wait for the devices; called once variables exist."""
    if _undecided:
        warn_if_slow(initialize=True)


def _no_gpu(framework: str) -> str:
    return f"this machine has no GPU ({framework} sees only cpu)"


def _below_fast(name: str, capability: tuple[int, int]) -> str | None:
    if capability >= _FAST:
        return None
    present, needed = (".".join(map(str, version)) for version in (capability, _FAST))
    return f"{name} has compute capability {present}, float16 needs {needed}"


def _slow_on_jax(initialize: bool) -> str | None:
    import jax

    if not initialize:
        platforms = jax.config.jax_platforms
        only_cpu = platforms == "cpu" if platforms else not _jax_accelerators_installed()
        return _no_gpu("jax") if only_cpu else None
    devices = jax.local_devices()
    if all(device.platform == "cpu" for device in devices):
        return _no_gpu("jax")
    for device in devices:
        # "9.0" on CUDA; absent on TPU, and the name of an architecture on ROCm.
        match str(getattr(device, "compute_capability", "")).split("."):
            case [major, minor] if major.isdigit() and minor.isdigit():
                if reason := _below_fast(device.device_kind, (int(major), int(minor))):
                    return reason
    return None


def _jax_accelerators_installed() -> bool:
    return bool(importlib.metadata.entry_points(group="jax_plugins")) or any(
        importlib.util.find_spec(module) for module in ("jax_plugins", "libtpu")
    )


def _slow_on_tensorflow() -> str | None:
    import tensorflow as tf

    # Neither call initialises TensorFlow's runtime.
    devices = tf.config.list_physical_devices()
    if all(device.device_type == "CPU" for device in devices):
        return _no_gpu("tensorflow")
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        capability = details.get("compute_capability")
        if capability and (reason := _below_fast(details.get("device_name", "GPU"), capability)):
            return reason
    return None


def _slow_on_torch(initialize: bool) -> str | None:
    import torch

    if torch.backends.mps.is_available() or torch.xpu.is_available():
        return None
    # AMD GPUs have this name, too, and no compute capability.
    if torch.cuda.device_count() == 0:
        return _no_gpu("torch")
    if not initialize or torch.version.cuda is None:
        return None
    for index in range(torch.cuda.device_count()):
        capability = torch.cuda.get_device_capability(index)
        if reason := _below_fast(torch.cuda.get_device_name(index), capability):
            return reason
    return None
