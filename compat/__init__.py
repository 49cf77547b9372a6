"""APIs, configs, optimizers and files of TF 1.15 to 2.15 on Keras 3; loss scales of other tools.

| package or module               | subject                                                      |
| ------------------------------- | ------------------------------------------------------------ |
| mixed_precision, train, v1      | TensorFlow's namespaces, name by name: the table is `names`  |
| legacy_classes                  | their classes: loss scales, loss-scale optimizers, policies  |
| optimizers, layers, activations | what trains as in Keras 2; saved files name these modules    |
| keras2                          | the rules, options and slots of those optimizers             |
| configs                         | serialized configs of Keras 2 into those of Keras 3          |
| checkpoints, file_formats       | files, read without TensorFlow or Keras                      |
| saved_graphs                    | functions of SavedModels, evaluated with keras.ops           |
| restoring, inspecting           | such files into a model; such files listed                   |
| interchange                     | the loss scale of torch, flax, jmp and Keras                 |

Modules and functions load on first use: this imports neither keras nor a framework.
"""

from typing import TYPE_CHECKING

from keras_mp.compat import names

if TYPE_CHECKING:
    from keras_mp.compat.interchange.readers import scale_state
    from keras_mp.compat.restoring.checkpoints import restore
    from keras_mp.compat.restoring.comparison import Differs
    from keras_mp.compat.restoring.models import load_model, load_weights
    from keras_mp.compat.restoring.plan import Restored, RestoreError, RestoreReport
    from keras_mp.policies.policy import policy_scope as PolicyScope

_MODULES = ["configs", "mixed_precision", "optimizers", "train", "v1"]

__all__ = [
    "Differs",
    "PolicyScope",
    "RestoreError",
    "RestoreReport",
    "Restored",
    "load_model",
    "load_weights",
    "restore",
    "scale_state",
]

__getattr__ = names.submodules(
    __name__,
    _MODULES,
    {
        "Differs": "keras_mp.compat.restoring.comparison:Differs",
        "PolicyScope": "keras_mp.policies.policy:policy_scope",
        "RestoreError": "keras_mp.compat.restoring.plan:RestoreError",
        "RestoreReport": "keras_mp.compat.restoring.plan:RestoreReport",
        "Restored": "keras_mp.compat.restoring.plan:Restored",
        "load_model": "keras_mp.compat.restoring.models:load_model",
        "load_weights": "keras_mp.compat.restoring.models:load_weights",
        "restore": "keras_mp.compat.restoring.checkpoints:restore",
        "scale_state": "keras_mp.compat.interchange.readers:scale_state",
    },
)
