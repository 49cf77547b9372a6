"""The training graph: the ops that differentiation adds to those of a model.

TensorFlow's pass saw forward and backward ops in one graph, and so painted forward ops between an
allow op and its gradient. The gradient ops here are those of TF 1.15's gradient functions (python/
ops/math_grad.py, nn_grad.py, array_grad.py). They are only painted; the backward pass itself is
the backend's own differentiation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from keras_mp.graph_rewrite.graph import Graph, Loop, Op, Origin, Shape, Value
from keras_mp.graph_rewrite.loops import Add, LoopVertices


@dataclass(frozen=True, slots=True)
class _Call:
    """An op to differentiate: vertices of its inputs (None: no op made it) and its output."""

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


def add_gradients(graph: Graph, loops: LoopVertices) -> None:
    """Adds the vertices of the loss and of every gradient of `graph`.

    The loss is one denied op: every Keras loss ends in one (Mean, Sum), and its gradient returns
    through denied ops. A loop runs backward as another loop; what it needs of each forward step
    comes from a stack.

    Args:
        graph: The forward ops.
        loops: Its loops; it also maps values to vertices, and adds vertices.
    """
    _Backward(graph, loops).run()


class _Backward:
    """The walk from the loss to the weights; `arriving` holds the gradients of each value."""

    def __init__(self, graph: Graph, loops: LoopVertices) -> None:
        self.graph = graph
        self.loops = loops
        self.needed = _needed(graph)
        self.arriving: dict[int, list[int]] = {}
        self._merges: dict[int, tuple[int, int]] = {}  # start of a state -> its Merge and Switch
        self._popped: dict[int, int] = {}
        self._inside = _innermost(graph)

    def run(self) -> None:
        self._seed()
        for index in range(len(self.graph.ops), -1, -1):
            for loop in reversed(self.graph.loops):
                if loop.first == index != loop.last:
                    self._leave(loop)
            for loop in reversed(self.graph.loops):
                if loop.first == index == loop.last:
                    self._enter(loop)
                    self._leave(loop)
            for loop in self.graph.loops:
                if loop.last == index != loop.first:
                    self._enter(loop)
            if index:
                self._differentiate(index - 1)

    def _seed(self) -> None:
        taken = _taken(self.graph)
        for i, value in enumerate(self.graph.values):
            vertex = self.loops.vertex(i)
            if vertex is None or not value.is_float32 or i not in self.needed:
                continue
            # A value that no op takes goes into an unrecorded op, which may be anything.
            unseen = i not in taken and i not in self.graph.assigned and not self._for_shapes(value)
            if i in self.graph.losses:
                self._arrive(i, self.loops.add("Fill"))  # a sum of losses returns ones
            elif i in self.graph.outputs or unseen:
                self._arrive(i, self.loops.add("Sum", vertex))

    def _for_shapes(self, value: Value) -> bool:
        """Returns whether a value that no op takes is known to be unused.

        The layer may ignore a loop's result. Before its loop a recurrent layer computes the first
        step of its sequence, and calls stacked cells, only for their shapes.
        """
        if value.op is None:
            return True
        layer = f"{self.graph.ops[value.op].layer}/"
        return any(
            value.op < loop.first and loop.name == "loop rnn" and layer.startswith(f"{loop.layer}/")
            for loop in self.graph.loops
        )

    def _arrive(self, value: int | None, vertex: int | None) -> None:
        if value is not None and vertex is not None and value in self.needed:
            self.arriving.setdefault(value, []).append(vertex)

    def _gradient(self, *values: int | None) -> int | None:
        """Returns the sum of the gradients that arrived at some values."""
        incoming = [each for i in values if i is not None for each in self.arriving.get(i, ())]
        return (
            self.loops.add("AddN", *incoming) if len(incoming) > 1 else next(iter(incoming), None)
        )

    def _differentiate(self, index: int) -> None:
        op = self.graph.ops[index]
        floats = [i for i in op.inputs if self.graph.values[i].is_float32]
        if not any(i in self.needed for i in floats):
            return
        dy = self._gradient(*op.outputs)
        if dy is None:
            return
        call = _Call(
            self.loops.add,
            [self._seen(self.loops.vertex(i), index) for i in floats],
            self._seen(index, index) or index,
            dy,
            [self.graph.values[i].shape for i in floats],
            self.graph.values[op.outputs[0]].shape,
        )
        for i, vertex in zip(floats, _rule(op, len(floats))(call), strict=False):
            self._arrive(i, vertex)

    def _seen(self, vertex: int | None, index: int) -> int | None:
        """Returns the vertex that an op's gradient reads for a vertex: in a loop, a stack's."""
        loop = self._inside.get(index)
        if vertex is None or loop is None or vertex not in self._made_in(loop):
            return vertex
        if vertex not in self._popped:
            push = self.loops.add("StackPushV2", vertex)
            pop = self.loops.add("StackPopV2", push)
            self.loops.pass_through("StackV2", push, pop)
            self._popped[vertex] = pop
        return self._popped[vertex]

    def _made_in(self, loop: Loop) -> set[int | None]:
        inside = range(loop.first, loop.last)
        values = [i for index in inside for i in self.graph.ops[index].outputs]
        handed_in = [state.start for state in loop.carried]
        handed_in += [each.element for each in filter(None, loop.read)]
        return {*inside, *map(self.loops.vertex, [*values, *handed_in])}

    def _enter(self, loop: Loop) -> None:
        add = self.loops.add
        for state in loop.carried:
            if state.start not in self.needed or not self.loops.is_float32(state.start):
                continue
            assert state.start is not None
            merge = add("Merge", add("Enter", self._gradient(state.after)))
            switch = add("Switch", merge)
            self._merges[state.start] = merge, switch
            if loop.masked:
                self._arrive(state.start, add("Select", switch))
            self._arrive(state.end, add("Select", switch) if loop.masked else switch)
        for each in filter(None, loop.written):
            sliced = self._gradient(each.last)
            if sliced is not None:
                self._arrive(each.whole, add("StridedSliceGrad", sliced))
            dy = self._gradient(each.whole)
            if dy is None:
                continue
            scatter = add("TensorArrayScatterV3", dy)
            read = add("TensorArrayReadV3", scatter)
            self.loops.pass_back(each.whole, scatter, read)
            self._arrive(each.element, add("Select", read) if loop.masked else read)

    def _leave(self, loop: Loop) -> None:
        add = self.loops.add
        for state in loop.carried:
            dy = self._gradient(state.start)
            if dy is None or state.start not in self._merges:
                continue
            merge, switch = self._merges[state.start]
            self.loops.feed_back(add("NextIteration", dy), merge)
            self._arrive(state.before, add("Exit", switch))
        for each in filter(None, loop.read):
            dy = self._gradient(each.element)
            if dy is None:
                continue
            write = add("TensorArrayWriteV3", dy)
            gather = add("TensorArrayGatherV3", write)
            self.loops.pass_back(each.element, write, gather)
            self._arrive(each.whole, gather)


def _innermost(graph: Graph) -> dict[int, Loop]:
    # An inner loop follows the loop around it.
    return {index: loop for loop in graph.loops for index in range(loop.first, loop.last)}


def _taken(graph: Graph) -> set[int | None]:
    taken: set[int | None] = {i for op in graph.ops for i in op.inputs}
    for loop in graph.loops:
        taken.update(i for state in loop.carried for i in (state.before, state.end))
        taken.update(each.whole for each in filter(None, loop.read))
        taken.update(each.element for each in filter(None, loop.written))
    return taken


def _needed(graph: Graph) -> frozenset[int]:
    needed: set[int] = set()
    for i, value in enumerate(graph.values):
        if value.trainable or value.origin is Origin.UNKNOWN:
            needed.add(i)
    flows = [*_flows(graph)]
    count = -1
    while count != len(needed):  # a loop's results feed earlier ops
        count = len(needed)
        for sources, targets in flows:
            if any(i in needed for i in sources):
                needed.update(i for i in targets if i is not None)
    return frozenset(needed)


def _flows(graph: Graph) -> Iterable[tuple[Sequence[int | None], Sequence[int | None]]]:
    """Yields (values, values that have a gradient if one of the former has)."""
    for op in graph.ops:
        if op.rule not in _CUT:
            yield op.inputs, op.outputs
    for loop in graph.loops:
        for state in loop.carried:
            yield (state.before, state.end), (state.start, state.after)
        for each in filter(None, loop.read):
            yield (each.whole,), (each.element,)
        for each in filter(None, loop.written):
            yield (each.element,), (each.whole, each.last)


def _rule(op: Op, floats: int) -> _Rule:
    if op.rule == "resize" and op.stands_for:  # ResizeNearestNeighborGrad, ResizeBilinearGrad
        return _chain(f"{op.stands_for[0]}Grad")
    return _RULES.get(op.rule) or (lambda call: _unknown(call, floats))


def _unknown(call: _Call, floats: int) -> list[int | None]:
    # It may be anything: denied, like the gradients of normalizations and losses.
    return [_of(call, "Sum", call.dy, *call.x) for _ in range(floats)]


def _of(call: _Call, name: str, *vertices: int | None) -> int:
    return call.add(name, *(vertex for vertex in vertices if vertex is not None))


def _unary(name: str, *takes: str) -> _Rule:
    """The gradient is one op; `takes` lists its inputs besides the incoming gradient."""

    def rule(call: _Call) -> list[int | None]:
        seen = {"x": call.x[0], "y": call.y}
        return [_of(call, name, call.dy, *(seen[each] for each in takes))]

    return rule


def _chain(*names: str) -> _Rule:
    """The incoming gradient passes through these ops."""

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
    # Scale, offset and statistics have another dtype; their gradients are summed in float32.
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
