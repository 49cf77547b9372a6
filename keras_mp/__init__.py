"""Mixed precision for Keras 3 on JAX, TensorFlow and PyTorch.

Public names load on first use: importing keras_mp neither imports keras nor chooses a backend.
"""

import importlib
from typing import TYPE_CHECKING

from keras_mp import after_import

if TYPE_CHECKING:
    from keras_mp.diagnosis.benchmarking.comparing import benchmark as benchmark
    from keras_mp.diagnosis.benchmarking.report import BenchmarkReport as BenchmarkReport
    from keras_mp.diagnosis.explaining import explain as explain
    from keras_mp.diagnosis.explanation import Explanation as Explanation
    from keras_mp.diagnosis.overflow_search.report import OverflowReport as OverflowReport
    from keras_mp.diagnosis.overflow_search.search import find_overflow as find_overflow
    from keras_mp.diagnosis.ranges.report import (
        RangeReport as RangeReport,
        range_report as range_report,
    )
    from keras_mp.diagnosis.repair.callback import PrecisionRepair as PrecisionRepair
    from keras_mp.diagnosis.repair.repairing import repair as repair
    from keras_mp.float32_models import as_float32 as as_float32
    from keras_mp.monitor.callback import LossScaleMonitor as LossScaleMonitor
    from keras_mp.monitor.trace import Trace as Trace
    from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer as LossScaleOptimizer
    from keras_mp.optimizer.shared_loss_scale import SharedLossScale as SharedLossScale
    from keras_mp.policies.auto_wrapping import auto_wrap as auto_wrap
    from keras_mp.policies.policy import (
        Policy as Policy,
        global_policy as global_policy,
        policy_scope as policy_scope,
        set_global_policy as set_global_policy,
    )
    from keras_mp.sixteen_bit.memory import (
        MemoryReport as MemoryReport,
        memory_report as memory_report,
    )
    from keras_mp.sixteen_bit.policies import sixteen_bit_policy as sixteen_bit_policy
    from keras_mp.sixteen_bit.wrapper import (
        MasterWeights as MasterWeights,
        StochasticRounding as StochasticRounding,
        float32_weights_scope as float32_weights_scope,
    )
    from keras_mp.state.resuming import resume as resume
    from keras_mp.state.state_protection import (
        protect_state as protect_state,
        protect_state_scope as protect_state_scope,
    )

__version__ = "0.1.0"

_HOME = {
    "BenchmarkReport": "keras_mp.diagnosis.benchmarking.report",
    "Explanation": "keras_mp.diagnosis.explanation",
    "LossScaleMonitor": "keras_mp.monitor.callback",
    "LossScaleOptimizer": "keras_mp.optimizer.loss_scale_optimizer",
    "MasterWeights": "keras_mp.sixteen_bit.wrapper",
    "MemoryReport": "keras_mp.sixteen_bit.memory",
    "OverflowReport": "keras_mp.diagnosis.overflow_search.report",
    "Policy": "keras_mp.policies.policy",
    "PrecisionRepair": "keras_mp.diagnosis.repair.callback",
    "RangeReport": "keras_mp.diagnosis.ranges.report",
    "SharedLossScale": "keras_mp.optimizer.shared_loss_scale",
    "StochasticRounding": "keras_mp.sixteen_bit.wrapper",
    "Trace": "keras_mp.monitor.trace",
    "as_float32": "keras_mp.float32_models",
    "auto_wrap": "keras_mp.policies.auto_wrapping",
    "benchmark": "keras_mp.diagnosis.benchmarking.comparing",
    "explain": "keras_mp.diagnosis.explaining",
    "find_overflow": "keras_mp.diagnosis.overflow_search.search",
    "float32_weights_scope": "keras_mp.sixteen_bit.wrapper",
    "global_policy": "keras_mp.policies.policy",
    "memory_report": "keras_mp.sixteen_bit.memory",
    "policy_scope": "keras_mp.policies.policy",
    "protect_state": "keras_mp.state.state_protection",
    "protect_state_scope": "keras_mp.state.state_protection",
    "range_report": "keras_mp.diagnosis.ranges.report",
    "repair": "keras_mp.diagnosis.repair.repairing",
    "resume": "keras_mp.state.resuming",
    "set_global_policy": "keras_mp.policies.policy",
    "sixteen_bit_policy": "keras_mp.sixteen_bit.policies",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name in ("compat", "graph_rewrite", "monitor"):
        return importlib.import_module(f"keras_mp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'keras_mp' has no attribute {name!r}")
    try:
        module = importlib.import_module(_HOME[name])
    except ModuleNotFoundError as error:
        backend = (error.name or "").split(".")[0]
        if backend in ("jax", "tensorflow", "torch"):
            error.add_note(
                f"Keras is set to run on {backend}, which is not installed: pip install "
                f"'keras-mp[{backend}]', or set KERAS_BACKEND to jax, tensorflow or torch "
                "before keras is imported (its own default is tensorflow)."
            )
        raise
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register() -> None:
    # So that `keras.saving.load_model` finds our classes before user code has used them.
    importlib.import_module("keras_mp.optimizer.loss_scale_optimizer")
    importlib.import_module("keras_mp.sixteen_bit.wrapper")


def _register_compat() -> None:
    # Saved files name these classes, too. pyproject.toml allows this import of `compat`.
    import keras_mp.compat.registered  # noqa: F401


# In this order: compat derives classes from the optimizer, so its module must be complete.
after_import.call("keras_mp.optimizer.loss_scale_optimizer", _register_compat)
after_import.call("keras", _register)
