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
        package: The one its module is in: "rules"; "keras3" of what --keras3 asks for, and
            "to_backend" of what --target does.
    """

    module: str
    title: str
    package: str = "rules"

    @property
    def path(self) -> str:
        """The full name of its module."""
        return f"keras_mp.migration.{self.package}.{self.module}"

    def load(self) -> ModuleType:
        """Returns the module."""
        return importlib.import_module(self.path)


# ID -> rule, in the order of lists of rules. Its module's docstring begins with the ID, too.
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
    # With --keras3: what else Keras 3 changed.
    "KMP101": Rule("gone_names", "names that Keras 3 does not have", "keras3"),
    "KMP102": Rule("moved_names", "names that Keras 3 has elsewhere", "keras3"),
    "KMP103": Rule("private_modules", "private modules of Keras", "keras3"),
    "KMP104": Rule("gone_arguments", "arguments that Keras 3 rejects or ignores", "keras3"),
    "KMP105": Rule("renamed_arguments", "arguments with another name, or none", "keras3"),
    "KMP106": Rule("argument_positions", "arguments whose position means something else", "keras3"),
    "KMP107": Rule("renamed_members", "methods and attributes with another name", "keras3"),
    "KMP108": Rule("gone_members", "methods and attributes that are gone", "keras3"),
    "KMP109": Rule("saved_formats", "files that Keras 3 does not write or read", "keras3"),
    "KMP110": Rule("own_optimizers", "optimizers of the program's own", "keras3"),
    "KMP111": Rule("layers_in_modules", "layers of Keras in a tf.Module", "keras3"),
    "KMP112": Rule("layer_calls", "calls of layers with what is no tensor", "keras3"),
    "KMP113": Rule("base_constructors", "self given to a constructor of Keras", "keras3"),
    "KMP114": Rule("symbolic_tensors", "functions of TensorFlow on KerasTensors", "keras3"),
    "KMP115": Rule("untracked_variables", "tf.Variable in a layer or a model", "keras3"),
    "KMP116": Rule(
        "shapes_and_dtypes", "shapes that are tuples, dtypes that are strings", "keras3"
    ),
    "KMP117": Rule("identifiers", "strings that stand for losses and others", "keras3"),
    "KMP118": Rule("legacy_keras", "programs that ask for Keras 2", "keras3"),
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
_IDS = {rule.path: name for name, rule in RULES.items()}


def id_of(rule: ModuleType) -> str:
    """Returns the ID of a rule."""
    return _IDS[rule.__name__]
