"""The rules of source migration, a module each: what old code becomes, and what a person must see.

How to add one is in CONTRIBUTING.md, under A rule for source code.
"""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple


class Rule(NamedTuple):
    """A rule.

    Attributes:
        module: Its module, which is loaded late, as it needs libcst.
        title: What it is about, for lists of rules.
        package: Where the module is, in keras_mp.migration.
    """

    module: str
    title: str
    package: str = "rules"

    def load(self) -> ModuleType:
        """Returns the module."""
        return importlib.import_module(f"keras_mp.migration.{self.package}.{self.module}")


# ID -> rule, in the order of lists of rules.
RULES: Mapping[str, Rule] = {
    "KMP001": Rule(
        "experimental_optimizers", "experimental LossScaleOptimizer to its new constructor"
    ),
    "KMP002": Rule("loss_scale_optimizers", "LossScaleOptimizer of TF 2.4 and later"),
    "KMP003": Rule("dtype_policies", "dtype policies"),
    "KMP004": Rule("setting_policies", "setting the global policy"),
    "KMP005": Rule("reading_policies", "reading the global policy"),
    "KMP006": Rule("layer_policies", "reading the policy of a layer"),
    "KMP007": Rule("loss_scale_classes", "loss scale classes"),
    "KMP008": Rule("optimizer_classes", "the class LossScaleOptimizer itself"),
    "KMP009": Rule("optimizer_attributes", "attributes of a wrapped optimizer"),
    "KMP010": Rule("graph_rewrite", "the graph rewrite"),
    "KMP011": Rule("graph_rewrite_switches", "switches of the graph rewrite"),
    "KMP012": Rule("training_loops", "training loops that scale the loss"),
    "KMP013": Rule("imports", "imports and names of modules"),
    "KMP014": Rule("version_checks", "code that asks for the version"),
    "KMP015": Rule("unknown_names", "names that have no counterpart"),
    "KMP016": Rule("mentions", "strings, comments, names of the program's own"),
    "KMP017": Rule("layer_attributes", "private names of layers about dtypes"),
    "KMP018": Rule("private_optimizer_attributes", "private names of optimizers"),
    "KMP019": Rule("modules_of_layers", "variables of a tf.Module that holds Keras layers"),
    "KMP020": Rule("other_packages", "Horovod and TensorFlow Addons"),
    # With --target: what keeps a program on TensorFlow.
    "KMP201": Rule("imports", "Keras by way of TensorFlow", "to_backend"),
    "KMP202": Rule("gradient_tapes", "gradient tapes", "to_backend"),
    "KMP203": Rule("train_steps", "train steps of a model", "to_backend"),
    "KMP204": Rule("tensorflow_ops", "operations of TensorFlow in a model", "to_backend"),
    "KMP205": Rule("compiled_functions", "functions that TensorFlow compiles", "to_backend"),
    "KMP206": Rule("variables", "variables of TensorFlow", "to_backend"),
    "KMP207": Rule("modules", "tf.Module", "to_backend"),
    "KMP208": Rule("checkpoints", "checkpoints of TensorFlow", "to_backend"),
    "KMP209": Rule("strategies", "tf.distribute", "to_backend"),
    "KMP210": Rule("summaries", "tf.summary", "to_backend"),
    "KMP211": Rule("saved_models", "SavedModels and signatures", "to_backend"),
    "KMP212": Rule("devices", "devices and settings of TensorFlow", "to_backend"),
    "KMP213": Rule("seeds", "seeds of TensorFlow", "to_backend"),
    "KMP214": Rule("backend_functions", "functions of tf.keras.backend", "to_backend"),
    "KMP215": Rule("horovod", "Horovod", "to_backend"),
}
