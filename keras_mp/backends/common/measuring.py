"""What a benchmark reads from the device: its name, whether it is done, its memory."""

import gc
from dataclasses import dataclass

import keras


@dataclass(frozen=True, slots=True)
class Mark:
    """A device's memory at some time.

    Attributes:
        used: Bytes in use then.
        peak: Maximum since the process began, or since the peak was reset.
    """

    used: int
    peak: int


def device() -> str:
    """Returns the name of Keras' device: "cpu", or that of an accelerator."""
    match keras.backend.backend():
        case "jax":
            import jax

            first = jax.local_devices()[0]
            return "cpu" if first.platform == "cpu" else str(first.device_kind)
        case "tensorflow":
            import tensorflow as tf

            gpus = tf.config.list_physical_devices("GPU")
            if not gpus:
                return "cpu"
            details = tf.config.experimental.get_device_details(gpus[0])
            return str(details.get("device_name", "GPU"))
        case _:
            import torch

            if torch.cuda.is_available():
                return str(torch.cuda.get_device_name())
            return "mps" if torch.backends.mps.is_available() else "cpu"


def wait() -> None:
    """Waits until the device is done. On JAX, reading a result waits already.

    A compiled step of JAX is one program: its loss is available when all of it is done.
    """
    match keras.backend.backend():
        case "tensorflow":
            import tensorflow as tf

            if tf.config.list_physical_devices("GPU"):
                tf.test.experimental.sync_devices()
        case "torch":
            import torch

            if torch.cuda.is_available():
                torch.cuda.synchronize()
            elif torch.backends.mps.is_available():
                torch.mps.synchronize()


def mark() -> Mark | None:
    """Returns the device's current memory, and resets the peak where that is possible.

    None on a CPU, whose memory is not measured.
    """
    gc.collect()
    if keras.backend.backend() == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            tf.config.experimental.reset_memory_stats("GPU:0")
    return _now()


def peak_since(before: Mark) -> int | None:
    """Returns the peak since `before`, in bytes above it.

    None if unknown: JAX keeps one peak for the whole process, which was higher before.
    """
    now = _now()
    if now is None or (keras.backend.backend() == "jax" and now.peak <= before.peak):
        return None
    return max(0, now.peak - before.used)


def _now() -> Mark | None:
    match keras.backend.backend():
        case "jax":
            import jax

            statistics = jax.local_devices()[0].memory_stats() or {}
            if "peak_bytes_in_use" not in statistics:
                return None
            return Mark(int(statistics["bytes_in_use"]), int(statistics["peak_bytes_in_use"]))
        case "tensorflow":
            import tensorflow as tf

            if not tf.config.list_physical_devices("GPU"):
                return None
            statistics = tf.config.experimental.get_memory_info("GPU:0")
            return Mark(int(statistics["current"]), int(statistics["peak"]))
        case _:
            import torch

            if not torch.cuda.is_available():
                return None
            return Mark(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
