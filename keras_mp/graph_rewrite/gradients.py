"""The training graph: what differentiation adds to the ops of a model.

TensorFlow's pass saw forward and backward in one graph, and so painted forward ops that lie between
an allow op and its gradient. These are the ops that TF 1.15's gradient functions make (python/ops/
math_grad.py, nn_grad.py, array_grad.py). They are painted only; what runs backward is the
backend's own differentiation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from keras_mp.graph_rewrite.graph import Graph, Op, Origin, Shape

Add = Callable[..., int]
"""add(name of a TensorFlow op, *vertices that it takes) -> its vertex."""


@dataclass(frozen=True, slots=True)
class _Call:
    """An op to be differentiated: vertices of its inputs (None: no op made it) and its output."""

    add: Add
    x: Sequence[int | None]
    y: int
    dy: int
    shapes: Sequence[Shape]
    shape: Shape

    def reduced(self, vertex: int, i: int) -> int:
        """Sums over the dimensions along which input `i` was broadcast."""
        if self.shapes[i] == self.shape:
            return vertex
        return self.add("Reshape", self.add("Sum", vertex))


_Rule = Callable[[_Call], "list[int | None]"]


def add_gradients(graph: Graph, vertices: Sequence[int], add: Add) -> None:
    """Adds the vertices of the loss and of every gradient of `graph`.

    The loss is one denied op: that is what every Keras loss ends in (Mean, Sum), and its gradient
    comes back through denied ops.

    Args:
        graph: The forward ops.
        vertices: The vertex of each op.
        add: Adds a vertex.
    """
    needed = _needed(graph)
    arriving: dict[int, list[int]] = {}
    made = [
        i
        for i, value in enumerate(graph.values)
        if value.op is not None and value.is_float32 and i in needed
    ]
    taken = {i for op in graph.ops for i in op.inputs}
    for i in made:
        producer = graph.values[i].op
        assert producer is not None
        # What no op takes goes into one that was not recorded, and that may be anything.
        if i in graph.losses:
            arriving.setdefault(i, []).append(add("Fill"))  # a sum of losses hands back ones
        elif i in graph.outputs or (i not in taken and i not in graph.assigned):
            arriving.setdefault(i, []).append(add("Sum", vertices[producer]))
    for index in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[index]
        incoming = [vertex for i in op.outputs for vertex in arriving.get(i, ())]
        floats = [i for i in op.inputs if graph.values[i].is_float32]
        if not incoming or not any(i in needed for i in floats):
            continue
        dy = incoming[0] if len(incoming) == 1 else add("AddN", *incoming)
        call = _Call(
            add,
            [_vertex(graph, vertices, i) for i in floats],
            vertices[index],
            dy,
            [graph.values[i].shape for i in floats],
            graph.values[op.outputs[0]].shape,
        )
        given = _rule(op, len(floats))(call)
        for i, vertex in zip(floats, given, strict=False):
            if vertex is not None and i in needed:
                arriving.setdefault(i, []).append(vertex)


def _vertex(graph: Graph, vertices: Sequence[int], i: int) -> int | None:
    op = graph.values[i].op
    return None if op is None else vertices[op]


def _needed(graph: Graph) -> frozenset[int]:
    needed: set[int] = set()
    for i, value in enumerate(graph.values):
        if value.trainable or value.origin is Origin.UNKNOWN:
            needed.add(i)
    for op in graph.ops:
        if op.name not in _CUT and any(i in needed for i in op.inputs):
            needed.update(op.outputs)
    return frozenset(needed)


def _rule(op: Op, floats: int) -> _Rule:
    if op.name == "resize":  # ResizeNearestNeighborGrad, ResizeBilinearGrad
        return _chain(f"{op.stands_for[0]}Grad")
    return _RULES.get(op.name) or (lambda call: _unknown(call, floats))


def _unknown(call: _Call, floats: int) -> list[int | None]:
    # It may be anything: denied, as that of every normalization and loss is.
    return [_of(call, "Sum", call.dy, *call.x) for _ in range(floats)]


def _of(call: _Call, name: str, *vertices: int | None) -> int:
    return call.add(name, *(vertex for vertex in vertices if vertex is not None))


def _unary(name: str, *takes: str) -> _Rule:
    """The gradient is one op; `takes` says what it sees beside the incoming one."""

    def rule(call: _Call) -> list[int | None]:
        seen = {"x": call.x[0], "y": call.y}
        return [_of(call, name, call.dy, *(seen[each] for each in takes))]

    return rule


def _chain(*names: str) -> _Rule:
    """The incoming gradient goes through these ops."""

    def rule(call: _Call) -> list[int | None]:
        vertex = call.dy
        for name in names:
            vertex = call.add(name, vertex)
        return [vertex] * len(call.x)

    return rule


def _passed(call: _Call) -> list[int | None]:
    return [call.reduced(call.dy, i) for i in range(len(call.x))]


def _subtract(call: _Call) -> list[int | None]:
    given: list[int | None] = [call.reduced(call.dy, 0)]
    if len(call.x) > 1:
        given.append(call.reduced(call.add("Neg", call.dy), 1))
    return given


def _multiply(call: _Call) -> list[int | None]:
    if len(call.x) == 1:
        return [call.reduced(call.add("Mul", call.dy), 0)]
    return [
        call.reduced(_of(call, "Mul", call.dy, call.x[1]), 0),
        call.reduced(_of(call, "Mul", call.dy, call.x[0]), 1),
    ]


def _divide(call: _Call) -> list[int | None]:
    if len(call.x) == 1:
        return [call.reduced(call.add("RealDiv", call.dy), 0)]
    x, y = call.x
    quotient = _of(call, "RealDiv", _of(call, "RealDiv", _of(call, "Neg", x), y), y)
    return [
        call.reduced(_of(call, "RealDiv", call.dy, y), 0),
        call.reduced(call.add("Mul", call.dy, quotient), 1),
    ]


def _power(call: _Call) -> list[int | None]:
    power = _of(call, "Pow", _of(call, "Sub", call.x[1] if len(call.x) > 1 else None), call.x[0])
    scaled = call.add("Mul", call.add("Mul", call.dy), power)
    return [call.reduced(scaled, i) for i in range(len(call.x))]


def _larger(call: _Call) -> list[int | None]:
    compared = _of(call, "GreaterEqual", *call.x)
    return [
        call.reduced(call.add("Select", compared, call.dy), i) for i in range(max(1, len(call.x)))
    ]


def _matmul(call: _Call) -> list[int | None]:
    if len(call.x) == 1:
        return [_of(call, "MatMul", call.dy)]
    given = [
        _of(call, "MatMul", call.dy, call.x[1]),
        _of(call, "MatMul", call.x[0], call.dy),
    ]
    if min(len(shape) for shape in call.shapes) > 2:
        # BatchMatMulV2 sums over the batch dimensions that were broadcast, even if none was.
        given = [call.add("Reshape", call.add("Sum", vertex)) for vertex in given]
    return [*given]


def _conv(call: _Call) -> list[int | None]:
    _, by_input, by_filter = _conv_names(call)
    return [
        _of(call, by_input, call.dy, *call.x[1:2]),
        _of(call, by_filter, call.x[0], call.dy),
    ]


def _conv_transpose(call: _Call) -> list[int | None]:
    conv, _, by_filter = _conv_names(call)
    return [
        _of(call, conv, call.dy, *call.x[1:2]),
        _of(call, by_filter, call.dy, call.x[0]),
    ]


def _conv_names(call: _Call) -> tuple[str, str, str]:
    if len(call.shapes[0]) == 5:
        return "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"
    return "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"


def _depthwise(call: _Call) -> list[int | None]:
    return [
        _of(call, "DepthwiseConv2dNativeBackpropInput", call.dy, *call.x[1:2]),
        _of(call, "DepthwiseConv2dNativeBackpropFilter", call.x[0], call.dy),
    ]


def _batch_norm(call: _Call) -> list[int | None]:
    # Scale, offset and statistics are of another type; their gradients are summed in float32.
    return [_of(call, "FusedBatchNormGradV3", call.dy, call.x[0])]


def _softmax(call: _Call) -> list[int | None]:
    summed = call.add("Sum", call.add("Mul", call.dy, call.y))
    return [call.add("Mul", call.add("Sub", call.dy, summed), call.y)]


def _log_softmax(call: _Call) -> list[int | None]:
    scaled = call.add("Mul", call.add("Exp", call.y), call.add("Sum", call.dy))
    return [call.add("Sub", call.dy, scaled)]


def _erf(call: _Call) -> list[int | None]:
    slope = call.add("Exp", call.add("Neg", _of(call, "Square", call.x[0])))
    return [call.add("Mul", call.dy, call.add("Mul", slope))]


def _square(call: _Call) -> list[int | None]:
    return [call.add("Mul", call.dy, _of(call, "Mul", call.x[0]))]


def _max(call: _Call) -> list[int | None]:
    chosen = call.add("", _of(call, "Equal", call.y, call.x[0]))  # a Cast, which is in no list
    share = call.add("RealDiv", chosen, call.add("Sum", chosen))
    return [call.add("Mul", share, call.add("Reshape", call.dy))]


def _log(call: _Call) -> list[int | None]:
    return [call.add("Mul", call.dy, _of(call, "Reciprocal", call.x[0]))]


def _abs(call: _Call) -> list[int | None]:
    return [call.add("Mul", call.dy, _of(call, "Sign", call.x[0]))]


def _silu(call: _Call) -> list[int | None]:
    slope = _of(call, "Mul", _of(call, "Sigmoid", call.x[0]), call.x[0])
    return [call.add("Mul", call.dy, slope)]


def _gelu(call: _Call) -> list[int | None]:
    return [call.add("Mul", call.dy, _erf(call)[0])]


def _where(call: _Call) -> list[int | None]:
    return [call.reduced(call.add("Select", call.dy), i) for i in range(len(call.x))]


def _concatenate(call: _Call) -> list[int | None]:
    return [_of(call, "Slice", call.dy) for _ in call.x]


_RULES: Mapping[str, _Rule] = {
    "matmul": _matmul,
    "dot": _matmul,
    "einsum": _matmul,
    "inner": _matmul,
    "tensordot": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "depthwise_conv": _depthwise,
    "batch_normalization": _batch_norm,
    "add": _passed,
    "subtract": _subtract,
    "multiply": _multiply,
    "dropout": _chain("Mul", "Mul"),
    "divide": _divide,
    "true_divide": _divide,
    "power": _power,
    "square": _square,
    "maximum": _larger,
    "minimum": _larger,
    "clip": _larger,
    "where": _where,
    "negative": _chain("Neg"),
    "abs": _abs,
    "absolute": _abs,
    "erf": _erf,
    "exp": _unary("Mul", "y"),
    "log": _log,
    "sqrt": _unary("", "y"),
    "rsqrt": _unary("", "y"),
    "sum": _chain("Reshape", "Tile"),
    "mean": _chain("Reshape", "Tile", "RealDiv"),
    "max": _max,
    "amax": _max,
    "min": _max,
    "amin": _max,
    "relu": _unary("ReluGrad", "y"),
    "relu6": _unary("Relu6Grad", "y"),
    "leaky_relu": _unary("LeakyReluGrad", "x"),
    "elu": _unary("EluGrad", "y"),
    "selu": _unary("SeluGrad", "y"),
    "sigmoid": _unary("SigmoidGrad", "y"),
    "silu": _silu,
    "gelu": _gelu,
    "softplus": _unary("SoftplusGrad", "x"),
    "softsign": _unary("SoftsignGrad", "x"),
    "tanh": _unary("TanhGrad", "y"),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "max_pool": _unary("MaxPoolGrad", "x", "y"),
    "average_pool": _unary("AvgPoolGrad"),
    "reshape": _chain("Reshape"),
    "ravel": _chain("Reshape"),
    "expand_dims": _chain("Reshape"),
    "squeeze": _chain("Reshape"),
    "transpose": _chain("Transpose"),
    "moveaxis": _chain("Transpose"),
    "swapaxes": _chain("Transpose"),
    "concatenate": _concatenate,
    "hstack": _concatenate,
    "vstack": _concatenate,
    "stack": _chain("Unpack"),
    "unstack": _chain("Pack"),
    "split": _chain("ConcatV2"),
    "get_item": _chain("StridedSliceGrad"),
    "slice": _chain("Pad"),
    "pad": _chain("Slice"),
    "tile": _chain("Reshape", "Sum"),
    "repeat": _chain("Reshape", "Sum", "Reshape"),
    "broadcast_to": _chain("Sum", "Reshape"),
    "flip": _chain("ReverseV2"),
    "copy": _chain("Identity"),
    "depth_to_space": _chain("SpaceToDepth"),
    "space_to_depth": _chain("DepthToSpace"),
    "moments": _chain("Reshape", "Tile", "RealDiv"),
}
_CUT = frozenset(
    {
        "argmax", "argmin", "ceil", "equal", "floor", "greater", "greater_equal", "isfinite",
        "isinf", "isnan", "less", "less_equal", "not_equal", "one_hot", "ones_like", "round",
        "sign", "stop_gradient", "zeros_like",
    }
)  # fmt: skip
