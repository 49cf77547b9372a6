"""Automatic mixed precision for unmodified float32 models, by TensorFlow's graph-rewrite rules.

Public names load on first use: importing this imports no keras.

| module                          | subject |
| ------------------------------- | ------- |
| enabling, submodels             | `enable`, `apply`, `disable`: which models, and when |
| rewritten                       | a model whose `call` computes as painted |
| recording, examples, graph      | one call of the model as a graph of ops |
| keras_ops, decomposition, flops | which TensorFlow ops a Keras op stands for, and its cost |
| lists                           | Grappler's op lists |
| foreign_ops                     | ops of the framework itself |
| torch_lists, jax_primitives     | torch.autocast's lists; what primitives of JAX stand for |
| tf_ops                          | what ops of TensorFlow compute |
| gradients, loops, loop_calls    | what differentiation and loops add to the graph |
| painter                         | Grappler's passes, as one pure function |
| decisions                       | the dtype of each op, and why |
| replaying, half_precision_cache | runs the ops as decided |
| traced_steps                    | loop steps, traced once |
| tensors                         | the tensors among the arguments of an op |
| hooks                           | hooks into Keras and the frameworks |
| reporting, op_report            | `report`: the decisions, by layer and by op |
| painted_graph, folding          | the data of a report |
| report_text                     | the tables of a report |
| drawing, plotting               | a report as a picture |
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_mp.graph_rewrite.enabling import apply, disable, enable, is_enabled
    from keras_mp.graph_rewrite.reporting import Report, report

__all__ = ["Report", "apply", "disable", "enable", "is_enabled", "report"]

_HOME = dict.fromkeys(("apply", "disable", "enable", "is_enabled"), "enabling")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'reporting')}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
