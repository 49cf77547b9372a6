"""The ops that the frameworks get: every op of a traced step, with its dtypes.

JAX: the lowered StableHLO, not the optimised one, in which XLA casts up for the CPU. TensorFlow:
the traced graph with its functions. torch: the ops that reach the dispatcher.
"""

import contextlib
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np

BACKEND = keras.backend.backend()

_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


@dataclass(frozen=True)
class Computed:
    """One op of the framework.

    Attributes:
        name: "dot_general", "BatchMatMulV2", "convolution_backward".
        dtypes: The floating-point dtypes of its inputs and outputs.
        grouped: Whether it is a grouped convolution, such as a depthwise one.
        summed: The numbers that a sum adds; 0 if unknown.
        of_booleans: Whether it sums the result of a comparison.
        fits: Whether float16 can hold each number of the operands; False if unknown.
    """

    name: str
    dtypes: frozenset[str]
    grouped: bool = False
    summed: int = 0
    of_booleans: bool = False
    fits: bool = False


_PRODUCTS = {
    "jax": {"dot_general", "convolution"},
    "tensorflow": {
        *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"),
        *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
        *("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
        *("Conv", "DepthwiseConv2dNative"),
        *("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
    },
    "torch": {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "convolution", "convolution_backward"},
}[BACKEND]
_EXPONENTIALS = {
    "jax": {"exponential", "log", "log_plus_one"},
    "tensorflow": {"Exp", "Log", "Log1p", "Softmax", "LogSoftmax"},
    "torch": {"exp", "log", "log1p", "logsumexp", "_softmax", "_log_softmax", "logaddexp"},
}[BACKEND]
_SUMS = {"jax": {"reduce_add"}, "tensorflow": {"Sum", "Mean"}, "torch": {"sum", "mean"}}[BACKEND]


def products(step: Sequence[Computed]) -> list[Computed]:
    """Returns the matrix products and convolutions, except grouped ones."""
    return [op for op in step if op.name in _PRODUCTS and not op.grouped]


def exponentials(step: Sequence[Computed]) -> list[Computed]:
    """Returns exponentials, logarithms and softmaxes."""
    return [op for op in step if op.name in _EXPONENTIALS]


def sums(step: Sequence[Computed]) -> list[Computed]:
    """Returns sums and means."""
    return [op for op in step if op.name in _SUMS]


def training_step(model, x, y) -> list[Computed]:
    """Returns the ops of a compiled model's training step, forward and backward."""
    if BACKEND == "jax":
        model._symbolic_build(data_batch=(x, y))
        state = model._get_jax_state(
            trainable_variables=True,
            non_trainable_variables=True,
            optimizer_variables=True,
            metrics_variables=True,
        )
        return _stablehlo(model.train_step, state, (x, y))
    if BACKEND == "tensorflow":
        model.train_on_batch(x, y)
        return _graph(lambda x, y: model.train_step((x, y)), x, y)
    model.train_on_batch(x, y)
    with dispatched() as ops:
        model.train_on_batch(x, y)
    return ops


def inference(model, x) -> list[Computed]:
    """Returns the ops of a call of the model."""
    if BACKEND == "jax":
        values = [[v.value for v in vs] for vs in _variables(model)]
        return _stablehlo(lambda t, n, x: model.stateless_call(t, n, x)[0], *values, x)
    if BACKEND == "tensorflow":
        return _graph(lambda x: model(x, training=False), x)
    model(x, training=False)
    with dispatched() as ops:
        model(x, training=False)
    return ops


def _variables(model):
    return model.trainable_variables, model.non_trainable_variables


def _stablehlo(function: Callable, *args) -> list[Computed]:
    import jax

    return parse_stablehlo(jax.jit(function).lower(*args).as_text())


def parse_stablehlo(text: str) -> list[Computed]:
    """Returns the ops in StableHLO text, those of functions and loop bodies once."""
    found, booleans = [], set()
    for line in text.splitlines():
        op = re.search(r"(?:(%\S+) = )?\"?stablehlo\.(\w+)", line)
        if op is None:
            continue
        result, name = op.groups()
        if name == "convert" and re.search(r"xi1>\) ->", line):
            booleans.add(result)
        dtypes = frozenset(_SHORT[t] for t in re.findall(r"tensor<(?:[\d?]+x)*(b?f16|f32)>", line))
        summed, of_booleans = 0, False
        if name == "reduce":
            reducer = re.search(r"applies stablehlo\.(\w+)", line)
            name = f"reduce_{reducer[1] if reducer else 'other'}"
            summed = _reduced(line)
            of_booleans = re.search(r"%\w+", line.partition("reduce")[2])[0] in booleans
        groups = [int(n) for n in re.findall(r"_group_count = (\d+)", line)]
        found.append(Computed(name, dtypes, max(groups, default=1) > 1, summed, of_booleans))
    return found


def _reduced(line: str) -> int:
    shape = re.search(r"\(tensor<((?:\d+x)*)", line)
    axes = re.search(r"dimensions = \[([\d, ]*)\]", line)
    if shape is None or axes is None:
        return 0
    sides = [int(side) for side in shape[1].split("x") if side]
    return math.prod(sides[int(axis)] for axis in axes[1].split(",") if axis.strip())


def _graph(function: Callable, *args) -> list[Computed]:
    import tensorflow as tf

    args = tf.nest.map_structure(tf.constant, args)
    graph = tf.function(function).get_concrete_function(*args).graph
    found = [_node(op.node_def, _ratio(op), _is_mask(op)) for op in _live(graph)]
    for body in graph.as_graph_def().library.function:
        found += [_node(node) for node in body.node_def]
    return found


def _live(graph):
    """Yields the ops that are used: the gradient of a Python number is not."""
    todo = [x.op for x in graph.outputs] + [op for op in graph.get_operations() if _acts(op)]
    seen = set()
    while todo:
        op = todo.pop()
        if op.name not in seen:
            seen.add(op.name)
            yield op
            todo += [x.op for x in op.inputs] + list(op.control_inputs)


def _acts(op) -> bool:
    return op.op_def.is_stateful and op.type != "Placeholder"


def _node(node, summed: int = 0, of_booleans: bool = False) -> Computed:
    import tensorflow as tf

    dtype = node.attr["T"].type
    return Computed(
        node.op,
        frozenset({tf.as_dtype(dtype).name} if dtype else ()),
        node.op.startswith("Depthwise"),
        summed,
        of_booleans,
    )


def _ratio(op) -> int:
    if op.type not in _SUMS:
        return 0
    taken, made = (x.shape.num_elements() for x in (op.inputs[0], op.outputs[0]))
    return taken // made if taken and made else 0


def _is_mask(op) -> bool:
    made_by = op.inputs[0].op if op.type in _SUMS else None
    return made_by is not None and made_by.type == "Cast" and made_by.inputs[0].dtype == "bool"


@contextlib.contextmanager
def dispatched():
    """Collects torch's ops in this block, forward and backward, in a list."""
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Computed] = []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            name = function.overloadpacket.__name__
            leaves = _pytree.tree_leaves((args, kwargs, result))
            tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
            groups = {"convolution": 8, "convolution_backward": 9}.get(name)
            found.append(
                Computed(
                    name,
                    frozenset(str(x.dtype)[6:] for x in tensors if x.is_floating_point()),
                    groups is not None and args[groups] > 1,
                    args[0].numel() // result.numel() if name in _SUMS else 0,
                    fits=name in _PRODUCTS
                    and all(fits(x, "float16") for x in args if isinstance(x, torch.Tensor)),
                )
            )
            return result

    with Note():
        yield found


@contextlib.contextmanager
def float16_on_cpu():
    """A scope in which Keras multiplies float16 matrices on the CPU, as on an accelerator.

    Keras' torch backend casts them to float32 if the device is the CPU.
    """
    if BACKEND != "torch":
        yield
        return

    class Device(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            return other != "cpu" and str(self) == other

    numpy, nn = (sys.modules[f"keras.src.backend.torch.{name}"] for name in ("numpy", "nn"))
    before = numpy.get_device
    numpy.get_device = nn.get_device = lambda: Device("cpu")
    try:
        yield
    finally:
        numpy.get_device = nn.get_device = before


def fits(x, dtype: str) -> bool:
    """Returns whether `dtype` can hold each number of an array."""
    wide = keras.ops.cast(x, "float32")
    narrow = keras.ops.cast(keras.ops.cast(wide, dtype), "float32")
    return np.array_equal(*map(keras.ops.convert_to_numpy, (wide, narrow)))
