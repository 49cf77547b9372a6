"""Lists and audits artefacts of TF 1.15 to 2.15, without Keras or TensorFlow."""

from keras_mp.compat.inspecting.auditing import audit
from keras_mp.compat.inspecting.checkpoint import state_of_optimizers
from keras_mp.compat.inspecting.computed_layers import Computed
from keras_mp.compat.inspecting.findings import Audit, Finding
from keras_mp.compat.inspecting.functions import Function
from keras_mp.compat.inspecting.inspection import Damage, Inspection, Model, Optimizer, Tensor
from keras_mp.compat.inspecting.reading import inspect

__all__ = [
    "Audit",
    "Computed",
    "Damage",
    "Finding",
    "Function",
    "Inspection",
    "Model",
    "Optimizer",
    "Tensor",
    "audit",
    "inspect",
    "state_of_optimizers",
]
